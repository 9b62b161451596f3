"""A command under way, and the answer that it collects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from loadsim.protocols.imap.grammar import MOST_SECTIONS
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
    Rights,
    Search,
    Tagged,
    Unknown,
)
from loadsim.protocols.imap.values import malformed

WANTED: Mapping[str, tuple[type[Response], ...]] = {
    "CAPABILITY": (Capability,),
    "EXPUNGE": (Expunged, Unknown),
    "FETCH": (Fetched,),
    "GETQUOTAROOT": (QuotaLimits,),
    "LIST": (ListEntry, MailboxStatus),
    "MYRIGHTS": (Rights,),
    "NAMESPACE": (Namespaces,),
    "SELECT": (Exists, Condition),
    "STATUS": (MailboxStatus, Unknown),
    "UID COPY": (Condition, Unknown),
    "UID EXPUNGE": (Expunged, Unknown),
    "UID FETCH": (Fetched,),
    "UID MOVE": (Condition, Expunged, Unknown),
    "UID SEARCH": (Search, Unknown),
    "UID STORE": (Fetched, Expunged),
}
"""The untagged data that is kept for each command. Other commands keep none.

FETCH keeps no unknown responses: they may be the rest of a text whose stated length was wrong.
"""


@dataclass(slots=True, eq=False)
class Untagged:
    """Untagged data in order, with one `Fetched` per message.

    A server may send a message's data in several responses, with flag changes in between (RFC 9051 section 7.5.2).
    Sequence numbers identify messages until one is expunged. After that, only UIDs do.
    """

    responses: list[Response] = field(default_factory=list)
    _places: dict[int, int] = field(default_factory=dict)  # of messages in `responses`
    _by_uid: bool = False

    def take(self, response: Response) -> None:
        """Keep a response. Raises `ProtocolError` for a message with too many sections."""
        if isinstance(response, Fetched) and (name := response.uid if self._by_uid else response.number) is not None:
            place = self._places.setdefault(name, len(self.responses))
            known = self.responses[place] if place < len(self.responses) else None
            if isinstance(known, Fetched) and (known.uid is None or response.uid in (None, known.uid)):
                joined = self.responses[place] = known.joined(response)
                if len(joined.sections) > MOST_SECTIONS:
                    raise malformed("FETCH", f"at most {MOST_SECTIONS} sections", 0)
                return
            self._places[name] = len(self.responses)
        elif isinstance(response, Expunged):
            self.renumber()
        self.responses.append(response)

    def renumber(self) -> None:
        """Identify messages by UID from now on, as one was expunged."""
        if not self._by_uid:
            self._by_uid = True
            fetched = [(at, data.uid) for at, data in enumerate(self.responses) if isinstance(data, Fetched)]
            self._places = {uid: at for at, uid in fetched if uid is not None}


class Answer(NamedTuple):
    """A successful command's tagged response, and its untagged data (`WANTED`)."""

    tagged: Tagged
    data: list[Response]


@dataclass(slots=True, eq=False)
class ImapCommand:
    """A command that is under way or waiting to be sent."""

    name: str
    future: asyncio.Future[Answer] | None = None  # None: no caller waits
    then: Callable[[Answer], None] | None = None
    resets: bool = False
    challenged: Callable[[str], None] | None = None  # gets the text of each continuation (SASL)
    wanted: tuple[type[Response], ...] = ()
    tag: str = ""
    pieces: list[bytes] = field(default_factory=list)  # not written yet; each but the first waits for a continuation
    data: Untagged = field(default_factory=Untagged)
    since_weight: int = 0  # `ImapWire.weight` when it was sent
    deadline_s: float = 0.0  # infinite while no answer is due
    since_ns: int = 0
    own_ns: int = 0  # the server was waiting for its rest
    sent_bytes: int = 0
