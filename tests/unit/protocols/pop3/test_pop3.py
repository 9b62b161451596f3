"""POP3 mailboxes against a scripted server: what they ask, what they return, and servers that break the protocol."""

import asyncio
import ssl
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace

import pytest
from imap_script import Ear
from pop3_peer import MAIL, STUFFED, USUAL, Answer, Pop3Peer, peer
from skipping import within
from smtp_peers import ACCOUNT, LIMIT_S, PASSWORD

from loadsim.errors import MailMissing, ProtocolError, ServerLost, ServerRefused, TaskFailed
from loadsim.model.ports import INBOX, Flag, SearchKey
from loadsim.protocols.line_based.wire import LONGEST_LINE_BYTES, OK, LineWire
from loadsim.protocols.lines import text_of
from loadsim.protocols.pop3.log_on import DIALECT
from loadsim.protocols.pop3.mailbox import Pop3Mailbox

LOG_ON = [f"USER {ACCOUNT.login}", f"PASS {PASSWORD}"]
LISTED = ["UIDL", "LIST"]


def mailbox_of(server: Pop3Peer, ear: Ear) -> Pop3Mailbox:
    return Pop3Mailbox(server.endpoint, None, ACCOUNT, ear, LIMIT_S)


@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_responses_are_read_however_they_are_cut(size: int) -> None:
    """Dots are unstuffed, and an empty list has no lines."""
    for stream, lines in (
        (USUAL["RETR"], MAIL),
        (b"+OK\r\n.\r\n", b""),
        (b"+OK\r\n..\r\n...\r\n.\r\n", b".\r\n..\r\n"),
    ):
        wire, found = LineWire(DIALECT), []
        wire.expect(1000)
        for at in range(0, len(stream), size):
            found.append(wire.feed(stream[at : at + size]))
        assert found[:-1] == [None] * (len(found) - 1)
        response = found[-1]
        assert response is not None
        assert (response.status, response.lines) == (OK, lines)


async def test_a_view_has_a_session_and_the_capabilities_are_asked_for_once() -> None:
    ear = Ear()
    async with peer().running() as server:
        mailbox = mailbox_of(server, ear)
        one, two = await mailbox.headers(INBOX, 50)
        assert (one.ref, two.ref, one.size_bytes) == ("one", "two", len(MAIL))
        assert (one.sender, one.to, one.subject, one.flags) == (
            "user2@sim.test",
            ("user1@sim.test",),
            "dots",
            frozenset(),
        )
        structure = await mailbox.structure(two.ref)
        assert structure.text is not None
        assert await mailbox.part(two.ref, structure.text) == b".\r\n..\r\nlast\r\n"
        await mailbox.flag([two.ref], Flag.SEEN)
        assert not mailbox.keeps(Flag.SEEN)
        await mailbox.log_off()
        await mailbox.log_off()
        assert list(await mailbox.folders()) == [INBOX]
        await mailbox.log_off()
    first = ["CAPA", *LOG_ON, *LISTED, "TOP 1 0", "TOP 2 0", "RETR 2", "QUIT"]
    assert server.asked == [*first, *LOG_ON, *LISTED, "QUIT"]
    assert {outcome for _, outcome, *_ in ear.commands} == {"ok"}
    sizes = {name: (sent, received) for name, _, sent, received in ear.commands}
    assert sizes["POP3 RETR"] == (len(b"RETR 2\r\n"), len(USUAL["RETR"]))
    assert not ear.losses


async def test_new_mail_is_announced_by_the_next_session_and_returned_once() -> None:
    ear = Ear()
    more = [USUAL["UIDL"], b"+OK\r\n1 two\r\n2 three\r\n3 four\r\n.\r\n"] + [b"+OK\r\n1 two\r\n2 four\r\n.\r\n"] * 2
    sizes = [USUAL["LIST"], b"+OK\r\n1 9\r\n2 9\r\n3 9\r\n.\r\n"] + [b"+OK\r\n1 9\r\n2 9\r\n.\r\n"] * 2
    async with peer(UIDL=more, LIST=sizes).running() as server:
        mailbox = mailbox_of(server, ear)
        await mailbox.headers(INBOX, 1)
        await mailbox.watch()
        await mailbox.log_off()
        assert ear.arrivals == []
        await mailbox.watch()
        await mailbox.watch()
        assert (ear.arrivals, mailbox.messages) == ([2], 3)
        assert [each.ref for each in await mailbox.arrived()] == ["three", "four"]
        assert list(await mailbox.arrived(reopen=True)) == []
        await mailbox.log_off()
        await mailbox.watch()
        assert ear.arrivals == [2]


async def test_equal_messages_with_one_unique_id_are_two() -> None:
    async with peer(UIDL=b"+OK\r\n1 same\r\n2 same\r\n.\r\n").running() as server:
        mailbox = mailbox_of(server, Ear())
        assert [each.ref for each in await mailbox.headers(INBOX, None)] == ["same", "same 2"]
        await mailbox.expunge(["same 2"])
    assert server.asked[-2:] == ["DELE 2", "QUIT"]


async def test_a_server_without_capa_gets_user_pass_and_retr() -> None:
    async with peer(CAPA=b"-ERR unknown\r\n").running() as server:
        mailbox = mailbox_of(server, Ear())
        (header,) = await mailbox.headers(INBOX, 1)
        assert header.subject == "dots"
        await mailbox.structure("two")  # is the message fetched last
    assert server.asked == ["CAPA", *LOG_ON, "CAPA", *LISTED, "RETR 2"]


async def test_top_may_be_announced_after_the_log_on() -> None:
    """RFC 2449 section 5."""
    async with peer(CAPA=[b"+OK\r\nUSER\r\n.\r\n", USUAL["CAPA"]]).running() as server:
        mailbox = mailbox_of(server, Ear())
        await mailbox.headers(INBOX, 1)
    assert server.asked == ["CAPA", *LOG_ON, "CAPA", *LISTED, "TOP 2 0"]


@pytest.mark.parametrize(
    ("answers", "left", "kind"),
    [
        ({}, ["DELE 1", "DELE 2", "QUIT"], None),
        ({"DELE": [b"-ERR gone\r\n", b"+OK\r\n"]}, ["DELE 1", "DELE 2", "QUIT"], "ERR DELE"),
        ({"QUIT": b"-ERR some deleted messages not removed\r\n"}, ["DELE 1", "DELE 2", "QUIT"], "ERR QUIT"),
        ({"QUIT": None}, ["DELE 1", "DELE 2", "QUIT"], "lost at QUIT"),
        ({"DELE": None}, ["DELE 1"], "lost at DELE"),
    ],
    ids=["well", "one refused", "not removed", "lost at QUIT", "lost before"],
)
async def test_messages_are_removed_when_quit_is_answered(
    answers: dict[str, Answer], left: Sequence[str], kind: str | None
) -> None:
    """RFC 1939 section 6: a session that ends without QUIT removes nothing, so the call has failed."""
    async with peer(**answers).running() as server:
        mailbox = mailbox_of(server, Ear())
        await mailbox.folders()
        if kind is None:
            await mailbox.expunge(["one", "two"])
        else:
            with pytest.raises(TaskFailed) as failed:
                await mailbox.expunge(["one", "two"])
            assert failed.value.kind == kind
    assert server.asked[-len(left) :] == left


async def test_a_message_that_is_gone_or_refused_ends_its_call_only() -> None:
    async with peer(RETR=b"-ERR [SYS/TEMP] later\r\n").running() as server:
        mailbox = mailbox_of(server, Ear())
        await mailbox.folders()
        for ref, kind, error in (
            ("one", "ERR [SYS/TEMP] RETR", ServerRefused),
            ("nine", "message is gone", MailMissing),
        ):
            with pytest.raises(error) as refused:
                await mailbox.structure(ref)
            assert refused.value.kind == kind
        with pytest.raises(ServerRefused, match="message is gone"):
            await mailbox.expunge(["nine"])
        for call in (
            mailbox.move(["one"], "x"),
            mailbox.copy(["one"], "x"),
            mailbox.append("x", MAIL),
            mailbox.headers("x", 1),
            mailbox.search(INBOX, SearchKey.TEXT, "x", 1),
        ):
            with pytest.raises(ServerRefused, match="not in POP3"):
                await call


async def test_a_refused_header_does_not_hold_up_the_others() -> None:
    """Each is fetched once."""
    async with peer(TOP=[b"-ERR gone\r\n", USUAL["TOP"]]).running() as server:
        mailbox = mailbox_of(server, Ear())
        with pytest.raises(ServerRefused):
            await mailbox.arrived()
        assert [each.ref for each in await mailbox.arrived()] == ["two"]
    assert [command for command in server.asked if "TOP" in command] == ["TOP 1 0", "TOP 2 0"]


@pytest.mark.parametrize("code", ["[IN-USE] ", "[LOGIN-DELAY] ", "[AUTH] ", "[OWN] ", ""])
async def test_a_refused_log_on_names_no_password_and_the_next_call_tries_again(code: str) -> None:
    ear = Ear()
    async with peer(PASS=[f"-ERR {code}no {PASSWORD} here\r\n".encode(), USUAL["PASS"]]).running() as server:
        mailbox = mailbox_of(server, ear)
        with pytest.raises(ServerRefused) as refused:
            await mailbox.log_on()
        assert refused.value.kind == f"ERR {code if 'OWN' not in code else ''}PASS"
        assert PASSWORD not in str(refused.value)
        await mailbox.folders()
    assert [outcome for name, outcome, *_ in ear.commands if name == "POP3 PASS"] == ["refused", "ok"]
    assert PASSWORD not in text_of(f"PASS {PASSWORD}".encode(), ACCOUNT, sent=True)


WRONG: dict[str, tuple[dict[str, Answer], str]] = {
    "another service": ({"CONNECT": b"* OK IMAP4rev1\r\n"}, "no POP3 at CONNECT"),
    "no greeting": ({"CONNECT": None}, "lost at CONNECT"),
    "a silent start": ({"CONNECT": b""}, "no answer to CONNECT"),
    "an early answer": ({"CONNECT": b"+OK\r\n+OK\r\n"}, "unasked response at CONNECT"),
    "a challenge": ({"USER": b"+ \r\n"}, "no such answer"),
    "no list": ({"UIDL": b"+OK\r\none\r\n.\r\n"}, "UIDL"),
    "a descending list": ({"UIDL": b"+OK\r\n2 one\r\n1 two\r\n.\r\n"}, "UIDL"),
    "a long unique-id": ({"UIDL": b"+OK\r\n1 " + b"x" * 71 + b"\r\n.\r\n"}, "UIDL"),
    "other messages": ({"LIST": b"+OK\r\n1 9\r\n.\r\n"}, "LIST"),
    "no sizes": ({"LIST": b"+OK\r\n1 one\r\n2 two\r\n.\r\n"}, "LIST"),
    "a long line": ({"LIST": b"+OK " + b"x" * LONGEST_LINE_BYTES}, "no POP3 at LIST"),
    "a cut list": ({"LIST": b"+OK\r\n1 9\r\n"}, "no answer to LIST"),
    "the end": ({"LIST": None}, "lost at LIST"),
    "unstuffed dots": ({"RETR": b"+OK\r\n" + MAIL + b".\r\n"}, "unasked response at RETR"),
    "a cut message": ({"RETR": b"+OK\r\n" + STUFFED}, "no answer to RETR"),
    "neither": ({"RETR": b"OK\r\n.\r\n"}, "no POP3 at RETR"),
}


@pytest.mark.parametrize(("answers", "kind"), WRONG.values(), ids=WRONG)
async def test_a_server_that_breaks_the_protocol_fails_the_call(answers: dict[str, Answer], kind: str) -> None:
    """The next call fails, too, until a new log-on; no error shows the message."""
    ear = Ear()
    async with peer(**answers).running() as server:
        mailbox = mailbox_of(server, ear)
        calling = asyncio.create_task(mailbox.structure("one"))
        await within(4 * LIMIT_S, calling)
        failure = calling.exception()
        assert isinstance(failure, TaskFailed)
        assert (failure.kind, "last" in failure.line) == (kind, False)
        with pytest.raises(TaskFailed):
            await mailbox.folders()
        await mailbox.log_off()
    assert not ear.losses
    assert all(outcome == "ok" for _, outcome, *_ in ear.commands[:-1])


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(b"+OK\r\n+OK injected\r\n", "unasked response at STLS"), (b"-ERR no\r\n", "ERR STLS"), (None, "lost at STLS")],
)
async def test_nothing_is_sent_in_the_clear_if_tls_does_not_begin(answer: Answer, kind: str) -> None:
    """Data behind the agreement may be an attacker's (CVE-2011-0411)."""
    async with peer(STLS=answer).running() as server:
        endpoint = replace(server.endpoint, tls="starttls")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        mailbox = Pop3Mailbox(endpoint, context, ACCOUNT, Ear(), LIMIT_S)
        with pytest.raises(TaskFailed) as failed:
            await mailbox.log_on()
    assert (failed.value.kind, server.asked) == (kind, ["STLS"])


@pytest.mark.parametrize(
    ("size", "fails"), [(len(MAIL) - 5, False), (len(MAIL), False), (len(MAIL) + 1, True), (10**9, True)]
)
async def test_a_message_shorter_than_its_size_is_truncated(size: int, fails: bool) -> None:
    async with peer(LIST=b"+OK\r\n1 %d\r\n2 9\r\n.\r\n" % size).running() as server:
        mailbox = mailbox_of(server, Ear())
        if fails:
            with pytest.raises(MailMissing, match="RETR of a truncated message"):
                await mailbox.structure("one")
        else:
            await mailbox.structure("one")
        assert [each.size_bytes for each in await mailbox.headers(INBOX, None)] == [size, 9]


def test_an_endless_list_takes_no_more_memory_than_its_limit() -> None:
    wire, most = LineWire(DIALECT), 1 << 20
    wire.expect(most)
    wire.feed(b"+OK\r\n")
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            for _ in range(100):
                wire.feed(b"1 x\r\n" * 20_000)
        assert tracemalloc.get_traced_memory()[1] < 4 * most
    finally:
        tracemalloc.stop()


async def test_a_session_lost_between_calls_is_reported_once() -> None:
    ear = Ear()
    async with peer(UIDL=USUAL["UIDL"]).running() as server:
        mailbox = mailbox_of(server, ear)
        await mailbox.folders()
    await ear.wait()
    assert [str(loss) for loss in ear.losses] == ["lost at rest"]
    with pytest.raises(ServerLost):
        await mailbox.arrived()
    await mailbox.log_off()
    mailbox.abandon()
    assert len(ear.losses) == 1


async def test_an_abandoned_session_is_not_reported() -> None:
    """Nothing works in it; a new log-on does."""
    ear = Ear()
    async with peer().running() as server:
        mailbox = mailbox_of(server, ear)
        mailbox.abandon()
        await mailbox.log_on()
        mailbox.abandon()
        with pytest.raises(ServerLost):
            await mailbox.headers(INBOX, None)
        await mailbox.log_on()
        assert len(await mailbox.headers(INBOX, None)) == 2
        mailbox.abandon()
    assert not ear.losses
