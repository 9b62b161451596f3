"""The calendar over a mailbox, on real servers: one schedule at any time, and foreign mail is kept."""

import asyncio
import imaplib
from collections.abc import Awaitable, Callable

import pytest

from loadsim.errors import ServerRefused
from loadsim.model.message_tag import MessageTag, body_digest
from loadsim.model.ports import CALENDAR, Account, Mailbox, MessageRef, Services
from loadsim.protocols.aioimaplib import open_driver
from loadsim.protocols.calendar import MailboxCalendar
from loadsim.provisioning.sessions import NullObserver
from loadsim.servers.running import RunningServer

pytestmark = pytest.mark.nightly(part="drivers")

ACCOUNTS = [Account(number, f"user{number}", f"user{number}@sim.test", "secret") for number in range(1, 8)]


@pytest.fixture(scope="module", params=["embedded_server", "dovecot_postfix"])
def services(request: pytest.FixtureRequest) -> Services:
    start: Callable[..., RunningServer] = request.getfixturevalue(request.param)
    return start(ACCOUNTS).services


def schedule(number: int) -> bytes:
    body = f"schedule {number}\r\n".encode()
    tag = MessageTag("run", 1, f"s{number}", "schedule", 1, body_digest(body))
    header = f"From: user1@sim.test\r\nMessage-ID: <s{number}.run@sim.test>\r\nX-LoadSim: {tag.header()}\r\n\r\n"
    return header.encode() + body


def outside(services: Services, account: Account) -> imaplib.IMAP4:
    """Return the mailbox as imaplib reads it, an independent client."""
    client = imaplib.IMAP4(services.imap.host, services.imap.port)
    client.login(account.login, account.password)
    return client


def prepare(services: Services, account: Account, messages: list[bytes]) -> None:
    client = outside(services, account)
    client.create(CALENDAR)
    for message in messages:
        assert client.append(CALENDAR, "", "", message)[0] == "OK"
    client.logout()


def lying(services: Services, account: Account) -> list[tuple[bytes, bool]]:
    client = outside(services, account)
    client.select(CALENDAR, readonly=True)
    found = []
    for number in client.search(None, "ALL")[1][0].split():
        data = client.fetch(number.decode(), "(FLAGS BODY.PEEK[TEXT])")[1]
        assert isinstance(data[0], tuple)
        flags = data[0][0] + b"".join(each for each in data if isinstance(each, bytes))
        found.append((data[0][1], b"\\Seen" in flags))
    client.logout()
    return found


def using(services: Services, account: Account, doing: Callable[[Mailbox], Awaitable[None]]) -> None:
    async def scenario() -> None:
        mailbox = open_driver(services).session(account, NullObserver()).mailbox
        try:
            await mailbox.log_on()
            await doing(mailbox)
            await mailbox.log_off()
        finally:
            mailbox.abandon()

    asyncio.run(scenario())


def test_schedules_of_an_earlier_run_are_removed_and_foreign_mail_stays(services: Services) -> None:
    """Replace schedules of an earlier run; a message without loadsim's tag survives."""
    foreign = b"From: boss@sim.test\r\nSubject: real\r\n\r\nreal appointment\r\n"
    forged = b"From: boss@sim.test\r\nX-LoadSim: not ours\r\n\r\nreal too\r\n"
    prepare(services, ACCOUNTS[1], [schedule(1), foreign, schedule(2), forged])

    async def change(mailbox: Mailbox) -> None:
        await MailboxCalendar(mailbox).replace(schedule(3))

    using(services, ACCOUNTS[1], change)
    bodies = [body for body, _ in lying(services, ACCOUNTS[1])]
    assert bodies == [b"real appointment\r\n", b"real too\r\n", b"schedule 3\r\n"]


class Faltering:
    """A mailbox that refuses the first expunge it is asked for."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._refused = False
        self.open, self.append, self.headers = mailbox.open, mailbox.append, mailbox.headers

    async def expunge(self, refs: tuple[MessageRef, ...]) -> None:
        if not self._refused:
            self._refused = True
            raise ServerRefused("NO UID EXPUNGE", "try again")
        await self._mailbox.expunge(refs)


def test_the_next_change_removes_what_a_failed_one_left(services: Services) -> None:
    """When the expunge fails two schedules lie there; the next change removes both."""
    prepare(services, ACCOUNTS[3], [schedule(1)])

    async def change(mailbox: Mailbox) -> None:
        calendar = MailboxCalendar(Faltering(mailbox))  # type: ignore[arg-type]
        with pytest.raises(ServerRefused):
            await calendar.replace(schedule(2))
        assert len(await mailbox.headers(CALENDAR, None)) == 2
        await calendar.replace(schedule(3))

    using(services, ACCOUNTS[3], change)
    assert lying(services, ACCOUNTS[3]) == [(b"schedule 3\r\n", True)]
