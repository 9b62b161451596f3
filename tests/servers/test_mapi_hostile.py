"""A MAPI server whose answers have wrong bytes: each call has a result or a failure of the port, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, cast

import pytest
from faulty_mapi import ANY, OWN, FaultyServer, changes, faulty_server, message_of
from imap_script import Ear
from patience import PATIENCE_S
from skipping import turns, watched

from loadsim.errors import GeneratorFailed, TaskFailed
from loadsim.model.ports import INBOX, SENT_ITEMS, SYSTEM_FLAGS, Flag, Session
from loadsim.model.provisioning_ports import Provisioning
from loadsim.protocols.registry import open_driver
from loadsim.servers.embedded_mapi.__main__ import Request

CALLS_OF_A_USER = 30
KINDS = ("Execute", "Connect", "Bind", "ResolveNames")


def wrong(random: Random, answer: bytes) -> bytes:
    """Change some bytes behind the meta-tags; the framing of HTTP stays."""
    begin, end = answer.find(b"\r\n\r\n", answer.find(b"DONE\r\n")) + 4, len(answer) - len(b"\r\n0\r\n\r\n")
    data = bytearray(answer)
    for _ in range(random.choice((1, 1, 2, 4)) if end - begin > 4 else 0):
        at, other = random.randrange(begin, end - 3), random.randrange(begin, end - 3)
        some = (b"\0", b"\1", b"\xff", bytes([random.randrange(256)]), b"\xff" * 4, b"\x0f\1\4\x80")
        chosen = random.choice((*some, bytes(data[other : other + 2])))
        data[at : at + len(chosen)] = chosen
    return bytes(data)


def calls_of(session: Session, random: Random) -> list[Callable[[], Awaitable[Any]]]:
    mailbox, submission = cast(Provisioning, session.mailbox), session.submission

    async def on_a_message(do: Callable[[Any], Awaitable[object]]) -> None:
        headers = await mailbox.headers(INBOX, 50)
        if headers:
            await do(random.choice(headers).ref)

    async def read(ref: Any) -> None:
        structure = await mailbox.structure(ref)
        for part in (structure.text, *structure.attachments):
            if part is not None:
                await mailbox.part(ref, part)

    return [
        mailbox.folders,
        mailbox.status,
        mailbox.arrived,
        mailbox.watch,
        mailbox.log_off,
        lambda: mailbox.arrived(reopen=True),
        lambda: mailbox.open(SENT_ITEMS),
        lambda: mailbox.listing([INBOX]),
        lambda: mailbox.create(f"Folder {random.randrange(9)}"),
        lambda: mailbox.append(SENT_ITEMS, message_of("ups10Kat", "n1.9")),
        lambda: submission.send(OWN.address, [OWN.address], message_of("upsBMobj", "n1.8")),
        lambda: on_a_message(read),
        lambda: on_a_message(lambda ref: mailbox.texts([ref])),
        lambda: on_a_message(lambda ref: mailbox.flag([ref], random.choice((*SYSTEM_FLAGS, Flag.FORWARDED)))),
        lambda: on_a_message(lambda ref: mailbox.copy([ref], SENT_ITEMS)),
        lambda: on_a_message(lambda ref: mailbox.expunge([ref])),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@watched
async def test_wrong_answers_fail_only_their_calls(seed: int) -> None:
    random = Random(seed)

    async def sometimes(server: FaultyServer, request: Request, writer: asyncio.StreamWriter) -> None:
        if request.kind in KINDS and random.random() < 0.4:
            await changes(lambda answer: wrong(random, answer))(server, request, writer)
        else:
            await server.answer(request, writer)

    async with faulty_server([OWN], PATIENCE_S) as (server, services):
        ear = Ear()
        session = open_driver("mapi", services).session(OWN, ear)
        await session.mailbox.log_on()
        for number in range(3):
            await session.submission.send(OWN.address, [OWN.address], message_of("ups10Kat", f"n1.{number}"))
        for _ in range(CALLS_OF_A_USER):
            server.fail(ANY, sometimes)
            try:
                await random.choice(calls_of(session, random))()
            except TaskFailed as failure:
                assert not isinstance(failure, GeneratorFailed)
            await turns()
            server.fault = None
            session.mailbox.abandon()
            await session.mailbox.log_on()
        assert not any(isinstance(loss, GeneratorFailed) for loss in ear.losses)
        session.mailbox.abandon()
