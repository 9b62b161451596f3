"""The `X-LoadSim` header: how a message says that loadsim made it, for which run, and what its body was.

From it come the delivery time, the audit of lost, duplicated and altered mail, and the permission to delete:
nothing without this header is ever touched.
"""

from __future__ import annotations

from base64 import b32encode
from dataclasses import dataclass
from hashlib import blake2b, sha256

HEADER = "X-LoadSim"
INITIAL_RUN = "initial"
"""The run of messages that `initialise` put there; they outlive a run."""


def body_digest(body: bytes) -> str:
    """The first 64 bits of SHA-256 of everything after the header's empty line, in hexadecimal."""
    return sha256(body).hexdigest()[:16]


def new_mail_id(sender: int, index: int) -> str:
    """The id of the `index`th new message (from 0) of user `sender`."""
    return f"n{sender}.{index}"


def answer_id(sender: int, parent: str, kind: str) -> str:
    """The id of a reply, reply to all or forward: a function of who answers what, how. 80 bits of BLAKE2b."""
    return "r" + b32encode(blake2b(f"{sender}/{parent}/{kind}".encode(), digest_size=10).digest()).decode().lower()


def initial_id(user: int, folder: str, index: int) -> str:
    """The id of a message of the start state; unique over mailboxes, folders and places. 80 bits of BLAKE2b."""
    return "i" + b32encode(blake2b(f"{user}/{folder}/{index}".encode(), digest_size=10).digest()).decode().lower()


@dataclass(frozen=True, slots=True)
class Evidence:
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
    def parse(cls, value: str) -> Evidence | None:
        """Read a header's value (folded or not); None when it is not one of ours.

        A header is mail, and mail may say anything: numbers that no record could hold are not ours either.
        """
        fields = dict(part.strip().partition("=")[::2] for part in value.split(";"))
        try:
            return cls(
                run=fields["run"],
                sender=_number(fields["from"], 1, 2**32),
                id=fields["id"],
                kind=fields["kind"],
                sent_us=_number(fields["sent"], 0, 2**63),
                body=fields["body"],
            )
        except (KeyError, ValueError):
            return None


def _number(digits: str, least: int, limit: int) -> int:
    """The number from `least` to below `limit` that is written there; anything else is a ValueError."""
    number = int(digits)
    if not least <= number < limit:
        raise ValueError
    return number
