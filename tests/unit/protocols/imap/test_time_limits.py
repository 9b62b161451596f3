"""Every IMAP command ends within its limit, with an answer or a documented failure.

In virtual time, on a transport without a network: a command that never ends leaves the loop nothing to wait for, and
the loop says so.
"""

import asyncio
import gc
import re
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from functools import wraps
from typing import Any

import pytest
from imap_script import Ear

from loadsim.engine.clock import VirtualLoop, run_virtual
from loadsim.errors import GeneratorFailed, MailMissing, ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.ports import INBOX, Account, Endpoint, Flag, Part
from loadsim.model.records import LOOP
from loadsim.protocols.error_mapping import internal
from loadsim.protocols.imap.commands import Literal
from loadsim.protocols.imap.connection import LARGEST_ANSWER_BYTES, Connection
from loadsim.protocols.imap.header_lists import Ref
from loadsim.protocols.imap.mailbox import ImapMailbox
from loadsim.protocols.imap.responses import Response
from loadsim.protocols.imap.session import ImapSession
from loadsim.protocols.imap.states import READY
from loadsim.protocols.imap.under_way import Answer
from loadsim.protocols.imap.wire import LARGEST_LITERAL_BYTES
from loadsim.protocols.lines import BARE_LF

LIMIT_S = 30.0
ACCOUNT = Account(1, "user1", "user1@sim.test", "secret")
Said = Sequence[tuple[float, bytes]]
"""Pieces that a server sends: seconds after the piece before, and bytes.

TAG is that of the last command, IDLER that of the last IDLE.
"""


class Line:
    """A transport to a server that answers each write with the next of its reactions, and then with silence."""

    def __init__(self, protocol: asyncio.Protocol, react: Callable[[bytes], Said]) -> None:
        self._protocol = protocol
        self._react = react
        self._loop = asyncio.get_running_loop()
        self.arrival, self.began_ns = (0, LOOP), 0
        self._closing = False
        self._paused = False
        self._waiting: list[bytes] = []
        self._tag = self._idler = b"t0"
        self._at_s = 0.0

    def write(self, data: bytes) -> None:
        """Take a command, or a part of one; plan what the server does then."""
        if tags := re.findall(rb"^(t\d+) ", data, re.MULTILINE):
            self._tag = tags[-1]
            if b" IDLE" in data:
                self._idler = self._tag
        self.plan(self._react(data))

    def plan(self, said: Said) -> None:
        """Let the server send this, one piece after the other."""
        for delay_s, piece in said:
            self._at_s = max(self._at_s, self._loop.time()) + delay_s
            self._loop.call_at(self._at_s, self._arrive, self._addressed(piece))

    def _addressed(self, piece: bytes) -> bytes:
        return piece.replace(b"TAG", self._tag).replace(b"IDLER", self._idler)

    def _arrive(self, data: bytes) -> None:
        self._waiting.append(data)
        while self._waiting and not self._paused and not self._closing:
            self._protocol.data_received(self._waiting.pop(0))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._loop.call_soon(self._arrive, b"")

    def get_extra_info(self, _: str) -> None:
        return None


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run in virtual time; fails if anything was told to asyncio's exception handler."""
    told: list[dict[str, Any]] = []

    async def watched(_: VirtualLoop) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        try:
            await main()
        finally:
            gc.collect(1)  # asyncio reports an exception that was not retrieved when it is collected

    run_virtual(watched)
    assert told == []


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def running(**values: Any) -> None:
        run(lambda: test(**values))

    return running


def connected(
    react: Callable[[bytes], Said], received: Callable[[Response], None] = lambda _: None
) -> tuple[Connection, Line, Ear]:
    ear = Ear()
    connection = Connection(ACCOUNT, ear, LIMIT_S, received, lambda _: None)
    connection._state = READY
    line = Line(connection, react)
    connection.connection_made(line)  # type: ignore[arg-type]
    return connection, line, ear


async def ending(call: asyncio.Future[Answer]) -> tuple[Answer | TaskFailed, float]:
    """Return the end of a command, and the seconds until then."""
    loop = asyncio.get_running_loop()
    since_s = loop.time()
    try:
        found: Answer | TaskFailed = await call
    except TaskFailed as failure:
        found = failure
    return found, round(loop.time() - since_s, 6)


def fails(said: Said, name: str, *arguments: bytes | Literal, **named: Any) -> TaskFailed:
    """Return the failure of a command on a server that answers each write with this; check its time and its report."""
    found: list[TaskFailed] = []

    async def main() -> None:
        connection, _, ear = connected(lambda _: said)
        failure, took_s = await ending(connection.send(name, *arguments, **named))
        assert isinstance(failure, TaskFailed)
        assert took_s <= LIMIT_S
        assert [(command, outcome) for command, outcome, _, _ in ear.commands] == [(f"IMAP {name}", failure.outcome)]
        assert not connection._under_way
        found.append(failure)
        connection.abort()
        await connection.wait_closed()

    run(main)
    return found[0]


@pytest.mark.parametrize(
    ("state", "name", "first", "plus", "ok", "no"),
    [
        ("READY", "NOOP", b"", "IMAP continuation", "READY", "READY"),
        ("LITERAL", "APPEND", b"", "READY", "IMAP literal", "READY"),
        ("CHALLENGE", "AUTHENTICATE", b"", "RESPONSE", "READY", "READY"),
        ("RESPONSE", "AUTHENTICATE", b"+ \r\n", "IMAP continuation", "IMAP AUTHENTICATE", "READY"),
        ("IDLE", "IDLE", b"", "IDLING", "IMAP IDLE", "READY"),
        ("IDLING", "IDLE", b"+ \r\n", "IDLING", "IMAP IDLE", "IMAP IDLE"),
        ("IDLING", "IDLE", b"+ \r\n+ \r\n", "IMAP continuation", "IMAP IDLE", "IMAP IDLE"),
        ("STARTTLS", "STARTTLS", b"", "IMAP continuation", "HANDSHAKE", "READY"),
        ("HANDSHAKE", "STARTTLS", b"t1 OK\r\n", "IMAP continuation", "IMAP tag", "IMAP tag"),
    ],
)
@in_virtual_time
async def test_a_response_leads_to_the_next_state_or_ends_the_connection(
    state: str, name: str, first: bytes, plus: str, ok: str, no: str
) -> None:
    """In each state: a continuation, and each answer to the newest command. Behind any but the first, others wait."""
    for answer, then in ((b"+ ", plus), (b"t1 OK", ok), (b"t1 NO", no), (b"t1 BAD", no)):
        connection, _, _ = connected(lambda _: [])
        argument = [Literal(b"x")] if state == "LITERAL" else []
        command = connection.send(name, *argument, challenged=lambda _: None)
        connection.data_received(first)
        assert connection._state.name == state
        connection.data_received(answer + b"\r\n")
        assert then == (connection.failure.kind if connection.failure else connection._state.name)
        connection.abort()
        await asyncio.wait((command,))
        command.exception()


@pytest.mark.parametrize("name", ["APPEND", "AUTHENTICATE", "IDLE", "STARTTLS"])
def test_commands_wait_in_all_states_but_ready(name: str) -> None:
    """Behind a literal until it has been sent, behind IDLE until it has ended by DONE, behind others until they end."""
    written: list[bytes] = []

    def silent(data: bytes) -> Said:
        written.append(data)
        return []

    async def main() -> None:
        connection, _, _ = connected(silent)
        argument = [Literal(b"x")] if name == "APPEND" else []
        commands = [connection.send(name, *argument, challenged=lambda _: None), connection.send("NOOP")]
        if name != "STARTTLS":
            connection.data_received(b"+ \r\n")
        if name == "AUTHENTICATE":
            connection.respond(b"=")
        assert (b"t2 NOOP\r\n" in written) == (name == "APPEND")
        connection.data_received(b"t1 NO\r\n")
        assert written[-1] == b"t2 NOOP\r\n"
        connection.abort()
        await asyncio.gather(*commands, return_exceptions=True)

    run(main)


def raising(error: Exception) -> Callable[[object], None]:
    def callback(_: object) -> None:
        raise error

    return callback


@pytest.mark.parametrize("error", [ZeroDivisionError(), RecursionError(), MemoryError(), KeyError("x")], ids=repr)
def test_an_internal_error_is_generator_failed(error: Exception) -> None:
    """An error in a callback ends this session only, and does not reach asyncio's exception handler."""
    failure = fails([(0, b"TAG OK\r\n")], "NOOP", then=raising(error))
    assert isinstance(failure, GeneratorFailed)
    assert failure.kind == internal(error).kind

    async def main() -> None:
        connection, _, _ = connected(lambda _: [(0, b"* 1 EXISTS\r\nTAG OK\r\n")], received=raising(error))
        assert isinstance((await ending(connection.send("NOOP")))[0], GeneratorFailed)

    run(main)


@pytest.mark.parametrize("piece", [b"", b"* OK still here\r\n", b"* 1 EXISTS\r\n"])
def test_a_trickling_answer_does_not_extend_the_limit(piece: bytes) -> None:
    """A byte of the answer, or a whole response, each second less than the limit: the limit is the command's."""
    for stream in (b"TAG OK in the end, after all\r\n", b"* 1 FETCH (BODY[1] {99999}\r\n" + b"x" * 99):
        said = [(LIMIT_S - 1, piece or stream[at : at + 1]) for at in range(len(stream))]
        failure = fails([(0, b"* OK\r\n"), *said], "NOOP")
        assert isinstance(failure, ServerSilent)


@pytest.mark.parametrize(
    ("name", "said", "line"),
    [
        ("AUTHENTICATE", b"", ""),
        ("AUTHENTICATE", b"* OK still here\r\n", ""),
        ("AUTHENTICATE", b"TAG OK done\n", f"t1 OK done ({BARE_LF})"),  # mailutils 3.21
        ("AUTHENTICATE", b"TAG OK all " + b"x" * 99 + b"\n* 1 EXISTS", f"t1 OK all ... ({BARE_LF})"),
        ("AUTHENTICATE", b"TAG OK it is secret\n", f"t1 OK it is *** ({BARE_LF})"),
        ("AUTHENTICATE", b"TAG OK it is secr", "t1 OK it is ... (incomplete)"),
        ("AUTHENTICATE", b"+ PDU3MTMyODkwNzMzMjYwNTE2MTc1LjBAbG9jYWxob3N0Pg==\n", f"+ *** ({BARE_LF})"),
        ("AUTHENTICATE", b"a9 the rest of a text\n", f"*** ({BARE_LF})"),
        ("UID FETCH", b'* 1 FETCH (BODY[1] "private', '* 1 FETCH (BODY[1] "***"... (incomplete)'),
        ("LIST", b'* LIST () "/" {99}\r\na\nb', '* LIST () "/" {99 bytes}... (incomplete)'),
    ],
)
def test_a_time_out_quotes_the_last_line(name: str, said: bytes, line: str) -> None:
    """Masked as kept lines are."""
    failure = fails([(0, said)], name, challenged=lambda _: None)
    assert (type(failure), failure.kind, failure.line) == (ServerSilent, f"no answer to {name}", line)


def test_a_continuation_does_not_extend_the_limit() -> None:
    """A server that asks for literal after literal just within the limit: the command's own limit counts."""
    failure = fails([(LIMIT_S - 1, b"+ go\r\n")], "APPEND", *[Literal(b"x")] * 20)
    assert isinstance(failure, ServerSilent)


@in_virtual_time
async def test_each_pipelined_command_has_its_own_limit() -> None:
    """The one timer is set again when the first command's limit is over."""
    connection, _, _ = connected(lambda data: [(0, b"TAG OK\r\n")] if b"NOOP" in data else [])
    await connection.send("NOOP")
    await asyncio.sleep(LIMIT_S / 2)
    failure, took_s = await ending(connection.send("CHECK"))
    assert isinstance(failure, ServerSilent)
    assert took_s == LIMIT_S


@in_virtual_time
async def test_bye_without_a_close_ends_an_idle_session() -> None:
    """While idling as well as between commands."""
    for idling in (True, False):
        connection, line, _ = connected(lambda _: [(0, b"+ idling\r\n")])
        if idling:
            await connection.idle()
        line.plan([(1, b"* BYE good night\r\n")])
        await asyncio.sleep(2)
        assert isinstance(connection.failure, ServerLost)
        assert str(connection.failure) == "BYE: good night"


FLOODS = [
    b"* 1 FETCH (FLAGS ())\r\n", b'* LIST () "/" x\r\n', b"* 5 EXISTS\r\n", b"* 1 EXPUNGE\r\n", b"* NO really\r\n",
    b"* OK [ALERT] x\r\n", b"* X-UNKNOWN\r\n", b"* SEARCH 1 2 3\r\n", b"* STATUS INBOX (MESSAGES 1)\r\n",
    b"* CAPABILITY IMAP4rev1\r\n",
]  # fmt: skip


@in_virtual_time
async def test_untagged_data_goes_to_the_command_of_its_kind() -> None:
    """Each command under way gets untagged data of its own kinds only, and what is of none."""
    connection, line, _ = connected(lambda _: [])
    calls = [connection.send(name) for name in ("UID FETCH", "LIST", "NOOP", "UID SEARCH", "CAPABILITY", "STATUS")]
    line.plan([(0, b"".join(FLOODS) + b"".join(b"t%d OK\r\n" % tag for tag in range(1, 7)))])
    answers = await asyncio.gather(*calls)
    assert [[type(each).__name__ for each in answer.data] for answer in answers] == [
        ["Fetched"],
        ["ListEntry", "MailboxStatus"],
        [],
        ["Unknown", "Search"],
        ["Capability"],
        ["Unknown", "MailboxStatus"],
    ]
    connection.abort()


def test_the_largest_attachment_and_listing_are_accepted() -> None:
    """The limit is above what is legitimate: 50,000 headers, or the largest literal."""
    header = b'* 50000 FETCH (UID 50000 FLAGS (\\Seen) RFC822.SIZE 12345 ENVELOPE ("%b" "%b" %b)' % (
        b"Mon, 7 Feb 1994 21:52:25 -0800",
        b"s" * 100,
        b" ".join([b'(("A User" NIL "user12345" "example.test"))'] * 6 + [b'NIL "<%b>"' % (b"i" * 60)]),
    )
    stream = header + b" BODY[HEADER.FIELDS (X-LOADSIM)] {250}\r\n" + b"X" * 250 + b")\r\n"

    async def main() -> None:
        connection, _, _ = connected(lambda _: [])
        call = connection.send("UID FETCH")
        connection.data_received(stream)
        assert connection.failure is None
        assert 0 < 50_000 * connection._wire.weight < LARGEST_ANSWER_BYTES
        before = connection._wire.weight
        attachment = b"* 1 FETCH (BODY[1] {%d}\r\n%b)\r\n" % (LARGEST_LITERAL_BYTES, bytes(LARGEST_LITERAL_BYTES))
        connection.data_received(attachment)
        assert LARGEST_LITERAL_BYTES < connection._wire.weight - before < LARGEST_ANSWER_BYTES // 2
        connection.data_received(b"t1 OK\r\n")
        assert len((await call).data) == 2
        connection.abort()

    run(main)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"NO [OVERQUOTA] full", "NO [OVERQUOTA] NOOP"),
        (b"NO [overquota] full", "NO [OVERQUOTA] NOOP"),
        (b"BAD [CLIENTBUG] you", "BAD [CLIENTBUG] NOOP"),
        (b"NO [X-12345] chosen", "NO [other] NOOP"),
        (b"no [%b] chosen" % (b"A" * 5000), "NO [other] NOOP"),
        (b"NO [NOT A CODE] chosen", "NO [other] NOOP"),
        (b"NO [] none", "NO NOOP"),
        (b"NO plainly", "NO NOOP"),
        (b"BAD", "BAD NOOP"),
    ],
)
def test_refusals_are_counted_by_registered_code(text: bytes, kind: str) -> None:
    """A server chooses among registered codes only; its own words stay in the line."""
    failure = fails([(0, b"TAG " + text + b"\r\n")], "NOOP")
    assert isinstance(failure, ServerRefused)
    assert failure.kind == kind
    assert len(failure.line) <= 200


def in_inbox(answers: Sequence[bytes], offered: set[str]) -> tuple[ImapMailbox, Connection]:
    """A mailbox with the Inbox open, on a server with these answers to its commands."""
    left = iter(answers)
    session = ImapSession(Endpoint("sim.test", 143), None, ACCOUNT, Ear(), LIMIT_S)
    connection, _, _ = connected(lambda _: [(0, next(left))])
    session.connection, session.offered = connection, frozenset(offered)
    session.open, session.validity[INBOX], session.count = INBOX, 7, 3
    return ImapMailbox(session), connection


REFS = [Ref(INBOX, 7, uid) for uid in (5, 6, 9)]
OK = b"TAG OK\r\n"
REMOVED = b"* 1 EXPUNGE\r\n" * 3
MOVED = b"* OK [COPYUID 7 5:6,9 1:3]\r\nTAG OK\r\n"
"""MOVE without EXPUNGE."""


@pytest.mark.parametrize(
    ("code", "done"),
    [(code, True) for code in (b"5:6,9", b"9,6,5", b"1:4294967295")]
    + [(code, False) for code in (b"6:4294967295", b"5:6", b"10")],
)
@in_virtual_time
async def test_a_copy_must_name_all_messages(code: bytes, done: bool) -> None:
    """In COPYUID. Sets of billions are judged by their ranges: to go through one raises `ProtocolError`."""
    box, _ = in_inbox([b"TAG OK [COPYUID 7 %b 1:3] done\r\n" % code], {"UIDPLUS"})
    with nullcontext() if done else pytest.raises(ServerRefused, match="UID COPY without effect"):
        await box.copy(REFS, "Sent")


@pytest.mark.parametrize(
    ("answers", "offered", "failure", "says"),
    [
        ([OK, OK, REMOVED + b"TAG OK\r\n"], {"UIDPLUS"}, ServerRefused, "UID COPY without effect"),
        ([b"* SEARCH\r\nTAG OK\r\n", OK, OK, REMOVED + b"TAG OK\r\n"], set(), None, ""),
        ([b"TAG OK [COPYUID 7 5:6 1:2] done\r\n"], {"MOVE", "UIDPLUS"}, MailMissing, "UID MOVE without effect"),
        ([MOVED, OK], {"MOVE", "UIDPLUS"}, None, ""),
        ([MOVED, b"* 2 FETCH (UID 6)\r\nTAG OK\r\n"], {"MOVE", "UIDPLUS"}, ServerRefused, "UID MOVE leaves messages"),
    ],
)  # fmt: skip
@in_virtual_time
async def test_a_move_must_have_an_effect(
    answers: list[bytes], offered: set[str], failure: type[TaskFailed] | None, says: str
) -> None:
    """By COPY without COPYUID too, if the server lacks UIDPLUS."""
    box, _ = in_inbox(answers, offered)
    with nullcontext() if failure is None else pytest.raises(failure, match=says):
        await box.move(REFS, "Sent")


SEARCHES = {
    b"* SEARCH 5 6\r\n": True,
    b"* ESEARCH ALL 5:6,9\r\n": True,
    b"": False,
    b"* SEARCH 5 7 8\r\n": False,
    b"* ESEARCH ALL 1:4294967295\r\n": False,
    b"* ESEARCH" + b" ALL 1:999999" * 60 + b"\r\n": False,
}
"""Answers to SEARCH DELETED, and if they suffice to expunge 5, 6 and 9."""


@pytest.mark.parametrize(
    ("flags", "failure"),
    [
        (b"\\Seen", None),
        (b"\\deleted \\Seen", "1 messages marked by others"),
        (None, "EXPUNGE might delete others' messages"),
    ],
)
@pytest.mark.parametrize("found", SEARCHES)
@in_virtual_time
async def test_messages_marked_by_others_are_not_expunged(
    found: bytes, flags: bytes | None, failure: str | None
) -> None:
    """Without UIDPLUS. Flags decide where SEARCH names others, as maddy 0.8.1 does of messages without \\Deleted."""
    listed = b"" if flags is None else b"* 3 FETCH (UID 8 FLAGS (%b))\r\n" % flags
    fetch = b"* 1 FETCH (UID 5 FLAGS (\\Deleted))\r\n* 2 FETCH (UID 6 FLAGS ())\r\n" + listed + OK
    suffices = SEARCHES[found]
    box, _ = in_inbox([found + OK, *([] if suffices else [fetch]), OK, REMOVED + OK], set())
    with nullcontext() if suffices or failure is None else pytest.raises(ServerRefused, match=failure):
        await box.expunge(REFS)
    box, _ = in_inbox([b"TAG OK\r\n", b"* 1 EXPUNGE\r\nTAG OK\r\n"], {"UIDPLUS"})
    with pytest.raises(MailMissing):  # one of several
        await box.expunge(REFS)


@in_virtual_time
async def test_an_unknown_response_instead_of_data_is_named() -> None:
    """mailutils 3.21 sends EXPUNGED for EXPUNGE. Responses that loadsim does not use are none."""
    said = b"* 3 RECENT\r\n* FLAGS ()\r\n* 1 EXPUNGED\r\n* 2 EXPUNGED\r\nTAG OK\r\n"
    box, _ = in_inbox([b"TAG OK\r\n", said], {"UIDPLUS"})
    with pytest.raises(MailMissing) as missing:
        await box.expunge(REFS)
    assert missing.value.line == "on 3 of 3 messages; the server sent * 1 EXPUNGED"


@in_virtual_time
async def test_remaining_message_text_is_in_no_error() -> None:
    """A server that states a wrong length sends it where a response is due."""
    box, _ = in_inbox([b"* 1 FETCH (UID 5)\r\n* 3 PRIVATE\r\n* PRIVATE\r\nTAG OK\r\n"] * 2, set())
    for read in (lambda: box.structure(REFS[0]), lambda: box.part(REFS[0], Part("1", "text/plain", 3))):
        with pytest.raises(MailMissing) as missing:
            await read()
        assert "PRIVATE" not in str(missing.value)


def test_uids_may_repeat_and_decrease() -> None:
    """The headers come once each, in the order of their UIDs; what was listed before does not come again."""

    def header(uid: int) -> bytes:
        return b"* 1 FETCH (UID %d ENVELOPE (NIL NIL NIL NIL NIL NIL NIL NIL NIL NIL))\r\n" % uid

    async def main() -> None:
        uids = (9, 4, 4294967295, 4, 7, 1)
        said = b"".join(map(header, uids)) + b"TAG OK\r\n"
        box, _ = in_inbox([b"TAG OK\r\n", said] * 2, set())
        found = [each.ref for each in await box.headers(INBOX, None)]
        assert found == [Ref(INBOX, 7, uid) for uid in sorted(set(uids))]
        assert list(await box.arrived()) == []

    run(main)


@pytest.mark.parametrize("flags", [[Flag.SEEN], []])
def test_flags_are_reset_by_name(flags: list[Flag]) -> None:
    """GreenMail 2.1 keeps keywords at "FLAGS ()", and Dovecot 2.4.5 has keywords of its own, which stay."""

    async def main() -> None:
        sent: list[bytes] = []

        def react(data: bytes) -> Said:
            sent.append(data.partition(b" ")[2])
            return [(0, b"TAG OK\r\n")]

        session = ImapSession(Endpoint("sim.test", 143), None, ACCOUNT, Ear(), LIMIT_S)
        session.connection, _, _ = connected(react)
        session.open, session.validity[INBOX], session.count = INBOX, 7, 3
        await ImapMailbox(session).set_flags(REFS, flags)
        seen = b"" if flags else b"\\Seen "
        assert sent == [
            b"UID STORE 5:6,9 -FLAGS.SILENT (%b\\Answered $Forwarded \\Draft \\Flagged \\Deleted)\r\n" % seen,
            *[b"UID STORE 5:6,9 +FLAGS.SILENT (\\Seen)\r\n" for _ in flags],
        ]

    run(main)
