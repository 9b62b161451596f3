"""The manifest in each mailbox: which folders loadsim created there, and so may delete.

It is a message in a folder of its own, written before the folders that it names are created: whoever is killed in
between leaves names of folders that do not exist, which harms nobody. Only what LIST did not show is ever named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from loadsim.model.content import headers
from loadsim.model.evidence import HEADER, INITIAL_RUN, Evidence, body_digest, initial_id
from loadsim.model.ports import Account, Flag, Provisioning, Stored

FOLDER = "LoadSim"
"""Where the manifest lies: no part of the start state, and ours when it holds nothing else."""

KIND = "manifest"

_DATE_US = 1_761_955_200_000_000
"""2025-11-01 00:00 UTC: always the same, so that a manifest depends on what it says and on nothing else."""


def is_manifest(message: Stored) -> bool:
    """Whether a message of the manifest's folder is one. (A killed `write` leaves two; both count.)"""
    evidence = message.evidence
    return evidence is not None and evidence.run == INITIAL_RUN and evidence.kind == KIND


async def read(mailbox: Provisioning, own: Sequence[Stored]) -> frozenset[str]:
    """The names in the manifests among our own messages of the manifest's folder.

    One whose body is not what its evidence says names nothing: on its word, folders are deleted.
    """
    names: set[str] = set()
    for message in filter(is_manifest, own):
        structure = await mailbox.structure(message.ref)
        body = await mailbox.part(message.ref, structure.text) if structure.text else b""
        assert message.evidence is not None
        if body_digest(body) == message.evidence.body:
            names.update(json.loads(body)["folders"])
    return frozenset(names)


async def write(mailbox: Provisioning, account: Account, names: Iterable[str]) -> None:
    """Put a manifest of these names in the place of those that are there; its folder must exist."""
    evidence, message = compose(account, names)
    lying = [each for each in (await mailbox.listing([FOLDER]))[FOLDER] if is_manifest(each)]
    if all(each.evidence != evidence for each in lying):
        await mailbox.append(FOLDER, message, (Flag.SEEN,))
    old = [each.ref for each in lying if each.evidence != evidence]
    if old:
        await mailbox.expunge(old)


def compose(account: Account, names: Iterable[str]) -> tuple[Evidence, bytes]:
    """Its evidence and its bytes: from and to the account, the body a JSON object with the names, one to a line."""
    text = json.dumps({"folders": sorted(names)}, indent=0) + "\n"
    body = text.replace("\n", "\r\n").encode("ascii")
    message_id = initial_id(account.number, FOLDER, 0)
    evidence = Evidence(INITIAL_RUN, account.number, message_id, KIND, _DATE_US, body_digest(body))
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
