"""A user's mailboxes as their sessions know them, from commands sent and responses received. No I/O.

The problem: a server contradicts itself only if a response denies what an earlier one made certain. That is rarely
obvious. Responses to several commands are interleaved, message numbers shift with each EXPUNGE, and two of a user's
sessions may see the same mailbox as of different times: a server may show an open mailbox as it was (RFC 9051 section
5.2). A check that took every difference for a fault would accuse every good server.

So each fact has an age. `tick` counts the commands of all the user's sessions, once when sent and once when ended:

    session A                                   session B                       tick
    a1 SELECT INBOX                                                             1
    * 2 EXISTS, a1 OK                           A's view is `since` tick 1      2
                                                b1 SELECT INBOX                 3
                                                * 2 EXISTS, b1 OK               4
    a2 UID STORE 7 +FLAGS (\\Seen)                                              5
    a2 OK                                       7 is seen: (6, since 1)         6
                                                b2 UID FETCH 7 (FLAGS)          7

The server may still answer `FLAGS ()` to b2, as B opened the mailbox at 3, before 6. If A asked after tick 6, the
answer would have to show the flag; so would one to B after another SELECT. `OpenMailbox.knew` is this rule, and
`state_rules` applies it before it reports a contradiction.

Three classes hold what is known. `KnownMailbox` is a mailbox as known to all sessions, by UID: each message's fixed
facts, the flags stored, and the removals requested. `OpenMailbox` is one session's view: which number has which UID.
`Sent` is a command under way, with the state when it was sent, to which its answer may refer. `KnownSession` takes each
line: `send` for commands, `take` for responses, `end` for tagged ones; the rules are applied to an event before `take`.

In doubt, knowledge is dropped, not guessed: if EXISTS falls, if commands overlap a SELECT, if a mailbox has more than
`MOST_MESSAGES`. A fault may be missed there; none is invented. Of the `shared` mailbox, the public folder, only what
no other user can change is certain.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from loadsim.errors import ProtocolError, printable
from loadsim.model.state_checks import StateChecks
from loadsim.protocols.imap.grammar import LARGEST_NUMBER, number_of, numbers_of
from loadsim.protocols.imap.names import decode_name
from loadsim.protocols.imap.reading import leaves_of
from loadsim.protocols.imap.responses import Condition, Exists, Expunged, Fetched, Response, Tagged
from loadsim.protocols.imap.sets import NumberSet

MOST_MESSAGES = 10_000
"""The most messages in a checked mailbox, and the most remembered per mailbox."""

MOST_APPENDED = 16
"""The most messages in one APPEND."""

NOTHING = NumberSet(())

ALL_FLAGS = r"\Seen \Answered \Flagged \Deleted \Draft"
"""The flags that a mailbox keeps if the server sends no PERMANENTFLAGS (RFC 9051 section 7.1)."""

_COMMAND = re.compile(
    rb"(\S+) (UID )?(\S+)(?: (\"(?:[^\"\\]|\\.)*\"|[^ \r]+))?(?: (\"(?:[^\"\\]|\\.)*\"|[^ \r]+))?(?: ([^\r{]*))?"
)
"""A command with its tag, its first two arguments, and the rest of its first line."""

Learnt = tuple[int, int]
"""The tick of an OK, and `OpenMailbox.since` of the session that received it."""

_ITEMS = ((b"FLAGS", "flags"), (b"SIZE", "size_bytes"), (b"ENVELOPE", "envelope"), (b"STRUCTURE", "structure"))
_REMOVES = frozenset({"UID MOVE", "UID EXPUNGE"})
_OF_MESSAGES = _REMOVES | {"FETCH", "UID FETCH", "UID STORE", "UID COPY"}


@dataclass(slots=True, eq=False)
class Sent:
    """A command under way. `numbers` are those of its messages, `target` is the mailbox that it names, if any.

    `next_uid` is the lowest UID that a new message in `target` could get when the command was sent.
    """

    name: str
    line: bytes
    tick: int
    at_s: float
    numbers: NumberSet = NOTHING
    target: bytes = b""
    rest: bytes = b""
    wants: tuple[str, ...] = ()
    view: OpenMailbox | None = None  # the open mailbox
    messages: int = 0  # in it
    last_uid: int = 0  # the highest known UID in it
    next_uid: int = 0
    expunged: int = 0  # messages, since then
    highest: int = 0  # the highest message number in its answer
    got: dict[int, Fetched] = field(default_factory=dict)  # by UID, or by negated number
    alone: bool = True  # no other command overlapped it
    codes: dict[str, str] = field(default_factory=dict)  # of its untagged and tagged OKs
    exists: int | None = None  # of SELECT


@dataclass(slots=True, eq=False)
class KnownMessage:
    """A message's fixed facts, and its stored flags."""

    fixed: dict[str, Hashable] = field(default_factory=dict)
    flags: dict[str, Learnt] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class KnownMailbox:
    """A mailbox as known to all of the user's sessions. UIDs that a session asked to remove may vanish at any time.

    Other users may change a `shared` one.
    """

    name: str
    shared: bool = False
    validity: int = 0
    next_uid: int = 0
    messages: dict[int, KnownMessage] = field(default_factory=dict)
    asked: dict[int, int | None] = field(default_factory=dict)  # with the ticks of the OKs for their removal
    moved: dict[int, Learnt] = field(default_factory=dict)  # UIDs, by MOVE
    due: dict[int, int] = field(default_factory=dict)  # UIDs from COPYUID and APPENDUID, with the ticks of the OKs
    gone: dict[int, int] = field(default_factory=dict)  # UIDs, with the ticks before their EXPUNGE

    def message(self, uid: int) -> KnownMessage:
        if len(self.messages) >= MOST_MESSAGES and uid not in self.messages:
            del self.messages[next(iter(self.messages))]
        return self.messages.setdefault(uid, KnownMessage())


@dataclass(slots=True, eq=False)
class OpenMailbox:
    """An open mailbox as one session sees it. `uids` has the UID of each message, 0 if unknown."""

    mailbox: KnownMailbox
    since: int
    uids: list[int]
    keeps: frozenset[str]  # PERMANENTFLAGS in lower case
    known: set[int] = field(default_factory=set)  # UIDs
    gone: set[int] = field(default_factory=set)
    highest: tuple[int, int] = (0, 0)  # number and UID of the last message whose UID is known
    expunged: int = 0
    idle_s: float = 0.0  # the length of the last IDLE
    broken: str = ""  # the first broken rule about numbers

    def among(self, numbers: NumberSet) -> list[int]:
        """Return the known UIDs among these."""
        if numbers.size <= len(self.known):
            return [uid for uid in numbers if uid in self.known]
        return [uid for uid in self.known for first, last in numbers.ranges if first <= uid <= last]

    def knew(self, learnt: Learnt, asked: int) -> bool:
        """Return whether the answer to a command sent at the tick `asked` must reflect a fact."""
        tick, since = learnt
        return tick < (asked if since == self.since else self.since)


@dataclass(slots=True, eq=False)
class Known:
    """Everything that a user's sessions know. `silent` counts IDLEs that missed mail found by the next command.

    `shared` is the public folder as an argument; empty if there is none.
    """

    checks: StateChecks
    user: int
    tick: int = 0
    mailboxes: dict[bytes, KnownMailbox] = field(default_factory=dict)
    announced: int = 0
    silent: int = 0
    shared: bytes = b""

    def mailbox(self, argument: bytes, again: bool = False) -> KnownMailbox:
        """Return the mailbox that a command names; with `again`, a new one, since its UIDVALIDITY has changed."""
        key = b"INBOX" if argument.upper() == b"INBOX" else argument
        if again or key not in self.mailboxes:
            name = printable(decode_name(key.decode("ascii", "replace").strip('"')))
            self.mailboxes[key] = KnownMailbox(name, key == self.shared)
        return self.mailboxes[key]


@dataclass(slots=True, eq=False)
class KnownSession:
    """One session. Rules are applied to an event before `take`."""

    known: Known
    view: OpenMailbox | None = None
    under_way: dict[str, Sent] = field(default_factory=dict)
    opening: Sent | None = None  # a SELECT under way
    before: int | None = None  # messages, when DONE was sent

    # --- commands ---

    def send(self, line: bytes, at_s: float) -> None:
        """Take a command's first line, up to a literal. After DONE, new mail no longer counts as announced by IDLE."""
        match = _COMMAND.match(line)
        if match is None:
            self.before = len(self.view.uids) if self.view is not None else None
            return
        tag, uid, verb, first, second, rest = match.groups(b"")
        self.known.tick += 1
        sent = Sent((uid + verb).decode(), match[0], self.known.tick, at_s, view=self.view)
        sent.alone = not self.under_way
        for other in self.under_way.values():
            other.alone = False
        self.under_way[tag.decode()] = sent
        if sent.name in ("SELECT", "APPEND", "CREATE", "DELETE"):
            sent.target = first
        elif sent.name in ("UID MOVE", "UID COPY"):
            sent.target = second
        if sent.target:
            sent.next_uid = self.known.mailbox(sent.target).next_uid
        if sent.name in ("SELECT", "CLOSE", "UNSELECT", "LOGOUT"):
            self.view = None
            self.opening = sent if sent.name == "SELECT" else self.opening
        elif self.view is not None and sent.name in _OF_MESSAGES:
            self._about(sent, self.view, first, second + b" " + rest)

    def _about(self, sent: Sent, view: OpenMailbox, numbers: bytes, rest: bytes) -> None:
        """Take a command about messages in the open mailbox."""
        try:
            sent.numbers = numbers_of(numbers.decode().replace("*", str(LARGEST_NUMBER)))
        except ProtocolError:  # beyond the largest UID, which a server may assign
            return
        sent.messages, sent.last_uid, sent.rest = len(view.uids), view.highest[1], rest.upper()
        if sent.name in ("FETCH", "UID FETCH"):
            sent.wants = tuple(name for item, name in _ITEMS if item in sent.rest)
            sent.wants += ("sections",) if b"[" in sent.rest else ()
        elif sent.name in _REMOVES or b"\\DELETED" in sent.rest:
            view.mailbox.asked.update(dict.fromkeys(sent.numbers))
        if sent.name == "UID STORE" and not sent.rest.startswith(b"+"):
            for uid in sent.numbers:
                if uid in view.mailbox.messages:
                    view.mailbox.messages[uid].flags.clear()

    # --- responses ---

    def take(self, response: Response) -> None:
        """Take an untagged response."""
        view, opening = self.view, self.opening
        if isinstance(response, Condition):
            if response.code is not None:
                for sent in self.under_way.values():
                    sent.codes[response.code.name] = response.code.arguments
        elif opening is not None:
            if isinstance(response, Exists):
                opening.exists = response.messages
            elif isinstance(response, Expunged) and opening.exists:
                opening.exists -= 1
        elif view is None:
            return
        elif isinstance(response, Exists):
            self._exists(view, response.messages)
        elif isinstance(response, Expunged):
            self._expunged(view, response.number)
        elif isinstance(response, Fetched):
            self._fetched(view, response)

    def _exists(self, view: OpenMailbox, messages: int) -> None:
        if messages > MOST_MESSAGES:
            self.view = None
            return
        idles = any(sent.name == "IDLE" for sent in self.under_way.values())
        self.known.announced += messages > len(view.uids) and idles and self.before is None
        if messages < len(view.uids):  # it is unknown which ones are gone
            view.uids.clear()
            view.known.clear()
            view.highest = (0, 0)
        view.uids += [0] * (messages - len(view.uids))

    def _expunged(self, view: OpenMailbox, number: int) -> None:
        if number > len(view.uids):
            return
        uid = view.uids.pop(number - 1)
        view.expunged += 1
        for sent in self.under_way.values():
            sent.expunged += 1
            sent.highest -= number <= sent.highest
        if self.before is not None:
            self.before -= 1
        if uid:
            view.gone.add(uid)
            if uid in view.mailbox.asked:  # else it breaks `expunge-not-asked`, and other sessions learn nothing
                view.mailbox.gone.setdefault(uid, self.known.tick)
            view.known.discard(uid)
        last, highest = view.highest
        if number < last:
            view.highest = (last - 1, highest)
        elif number == last:
            at = next((at for at in range(number - 1, 0, -1) if view.uids[at - 1]), 0)
            view.highest = (at, view.uids[at - 1] if at else 0)

    def _fetched(self, view: OpenMailbox, fetched: Fetched) -> None:
        number = fetched.number
        is_beyond = number > len(view.uids)  # James 3.8 and GreenMail 2.1 send EXISTS after the data
        uid = fetched.uid or (0 if is_beyond else view.uids[number - 1])
        for sent in self.under_way.values():
            sent.highest = max(sent.highest, number)
            if sent.name in ("FETCH", "UID FETCH"):
                key = uid or -number
                sent.got[key] = sent.got[key].joined(fetched) if key in sent.got else fetched
        if not uid or is_beyond:
            return
        view.uids[number - 1] = uid
        view.known.add(uid)
        view.highest = max(view.highest, (number, uid))
        mailbox = view.mailbox
        mailbox.next_uid = max(mailbox.next_uid, uid + 1)
        if fetched.flags is not None and "\\deleted" in map(str.lower, fetched.flags):
            mailbox.asked.setdefault(uid, None)
        mailbox.due.pop(uid, None)
        mailbox.message(uid).fixed.update(fixed(fetched))

    def succeeded(self, tagged: Tagged) -> Sent | None:
        """Return the command that has ended, with its response code; None if it was refused."""
        sent = self.under_way.get(tagged.tag) if tagged.status == "OK" else None
        if sent is not None and tagged.code is not None:
            sent.codes[tagged.code.name] = tagged.code.arguments
        return sent

    def end(self, tagged: Tagged, at_s: float) -> None:
        """Take the end of a command."""
        self.known.tick += 1
        sent = self.under_way.pop(tagged.tag, None)
        if sent is self.opening:
            self.opening = None
        if sent is None or tagged.status != "OK":
            return
        if sent.name == "SELECT":
            self._selected(sent)
        elif sent.name in ("CREATE", "DELETE"):
            self.known.mailboxes.pop(sent.target, None)
        elif sent.name == "IDLE" and self.view is not None:
            self.view.idle_s = at_s - sent.at_s
            return
        elif sent.name == "UID STORE" and sent.view is self.view is not None and sent.rest.startswith(b"+"):
            self._stored(sent, self.view)
        elif sent.name in _REMOVES and sent.view is not None:
            sent.view.mailbox.asked.update(dict.fromkeys(sent.numbers, self.known.tick))
        self._copied(sent)
        self.known.silent += self.found_silently(sent)
        self.before = None

    def _selected(self, sent: Sent) -> None:
        """Open a mailbox, unless other commands overlapped: then it is unclear which data is whose."""
        validity, uid_next = (number(sent.codes.get(code, "")) for code in ("UIDVALIDITY", "UIDNEXT"))
        mailbox = self.known.mailbox(sent.target)
        if validity != mailbox.validity:
            mailbox = self.known.mailbox(sent.target, again=mailbox.validity > 0)
            mailbox.validity = validity
        mailbox.next_uid = max(mailbox.next_uid, uid_next)
        if validity and sent.alone and sent.exists is not None and sent.exists <= MOST_MESSAGES:
            keeps = sent.codes.get("PERMANENTFLAGS", ALL_FLAGS).strip("()").lower().split()
            self.view = OpenMailbox(mailbox, sent.tick, [0] * sent.exists, frozenset(keeps))

    def _stored(self, sent: Sent, view: OpenMailbox) -> None:
        named = re.findall(r"[\\$\w]+", sent.rest.decode("ascii", "replace").partition("(")[2].lower())
        kept = [flag for flag in named if flag in view.keeps]
        for uid in view.among(sent.numbers) if kept else ():
            view.mailbox.message(uid).flags.update(dict.fromkeys(kept, (self.known.tick, view.since)))

    def _copied(self, sent: Sent) -> None:
        """Take COPYUID or APPENDUID: messages that a mailbox has gained or lost."""
        for validity, new, old in copied(sent):
            mailbox = self.known.mailbox(sent.target)
            mailbox.validity = mailbox.validity or validity
            mailbox.due.update(dict.fromkeys(new, self.known.tick))
            mailbox.next_uid = max(mailbox.next_uid, *(last + 1 for _, last in new.ranges), 0)
            if sent.name == "UID MOVE" and sent.view is not None:
                sent.view.mailbox.moved.update(dict.fromkeys(old, (self.known.tick, sent.view.since)))

    def found_silently(self, ended: Sent) -> bool:
        """Return whether a command found mail right after a long IDLE that announced none.

        APPEND may properly find one message: users save mail that they have just sent to a list they are on.
        """
        view = self.view
        if self.before is None or view is None or view is not ended.view or ended.name == "IDLE":
            return False
        own = ended.name == "APPEND"
        return view.idle_s >= self.known.checks.idle_s and len(view.uids) > self.before + own


def copied(sent: Sent) -> Iterator[tuple[int, NumberSet, NumberSet]]:
    """Yield UIDVALIDITY, new UIDs and old UIDs from COPYUID or APPENDUID (RFC 4315 section 3).

    Codes with more UIDs than the command can have are skipped, since a server could fill memory with them.
    """
    most = max(sent.numbers.size, MOST_APPENDED)
    name = "APPENDUID" if sent.name == "APPEND" else "COPYUID" if sent.name in ("UID COPY", "UID MOVE") else ""
    words = sent.codes.get(name, "").split()
    if len(words) == (3 if name == "COPYUID" else 2):
        with suppress(ProtocolError):
            validity, new, old = number_of(words[0]), numbers_of(words[-1]), numbers_of(words[1])
            if new.size == old.size <= most:
                yield validity, new, old


def fixed(fetched: Fetched) -> Iterator[tuple[str, Hashable]]:
    """Yield a message's fixed facts by name (RFC 9051 section 2.3.1.1), with text as hashes.

    A part's size is named after its section.
    """
    if fetched.envelope is not None:
        yield "Message-ID", fetched.envelope.message_id
    if fetched.size_bytes is not None:
        yield "size of ", fetched.size_bytes
    if fetched.structure is not None:
        for name, leaf, _ in leaves_of(fetched.structure):
            yield f"size of {name}", leaf.size_bytes
    for name, section in fetched.sections.items():
        yield f"BODY[{name}]", hash(section)


def number(digits: str) -> int:
    """Return a number; 0 if it is missing or malformed."""
    try:
        return number_of(digits)
    except ProtocolError:
        return 0
