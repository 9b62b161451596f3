"""A command under way, and the answer that it collects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from loadsim.protocols.imap.responses import (
    Capability,
    Condition,
    Exists,
    Expunged,
    Fetched,
    ListEntry,
    MailboxStatus,
    Response,
    Search,
    Tagged,
)

WANTED: Mapping[str, tuple[type[Response], ...]] = {
    "CAPABILITY": (Capability,),
    "FETCH": (Fetched,),
    "LIST": (ListEntry,),
    "SELECT": (Exists, Condition),
    "STATUS": (MailboxStatus,),
    "UID COPY": (Condition,),
    "UID FETCH": (Fetched,),
    "UID MOVE": (Condition, Expunged),
    "UID SEARCH": (Search,),
}
"""The untagged data that is kept for each command. Other commands keep none."""


class Answer(NamedTuple):
    """The tagged end of a command that succeeded, and the untagged data of its kinds (`WANTED`)."""

    tagged: Tagged
    data: list[Response]


class Command:
    """A command that is under way, or waits to be sent."""

    __slots__ = (
        "data",
        "deadline_s",
        "future",
        "name",
        "pieces",
        "resets",
        "sent_bytes",
        "since_ns",
        "since_weight",
        "tag",
        "then",
        "wanted",
    )

    def __init__(
        self,
        name: str,
        tag: str,
        pieces: list[bytes],
        future: asyncio.Future[Answer] | None,
        then: Callable[[Answer], None] | None,
        resets: bool,
    ) -> None:
        self.name = name
        self.tag = tag
        self.pieces = pieces  # not written yet; each but the first waits for a continuation
        self.future = future  # None: no caller waits
        self.then = then
        self.resets = resets
        self.wanted = WANTED.get(name, ())
        self.data: list[Response] = []
        self.since_weight = 0  # `Connection._weight` when it was sent
        self.deadline_s = 0.0
        self.since_ns = 0
        self.sent_bytes = 0
