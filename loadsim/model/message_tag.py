"""The `X-LoadSim` header: how a message says that loadsim made it, for which run, and what its body was.

From it come the delivery time, the audit of lost, duplicated and altered mail, and the permission to delete:
nothing without this header is ever touched.
"""

from __future__ import annotations

import re
from hashlib import blake2b, sha256
from sys import intern
from typing import NamedTuple

HEADER = "X-LoadSim"
NEW_MAIL = "n"
"""What the ids of new messages begin with, and no others."""

INITIAL_RUN = "initial"
"""The run of messages that `initialise` put there; they outlive a run."""

_RECORDED_ID = re.compile(r"[!-~]{1,20}")
"""Ids of messages that a record of the timing log can hold."""

_DIGITS = "abcdefghijklmnopqrstuvwxyz234567"
_TWO_DIGITS = [high + low for high in _DIGITS for low in _DIGITS]


def body_digest(body: bytes | bytearray) -> str:
    """The first 64 bits of SHA-256 of everything after the header's empty line, in hexadecimal."""
    return sha256(body).hexdigest()[:16]


def new_mail_id(sender: int, index: int) -> str:
    """The id of the `index`th new message (from 0) of user `sender`."""
    return f"{NEW_MAIL}{sender}.{index}"


def answer_id(sender: int, parent: str, kind: str) -> str:
    """The id of a reply, reply to all or forward: a function of who answers what, how. 80 bits of BLAKE2b."""
    return "r" + _short(f"{sender}/{parent}/{kind}")


def initial_id(user: int, folder: str, index: int) -> str:
    """The id of a message of the start state; unique over mailboxes, folders and places. 80 bits of BLAKE2b."""
    return "i" + _short(f"{user}/{folder}/{index}")


def _short(name: str) -> str:
    """80 bits of BLAKE2b in base 32 (RFC 4648 section 6), in lower case: the library's takes twice as long."""
    number = int.from_bytes(blake2b(name.encode(), digest_size=10).digest())
    return "".join([_TWO_DIGITS[number >> shift & 1023] for shift in range(70, -1, -10)])


class MessageTag(NamedTuple):
    """What an `X-LoadSim` header holds.

    `sender` is the user's number, `sent_us` wall-clock microseconds since 1970, `body` the digest of the body.
    """

    run: str
    sender: int
    id: str
    kind: str
    sent_us: int
    body: str

    def header(self) -> str:
        """The header's value, on one line of fewer than 200 characters."""
        return (
            f"run={self.run}; from={self.sender}; id={self.id}; kind={self.kind}; sent={self.sent_us}; body={self.body}"
        )

    @classmethod
    def parse(cls, value: str) -> MessageTag | None:
        """Read a header's value (folded or not); None when it is not one of ours.

        A header is mail, and mail may say anything: numbers and ids that no record could hold are not ours
        either.
        """
        fields = dict([part.strip().partition("=")[::2] for part in value.split(";")])
        if not _RECORDED_ID.fullmatch(fields.get("id", "")):
            return None
        try:
            return cls(
                run=intern(fields["run"]),  # what many messages say is held once
                sender=_number(fields["from"], 1, 2**32),
                id=fields["id"],
                kind=intern(fields["kind"]),
                sent_us=_number(fields["sent"], 0, 2**63),
                body=fields["body"],
            )
        except (KeyError, ValueError):
            return None


def vouched(evidence: MessageTag, sender: str, message_id: str, domain: str) -> bool:
    """Return whether From and Message-ID are those that loadsim gives a message of this evidence, in this domain."""
    expected = f"<{evidence.id}.{evidence.run}@{domain}>"
    return sender.rpartition("@")[2].lower() == domain and message_id.strip().lower() == expected.lower()


def _number(digits: str, least: int, limit: int) -> int:
    """The number from `least` to below `limit` that is written there; anything else is a ValueError."""
    number = int(digits)
    if not least <= number < limit:
        raise ValueError
    return number
