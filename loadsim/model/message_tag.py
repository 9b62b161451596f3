"""The `X-LoadSim` header, which identifies loadsim's messages: run, sender, id, time, digest of the body.

Delivery times, and the audit of lost, duplicated and altered mail, rely on it. Messages without this header are never
changed or deleted.
"""

from __future__ import annotations

import re
from hashlib import blake2b, sha256
from sys import intern
from typing import NamedTuple

HEADER = "X-LoadSim"
NEW_MAIL = "n"
"""The first letter of new messages' ids, and of no others."""

ANSWER = "r"
"""The first letter of answers' ids."""

RECEIPT = "m"
"""The first letter of read receipts' ids (message disposition notifications)."""
POST = "p"
"""The first letter of ids of posts to the public folder."""

INITIAL = "i"
"""The first letter of ids in the start state."""

OUTSIDE_DOMAIN = "outside.test"
"""The domain of outside senders' addresses, which no server delivers to (RFC 2606 section 2)."""

INITIAL_RUN = "initial"
"""The run named in start-state messages, which outlast runs."""

AUTOMATIC_REPLY = "automatic reply"
"""The name for automatic replies to loadsim's messages, in place of a delivery report's status."""

_RECORDED_ID = re.compile(r"[!-~]{1,20}")
"""The ids that a timing log's record can hold."""

_KIND = re.compile(r"[A-Za-z0-9_+-]+(?:\.[A-Za-z0-9_+-]+)*")
"""The kinds that an answer's header can repeat."""

_DIGITS = "abcdefghijklmnopqrstuvwxyz234567"
_TWO_DIGITS = [high + low for high in _DIGITS for low in _DIGITS]


def body_digest(body: bytes | bytearray) -> str:
    """Return the first 64 bits of a body's SHA-256, in hexadecimal. The body begins after the header's empty line."""
    return sha256(body).hexdigest()[:16]


def has_digest(body: bytes | bytearray, digest: str) -> bool:
    """Return whether a body has this digest. Servers may drop the last line break, or add one."""
    if body_digest(body) == digest:
        return True
    lines = body.rstrip(b"\r\n")
    return digest in (body_digest(lines), body_digest(lines + b"\r\n"))


def new_mail_id(sender: int, index: int) -> str:
    """Return the id of the `index`th new message (from 0) from user `sender`."""
    return f"{NEW_MAIL}{sender}.{index}"


def post_id(sender: int, index: int) -> str:
    """Return the id of the `index`th post (from 0) from user `sender`."""
    return f"{POST}{sender}.{index}"


def answer_id(sender: int, parent: str, kind: str) -> str:
    """Return the id of a reply, reply-all or forward: 80 bits of BLAKE2b of sender, parent and kind."""
    return ANSWER + _short(f"{sender}/{parent}/{kind}")


def receipt_id(sender: int, parent: str) -> str:
    """Return the id of the read receipt that `sender` returns for a message: 80 bits of BLAKE2b."""
    return RECEIPT + _short(f"{sender}/{parent}")


def initial_id(user: int, folder: str, index: int) -> str:
    """Return the id of a start-state message, unique across mailboxes and folders: 80 bits of BLAKE2b."""
    return INITIAL + _short(f"{user}/{folder}/{index}")


def _short(name: str) -> str:
    """Return 80 bits of BLAKE2b in base 32 (RFC 4648 section 6), in lower case. `base64` would take twice as long."""
    number = int.from_bytes(blake2b(name.encode(), digest_size=10).digest())
    return "".join([_TWO_DIGITS[number >> shift & 1023] for shift in range(70, -1, -10)])


class MessageTag(NamedTuple):
    """The value of an `X-LoadSim` header.

    `sender` is the user's number, `sent_us` wall-clock microseconds since 1970, `body` the body's digest.
    """

    run: str
    sender: int
    id: str
    kind: str
    sent_us: int
    body: str

    def header(self) -> str:
        """Return the header's value: one line of fewer than 200 characters."""
        return (
            f"run={self.run}; from={self.sender}; id={self.id}; kind={self.kind}; sent={self.sent_us}; body={self.body}"
        )

    @classmethod
    def parse(cls, value: str) -> MessageTag | None:
        """Read a header's value, folded or not; None if loadsim cannot have written it.

        Mail may contain anything; numbers and ids that no record can hold are not loadsim's.
        """
        fields = dict([part.strip().partition("=")[::2] for part in value.split(";")])
        if not _RECORDED_ID.fullmatch(fields.get("id", "")) or not _KIND.fullmatch(fields.get("kind", "")):
            return None
        try:
            return cls(
                run=intern(fields["run"]),  # many messages share it
                sender=_number(fields["from"], 1, 2**32),
                id=fields["id"],
                kind=intern(fields["kind"]),
                sent_us=_number(fields["sent"], 0, 2**63),
                body=fields["body"],
            )
        except (KeyError, ValueError):
            return None


def vouched(tag: MessageTag, sender: str, message_id: str, domain: str) -> bool:
    """Return whether From and Message-ID are those that loadsim would give a message with this tag in this domain.

    Outside senders have a domain of their own, but their Message-IDs are in the scenario's.
    """
    expected = f"<{tag.id}.{tag.run}@{domain}>"
    return (
        sender.rpartition("@")[2].lower() in (domain, OUTSIDE_DOMAIN) and message_id.strip().lower() == expected.lower()
    )


_OWN_ID = re.compile(r"<(?:[ncp]\d+\.\d+|[rim][a-z2-7]{16})\.([A-Za-z0-9-]+)@([^@<>\s]+)>")


def run_named(message_id: str, domain: str) -> str | None:
    """Return the run that a Message-ID names if it is one of loadsim's, or None."""
    match = _OWN_ID.fullmatch(message_id.strip())
    return match[1] if match and match[2].lower() == domain else None


def _number(digits: str, least: int, limit: int) -> int:
    """Read a number of at least `least` and below `limit`. Raises `ValueError`."""
    number = int(digits)
    if not least <= number < limit:
        raise ValueError
    return number
