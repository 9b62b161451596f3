"""A command under way, and the answer that it collects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from loadsim.protocols.imap.responses import (
    Capability,
    Condition,
    Exists,
    Expunged,
    Fetched,
    ListEntry,
    MailboxStatus,
    Namespaces,
    QuotaLimits,
    Response,
    Search,
    Tagged,
)

WANTED: Mapping[str, tuple[type[Response], ...]] = {
    "CAPABILITY": (Capability,),
    "EXPUNGE": (Expunged,),
    "FETCH": (Fetched,),
    "GETQUOTAROOT": (QuotaLimits,),
    "LIST": (ListEntry, MailboxStatus),
    "NAMESPACE": (Namespaces,),
    "SELECT": (Exists, Condition),
    "STATUS": (MailboxStatus,),
    "UID COPY": (Condition,),
    "UID EXPUNGE": (Expunged,),
    "UID FETCH": (Fetched,),
    "UID MOVE": (Condition, Expunged),
    "UID SEARCH": (Search,),
    "UID STORE": (Fetched, Expunged),
}
"""The untagged data that is kept for each command. Other commands keep none."""


class Answer(NamedTuple):
    """The tagged end of a command that succeeded, and the untagged data of its kinds (`WANTED`)."""

    tagged: Tagged
    data: list[Response]


@dataclass(slots=True, eq=False)
class Command:
    """A command that is under way, or waits to be sent."""

    name: str
    tag: str
    pieces: list[bytes]  # not written yet; each but the first waits for a continuation
    future: asyncio.Future[Answer] | None  # None: no caller waits
    then: Callable[[Answer], None] | None
    resets: bool
    wanted: tuple[type[Response], ...]
    data: list[Response]
    challenged: Callable[[str], None] | None = None  # gets the text of each continuation (SASL)
    since_weight: int = 0  # `Connection._weight` when it was sent
    deadline_s: float = 0.0
    since_ns: int = 0
    sent_bytes: int = 0
