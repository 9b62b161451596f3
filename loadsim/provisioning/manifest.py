"""The manifest in each mailbox: the folders that loadsim created there, and so may delete, and the state that it left.

It is a message in a folder of its own, written before the folders that it names are created. An interruption in between
leaves names of folders that do not exist, which does no harm. It names only folders that LIST did not show.

A manifest has a signature (HMAC-SHA256) of the account's address and the names. So no other message, and no manifest
of another account, can name folders for deletion.

The manifest of the first account of a run also has its holder: the process at work on the accounts (`hold`).

After a mailbox was brought to its start state, the manifest has a record of it: the digest of the start state, and the
status of each folder. A folder of which the status is unchanged has unchanged contents, and need not be listed.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from loadsim.errors import ConfigError, ServerRefused
from loadsim.model.content import headers
from loadsim.model.message_tag import HEADER, INITIAL_RUN, MessageTag, body_digest, initial_id
from loadsim.model.ports import INBOX, Account, Flag, FolderStatus, Part, Provisioning, Stored
from loadsim.model.workload import may_be_made
from loadsim.provisioning.holder import Holder
from loadsim.provisioning.sessions import name_of
from loadsim.timinglog.json_checks import unique_keys

FOLDER = "LoadSim"
"""The manifest's folder. It is not part of the start state; it is ours if it holds nothing else."""

KIND = "manifest"

LARGEST_BYTES = 1 << 20
"""The largest body that is read: with names such as "Folder 01", some 70,000 folders."""

_DATE_US = 1_761_955_200_000_000
"""2025-11-01 00:00 UTC: constant, so that a manifest depends on account, names and key only."""

_PURPOSE = b"loadsim manifest 1\n"
"""Prefix of the signed text, so that the key, perhaps a password, signs nothing else of the same form."""


class RejectedManifest(Exception):
    """A message that claims to be a manifest is not accepted; `str()` is the reason, which does not quote it."""


@dataclass(frozen=True, slots=True)
class Record:
    """The digest of the start state to which a mailbox was brought, and the status of its folders then.

    The folder of the manifest is left out, since writing the record changes it.
    """

    start_state: str
    status: Mapping[str, FolderStatus]

    def unchanged(self, status: Mapping[str, FolderStatus | None]) -> frozenset[str]:
        """Return the folders that have the same contents as in the record, by the present status.

        Without `modseq`, a changed flag may not show. The Inbox, where flags decide what users do, is left out then.
        """
        same = {folder for folder, now in status.items() if now is not None and self.status.get(folder) == now}
        return frozenset(folder for folder in same if folder != INBOX or self.status[folder].modseq is not None)


class Body(NamedTuple):
    """The parsed body of a manifest: folders, its record, and its holder."""

    names: frozenset[str]
    record: Record | None
    holder: Holder | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest that is accepted: its message, and what its body has."""

    message: Stored
    names: frozenset[str]
    record: Record | None = None
    holder: Holder | None = None


def holder_of(manifests: Iterable[Manifest]) -> Holder | None:
    """Return the holder in the first of these manifests that has one."""
    return next((each.holder for each in manifests if each.holder is not None), None)


def refusal(account: Account, manifests: Iterable[Manifest]) -> ConfigError | None:
    """Return the error if a process other than this one, and its parent, is at work on the accounts; else None."""
    holder = holder_of(manifests)
    return None if holder is None or holder.ours or holder.gone else in_use(account, holder)


def in_use(account: Account, found: object) -> ConfigError:
    return ConfigError(f"{name_of(account)}: expected that no other loadsim uses it, found {found}")


def is_manifest(message: Stored) -> bool:
    """Return whether a message claims to be a manifest. (A killed `write` leaves two; both count.)"""
    evidence = message.evidence
    return evidence is not None and evidence.run == INITIAL_RUN and evidence.kind == KIND


async def read(mailbox: Provisioning, account: Account, own: Sequence[Stored]) -> tuple[list[Manifest], list[str]]:
    """Return the manifests among these messages, and the reasons why others are not accepted."""
    accepted: list[Manifest] = []
    reasons: list[str] = []
    for message in filter(is_manifest, own):
        try:
            body = parse(await _body(mailbox, message), account, mailbox.folder_at)
        except RejectedManifest as reason:
            reasons.append(str(reason))
        else:
            accepted.append(Manifest(message, *body))
    return accepted, reasons


_TEXT = Part("TEXT", "text/plain", 0)
"""All of a message behind its header (RFC 9051 section 6.4.5.1)."""


async def _body(mailbox: Provisioning, message: Stored) -> bytes:
    """Fetch a manifest's body, which must match its evidence except for line ends that servers drop or add."""
    try:
        body = bytes(await mailbox.part(message.ref, _TEXT)).rstrip(b"\r\n")
    except ServerRefused:
        raise RejectedManifest("expected a body, found none") from None
    if len(body) > LARGEST_BYTES:
        raise RejectedManifest(f"expected at most {LARGEST_BYTES} bytes, found {len(body)}")
    assert message.evidence is not None
    if message.evidence.body not in (body_digest(body), body_digest(body + b"\r\n")):
        raise RejectedManifest("its body does not match its evidence")
    return body


def parse(body: bytes, account: Account, folder_at: Callable[[str], str] = str) -> Body:
    """Return the contents of a manifest's body. Raises `RejectedManifest` for anything else.

    `folder_at` returns the folder with a path; the manifest has paths.
    """
    try:
        document = json.loads(body.decode("ascii"), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError):  # also raised for a number of 5,000 digits
        raise RejectedManifest("expected a JSON object with each key once") from None
    if not isinstance(document, dict) or document.keys() - {"holder"} not in _KEYS:
        raise RejectedManifest("expected the keys account, folders and signature")
    paths = document["folders"]
    if not isinstance(paths, list) or not all(
        isinstance(path, str) and (may_be_made(path) or may_be_made(folder_at(path))) for path in paths
    ):
        raise RejectedManifest(
            "expected names of folders that profiles have, or the scenario's `folders`, found another"
        )
    names = frozenset(map(folder_at, paths))
    signature, content = document.pop("signature"), document
    if (
        document["account"] != account.address.lower()
        or not isinstance(signature, str)
        or not hmac.compare_digest(signature.encode(errors="replace"), _signature(account, content).encode())
    ):
        raise RejectedManifest(
            "its signature is not of this account and this key (accounts.manifest_key, or the password)"
        )
    return Body(names, _record(document.get("start_state"), folder_at), _holder(document.get("holder")))


_KEYS = (
    {"account", "folders", "signature"},
    {"account", "folders", "signature", "start_state"},
)


def _holder(found: Any) -> Holder | None:
    """Return the holder in a signed manifest; None if it has none, or another version of loadsim wrote it."""
    with suppress(TypeError):
        return Holder(**found)
    return None


def _record(found: Any, folder_at: Callable[[str], str]) -> Record | None:
    """Return the record in a signed manifest; None if it has none, or another version of loadsim wrote it."""
    match found:
        case {"digest": str() as digest, "status": dict() as status}:
            numbers = [value for value in status.values() if isinstance(value, list) and len(value) == 5]
            if len(numbers) == len(status):
                return Record(digest, {folder_at(path): FolderStatus(*value) for path, value in status.items()})
    return None


def _signature(account: Account, content: Mapping[str, Any]) -> str:
    signed = {**content, "folders": sorted(content["folders"])}
    canonical = json.dumps(signed, sort_keys=True, separators=(",", ":")).encode("ascii")
    key = account.password if account.manifest_key is None else account.manifest_key
    return hmac.new(key.encode(), _PURPOSE + canonical, sha256).hexdigest()


async def write(
    mailbox: Provisioning,
    account: Account,
    names: Iterable[str],
    record: Record | None = None,
) -> None:
    """Replace the accepted manifests by one of these names with the same holder. The manifest's folder must exist."""
    accepted, _ = await read(mailbox, account, (await mailbox.listing([FOLDER]))[FOLDER])
    await replace(mailbox, account, accepted, names, record, holder_of(accepted))


async def replace(
    mailbox: Provisioning,
    account: Account,
    accepted: Sequence[Manifest],
    names: Iterable[str],
    record: Record | None,
    holder: Holder | None,
) -> None:
    """Replace these manifests by one with these contents."""
    paths = [mailbox.path(name) for name in names]
    status = {mailbox.path(folder): status for folder, status in record.status.items()} if record else {}
    evidence, message = compose(account, paths, None if record is None else Record(record.start_state, status), holder)
    old = [each.message for each in accepted]
    if all(each.evidence != evidence for each in old):
        await mailbox.append(FOLDER, message, (Flag.SEEN,))
    replaced = [each.ref for each in old if each.evidence != evidence]
    if replaced:
        await mailbox.expunge(replaced)


def compose(
    account: Account, paths: Iterable[str], record: Record | None = None, holder: Holder | None = None
) -> tuple[MessageTag, bytes]:
    """Return the evidence and the bytes of a manifest, whose body is a JSON object with one name to a line.

    The record has paths in place of folders.
    """
    content: dict[str, Any] = {"account": account.address.lower(), "folders": sorted(paths)}
    if record is not None:
        content["start_state"] = {"digest": record.start_state, "status": record.status}
    if holder is not None:
        content["holder"] = asdict(holder)
    document = content | {"signature": _signature(account, content)}
    body = (json.dumps(document, indent=0) + "\n").replace("\n", "\r\n").encode("ascii")
    message_id = initial_id(account.number, FOLDER, 0)
    evidence = MessageTag(INITIAL_RUN, account.number, message_id, KIND, _DATE_US, body_digest(body))
    head = (
        f"Date: {headers.date(_DATE_US)}\r\n"
        f"From: {headers.address(account.address)}\r\n"
        f"To: {headers.address(account.address)}\r\n"
        "Subject: Folders that loadsim created in this mailbox\r\n"
        f"Message-ID: <{message_id}.{INITIAL_RUN}@{account.address.rpartition('@')[2]}>\r\n"
        f"{HEADER}: {evidence.header()}\r\n"
        "MIME-Version: 1.0\r\n"
        "Content-Type: text/plain; charset=us-ascii\r\n"
        "Content-Transfer-Encoding: 7bit\r\n\r\n"
    )
    return evidence, head.encode("ascii") + body
