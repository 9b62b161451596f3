"""A mail program: the requests with which it lists, reads and watches a user's mail, as stated in `programs/*.yaml`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated

from loadsim.documents.schema import (
    Amount,
    Count,
    Duration,
    Positive,
    PositiveDuration,
    Share,
    Switch,
    matching,
    whole,
    word,
)
from loadsim.documents.typed import Reads, mismatch, mismatches, show, strict
from loadsim.documents.yaml_reader import known, located, parse, read_document
from loadsim.model.message_tag import HEADER

KEPT, PER_VIEW = SESSIONS = ("kept", "per-view")
"""The kinds of sessions: one from log-on to log-off, or one per view (a task, or a look for new mail)."""

SEQUENTIAL, PIPELINING, AIOSMTPLIB = SUBMISSIONS = ("sequential", "pipelining", "aiosmtplib")
"""The ways to submit: one command at a time, as most mail programs do; all of a message's commands together; or one at
a time through the library aiosmtplib."""

MOST_CONNECTIONS = 20
"""The most simultaneous connections of a mail program. Dovecot allows 10 per user (`mail_max_userip_connections`)."""

MOST_PROGRAMS = 4
"""The most mail programs that a user may run."""

WHOLE_MESSAGE = "BODY.PEEK[]"
"""The item that fetches a whole message, and leaves it unread (RFC 9051 section 6.4.5)."""

PARTS = "parts"
"""The value for a program that fetches a message's structure first, and then the parts that it shows."""

SHORTEST_POLL_S = 0.1
"""The shortest interval between looks for new mail: a shorter one would leave users no time for anything else."""

STATUS_ITEMS = ("MESSAGES", "RECENT", "UIDNEXT", "UIDVALIDITY", "UNSEEN")
"""The items of a STATUS that all servers support (RFC 3501 section 6.3.10)."""

_PLAIN_ITEMS = ("UID", "FLAGS", "RFC822.SIZE", "INTERNALDATE", "ENVELOPE", "BODYSTRUCTURE", "MODSEQ")
"""FETCH items without arguments. MODSEQ is sent only to servers with CONDSTORE (RFC 7162)."""

_FIELDS = re.compile(r"BODY\.PEEK\[HEADER\.FIELDS \(([!-9;-~]{1,100}(?: [!-9;-~]{1,100})*)\)\]")
_ITEM = re.compile(rf"{_FIELDS.pattern}|\S+")

_NEEDED_FIELDS = frozenset(("from", "to", "subject", "message-id"))
"""Header fields that users need to answer a message; an ENVELOPE has them all."""


def field_names(item: str) -> tuple[str, ...]:
    """Return the names in an item `BODY.PEEK[HEADER.FIELDS (...)]`; none for any other item."""
    match = _FIELDS.fullmatch(item)
    return tuple(match[1].split(" ")) if match else ()


def _items(value: object, more: tuple[str, ...] = ()) -> tuple[str, ...]:
    if not isinstance(value, str) or not value.strip():
        raise mismatch("the items of a FETCH, such as UID FLAGS ENVELOPE")
    items = tuple(match[0] for match in _ITEM.finditer(value))
    allowed = (*_PLAIN_ITEMS, *more)
    for item in items:
        if item not in allowed and not ("HEADER" in item and field_names(item)):
            raise mismatch(f"items of {', '.join(allowed)} and BODY.PEEK[HEADER.FIELDS (...)]", show(item))
    if len({item.partition("[")[0] for item in items}) < len(items):
        raise mismatch("each item once", "a repeated one")
    return items


def _list_items(value: object) -> tuple[str, ...]:
    items = _items(value)
    fields = {name.lower() for item in items for name in field_names(item)}
    if not {"UID", "FLAGS"} <= set(items):
        raise mismatch("UID and FLAGS among the items", show(value))
    if "ENVELOPE" not in items and not fields >= _NEEDED_FIELDS:
        raise mismatch(f"ENVELOPE, or the header fields {', '.join(sorted(_NEEDED_FIELDS))}", show(value))
    if HEADER.lower() in fields:
        raise mismatch(f"header fields without {HEADER}, which loadsim adds", HEADER)
    return items


def _flags(value: object) -> tuple[str, ...]:
    if value is False:
        return ()
    items = _items(value)
    if "FLAGS" not in items or not {"FLAGS", "UID"}.issuperset(items):
        raise mismatch("no, or the items FLAGS and UID", show(value))
    return items


def _message_items(value: object) -> tuple[str, ...]:
    if value == PARTS:
        return ()
    items = _items(value, (WHOLE_MESSAGE,))
    if WHOLE_MESSAGE not in items or any(map(field_names, items)):
        raise mismatch(f"{PARTS}, or items with {WHOLE_MESSAGE}", show(value))
    return items


def _status_items(value: object) -> tuple[str, ...]:
    items = tuple(value.split()) if isinstance(value, str) else ()
    if not items or not set(items) <= set(STATUS_ITEMS) or len(set(items)) < len(items):
        raise mismatch(f"items of {', '.join(STATUS_ITEMS)}, each once", show(value))
    return items


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRounds:
    """A program's questions about the folders that it does not show."""

    items: Annotated[tuple[str, ...], Reads(_status_items, "text")]
    """Items of a STATUS of each folder but the Inbox: MESSAGES, RECENT, UIDNEXT, UIDVALIDITY, UNSEEN."""
    every_s: PositiveDuration
    """Interval between these rounds of STATUS, the first of which is part of the first log-on; at least 0.1 s, never
    compressed."""

    def __post_init__(self) -> None:
        if self.every_s < SHORTEST_POLL_S:
            raise mismatch(f"a duration of at least {SHORTEST_POLL_S:g}s", f"{self.every_s:g}s", at=("every",))


def _bodies(value: object) -> int | None:
    if value == "all":
        return None
    if value == "none":
        return 0
    if type(value) is not int or value < 1:
        raise mismatch("all, none, or a number of messages of at least 1", show(value))
    return value


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSync:
    """The copy that a new program makes of the mailbox; `bodies` is None for all messages."""

    bodies: Annotated[int | None, Reads(_bodies, "all, none, number")]
    """Bodies to copy at the first log-on, with all headers: of all messages, of none, or of this many of the newest in
    each folder. Requires a `header_cache`, and for bodies RFC822.SIZE in `list` and items in `message`. Default: no
    copy."""


@strict
@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of an assistant, with the time of the profiles' day."""

    per_day: Amount
    """Calls per user and day."""
    searches: Positive
    """Searches of the Inbox in each call, each for one message."""
    reads: Count
    """Most messages found that it then reads."""
    draft: Share
    """Share of calls in which it saves a reply to the first message read in Drafts."""
    send: Share
    """Share of drafts that it then sends."""
    pause_s: Duration
    """Pause between its tasks; scales with the day."""


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class MailProgram:
    """A mail program's settings. Without `flags`, it has no header cache; without `message_items`, it fetches parts.

    An assistant has `calls`; all others watch the Inbox.
    """

    name: Annotated[str, matching("[a-z][a-z0-9_-]{0,60}", "a name such as thunderbird")]
    """Name in results: lower-case letters, digits, `_` and `-`."""
    list_items: Annotated[tuple[str, ...], Reads(_list_items, "text")] = field(
        default=("UID", "FLAGS", "RFC822.SIZE", "ENVELOPE"), metadata={"key": "list"}
    )
    """Items of the FETCH that lists messages: UID and FLAGS, ENVELOPE or the header fields From, To, Subject and
    Message-ID, and others."""
    flags: Annotated[tuple[str, ...], Reads(_flags, "no, text")] = field(default=(), metadata={"key": "header_cache"})
    """Items that update cached headers, FLAGS or UID FLAGS; only headers that are not in the cache are listed. Default:
    no."""
    message_items: Annotated[tuple[str, ...], Reads(_message_items, f"{PARTS}, text")] = field(
        default=(), metadata={"key": "message"}
    )
    """Items that fetch a whole message, including `BODY.PEEK[]`; `parts`: the structure first, then the parts shown.
    Default: parts."""
    prefetch: Switch = False
    """Fetch new messages when they are listed; requires items in `message`."""
    idle: Switch = True
    """Wait for new mail with IDLE, if the server supports it."""
    poll_s: PositiveDuration = 30.0
    """Interval between NOOPs if there is no IDLE, or between looks for new mail; at least 0.1 s, never compressed."""
    status: StatusRounds | None = None
    """Questions about other folders. Default: none."""
    quota: Switch = False
    """Ask for a folder's quota (GETQUOTAROOT, RFC 9208) with each list of its messages, if the server has QUOTA."""
    first_sync: FirstSync | None = None
    """A copy of the mailbox. Default: none."""
    submission: Annotated[str, word(*SUBMISSIONS)] = SEQUENTIAL
    """Order of SMTP commands, unless the scenario sets `client.submission`."""
    connection: Annotated[str, word("per-message", "kept")] = "per-message"
    """Like `server.smtp.connection`, unless the scenario sets that."""
    session: Annotated[str, word(*SESSIONS)] = KEPT
    """One IMAP session from log-on to log-off, or one per view, which requires `idle: no`."""
    connections: Annotated[int, whole(1, MOST_CONNECTIONS)] = 1
    """Most simultaneous connections to the mailbox; more than one requires a kept session."""
    calls: Calls | None = None
    """An assistant's calls, in place of watching the Inbox; require a session per view. Default: none."""

    def __post_init__(self) -> None:
        mistakes = []
        if self.poll_s < SHORTEST_POLL_S:
            mistakes.append(mismatch(f"a duration of at least {SHORTEST_POLL_S:g}s", f"{self.poll_s:g}s", at=("poll",)))
        if self.prefetch and not self.message_items:
            expected = f"items with {WHOLE_MESSAGE} for a prefetch"
            mistakes.append(mismatch(expected, PARTS, at=("message",)))
        if self.first_sync is not None and not self.flags:
            mistakes.append(mismatch("items to keep headers up to date for a first sync", "no", at=("header_cache",)))
        if self.first_sync is not None and self.first_sync.bodies != 0 and not self.message_items:
            expected = f"items with {WHOLE_MESSAGE} for a first sync with bodies"
            mistakes.append(mismatch(expected, PARTS, at=("message",)))
        if self.first_sync is not None and self.first_sync.bodies != 0 and "RFC822.SIZE" not in self.list_items:
            expected = "RFC822.SIZE for a first sync with bodies, which fetches as many as fit into memory"
            mistakes.append(mismatch(expected, show(" ".join(self.list_items)), at=("list",)))
        if self.idle and self.session != KEPT:
            expected = f"no for a session that is {self.session}: it ends before new mail arrives"
            mistakes.append(mismatch(expected, "yes", at=("idle",)))
        if self.connections > 1 and self.session != KEPT:
            expected = f"1 for a session that is {self.session}"
            mistakes.append(mismatch(expected, str(self.connections), at=("connections",)))
        if self.calls is not None and self.session != PER_VIEW:
            mistakes.append(mismatch(f"{PER_VIEW} for a program with calls", self.session, at=("session",)))
        if mistakes:
            raise mismatches(mistakes)

    @property
    def look_s(self) -> float:
        """The longest time between looks for new mail; 0 if the server announces it."""
        return 0.0 if self.idle and self.session == KEPT else self.poll_s


OUTLOOK_LIKE = MailProgram(name="outlook-like")
"""The default program."""


def default_submission(protocol: str, program: MailProgram) -> str:
    """Return the way to submit with this driver and program: `aioimaplib` is completed by the other library."""
    return AIOSMTPLIB if protocol == "aioimaplib" else program.submission


def program_names(programs: Sequence[MailProgram]) -> str:
    """Return the name of a user's programs in results, such as `outlook-like+phone`."""
    return "+".join(program.name for program in programs)


def driver_name(protocol: str, program: MailProgram, companions: Sequence[MailProgram] = ()) -> str:
    """Return a driver's name in results, with the user's programs unless there is only the default one."""
    return (
        protocol
        if program == OUTLOOK_LIKE and not companions
        else f"{protocol}/{program_names((program, *companions))}"
    )


def load_program(reference: str, relative_to: Path | None = None) -> MailProgram:
    """Read a program from its shipped name, or from a path relative to `relative_to`. Raises `ConfigError`."""
    place = located("programs", reference, relative_to)
    return (_shipped if reference in known("programs") else _load)(*place)


def _load(path: Path, name: str) -> MailProgram:
    document, origin = read_document(path, name)
    program: MailProgram = parse(MailProgram, document, origin)
    if program.name == OUTLOOK_LIKE.name and program != OUTLOOK_LIKE:
        raise origin.error(("name",), "a name other than the default program's", program.name)
    return program


_shipped = cache(_load)
"""`_load` with a cache: shipped programs do not change while loadsim is running."""
