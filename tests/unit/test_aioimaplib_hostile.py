"""IMAP servers that break the protocol, through the module aioimaplib: each call ends by itself, in little memory."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from imap_script import Ear
from skipping import run_watched, turns, within

from loadsim.errors import GeneratorFailed, ProtocolError, ServerLost, ServerRefused, TaskFailed
from loadsim.model.ports import INBOX, Account, Endpoint, Part
from loadsim.protocols.aioimaplib.framing import LARGE_BYTES, MOST_LITERALS, SMALL_BYTES, Framing
from loadsim.protocols.aioimaplib.mailbox import MOST_MESSAGES, PIECE_BYTES, AioimaplibMailbox
from loadsim.protocols.aioimaplib.reading import header_of, parsed
from loadsim.protocols.imap.header_lists import Ref
from loadsim.protocols.imap.responses import Fetched

pytestmark = pytest.mark.nightly(part="drivers")

ACCOUNT = Account(1, "user1", "user1@sim.test", "s3cret-word")
LIMIT_S = 60.0
SELECTED = b"* 3 EXISTS\r\n* OK [UIDVALIDITY 7] x\r\n* OK [UIDNEXT 4] x\r\n"
REF = Ref(INBOX, 7, 1)
PART = Part("1", "text/plain", 10, None, "7bit")
LARGE_PART = Part("1", "text/plain", 1 << 31, None, "7bit")
CAPABILITIES = b"* CAPABILITY IMAP4rev1 IDLE UIDPLUS MOVE\r\n"

Call = Callable[[AioimaplibMailbox], Awaitable[object]]


@asynccontextmanager
async def server(
    answers: dict[str, bytes], greeting: bytes = b"* OK hello\r\n", repeated: bool = False
) -> AsyncIterator[tuple[Endpoint, list[int]]]:
    """A server that answers commands as told: `%t` is the command's tag, and OK follows unless a tag is in it.

    `repeated`: the answer comes again and again, for as long as somebody takes it. Lists how much was sent in all.
    """
    usual = {"CAPABILITY": CAPABILITIES, "SELECT": SELECTED, "IDLE": b"+ idling\r\n"}
    sent = [0]
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        with contextlib.suppress(OSError):
            writer.write(greeting)
            idling = b""
            while line := await reader.readline():
                sent[0] += 1
                tag, _, command = line.strip().partition(b" ")
                if tag == b"DONE":
                    writer.write(idling + b" OK done\r\n")
                    continue
                name = command.decode("utf-8", "replace")
                name = next((each for each in (*answers, *usual) if name.startswith(each)), name)
                answer = answers.get(name, usual.get(name, b"")).replace(b"%t", tag)
                while repeated and name in answers:
                    writer.write(answer)
                    sent[0] += len(answer)
                    await writer.drain()
                if name == "IDLE":
                    idling = tag
                    writer.write(answer)
                else:
                    writer.write(answer if tag + b" " in answer else answer + tag + b" OK done\r\n")
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Endpoint("127.0.0.1", listening.sockets[0].getsockname()[1]), sent
    finally:
        listening.close()
        for writer in writers:
            writer.transport.abort()
        await listening.wait_closed()
        await turns()


async def called(endpoint: Endpoint, sent: list[int], call: Call, ear: Ear | None = None) -> TaskFailed | object:
    """Log on, and the result of a call or the failure of either; they end within their limits."""
    mailbox = AioimaplibMailbox(endpoint, ACCOUNT, ear or Ear(), LIMIT_S)

    async def both() -> object:
        await mailbox.log_on()
        return await call(mailbox)

    def progress() -> tuple[int, int]:
        connection = mailbox._connection
        return sent[0], 0 if connection is None else connection.protocol.received_bytes

    task = asyncio.create_task(both())
    try:
        await within(20 * LIMIT_S, task, progress, LIMIT_S / 4)
        error = task.exception()
        assert error is None or isinstance(error, TaskFailed), repr(error)
        assert ACCOUNT.password not in str(error)
        return task.result() if error is None else error
    finally:
        mailbox.abandon()
        await turns()


def result_of(answers: dict[str, bytes], call: Call, **options: Any) -> TaskFailed | object:
    """Return the result of a call, or its failure, on a server with these answers."""
    found: list[TaskFailed | object] = []

    async def scenario() -> None:
        async with server(answers, **options) as (endpoint, sent):
            found.append(await called(endpoint, sent, call))

    run_watched(scenario)
    return found[0]


async def listing(mailbox: AioimaplibMailbox) -> object:
    return await mailbox.headers(INBOX, None)


async def folders(mailbox: AioimaplibMailbox) -> object:
    return await mailbox.folders()


async def opening(mailbox: AioimaplibMailbox) -> object:
    return await mailbox.open(INBOX)


async def news(mailbox: AioimaplibMailbox) -> object:
    await mailbox.open(INBOX)
    return await mailbox.arrived()


async def appending(mailbox: AioimaplibMailbox) -> object:
    return await mailbox.append("Sent", b"Subject: x\r\n\r\nbody\r\n")


async def moving(mailbox: AioimaplibMailbox) -> object:
    await mailbox.open(INBOX)
    return await mailbox.move([REF], "Other")


async def copying(mailbox: AioimaplibMailbox) -> object:
    await mailbox.open(INBOX)
    return await mailbox.copy([REF], "Other")


async def reading(mailbox: AioimaplibMailbox) -> object:
    await mailbox.open(INBOX)
    return await mailbox.part(REF, PART)


async def reading_much(mailbox: AioimaplibMailbox) -> object:
    await mailbox.open(INBOX)
    return await mailbox.part(REF, LARGE_PART)


async def structure(mailbox: AioimaplibMailbox) -> object:
    await mailbox.open(INBOX)
    return await mailbox.structure(REF)


async def watching(mailbox: AioimaplibMailbox) -> object:
    await mailbox.watch()
    await turns(100)
    return await mailbox.arrived()


MALFORMED: dict[str, tuple[str, bytes, Call]] = {
    "4 billion messages": ("SELECT", b"* 4294967295 EXISTS\r\n", opening),
    "100 million messages": ("SELECT", b"* 100000000 EXISTS\r\n", opening),
    "one message too many": ("SELECT", b"* %d EXISTS\r\n" % (MOST_MESSAGES + 1), opening),
    "more digits than Python reads": ("SELECT", b"* " + b"9" * 5000 + b" EXISTS\r\n", opening),
    "4 billion messages in IDLE": ("IDLE", b"+ idling\r\n* 4294967295 EXISTS\r\n", watching),
    "UIDVALIDITY abc": ("SELECT", b"* 1 EXISTS\r\n* OK [UIDVALIDITY abc] x\r\n", opening),
    "UIDVALIDITY without a number": ("SELECT", b"* 1 EXISTS\r\n* OK [UIDVALIDITY] x\r\n", opening),
    "UIDVALIDITY too large": ("SELECT", b"* OK [UIDVALIDITY 4294967296] x\r\n", opening),
    "UIDVALIDITY of superscripts": ("SELECT", "* OK [UIDVALIDITY ²] x\r\n".encode(), opening),
    "UIDNEXT of 5,000 digits": ("SELECT", b"* OK [UIDNEXT " + b"9" * 5000 + b"] x\r\n", opening),
    "OK to an unfinished APPEND": ("APPEND", b"%t OK done\r\n", appending),
    "APPENDUID abc": ("APPEND", b"+ go\r\n%t OK [APPENDUID abc def] done\r\n", appending),
    "two continuations": ("APPEND", b"+ go\r\n+ go\r\n%t OK done\r\n", appending),
    "a literal of 100 GB": ("LIST", b"* LIST () {99999999999}\r\n", folders),
    "a literal of 5,000 digits": ("LIST", b"* LIST () {" + b"9" * 5000 + b"}\r\n", folders),
    "a literal a byte too large": ("FETCH", b"* 1 FETCH (BODY[1] {%d}\r\n" % (LARGE_BYTES + 1), listing),
    "literals without end": ("LIST", b"* LIST () " + b"{1}\r\nx" * (MOST_LITERALS + 1) + b"\r\n", folders),
    "a CR in a line": ("LIST", b'* LIST () "/" a\rb\r\n', folders),
    "a line that ends with LF": ("LIST", b'* LIST () "/" a\n* LIST () "/" b\r\n', folders),
    "OKAY": ("LIST", b"%t OKAY done\r\n", folders),
    "NOPE": ("LIST", b"%t NOPE done\r\n", folders),
    "another's tag": ("LIST", b"B9 OK done\r\n", folders),
    "a tag of no ASCII": ("LIST", b"\xff\xfe OK done\r\n* \xff 1\r\n%t \r\n", folders),
    "an unfinished LIST": ("LIST", b"* LIST (\r\n", folders),
    "no capabilities": ("CAPABILITY", b"* CAPABILITY\r\n", folders),
    "capabilities of no ASCII": ("CAPABILITY", b"* CAPABILITY \xff\xfe\r\n", folders),
    "a structure 10,000 deep": ("UID FETCH", b"* 1 FETCH (UID 1 BODYSTRUCTURE " + b"(" * 10_000 + b"\r\n", structure),
    "a structure never closed": ("UID FETCH", b'* 1 FETCH (UID 1 BODYSTRUCTURE ("text" "plain"\r\n', structure),
    "a part of no end": (
        "UID FETCH",
        b"* 1 FETCH (UID 1 BODY[1]<0> {%d}\r\n" % PIECE_BYTES + b"x" * PIECE_BYTES + b")\r\n",
        reading_much,
    ),
    "UIDs of 5,000 digits": ("FETCH", b"* 1 FETCH (UID " + b"9" * 5000 + b")\r\n", listing),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_answer_ends_the_session(name: str) -> None:
    """It is the server's doing: a `ProtocolError`, or silence where something is never finished; nothing hangs."""
    command, answer, call = MALFORMED[name]
    failure = result_of({command: answer}, call)
    assert isinstance(failure, ProtocolError), failure


@pytest.mark.parametrize(
    ("command", "answer", "call"),
    [
        ("SELECT", SELECTED + b"* ESEARCH (TAG x) UID ALL " + b",".join([b"1:999999"] * 90) + b"\r\n", opening),
        ("UID COPY", b"%t OK [COPYUID 1 1:4294967295 1:4294967295] done\r\n", copying),
        ("UID COPY", b"%t OK [COPYUID 1 " + b",".join([b"1:999999"] * 1000) + b" 1] done\r\n", copying),
        ("UID MOVE", b"* OK [COPYUID 1 1:4294967295 1:4294967295] x\r\n", moving),
        ("UID FETCH", b"* 1 FETCH (UID 1 BODY[1] " + b"(" * 100_000 + b")\r\n", reading),
        ("FETCH", b"* 1 FETCH (FLAGS (\\Seen))\r\n" * 9000, listing),
        ("FETCH", b"* 1 FETCH (" + b"x\r\n" * 9000, listing),
        ("LIST", b'* LIST () "/" {1}\r\na\r\n' * 9000, folders),
        ("FETCH", b"* 1 EXPUNGE\r\n" * 9000, listing),
    ],
)
def test_a_few_bytes_take_little_memory(command: str, answer: bytes, call: Call) -> None:
    """Short notations are not expanded, and long ones are bounded."""
    tracemalloc.start()
    try:
        result_of({command: answer}, call)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_copies_are_seen_in_ranges() -> None:
    """A COPYUID that does not name the message is no proof; one that does in a range is."""
    assert result_of({"UID COPY": b"%t OK [COPYUID 9 1:4294967295 1:4294967295] done\r\n"}, copying) is None
    for told in (b"9 2:5 2:5", b"9 x y", b"9", b"9 2:1 ,1"):
        failure = result_of({"UID COPY": b"%t OK [COPYUID " + told + b"] done\r\n"}, copying)
        assert (failure is None) is told.startswith(b"9 2:1"), told


@pytest.mark.parametrize(("offered", "selects"), [(b"", 2), (b" UNSELECT", 1)])
def test_no_folder_but_the_inbox_is_open_at_the_end(offered: bytes, selects: int) -> None:
    """GreenMail 2.1, which lacks UNSELECT, cannot delete a folder that a session had open at its end."""
    ear = Ear()

    async def leaving(mailbox: AioimaplibMailbox) -> object:
        await mailbox.open("Other")
        return await mailbox.log_off()

    async def scenario() -> None:
        answers = {"CAPABILITY": b"* CAPABILITY IMAP4rev1%b\r\n" % offered}
        async with server(answers) as (endpoint, sent):
            assert await called(endpoint, sent, leaving, ear) is None

    run_watched(scenario)
    names = [name for name, *_ in ear.commands]
    assert names[-1 - selects :] == [*["IMAP SELECT"] * selects, "IMAP LOGOUT"]


FLOODS = {
    "greeting": b"* OK hello again\r\n" * 1000,
    "empty lines": b"\r\n" * 1000,
    "no line": b"x" * 10_000,
    "untagged": b"* OK still here\r\n" * 1000,
    "EXISTS": b"* 5 EXISTS\r\n" * 1000,
    "news": b"".join(b"* %d EXISTS\r\n" % number for number in range(1, 1000)),
    "FETCH": b"* 1 FETCH (FLAGS ())\r\n" * 1000,
    "an open FETCH": b"* 1 FETCH (BODY[1] {10000}\r\n" + b"x" * 10_000,
    "parentheses": b"* 1 FETCH (" + b"(" * 10_000,
    "quotes": b'* 1 FETCH ("' * 1000,
    "braces": b"* LIST {1{1{1{1" * 1000,
    "continuations": b"+ go on\r\n" * 1000,
    "unknown": b"? what\r\n" * 1000,
}


@pytest.mark.parametrize("command", ["CAPABILITY", "LIST", "SELECT", "IDLE", "FETCH", "APPEND"])
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_is_bounded(name: str, command: str) -> None:
    """A server may send for ever: it is cut off after what an answer may have, and what the network holds."""
    call = {"LIST": folders, "IDLE": watching, "APPEND": appending}.get(command, listing)

    async def scenario() -> None:
        async with server({command: FLOODS[name]}, repeated=True) as (endpoint, sent):
            failure = await called(endpoint, sent, call)
            assert isinstance(failure, ServerLost), failure
            assert 0 < sent[0] < 32 << 20

    run_watched(scenario)


def test_an_idle_session_keeps_nothing_of_what_is_pushed() -> None:
    """The library queues it, and no reader takes it."""

    async def scenario() -> None:
        pushed = b"".join(b"* %d EXISTS\r\n" % number for number in range(4, 2000))
        async with server({"IDLE": b"+ idling\r\n" + pushed}) as (endpoint, _):
            ear = Ear()
            mailbox = AioimaplibMailbox(endpoint, ACCOUNT, ear, LIMIT_S)
            await mailbox.log_on()
            await mailbox.watch()
            while sum(ear.arrivals) < 1996:
                await turns()
            assert mailbox._connection is not None
            assert mailbox._connection.protocol.idle_queue.empty()
            mailbox.abandon()
            await turns()

    run_watched(scenario)


def test_mail_with_a_hostile_header_is_listed() -> None:
    """Comments within comments, quotes, odd addresses: the message has an odd sender, and the others are there."""
    hostile = [
        b"(" * 5000,
        b"a:" * 5000,
        b'"' * 60_000,
        b"<" * 60_000,
        b"@" * 60_000,
        b"\\" * 60_000,
    ]
    for value in hostile:
        block = b"From: " + value + b"\r\nTo: " + value + b"\r\nMessage-ID: " + value + b"\r\n\r\n"
        header = header_of(Fetched(1, 1, frozenset(), 9, None, None, {"HEADER.FIELDS (FROM)": block}), REF, "sim.test")
        assert header is not None
    good = b"From: user2@sim.test\r\n\r\n"
    bad = b"From: " + b"(" * 5000 + b"\r\n\r\n"
    lines = b"".join(
        b"* %d FETCH (UID %d FLAGS () BODY[HEADER.FIELDS (FROM)] {%d}\r\n%b)\r\n" % (number, number, len(block), block)
        for number, block in enumerate([good, bad, good], 1)
    )
    headers = result_of({"FETCH": lines}, listing)
    assert isinstance(headers, list)
    assert [header.sender for header in headers] == ["user2@sim.test", "", "user2@sim.test"]


def test_new_mail_that_was_not_announced_is_asked_for() -> None:
    """A server need not show it in an open Inbox before NOOP. A new opening lists all mail since the first one."""
    block = b"From: user2@sim.test\r\n\r\n"
    line = b"* %d FETCH (UID %d FLAGS () BODY[HEADER.FIELDS (FROM)] {%d}\r\n%b)\r\n"
    third, fourth, fifth = (line % (number, number, len(block), block) for number in (3, 4, 5))

    async def look(mailbox: AioimaplibMailbox) -> object:
        first = await mailbox.headers(INBOX, 1)
        return [[each.ref for each in found] for found in (first, await mailbox.arrived(), await mailbox.arrived(True))]

    answers = {"FETCH 3:3": third, "NOOP": b"* 4 EXISTS\r\n", "UID FETCH 4:*": fourth}
    again = {"UID SEARCH UID 4:*": b"* SEARCH 4 5\r\n", "UID FETCH 4:5": fourth + fifth}
    refs = [Ref(INBOX, 7, number) for number in (3, 4, 5)]
    assert result_of(answers | again, look) == [refs[:1], refs[1:2], refs[1:]]


def test_a_message_in_several_responses_is_one() -> None:
    """Its flags, its size and its header come apart, and a change of flags in between."""
    block = b"From: user2@sim.test\r\n\r\n"
    lines = b"".join(
        b"* %d FETCH (UID %d FLAGS ())\r\n* %d FETCH (FLAGS (\\Seen))\r\n"
        b"* %d FETCH (UID %d BODY[HEADER.FIELDS (FROM)] {%d}\r\n%b)\r\n* %d FETCH (UID %d RFC822.SIZE 9)\r\n"
        % (number, number, number, number, number, len(block), block, number, number)
        for number in (1, 2, 3)
    )
    headers = result_of({"FETCH": lines}, listing)
    assert isinstance(headers, list)
    assert [(each.sender, each.seen, each.size_bytes) for each in headers] == [("user2@sim.test", True, 9)] * 3


@pytest.mark.parametrize("messages", [1, MOST_MESSAGES])
def test_a_folder_that_is_never_listed_is_given_up(messages: int) -> None:
    """None of its messages can be fetched; where they are ten million, it takes some commands, not 400,000."""
    failure = result_of({"SELECT": b"* %d EXISTS\r\n* OK [UIDVALIDITY 7] x\r\n" % messages}, listing)
    assert isinstance(failure, ServerRefused)
    assert failure.kind == "FETCH without data"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (b"NO [NONEXISTENT] none", "NO [NONEXISTENT] LIST"),
        (b"NO [x-bill-12345] none", "NO [other] LIST"),
        (b"BAD [" + b"X" * 5000 + b"] none", "BAD [other] LIST"),
        (b"NO none", "NO LIST"),
    ],
)
def test_kinds_of_refusals_are_bounded(said: bytes, kind: str) -> None:
    """A server may invent response codes; they are counted together."""
    failure = result_of({"LIST": b"%t " + said + b"\r\n"}, folders)
    assert isinstance(failure, ServerRefused)
    assert failure.kind == kind


def test_an_error_of_ours_is_the_generators() -> None:
    """It ends this user's session, and escapes neither to the caller nor into asyncio."""

    class Broken(Ear):
        def arrived(self, messages: int) -> None:
            raise KeyError("secret of a message")

    async def scenario() -> None:
        async with server({"NOOP": b"* 4 EXISTS\r\n", "UID FETCH": b"* 5 EXISTS\r\n"}) as (endpoint, sent):
            failure = await called(endpoint, sent, news, Broken())
            assert isinstance(failure, GeneratorFailed)
            assert failure.kind == "internal error: KeyError"

    run_watched(scenario)


def test_an_error_in_the_library_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of any type: an answer that the library cannot parse is the server's failure."""

    def broken(*_: object) -> None:
        raise BufferError("secret of a message")

    monkeypatch.setattr("aioimaplib.aioimaplib.IMAP4ClientProtocol._handle_line", broken)
    failure = result_of({}, folders)
    assert isinstance(failure, ProtocolError)
    assert str(failure) == "aioimaplib gave up: BufferError"


# --- the reader in front of the library -------------------------------------------------------------------------


def framed(stream: bytes, pieces: list[int]) -> tuple[list[bytes], str]:
    """The responses of a stream that is cut so, and what ended it."""
    framing, found = Framing(), []
    framing.begin("t1 FETCH 1 x")
    cuts = sorted({0, len(stream), *(piece % (len(stream) + 1) for piece in pieces)})
    try:
        for begin, end in pairwise(cuts):
            found += framing.feed(stream[begin:end])
    except ProtocolError as error:
        return found, str(error)
    return found, ""


WIRE = st.lists(
    st.one_of(
        st.sampled_from(
            [b"* 1 EXISTS\r\n", b"* 1 FETCH (", b"{3}\r\nabc", b"{0}\r\n", b")\r\n", b"\r\n", b"\n", b"\r"]
        ),
        st.binary(max_size=8),
        st.integers(0, 50).map(lambda size: b"{%d}\r\n" % size + b"\r\n" * (size // 2) + b"x" * (size % 2)),
    ),
    max_size=30,
).map(b"".join)


@given(WIRE, st.lists(st.integers(0, 1 << 16), max_size=20))
def test_responses_are_the_same_however_they_are_cut(stream: bytes, pieces: list[int]) -> None:
    """And together they are what arrived, up to what is not whole."""
    whole, cut, single = framed(stream, []), framed(stream, pieces), framed(stream, [*range(len(stream))])
    assert whole == cut == single
    assert stream.startswith(b"".join(whole[0]))


@pytest.mark.parametrize("command", ["t1 LOGIN a b", "t1 FETCH 1:25 x", "t1 UID FETCH 1:25 x", "DONE", ""])
@pytest.mark.parametrize("text", [b"x", b"\r\n", b"* 1 EXISTS\r\n", b"{1}\r\nx"])
def test_the_reader_looks_at_each_byte_once(command: str, text: bytes) -> None:
    """Byte by byte up to the limit: what it holds is never more than that, and no piece costs more than its line."""
    limit = LARGE_BYTES if "FETCH" in command else SMALL_BYTES
    framing, taken = Framing(), 0
    framing.begin(command)
    with pytest.raises(ProtocolError):
        for byte in (text * (limit // len(text) + 2))[: limit + 1]:
            taken += sum(map(len, framing.feed(bytes([byte]))))
            assert len(framing._response) + taken <= limit


def test_a_command_renews_what_may_arrive() -> None:
    """Each answer has the whole limit."""
    framing = Framing()
    for _ in range(5):
        framing.begin("t1 NOOP")
        assert len([*framing.feed(b"* OK " + b"x" * (SMALL_BYTES - 7) + b"\r\n")]) == 1
    with pytest.raises(ProtocolError, match=f"more than {SMALL_BYTES} bytes"):
        list(framing.feed(b"x"))


@given(st.lists(st.one_of(st.binary(max_size=40), st.binary(max_size=40).map(bytearray)), max_size=8))
def test_any_lines_of_the_library_parse_or_are_refused(lines: list[bytes | bytearray]) -> None:
    """`ProtocolError` is the only error."""
    with contextlib.suppress(ProtocolError):
        list(parsed(lines))
