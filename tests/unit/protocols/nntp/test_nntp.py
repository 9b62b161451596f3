"""Newsgroups against a news server with switches: what they ask, what they return, and servers that break the rules."""

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from imap_script import Ear
from news_peer import GROUP, Lines, NewsPeer
from smtp_peers import ACCOUNT, LIMIT_S, PASSWORD

from loadsim.errors import MailMissing, ServerRefused, TaskFailed
from loadsim.model.message_tag import MessageTag
from loadsim.model.ports import PUBLIC, Header
from loadsim.model.provisioning_ports import NewMessage
from loadsim.protocols.nntp.newsgroup import Newsgroup, Newsgroups
from loadsim.protocols.nntp.overview import ArticleRef, articles_in

DOMAIN = ACCOUNT.domain
BODY = b".\r\n..\r\n.dot\r\nlast\r\n"


def post(at: int, body: bytes = BODY) -> bytes:
    """A post of user 2 with lines that begin with dots."""
    tag = MessageTag("run-1", 2, f"p2.{at}", "ups1K", 1, "0" * 16)
    return (
        f"Date: Mon, 3 Nov 2025 12:00:00 +0000\r\nFrom: user2@{DOMAIN}\r\nTo: user2@{DOMAIN}\r\nSubject: post {at}\r\n"
        f"Message-ID: <{tag.id}.run-1@{DOMAIN}>\r\nX-LoadSim: {tag.header()}\r\nMIME-Version: 1.0\r\n"
        "Content-Type: text/plain\r\n\r\n"
    ).encode() + body


def newsgroup_of(peer: NewsPeer, ear: Ear, **keys: Any) -> Newsgroup:
    return Newsgroups(replace(peer.endpoint, **keys), GROUP, LIMIT_S).of(ACCOUNT, ear)


async def refused(newsgroup: Newsgroup) -> TaskFailed:
    with pytest.raises(TaskFailed) as raised:
        await newsgroup.newest(50)
    await newsgroup.close()
    return raised.value


async def test_a_user_posts_lists_and_reads_by_one_connection() -> None:
    ear = Ear()
    with NewsPeer().running() as peer:
        newsgroup = newsgroup_of(peer, ear)
        for at in range(3):
            await newsgroup.post(post(at))
        first, second = await newsgroup.newest(2)
        assert (first.message_id, second.subject) == (f"<p2.1.run-1@{DOMAIN}>", "post 2")
        assert (second.sender, second.tag, second.flags) == (f"user2@{DOMAIN}", None, frozenset())
        found = await newsgroup.with_tag(second)
        assert found.tag is not None and found.tag.id == "p2.2"
        structure = await newsgroup.structure(second.ref)
        assert structure.text is not None
        assert await newsgroup.part(second.ref, structure.text) == BODY
        await newsgroup.close()
        await newsgroup.close()
    listed = [f"GROUP {GROUP}", "OVER 2-3", "ARTICLE 3", "QUIT"]
    assert peer.asked == ["CONNECT", "CAPABILITIES", "POST", "POST", "POST", *listed]
    assert peer.sent[0] == b"Newsgroups: %b\r\n%b" % (GROUP.encode(), post(0).replace(b"\r\n.", b"\r\n.."))
    assert {outcome for _, outcome, *_ in ear.commands} == {"ok"}
    sizes = {name: sent for name, _, sent, _ in ear.commands}
    assert sizes["NNTP POST"] == len(b"POST\r\n") + len(peer.sent[0]) + len(b".\r\n")


@pytest.mark.parametrize(
    ("switches", "keys", "expected"),
    [
        ({"transit": True}, {}, ["CAPABILITIES", "MODE READER", "CAPABILITIES"]),
        ({"old": True}, {}, ["CAPABILITIES", "MODE READER"]),
        (
            {"password": PASSWORD},
            {},
            ["CAPABILITIES", f"AUTHINFO USER {ACCOUNT.login}", f"AUTHINFO PASS {PASSWORD}", "CAPABILITIES"],
        ),
        ({}, {"auth": False}, ["CAPABILITIES"]),
    ],
)
async def test_what_a_session_begins_with(switches: Any, keys: Any, expected: list[str]) -> None:
    """Servers become readers' when asked; those that tell no capabilities are asked for XOVER (RFC 2980)."""
    with NewsPeer(articles=[post(0)], **switches).running() as peer:
        newsgroup = newsgroup_of(peer, Ear(), **keys)
        assert len(await newsgroup.newest(50)) == 1
        await newsgroup.close()
    over = "XOVER" if peer.old else "OVER"
    assert peer.asked == ["CONNECT", *expected, f"GROUP {GROUP}", f"{over} 1-1", "QUIT"]


@pytest.mark.parametrize(
    ("answers", "kind", "outcome"),
    [
        ({"GROUP": [b"411 No such group"]}, "411 GROUP", "refused"),
        ({"OVER": [b"480 Log on first"]}, "480 OVER", "refused"),
        ({"OVER": [b"503 Not possible"]}, "503 OVER", "refused"),
        ({"CONNECT": [b"502 Go away"]}, "502 CONNECT", "refused"),
        ({"CONNECT": b"400 Too busy\r\n"}, "400 CONNECT", "lost"),
        ({"OVER": b"400 Shutting down\r\n"}, "400 OVER", "lost"),
        ({"OVER": None}, "lost at OVER", "lost"),
        ({"GROUP": [b"211 many"]}, "GROUP", "lost"),
        ({"GROUP": [b"211 1 1 99999999999999999"]}, "GROUP", "lost"),
        ({"GROUP": b"hello\r\n"}, "no NNTP at GROUP", "lost"),
        ({"GROUP": b"211 1 1 1\r\n211 1 1 1\r\n"}, "unasked response at GROUP", "lost"),
        ({"OVER": [b"224 Overview", b"1\tfew"]}, "OVER", "lost"),
        ({"OVER": [b"224 Overview", *[b"1\ts\tf\td\t<a@b>\t\t1\t1"] * 2]}, "OVER", "lost"),
        ({"OVER": [b"224 Overview", b"7\ts\tf\td\t<a@b>\t\t1\t1"]}, "OVER", "lost"),
        ({"OVER": [b"224 Overview", b"1\ts\tf\td\ta b\t\t1\t1"]}, "OVER", "lost"),
    ],
)
async def test_a_refusal_has_the_code_and_nonsense_ends_the_session(
    answers: dict[str, Lines], kind: str, outcome: str
) -> None:
    ear = Ear()
    with NewsPeer(articles=[post(0)], answers=answers).running() as peer:
        failure = await refused(newsgroup_of(peer, ear))
    assert (failure.kind, failure.outcome) == (kind, outcome)
    assert not ear.losses  # the mailbox's session goes on


async def test_a_wrong_password_is_not_in_the_failure() -> None:
    with NewsPeer(password="another").running() as peer:
        failure = await refused(newsgroup_of(peer, Ear()))
    assert failure.kind == "481 AUTHINFO PASS"
    assert PASSWORD not in failure.line


async def test_an_article_that_is_there_already_is_refused() -> None:
    with NewsPeer().running() as peer:
        newsgroup = newsgroup_of(peer, Ear())
        await newsgroup.post(post(0))
        with pytest.raises(ServerRefused) as raised:
            await newsgroup.post(post(0))
        assert (raised.value.kind, raised.value.line) == ("441 POST", "441 435 Duplicate")
        await newsgroup.post(post(1))
        await newsgroup.close()
    assert peer.asked.count("CONNECT") == 1


async def test_a_connection_that_has_ended_is_made_again() -> None:
    """The server says 400 at any time; what it says after that is not waited for."""
    with NewsPeer(articles=[post(0)]).running() as peer:
        newsgroup = newsgroup_of(peer, Ear())
        (header,) = await newsgroup.newest(50)
        peer.answers["GROUP"] = b"400 Time is up\r\n"
        with pytest.raises(TaskFailed):
            await newsgroup.newest(50)
        peer.answers.clear()
        assert (await newsgroup.with_tag(header)).tag is not None
        await newsgroup.close()
    assert peer.asked.count("CONNECT") == 2


async def test_articles_may_expire_while_a_user_looks() -> None:
    with NewsPeer(articles=[post(at) for at in range(4)], gone={1, 3}).running() as peer:
        newsgroup = newsgroup_of(peer, Ear())
        assert [header.ref for header in await newsgroup.newest(3)] == [
            ArticleRef(2, f"<p2.1.run-1@{DOMAIN}>"),
            ArticleRef(4, f"<p2.3.run-1@{DOMAIN}>"),
        ]
        (last,) = await newsgroup.newest(1)
        peer.gone.add(4)
        with pytest.raises(MailMissing, match="article is gone"):
            await newsgroup.structure(last.ref)
        peer.gone |= {2}
        assert list(await newsgroup.newest(50)) == []
        await newsgroup.close()


async def test_another_article_under_a_number_is_a_fault() -> None:
    with NewsPeer(articles=[post(0)]).running() as peer:
        newsgroup = newsgroup_of(peer, Ear())
        (header,) = await newsgroup.newest(1)
        peer.articles[0] = post(1)
        with pytest.raises(MailMissing, match="ARTICLE of another article"):
            await newsgroup.with_tag(header)
        await newsgroup.close()


async def test_the_keeper_lists_all_articles_and_posts_old_ones_without_their_date() -> None:
    foreign = b"From: a@elsewhere.test\r\nSubject: x\r\nMessage-ID: <1@elsewhere.test>\r\n\r\nbody\r\n"
    with NewsPeer().running() as peer:
        newsgroup = newsgroup_of(peer, Ear())
        assert peer.add(foreign)
        await newsgroup.post_all([NewMessage(post(0)), NewMessage(post(1))])
        stored = (await newsgroup.listing([PUBLIC]))[PUBLIC]
        assert [each.tag and each.tag.id for each in stored] == [None, "p2.0", "p2.1"]
        assert {each.sender for each in stored} == {"a@elsewhere.test", f"user2@{DOMAIN}"}
        peer.gone.add(3)
        assert await newsgroup.texts([each.ref for each in stored]) == {stored[0].ref: b"body\r\n", stored[1].ref: BODY}
        await newsgroup.close()
    assert not any(b"Date:" in each for each in peer.sent)
    assert [each for each in peer.asked if each.startswith("HEAD")] == ["HEAD 2", "HEAD 3"]


async def test_a_long_overview_is_refused_before_it_is_held() -> None:
    lines = [b"224 Overview", *[b"1\ts\tf\td\t<a@b>\t\t1\t%b" % (b"9" * 8000)] * 4000]
    with NewsPeer(articles=[post(0)], answers={"OVER": lines}).running() as peer:
        newsgroup = newsgroup_of(peer, Ear())
        await newsgroup.poll()
        tracemalloc.start()
        failure = await refused(newsgroup)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert failure.kind == "no NNTP at OVER"
    assert peak < 3 * sum(map(len, lines))


def test_an_overview_in_utf_8_or_anything_else_is_text() -> None:
    subject = "Grüße \N{SNOWMAN}".encode() + b"\xff"
    line = b"1\t" + subject + b"\tJ\xf6rg <j@b.test>\td\t<a@b>\t\t\t\tXref: x\r\n"
    (header,) = articles_in(line, 1, 1)
    assert isinstance(header, Header)
    assert header.subject.startswith("Grüße ☃") and header.sender == "j@b.test" and header.size_bytes == 0
