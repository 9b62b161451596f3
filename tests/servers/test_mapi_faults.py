"""Faults of a MAPI server: each has an outcome, and the user logs on again."""

from __future__ import annotations

import asyncio

import faulty_mapi
import pytest
from faulty_mapi import BUSY_S, LIMIT_S, OWN, Fault, faulty_server, logged_on
from imap_script import Ear, skip
from patience import PATIENCE_S
from skipping import turns, watched, within

from loadsim.errors import ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.ports import DELETED_ITEMS, INBOX, Flag
from loadsim.protocols.registry import open_driver
from loadsim.servers.embedded_mapi.__main__ import EXPIRY_S

MESSAGE = b"From: user1@example.test\r\nTo: user1@example.test\r\nSubject: Plan\r\n\r\nHello\r\n"

FAULTS: dict[str, tuple[Fault, type[TaskFailed], str]] = {
    "unauthorized": (faulty_mapi.UNAUTHORIZED, ServerLost, "401"),
    "closed": (faulty_mapi.CLOSED, ServerLost, "503"),
    "page": (faulty_mapi.PAGE, ServerLost, "MAPI response"),
    "expired": (faulty_mapi.expired, ServerLost, "X-ResponseCode 10"),
    "sequence": (faulty_mapi.out_of_sequence, ServerLost, "X-ResponseCode 15"),
    "truncated": (faulty_mapi.TRUNCATED, ServerLost, "HTTP response"),
    "not-done": (faulty_mapi.NOT_DONE, ServerLost, "MAPI"),
    "wrong-chunk": (faulty_mapi.WRONG_CHUNK, ServerLost, "HTTP response"),
    "large": (faulty_mapi.LARGE, ServerLost, "HTTP response"),
    "silent": (faulty_mapi.NOTHING, ServerSilent, ""),
    "pending": (faulty_mapi.pending, ServerSilent, ""),
    "interim": (faulty_mapi.interim, ServerSilent, ""),
}
"""Each fault, with the failure of a call of a session, and the beginning of its kind."""


@pytest.mark.parametrize("name", FAULTS)
@watched
async def test_a_fault_ends_the_session(name: str) -> None:
    fault, failure, kind = FAULTS[name]
    async with logged_on() as (server, mailbox, ear):
        await mailbox.folders()
        server.fail("Execute", fault)
        call = asyncio.create_task(mailbox.headers(INBOX, None))
        if failure is ServerSilent:
            await server.met.wait()
            skip(LIMIT_S + 1)
        with pytest.raises(failure) as failed:
            await call
        assert failed.value.kind.startswith(kind)
        assert ear.commands[-1][:2] == ("MAPI QueryRows", failed.value.outcome)
        with pytest.raises(failure):  # the session is over
            await mailbox.headers(INBOX, None)
        server.fault = None
        await mailbox.log_on()
        assert await mailbox.headers(INBOX, None) == []


@pytest.mark.parametrize("name", ["unauthorized", "closed", "page", "expired", "interim"])
@watched
async def test_a_fault_while_waiting_is_reported(name: str) -> None:
    """A session whose wait for new mail fails is lost, though no call was under way."""
    fault, failure, kind = FAULTS[name]
    async with logged_on(PATIENCE_S) as (server, mailbox, _):
        server.fail("NotificationWait", fault)
        call = asyncio.create_task(mailbox.watch())
        if failure is ServerSilent:
            await server.met.wait()
            skip(PATIENCE_S - 1)
            await turns(60)  # what is no response changes no limit
            skip(2)
        with pytest.raises(failure) as failed:
            await call
        assert failed.value.kind.startswith(kind)
        server.fault = None
        await mailbox.log_on()
        await mailbox.watch()


@pytest.mark.parametrize(("fault", "kind"), [(faulty_mapi.UNAUTHORIZED, "401"), (faulty_mapi.CLOSED, "503")])
@watched
async def test_a_refused_log_on_is_server_refused(fault: Fault, kind: str) -> None:
    async with faulty_server([OWN], LIMIT_S) as (server, services):
        mailbox = open_driver("mapi", services).session(OWN, Ear()).mailbox
        server.fail("Connect", fault)
        with pytest.raises(ServerRefused) as failed:
            await mailbox.log_on()
        assert failed.value.kind.startswith(kind)
        server.fault = None
        await mailbox.log_on()
        mailbox.abandon()


@watched
async def test_a_busy_server_gets_the_request_again_when_it_demands() -> None:
    async with logged_on(PATIENCE_S) as (server, mailbox, ear):
        await mailbox.folders()
        server.fail("Execute", faulty_mapi.BUSY)
        call = asyncio.create_task(mailbox.headers(INBOX, None))
        await server.met.wait()
        server.fault = None
        await within(BUSY_S + 1, call)
        assert await call == []
        commands = [command[:2] for command in ear.commands[-3:]]
        assert commands == [("MAPI QueryRows", "refused"), ("MAPI Retry-After", "ok"), ("MAPI QueryRows", "ok")]


@watched
async def test_a_session_can_be_closed_while_it_waits_for_a_busy_server() -> None:
    async with logged_on(PATIENCE_S) as (server, mailbox, ear):
        await mailbox.folders()
        server.fail("Execute", faulty_mapi.BUSY)
        call = asyncio.create_task(mailbox.headers(INBOX, None))
        await server.met.wait()
        await turns(60)
        mailbox.abandon()
        with pytest.raises(ServerLost, match="closed"):
            await call
        assert ear.commands[-1][:2] == ("MAPI Retry-After", "lost")


@watched
async def test_lost_cookies_end_the_session() -> None:
    """A server that leaves out its next cookie refuses the request after."""
    async with logged_on() as (server, mailbox, _):
        await mailbox.folders()
        server.fail("Execute", faulty_mapi.WITHOUT_COOKIES)
        await mailbox.headers(INBOX, None)
        with pytest.raises(ServerLost, match="15"):
            await mailbox.folders()
        server.fault = None
        await mailbox.log_on()
        await mailbox.folders()


@watched
async def test_an_idle_session_expires() -> None:
    async with logged_on(2 * EXPIRY_S) as (_, mailbox, _):
        skip(EXPIRY_S - 1)
        await mailbox.folders()
        skip(EXPIRY_S + 1)
        with pytest.raises(ServerLost, match="10"):
            await mailbox.folders()


@watched
async def test_opened_objects_are_released() -> None:
    """A user's objects on the server do not grow with what they do ([MS-OXCROPS] section 3.1.5.3)."""
    async with faulty_server([OWN], LIMIT_S) as (server, services):
        session = open_driver("mapi", services).session(OWN, Ear())
        mailbox = session.mailbox
        await mailbox.log_on()
        await mailbox.folders()
        counts = set()
        for _ in range(4):
            await mailbox.append(INBOX, MESSAGE)
            *_, newest = await mailbox.headers(INBOX, 10)
            structure = await mailbox.structure(newest.ref)
            assert structure.text is not None
            await mailbox.part(newest.ref, structure.text)
            await mailbox.flag([newest.ref], Flag.SEEN)
            await mailbox.move([newest.ref], DELETED_ITEMS)
            await mailbox.expunge([each.ref for each in await mailbox.headers(DELETED_ITEMS, None)])
            await session.submission.send(OWN.address, [OWN.address], MESSAGE)
            await session.calendar.replace(MESSAGE)
            (rops,) = [each.rops for each in server.sessions.values() if each.rops is not None]
            counts.add(len(rops.objects))
        assert len(counts) == 1
        mailbox.abandon()
