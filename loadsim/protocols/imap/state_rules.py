"""The rules that a server's responses must obey, and the check of a session against them. No I/O.

A rule examines one event, before the session takes it, and returns the fault, or None. No rule blames a server for what
another of the user's sessions may have caused: messages that any session asked to remove may disappear at any time, and
open mailboxes need not show what others have done since. In the public folder, none blames it for what another user may
have caused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from loadsim.errors import printable
from loadsim.model.state_checks import Violation
from loadsim.protocols.imap.grammar import LARGEST_NUMBER
from loadsim.protocols.imap.known_state import Known, KnownSession, OpenMailbox, Sent, copied, fixed, number
from loadsim.protocols.imap.responses import Condition, Exists, Expunged, Fetched, Response, Tagged

LONGEST_EXCERPT = 300
LONGEST_SHOWN_BYTES = 120
EVENTS_A_TURN = 32
"""The most events checked in one turn of the event loop, in less than a millisecond."""

_WITHOUT_EXPUNGE = frozenset({"FETCH", "STORE", "SEARCH"})
_LOOKED_AT = frozenset({bytes, Exists, Expunged, Fetched, Condition, Tagged})


# --- the open mailbox ---


def _shrinks(session: KnownSession, view: OpenMailbox, event: Exists) -> str | None:
    return f"{len(view.uids)} messages were known" if event.messages < len(view.uids) else None


def _beyond(session: KnownSession, view: OpenMailbox, event: Expunged) -> str | None:
    return f"of {len(view.uids)} messages" if event.number > len(view.uids) else None


def _unannounced(session: KnownSession, view: OpenMailbox, sent: Sent) -> str | None:
    """Return the fault if a response has a message number that was not announced by the end of the command."""
    known = len(view.uids)
    return f"FETCH had number {sent.highest}, of {known} messages" if sent.highest > known else None


def _out_of_turn(session: KnownSession, view: OpenMailbox, event: Expunged) -> str | None:
    names = {sent.name for sent in session.under_way.values()}
    return "no command under way allows it" if names <= _WITHOUT_EXPUNGE else None


def _not_asked(session: KnownSession, view: OpenMailbox, event: Expunged) -> str | None:
    if event.number > len(view.uids):
        return None
    uid, asked = view.uids[event.number - 1], view.mailbox.asked
    if uid and uid not in asked:
        return f"no session has asked to remove UID {uid}"
    return f"only {len(asked)} messages were to be removed" if view.expunged >= len(asked) else None


# --- messages ---


def _other_uid(session: KnownSession, view: OpenMailbox, event: Fetched) -> str | None:
    known = view.uids[event.number - 1] if event.number <= len(view.uids) else 0
    return f"it had UID {known}" if known and event.uid not in (None, known) else None


def _reused(session: KnownSession, view: OpenMailbox, event: Fetched) -> str | None:
    uid = event.uid or 0
    was = uid in view.gone or view.mailbox.gone.get(uid, view.since) < view.since
    return f"UID {uid} was expunged" if was else None


def _not_ascending(session: KnownSession, view: OpenMailbox, event: Fetched) -> str | None:
    uids, at, uid = view.uids, event.number - 1, event.uid
    if uid is None or at >= len(uids) or uids[at] or uid in view.gone:
        return None
    last, highest = view.highest
    neighbours = [(uids[place], place < at) for place in (at - 1, at + 1) if 0 <= place < len(uids)]
    for other, before in (*neighbours, (highest, last <= at)):
        if other and (uid <= other) == before:
            return f"UID {other} is {'before' if before else 'after'} it"
    return None


def _changed(session: KnownSession, view: OpenMailbox, event: Fetched) -> str | None:
    known = _fixed(view, event)
    for name, value in fixed(event):
        if known.get(name, value) != value:
            return f"{name or 'RFC822.SIZE'} was another"
    return None


def _other_size(session: KnownSession, view: OpenMailbox, event: Fetched) -> str | None:
    stated = {**_fixed(view, event), **dict(fixed(event))}
    for name, section in event.sections.items():
        size = stated.get(f"size of {name}")
        if section is not None and size not in (None, len(section)):
            return f"stated were {size} bytes"
    return None


def _fixed(view: OpenMailbox, event: Fetched) -> Mapping[str, Hashable]:
    uid = event.uid or (view.uids[event.number - 1] if event.number <= len(view.uids) else 0)
    known = view.mailbox.messages.get(uid)
    return {} if known is None else known.fixed


# --- ends of commands ---


def _without_data(session: KnownSession, view: OpenMailbox, sent: Sent) -> str | None:
    if sent.name not in ("FETCH", "UID FETCH"):
        return None
    answered = {
        key for key, fetched in sent.got.items() if all(getattr(fetched, name) not in (None, {}) for name in sent.wants)
    }
    asked = view.mailbox.asked
    if sent.name == "UID FETCH":
        known = [uid for uid in view.among(sent.numbers) if uid <= sent.last_uid]
        missing = [uid for uid in known if uid not in asked and uid not in answered]
        if missing:
            return f"nothing of UID {missing[0]}"
        if answered or LARGEST_NUMBER not in sent.numbers or sent.messages <= sent.expunged + _leaving(view):
            return None
        return "* is the last message"
    wanted = sum(max(0, min(last, sent.messages) - first + 1) for first, last in sent.numbers.ranges)
    short = wanted - len(answered) - sent.expunged
    short -= _leaving(view) if short > 0 else 0
    return f"nothing of {short} of {wanted} messages" if short > 0 else None


def _leaving(view: OpenMailbox) -> int:
    """Return the number of messages that may be gone but have not been expunged in this view."""
    return sum(tick is None or tick > view.since for uid, tick in view.mailbox.asked.items() if uid not in view.gone)


def _not_arrived(session: KnownSession, view: OpenMailbox, sent: Sent) -> str | None:
    """Return the fault if a message named by COPYUID or APPENDUID is missing from a mailbox opened later."""
    due = view.mailbox.due
    if not due or not sent.wants or LARGEST_NUMBER not in sent.numbers:
        return None
    shown = [key for key in sent.got if key > 0]
    first = sent.numbers.ranges[0][0] if sent.name == "UID FETCH" else min(shown, default=LARGEST_NUMBER)
    for uid, tick in due.items():
        if uid >= first and tick < view.since and uid not in sent.got and uid not in view.mailbox.asked:
            return f"UID {uid} is not there"
    return None


def _fewer(session: KnownSession, _: object, sent: Sent) -> str | None:
    """Return the fault if a mailbox opens with fewer messages than were put there and not seen since."""
    if sent.name != "SELECT" or sent.exists is None or _other_validity(session, None, sent):
        return None
    mailbox = session.known.mailbox(sent.target)
    due = sum(tick < sent.tick and uid not in mailbox.asked for uid, tick in mailbox.due.items())
    return f"{sent.exists} messages, and {due} were put there" if sent.exists < due else None


def _still_there(session: KnownSession, view: OpenMailbox, sent: Sent) -> str | None:
    moved = view.mailbox.moved
    for uid in sent.got:
        if uid in moved and view.knew(moved[uid], sent.tick):
            return f"UID {uid} was moved"
    return None


def _dropped(session: KnownSession, view: OpenMailbox, sent: Sent) -> str | None:
    for uid, fetched in sent.got.items() if "flags" in sent.wants else ():
        stored = view.mailbox.messages[uid].flags if uid in view.mailbox.messages else {}
        shown = {flag.lower() for flag in fetched.flags or ()}
        for flag, learnt in stored.items() if fetched.flags is not None else ():
            if flag not in shown and view.knew(learnt, sent.tick):
                return f"UID {uid} has lost {flag}"
    return None


def _silent(session: KnownSession, view: OpenMailbox, sent: Sent) -> str | None:
    known = session.known
    if known.announced or not session.found_silently(sent) or known.silent + 1 < known.checks.silent:
        return None
    return f"no IDLE of {known.checks.idle_s:g} s or more announced mail, {known.silent + 1} had some"


# --- mailboxes ---


def _other_validity(session: KnownSession, _: object, sent: Sent) -> str | None:
    if not sent.target:
        return None
    known, stated = session.known.mailbox(sent.target).validity, number(sent.codes.get("UIDVALIDITY", ""))
    stated = next((validity for validity, _, _ in copied(sent)), stated)
    return f"UIDVALIDITY was {known}, and is {stated}" if known and stated and known != stated else None


def _lower_next(session: KnownSession, _: object, sent: Sent) -> str | None:
    if not sent.next_uid or _other_validity(session, None, sent):
        return None
    if sent.name == "SELECT":
        stated = number(sent.codes.get("UIDNEXT", ""))
        return f"UIDNEXT is {stated}, and was {sent.next_uid}" if 0 < stated < sent.next_uid else None
    given = min((new.ranges[0][0] for _, new, _ in copied(sent)), default=sent.next_uid)
    return f"UID {given} was given, and UIDNEXT was {sent.next_uid}" if given < sent.next_uid else None


class Rule(NamedTuple):
    """A rule: its name, its RFC section, the type of its event, and the function that returns the fault, or None.

    Most rules are about an open mailbox and commands in it. The event `Sent` is a successful command.
    """

    name: str
    section: str
    event: type
    wrong: Callable[[KnownSession, Any, Any], str | None]
    opened: bool = True


RULES = (
    Rule("exists-shrinks", "RFC 9051 7.4.1", Exists, _shrinks),
    Rule("number-out-of-range", "RFC 9051 7.5.1", Expunged, _beyond),
    Rule("number-out-of-range", "RFC 9051 7.4.1", Sent, _unannounced),
    Rule("expunge-out-of-turn", "RFC 9051 7.5.1", Expunged, _out_of_turn),
    Rule("expunge-not-asked", "RFC 4315 2.1", Expunged, _not_asked),
    Rule("uid-changed", "RFC 9051 2.3.1.2", Fetched, _other_uid),
    Rule("uid-reused", "RFC 9051 2.3.1.1", Fetched, _reused),
    Rule("uid-not-ascending", "RFC 9051 2.3.1.1", Fetched, _not_ascending),
    Rule("message-changed", "RFC 9051 2.3.1.1", Fetched, _changed),
    Rule("size-wrong", "RFC 9051 2.3.4", Fetched, _other_size),
    Rule("fetch-without-data", "RFC 9051 6.4.5", Sent, _without_data),
    Rule("message-not-arrived", "RFC 4315 3", Sent, _not_arrived),
    Rule("message-not-arrived", "RFC 4315 3", Sent, _fewer, opened=False),
    Rule("moved-still-there", "RFC 6851 3.3", Sent, _still_there),
    Rule("flags-lost", "RFC 9051 6.4.6", Sent, _dropped),
    Rule("idle-silent", "RFC 2177 3", Sent, _silent),
    Rule("uidvalidity-changed", "RFC 9051 2.3.1.1", Sent, _other_validity, opened=False),
    Rule("uidnext-shrinks", "RFC 9051 2.3.1.1", Sent, _lower_next, opened=False),
)

_BY_NUMBERS = frozenset(
    (
        *("exists-shrinks", "number-out-of-range", "expunge-out-of-turn", "expunge-not-asked"),
        *("uid-changed", "uid-reused", "uid-not-ascending", "fetch-without-data"),
    )
)
"""The rules that depend on message numbers. One violation may cause others until the mailbox is reopened."""

_OF_ONE_USER = frozenset(
    (
        *("expunge-not-asked", "fetch-without-data", "message-not-arrived", "moved-still-there", "flags-lost"),
        "uidvalidity-changed",
    )
)
"""The rules that another user of a shared mailbox may seem to break."""

SessionCheck = Callable[[bytes | Response], None]
"""Takes each command that a connection sends, and each response, in order."""

_BY_EVENT: Mapping[type, list[Rule]] = {
    kind: [rule for rule in RULES if rule.event is kind] for kind in (Exists, Expunged, Fetched, Sent)
}


@dataclass(slots=True, eq=False)
class UserCheck:
    """The check of all a user's sessions.

    Events are queued until `later` calls `run`. By then, a task's next command is under way, so its time does not
    include the check.
    """

    known: Known
    later: Callable[[Callable[[], None]], object]
    now_s: Callable[[], float]
    _events: deque[tuple[KnownSession, bytes | Response, float]] = field(default_factory=deque)
    _called: bool = False

    def session(self) -> SessionCheck:
        return partial(self._add, KnownSession(self.known))

    def _add(self, session: KnownSession, event: bytes | Response) -> None:
        if type(event) in _LOOKED_AT:
            self._events.append((session, event, self.now_s()))
            if type(event) is Tagged or len(self._events) >= EVENTS_A_TURN:
                self._call()

    def _call(self) -> None:
        if not self._called:
            self._called = True
            self.later(self.run)

    def run(self) -> None:
        """Check some of the queued events."""
        self._called = False
        for _ in range(min(EVENTS_A_TURN, len(self._events))):
            session, event, at_s = self._events.popleft()
            if isinstance(event, bytes):
                session.send(event, at_s)
            elif isinstance(event, Tagged):
                if (sent := session.succeeded(event)) is not None:
                    self._check(session, sent, sent)
                session.end(event, at_s)
            else:
                self._check(session, event, next(reversed(session.under_way.values()), None))
                session.take(event)
        if self._events:
            self._call()

    def _check(self, session: KnownSession, event: Response | Sent, sent: Sent | None) -> None:
        view = session.view
        for rule in _BY_EVENT.get(type(event), ()):
            if rule.opened and (view is None or (event is sent and sent.view is not view)):
                continue
            wrong = rule.wrong(session, view, event)
            if wrong is not None:
                mailbox = view.mailbox if rule.opened and view else self.known.mailbox(sent.target if sent else b"")
                if mailbox.shared and rule.name in _OF_ONE_USER:
                    continue
                after = view.broken if view is not None and rule.name in _BY_NUMBERS else ""
                if view is not None and rule.name in _BY_NUMBERS:
                    view.broken = after or rule.name
                excerpt, after = _excerpt(sent, event, wrong), "" if after == rule.name else after
                violation = Violation(rule.name, rule.section, self.known.user, mailbox.name, excerpt, after=after)
                self.known.checks.broken(violation)


def _excerpt(sent: Sent | None, event: Response | Sent, wrong: str) -> str:
    """Return what was sent and received, without contents, and the fault."""
    if isinstance(event, Fetched):
        sections = [f"BODY[{name}] {{{len(data or b'')}}}" for name, data in event.sections.items()]
        items = (("UID", event.uid), ("RFC822.SIZE", event.size_bytes), ("ENVELOPE", event.envelope and "(...)"))
        shown = [f"{name} {value}" for name, value in items if value is not None]
        shown += [] if event.flags is None else [f"FLAGS ({' '.join(sorted(event.flags))})"]
        response = f"* {event.number} FETCH ({' '.join([*shown, *sections])})"
    elif isinstance(event, Exists | Expunged):
        response = f"* {event[0]} {'EXISTS' if isinstance(event, Exists) else 'EXPUNGE'}"
    else:
        response = "OK"
    line = "" if sent is None else sent.line[:LONGEST_SHOWN_BYTES].decode("ascii", "replace") + " -> "
    return printable(f"{line}{response}: {wrong}")[:LONGEST_EXCERPT]
