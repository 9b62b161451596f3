"""The manifest in each mailbox: the folders that loadsim created there, and so may delete, and the state it left.

It is a message in its own folder, written before the folders that it names are created; it names only folders that
LIST did not show. Its signature (HMAC-SHA256 over the account's address and the contents) ensures that no other
message, and no other account's manifest, can name folders for deletion.

The manifest also names the first of the accounts prepared together; scenarios with a different first account may not
use the mailbox. The first account's manifest names the holder (`hold`). The record has the start state's digest and the
status of each folder: a folder whose status is unchanged need not be listed.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Annotated, Any, NamedTuple

from loadsim.documents.typed import Row, closed, value_of
from loadsim.errors import ConfigError, ServerRefused
from loadsim.model.content import headers
from loadsim.model.message_tag import HEADER, INITIAL_RUN, MessageTag, body_digest, has_digest, initial_id
from loadsim.model.ports import INBOX, Account, Flag
from loadsim.model.provisioning_ports import FolderStatus, Provisioning, Stored
from loadsim.provisioning.holder import Holder, Line
from loadsim.provisioning.sessions import name_of
from loadsim.scenario.workload import may_be_made
from loadsim.timinglog.documents import unique_keys

FOLDER = "LoadSim"
"""The manifest's folder. It is not part of the start state. If it holds nothing else, it is ours."""

KIND = "manifest"

LARGEST_BYTES = 1 << 20
"""The largest body that is read; it has room for about 70,000 names such as "Folder 01"."""

_DATE_US = 1_761_955_200_000_000
"""2025-11-01 00:00 UTC: constant, so that a manifest depends only on account, names and key."""

_PURPOSE = b"loadsim manifest 1\n"
"""Prefix of the signed text: the key may be a password, and signatures made with it must be useless elsewhere."""


class RejectedManifest(Exception):
    """A message that claims to be a manifest is rejected; `str()` is the reason, and does not quote the message."""


@closed
@dataclass(frozen=True, slots=True)
class Record:
    """The digest of a mailbox's start state, and the status of its folders in that state.

    The manifest's own folder is left out, since writing the record changes it.
    """

    digest: str
    status: Mapping[str, Annotated[FolderStatus, Row]]

    def renamed(self, new_name: Callable[[str], str]) -> Record:
        """Return the record with other names, such as the paths of the folders."""
        return Record(self.digest, {new_name(name): status for name, status in self.status.items()})

    def unchanged(self, status: Mapping[str, FolderStatus | None]) -> frozenset[str]:
        """Return the folders whose contents, judging by their present status, are the same as in the record.

        Without `modseq`, a changed flag may not show. The Inbox, where flags decide what users do, is then left out.
        """
        same = {folder for folder, now in status.items() if now is not None and self.status.get(folder) == now}
        return frozenset(folder for folder in same if folder != INBOX or self.status[folder].modseq is not None)


class Body(NamedTuple):
    """The parsed body of a manifest: its folders, the first account's address, the record, and the holder."""

    names: frozenset[str]
    first_account: str
    record: Record | None = None
    holder: Holder | None = None


class Manifest(NamedTuple):
    """An accepted manifest."""

    message: Stored
    body: Body


def names_in(manifests: Iterable[Manifest]) -> frozenset[str]:
    """Return the names of the folders that loadsim created."""
    return frozenset[str]().union(*(manifest.body.names for manifest in manifests))


def record_in(manifests: Sequence[Manifest]) -> Record | None:
    """Return the record of the only manifest; None if there are several."""
    return manifests[0].body.record if len(manifests) == 1 else None


def holder_in(manifests: Iterable[Manifest]) -> Holder | None:
    return next((manifest.body.holder for manifest in manifests if manifest.body.holder is not None), None)


class AccountTaken(ConfigError):
    """Another process is working on an account, or it was prepared with other accounts."""


class UnknownManifest(AccountTaken):
    """A manifest is rejected."""


def refuse_taken(account: Account, manifests: Sequence[Manifest]) -> None:
    """Raise `AccountTaken` unless these manifests let this process have the account.

    The first manifest decides: if two processes write one at the same time, only one of them is refused.
    """
    if manifests and (first := manifests[0].body.first_account) != _first_account(account):
        raise AccountTaken(
            f"{name_of(account)} belongs to the accounts that begin with {first}: run `loadsim clean` on these first"
        )
    holder = holder_in(manifests)
    if holder is not None and not (holder.ours or holder.gone):
        raise AccountTaken(f"{name_of(account)}: expected no other loadsim at work there, found {holder}")


def shared_by_users(account: Account) -> ConfigError:
    return ConfigError(
        f"{name_of(account)}: folder {FOLDER}: expected a mailbox for each user, found another user's manifest:"
        " run `loadsim clean` on these accounts, then give each user their own mailbox (do log-on names, a master user,"
        " or the server's home directories lead to the same one?)"
    )


def refuse_used(account: Account, manifests: Sequence[Manifest], run: str) -> None:
    """Raise `AccountTaken` unless, by its manifests, an account was last used for this run."""
    last = holder_in(manifests)
    if last is None or last.run != run:
        found = last or "no manifest: the mailbox was cleaned, or the server has lost or altered the manifest"
        raise AccountTaken(f"{name_of(account)}: expected run {run} to be its last user, found {found}")


def refuse_other(account: Account, manifests: Sequence[Manifest], before: Holder | None) -> None:
    """Raise `AccountTaken` if this process may not have an account, or if the account's holder is not `before`."""
    refuse_taken(account, manifests)
    if (last := holder_in(manifests)) != before:
        raise AccountTaken(f"{name_of(account)}: expected no other loadsim at work there, found {last}")


def _first_account(account: Account) -> str:
    return (account.first_address or account.address).lower()


def is_manifest(message: Stored) -> bool:
    """Return True if a message claims to be a manifest. (A killed `write` leaves two; both count.)"""
    tag = message.tag
    return tag is not None and tag.run == INITIAL_RUN and tag.kind == KIND


async def read(mailbox: Provisioning, account: Account, own: Iterable[Stored]) -> tuple[list[Manifest], bool]:
    """Return the account's manifests among these messages, and True if another user has the same mailbox.

    Raises `UnknownManifest` if one is rejected: its unknown author may be at work on the account.
    """
    accepted: list[Manifest] = []
    shared = False
    for message in filter(is_manifest, own):
        try:
            body = parse(await _body(mailbox, message), account, mailbox.folder_at)
        except RejectedManifest as reason:
            where = f"{name_of(account)}: folder {FOLDER}"
            raise UnknownManifest(f"{where}: found an unusable manifest: {reason}") from None
        shared |= body is None
        accepted += [Manifest(message, body)] if body else []
    return accepted, shared


async def accepted_in(mailbox: Provisioning, account: Account) -> list[Manifest]:
    """Return the manifests in the manifest folder, which must exist.

    Raises `AccountTaken`, or `ConfigError` if the folder has another user's manifest.
    """
    accepted, shared = await read(mailbox, account, (await mailbox.listing([FOLDER]))[FOLDER])
    refuse_taken(account, accepted)
    if shared:
        raise shared_by_users(account)
    return accepted


async def _body(mailbox: Provisioning, message: Stored) -> bytes:
    """Fetch a manifest's body, which must match its tag, apart from line ends that servers drop or add."""
    fetched: bytes | None = None
    with suppress(ServerRefused):
        fetched = (await mailbox.texts([message.ref])).get(message.ref)
    if fetched is None:
        raise RejectedManifest("expected a body, found none")
    body = b"\r\n".join(fetched.splitlines()).rstrip(b"\r\n")
    if len(body) > LARGEST_BYTES:
        raise RejectedManifest(f"expected at most {LARGEST_BYTES} bytes, found {len(body)}")
    assert message.tag is not None
    if not has_digest(body, message.tag.body):
        raise RejectedManifest("its body does not match its tag")
    return body


def parse(body: bytes, account: Account, folder_at: Callable[[str], str] = str) -> Body | None:
    """Return the contents of a manifest's body; None if it belongs to another account with the same first account.

    `folder_at` maps the manifest's paths to folders. Raises `RejectedManifest` if the manifest is unusable.
    """
    try:
        document = json.loads(body.decode("ascii"), object_pairs_hook=unique_keys)
        form: _Form = value_of(_Form, document)
    except (ValueError, RecursionError):  # also raised for a number of 5,000 digits
        raise RejectedManifest(
            "expected this version's form: run clean with the version that wrote it, or delete it by hand"
        ) from None
    if not all(may_be_made(path) or may_be_made(folder_at(path)) for path in form.folders):
        raise RejectedManifest("expected folder names from profiles or the scenario's `folders`, found another name")
    del document["signature"]
    if form.account != account.address.lower() and form.first_account == _first_account(account):
        return None
    if form.account != account.address.lower() or not hmac.compare_digest(
        form.signature.encode(errors="replace"), _signature(account, document).encode()
    ):
        raise RejectedManifest(
            "its signature does not match this account and its key (accounts.manifest_key, or the password)"
        )
    record = form.start_state and form.start_state.renamed(folder_at)
    return Body(frozenset(map(folder_at, form.folders)), form.first_account, record, form.holder)


@closed
@dataclass(frozen=True, slots=True)
class _Form:
    account: str
    first_account: Line
    folders: tuple[str, ...]
    signature: str
    start_state: Record | None = None
    holder: Holder | None = None


def _signature(account: Account, content: Mapping[str, Any]) -> str:
    signed = {**content, "folders": sorted(content["folders"])}
    canonical = json.dumps(signed, sort_keys=True, separators=(",", ":")).encode("ascii")
    key = account.password if account.manifest_key is None else account.manifest_key
    return hmac.new(key.encode(), _PURPOSE + canonical, sha256).hexdigest()


async def write(mailbox: Provisioning, account: Account, names: Iterable[str], record: Record | None = None) -> None:
    """Replace the accepted manifests with one that has these names and the same holder. The folder must exist.

    A first manifest is read back: if two users of one mailbox write at the same time, the later one finds both. Raises
    `AccountTaken`, or `ConfigError` if it does not read back as written: `clean` could not delete its folders.
    """
    accepted = await accepted_in(mailbox, account)
    await replace(mailbox, account, accepted, names, record, holder_in(accepted))
    if not accepted:
        with suppress(UnknownManifest):
            accepted = await accepted_in(mailbox, account)
    if not accepted:
        raise ConfigError(
            f"{name_of(account)}: folder {FOLDER}: expected the manifest just written there, found none that reads back"
            " unchanged: the server, or a filter in front of it, loses or alters mail"
        )


async def replace(
    mailbox: Provisioning,
    account: Account,
    accepted: Sequence[Manifest],
    names: Iterable[str],
    record: Record | None,
    holder: Holder | None,
) -> MessageTag:
    """Write a manifest, then delete the accepted ones. Return its tag."""
    paths = [mailbox.path(name) for name in names]
    tag, message = compose(account, paths, record and record.renamed(mailbox.path), holder)
    old = [manifest.message for manifest in accepted]
    if all(stored.tag != tag for stored in old):
        await mailbox.append(FOLDER, message, (Flag.SEEN,))
    replaced = [stored.ref for stored in old if stored.tag != tag]
    if replaced:
        await mailbox.expunge(replaced)
    return tag


def compose(
    account: Account, paths: Iterable[str], record: Record | None = None, holder: Holder | None = None
) -> tuple[MessageTag, bytes]:
    """Return the tag and the bytes of a manifest, whose body is a JSON object with one name per line.

    In the record, names must be paths.
    """
    content: dict[str, Any] = {"account": account.address.lower(), "folders": sorted(paths)}
    content["first_account"] = _first_account(account)
    if record is not None:
        content["start_state"] = {"digest": record.digest, "status": record.status}
    if holder is not None:
        content["holder"] = asdict(holder)
    document = content | {"signature": _signature(account, content)}
    body = (json.dumps(document, indent=0) + "\n").replace("\n", "\r\n").encode("ascii")
    message_id = initial_id(account.number, FOLDER, 0)
    tag = MessageTag(INITIAL_RUN, account.number, message_id, KIND, _DATE_US, body_digest(body))
    head = (
        f"Date: {headers.date(_DATE_US)}\r\n"
        f"From: {headers.address(account.address)}\r\n"
        f"To: {headers.address(account.address)}\r\n"
        "Subject: Folders that loadsim created in this mailbox\r\n"
        f"Message-ID: <{message_id}.{INITIAL_RUN}@{account.address.rpartition('@')[2]}>\r\n"
        f"{HEADER}: {tag.header()}\r\n"
        "MIME-Version: 1.0\r\n"
        "Content-Type: text/plain; charset=us-ascii\r\n"
        "Content-Transfer-Encoding: 7bit\r\n\r\n"
    )
    return tag, head.encode("ascii") + body
