"""One contract for all drivers: each operation of the ports, its result and its failures.

`imap` and `aioimaplib` run on the embedded server and on Dovecot with Postfix, `mapi` on its embedded server, behind a
network that breaks. The in-memory driver runs in virtual time, and fails by its own hook.
"""

from __future__ import annotations

import asyncio
import gc
import imaplib
import inspect
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from breaking_network import Network
from heaps import small_heap
from imap_script import SkippingLoop, skip
from jmap_dialects import SWITCHES
from mailservers import numbered_accounts
from patience import PATIENCE_S
from virtual_runs import contents, quiet, scenario_of

from loadsim.engine.clock import run_virtual
from loadsim.errors import ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.mail_program import SUBMISSIONS
from loadsim.model.message_tag import MessageTag, body_digest
from loadsim.model.ports import (
    ALL_TASKS,
    CALENDAR,
    DELETED_ITEMS,
    INBOX,
    SENT_ITEMS,
    Account,
    Driver,
    Endpoint,
    Flag,
    Header,
    Mailbox,
    MessageRef,
    Part,
    Services,
    Session,
)
from loadsim.model.provisioning_ports import NewMessage, Provisioning
from loadsim.model.terms import OVER_HTTP, PUBLIC_TASKS, RECEIPT_TASKS
from loadsim.protocols.in_memory import InMemoryDriver
from loadsim.protocols.lines import NO_LINES
from loadsim.protocols.registry import open_driver
from loadsim.scenario.workload import Workload
from loadsim.servers.running import RunningServer

FOLDER = "Folder 01"
FOLDERS = {INBOX, SENT_ITEMS, DELETED_ITEMS, CALENDAR, FOLDER}
MISSING = "no such folder"
LIMIT_S = PATIENCE_S


class Observed:
    """An observer that keeps everything, and lets a test wait for announcements and losses."""

    def __init__(self, now: Callable[[], int]) -> None:
        self.now = now
        self.outcomes: list[str] = []
        self.announced = 0
        self.losses: list[Exception] = []
        self.lines = NO_LINES
        self._news = asyncio.Event()

    def command(self, name: str, since: int, outcome: str, sent_bytes: int, received_bytes: int, *_: Any) -> None:
        assert 0 <= since <= self.now()
        assert min(sent_bytes, received_bytes) >= 0
        self.outcomes.append(outcome)

    def arrived(self, messages: int, *_: Any) -> None:
        assert messages > 0
        self.announced += messages
        self._news.set()

    def lost(self, failure: Exception) -> None:
        self.losses.append(failure)
        self._news.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait for an announcement or a loss that makes it so."""
        async with asyncio.timeout(PATIENCE_S):
            while not reached():
                self._news.clear()
                await self._news.wait()


class Stage(ABC):
    """One user of a driver, whose mailbox has the folders and no mail, and what a test does from outside."""

    log_on_command: str
    recipient_command = "RCPT"
    keeps_contents = True
    states_sizes_of_mime = True
    folders = FOLDERS
    without_command: frozenset[str] = frozenset()

    def __init__(self, driver: Driver, account: Account, now: Callable[[], int]) -> None:
        self.driver = driver
        self.account = account
        self.observer = Observed(now)
        self.session: Session = driver.session(account, self.observer)
        self.submissions = [self.session.submission]

    @property
    def mailbox(self) -> Mailbox:
        return self.session.mailbox

    @abstractmethod
    async def deliver(self, *messages: bytes) -> None:
        """Put messages into the Inbox, without this driver's session."""

    @abstractmethod
    def fail(self, command: str, how: type[TaskFailed]) -> None:
        """Break the connection at the next commands of this name, or leave them without an answer."""

    @abstractmethod
    def mend(self) -> None:
        """Let commands pass again."""

    @abstractmethod
    def break_off(self) -> None:
        """Break the connection now."""

    @abstractmethod
    async def outlast(self) -> None:
        """Put the clock behind the time limit of the command that is left without an answer."""

    @abstractmethod
    def intruder(self) -> Mailbox:
        """Return a mailbox whose log-on the server refuses."""

    async def logged_on(self) -> Mailbox:
        await self.mailbox.log_on()
        return self.mailbox

    async def listed(self, *messages: bytes) -> list[Header]:
        """Deliver messages to a new session, and return their headers."""
        await self.deliver(*messages)
        return list(await self.mailbox.headers(INBOX, None))


class RealStage(Stage):
    """A user on a mail server; the network in between belongs to the test."""

    def __init__(self, name: str, services: Services, network: Network, server: Services, account: Account) -> None:
        super().__init__(open_driver(name, services), account, time.monotonic_ns)
        self._network = network
        self._server = server
        self.log_on_command = "AUTHENTICATE"
        ways = [open_driver(name, replace(services, submission=way)) for way in SUBMISSIONS]
        self.submissions = [driver.session(account, self.observer).submission for driver in ways]

    async def deliver(self, *messages: bytes) -> None:
        def put() -> None:
            with imaplib.IMAP4(self._server.imap.host, self._server.imap.port) as client:
                client.login(self.account.login, self.account.password)
                for each in messages:
                    assert client.append(INBOX, "", "", each)[0] == "OK"

        await asyncio.to_thread(put)

    def fail(self, command: str, how: type[TaskFailed]) -> None:
        pattern = f" {command}".encode()
        self._network.cut_at = pattern if how is ServerLost else None
        self._network.swallow_at = pattern if how is ServerSilent else None

    def mend(self) -> None:
        self._network.cut_at = self._network.swallow_at = None

    def break_off(self) -> None:
        self._network.cut()

    async def outlast(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self._network.swallowed.wait()
        skip(LIMIT_S + 1)

    def intruder(self) -> Mailbox:
        return self.driver.session(replace(self.account, password="wr0ng-passw0rd"), self.observer).mailbox


class MapiStage(RealStage):
    """A user on a MAPI server, whose mailbox has more folders; a second session of theirs delivers."""

    recipient_command = "ResolveNames"
    states_sizes_of_mime = False
    folders = FOLDERS | {"Outbox"}

    def __init__(self, name: str, services: Services, network: Network, server: Services, account: Account) -> None:
        super().__init__(name, services, network, server, account)
        self.log_on_command = "Bind"
        self.submissions = [self.session.submission]

    async def deliver(self, *messages: bytes) -> None:
        mailbox = other_mailbox(self._server, self.account)
        await mailbox.log_on()
        at_us = time.time_ns() // 1000
        await mailbox.append_many(INBOX, [NewMessage(each, (), at_us) for each in messages])
        await mailbox.log_off()

    def fail(self, command: str, how: type[TaskFailed]) -> None:
        requests = {"IDLE": "NotificationWait", "LOGOUT": "Disconnect", "Bind": "Bind"}
        super().fail(f"{requests.get(command, 'Execute')}\r\n", how)


class JmapStage(RealStage):
    """A user on the JMAP peer, whose mailbox has Drafts, too; a second session of theirs delivers."""

    recipient_command = "EmailSubmission"
    states_sizes_of_mime = False
    without_command = frozenset(("folders", "open", "log off"))  # the log-on has listed the folders

    def __init__(self, name: str, services: Services, network: Network, server: Services, account: Account) -> None:
        super().__init__(name, services, network, server, account)
        self.log_on_command = "session"
        self.submissions = [self.session.submission]
        self._received_s = time.time_ns() // 10**9

    async def deliver(self, *messages: bytes) -> None:
        """Deliver each in a second of its own: receivedAt has whole seconds."""
        mailbox = other_mailbox(self._server, self.account, "jmap")
        await mailbox.log_on()
        for each in messages:
            self._received_s += 1
            await mailbox.append_many(INBOX, [NewMessage(each, (), 1_000_000 * self._received_s)])
        await mailbox.log_off()

    def fail(self, command: str, how: type[TaskFailed]) -> None:
        requests = {"IDLE": "text/event-stream", "session": "/.well-known/jmap"}
        super().fail(requests.get(command, "application/json; jmapVersion"), how)


def other_mailbox(server: Services, account: Account, driver: str = "mapi") -> Provisioning:
    session = open_driver(driver, server).session(account, Observed(time.monotonic_ns))
    return cast(Provisioning, session.mailbox)


class InMemoryStage(Stage):
    log_on_command = "AUTHENTICATE"
    keeps_contents = False

    def __init__(self, workload: Workload, now: Callable[[], int]) -> None:
        self._command = ""
        self._how: type[TaskFailed] = ServerLost
        driver = InMemoryDriver(workload, contents(), empty=True, fault=self._fault, limit_s=LIMIT_S)
        super().__init__(driver, workload.scenario.account(1), now)

    def _fault(self, user: int, name: str, number: int) -> TaskFailed | None:
        return self._how("NO AUTHENTICATE") if self._command and self._command in name else None

    async def deliver(self, *messages: bytes) -> None:
        assert isinstance(self.driver, InMemoryDriver)
        for each in messages:
            self.driver.deliver([self.account.number], each)

    def fail(self, command: str, how: type[TaskFailed]) -> None:
        self._command, self._how = command, how

    def mend(self) -> None:
        self._command = ""

    def break_off(self) -> None:
        assert isinstance(self.driver, InMemoryDriver)
        self.driver.mailboxes[1].break_off(ServerLost("reset"))

    async def outlast(self) -> None:
        """Nothing to do: virtual time passes."""

    def intruder(self) -> Mailbox:
        self.fail(self.log_on_command, ServerRefused)
        return self.mailbox


Scenario = Callable[[Stage], Awaitable[None]]


class Site(ABC):
    name: str

    @abstractmethod
    def run(self, scenario: Scenario) -> None:
        """Run a scenario with a new user; afterwards no task is left, and asyncio has no complaint."""


@dataclass
class RealSite(Site):
    """A driver of the network, and a server with users that no other test has touched."""

    name: str
    server: RunningServer
    accounts: Iterator[Account]

    def run(self, scenario: Scenario) -> None:
        complaints: list[str] = []
        account = next(self.accounts)
        server = self.server.services
        if self.name not in OVER_HTTP:
            endpoint = server.endpoint("imap")
            with imaplib.IMAP4(endpoint.host, endpoint.port) as client:
                client.login(account.login, account.password)
                for folder in sorted(FOLDERS - {INBOX}):
                    assert client.create(f'"{folder}"')[0] == "OK"

        async def watched() -> None:
            if self.name in OVER_HTTP:
                mailbox = other_mailbox(server, account, self.name)
                await mailbox.log_on()
                existing = {*await mailbox.folders()} | FOLDERS
                for folder in FOLDERS - {*await mailbox.folders()}:
                    await mailbox.create(folder)
                await mailbox.log_off()
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: complaints.append(f"{context}"))
            network = Network(server, self.name if self.name in OVER_HTTP else "imap")
            async with network(limit_s=LIMIT_S) as through:
                make = {"mapi": MapiStage, "jmap": JmapStage}.get(self.name, RealStage)
                stage = make(self.name, through, network, server, account)
                if self.name == "jmap":
                    stage.folders = existing
                await scenario(stage)
                await stage.session.submission.close()
                stage.mailbox.abandon()
            if rest := asyncio.all_tasks() - {asyncio.current_task()}:
                assert not (await asyncio.wait(rest, timeout=PATIENCE_S))[1]

        with small_heap():
            with asyncio.Runner(loop_factory=SkippingLoop) as runner:
                runner.run(watched())
            gc.collect()
        assert not complaints


@dataclass
class InMemorySite(Site):
    """The in-memory driver, which is its own server."""

    workload: Workload
    name: str = "fake"

    def run(self, scenario: Scenario) -> None:
        async def main(clock: Any) -> None:
            await scenario(InMemoryStage(self.workload, clock.now_ns))

        run_virtual(main)


@pytest.fixture(scope="module")
def servers(request: pytest.FixtureRequest) -> Callable[[str], tuple[RunningServer, Iterator[Account]]]:
    """Returns a server and its unused accounts; each server is started once."""
    started: dict[str, tuple[RunningServer, Iterator[Account]]] = {}

    def of(fixture: str) -> tuple[RunningServer, Iterator[Account]]:
        if fixture not in started:
            accounts = numbered_accounts(600)
            server, _, ways = fixture.partition("/")
            start = request.getfixturevalue(server)
            started[fixture] = start(accounts, *SWITCHES.get(ways, ())), iter(accounts)
        return started[fixture]

    return of


SITES = [
    pytest.param(
        (driver, server),
        id=f"{driver}-{server.partition('_')[0]}",
        marks=pytest.mark.system
        if (driver, server) == ("imap", "dovecot_postfix")
        else pytest.mark.nightly(part="drivers"),
    )
    for driver in ("imap", "aioimaplib")
    for server in ("embedded_server", "dovecot_postfix")
]
SITES += [
    pytest.param(("mapi", "embedded_mapi_server"), id="mapi-embedded"),
    pytest.param(("jmap", "jmap_peer_server/plain"), id="jmap-peer"),
    pytest.param(("jmap", "jmap_peer_server/james"), id="jmap-james", marks=pytest.mark.nightly(part="drivers")),
    pytest.param(("jmap", "jmap_peer_server/cyrus"), id="jmap-cyrus", marks=pytest.mark.nightly(part="drivers")),
    pytest.param(None, id="fake"),
]
"""Each driver on each server; the in-memory driver once."""


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    place = tmp_path_factory.mktemp("scenario")
    return Workload(scenario_of(place, (quiet(start_state={"folders": 1}), 2)))


@pytest.fixture(params=SITES)
def site(request: pytest.FixtureRequest, servers: Any, workload: Workload) -> Site:
    """Each driver on each server in turn."""
    if request.param is None:
        return InMemorySite(workload)
    driver, server = request.param
    return RealSite(driver, *servers(server))


def on_each_site(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Let a test of a stage run on each site."""

    def on_site(site: Site, **values: Any) -> None:
        site.run(lambda stage: test(stage, **values))

    names = ["site", *(name for name in inspect.signature(test).parameters if name != "stage")]
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    on_site.__name__, on_site.__doc__ = test.__name__, test.__doc__
    on_site.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return on_site


def message(
    number: int, to: str = "user2@example.test", subject: str = "hello", sender: str = "user1@example.test"
) -> bytes:
    body = b"body %d\r\n" % number
    tag = MessageTag("run-1", 1, f"n1.{number}", "text-1k", 1_700_000_000_000_000, body_digest(body))
    lines = [
        f"From: {sender}",
        f"To: {to}",
        f"Subject: {subject}",
        f"Message-ID: <n1.{number}.run-1@example.test>",
        "MIME-Version: 1.0",
        f"X-LoadSim: {tag.header()}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def with_attachment(account: Account) -> bytes:
    return contents().compose(
        run="run-1",
        sender=1,
        sender_address=account.address,
        to=[account.address],
        id="n1.0",
        kind="ups10Kat",
        sent_us=0,
        domain=account.domain,
    )


def ids(headers: Any) -> list[str]:
    return [each.tag.id if each.tag else "" for each in headers]


def test_a_driver_has_the_name_of_its_entry_point_and_supports_all_tasks(site: Site) -> None:
    """The other tests hold a driver to its `supported_tasks`."""

    async def scenario(stage: Stage) -> None:
        assert isinstance(stage.driver, Driver)
        lacking = (*RECEIPT_TASKS, *PUBLIC_TASKS) if site.name in OVER_HTTP else ()
        assert (stage.driver.name, stage.driver.supported_tasks) == (site.name, ALL_TASKS.difference(lacking))

    site.run(scenario)


@on_each_site
async def test_stored_mail_keeps_its_flags_and_a_calendar_entry_replaces_the_previous_one(stage: Stage) -> None:
    """Every command of it is reported as ok."""
    mailbox = await stage.logged_on()
    await mailbox.append(SENT_ITEMS, message(1), [Flag.SEEN])
    (sent,) = await mailbox.headers(SENT_ITEMS, None)
    assert sent.seen
    await mailbox.flag([sent.ref], Flag.ANSWERED)
    await mailbox.flag([sent.ref], Flag.FORWARDED)
    for number in range(2, 5):
        await stage.session.calendar.replace(message(number))
    assert ids(await mailbox.headers(CALENDAR, None)) == ["n1.4"]
    await mailbox.log_off()
    assert set(stage.observer.outcomes) == {"ok"}


@on_each_site
async def test_a_header_has_the_messages_fields(stage: Stage) -> None:
    """Reference, flag, size, addresses, subject, Message-ID and tag; the newest headers, oldest first."""
    mailbox = await stage.logged_on()
    await stage.deliver(*[message(number, subject=f"number {number}") for number in range(5)])
    first, *others = await mailbox.headers(INBOX, None)
    tag = first.tag
    assert tag is not None
    assert first == Header(
        first.ref,
        flags=frozenset(),
        size_bytes=len(message(0, subject="number 0")) if stage.states_sizes_of_mime else first.size_bytes,
        sender="user1@example.test",
        to=("user2@example.test",),
        subject="number 0",
        message_id="<n1.0.run-1@example.test>",
        tag=tag,
    )
    assert (tag.run, tag.sender, tag.id) == ("run-1", 1, "n1.0")
    assert len({first.ref, *(each.ref for each in others)}) == 5
    assert ids(await mailbox.headers(INBOX, 2)) == ["n1.3", "n1.4"]
    assert ids(await mailbox.headers(INBOX, 50)) == [f"n1.{number}" for number in range(5)]


@on_each_site
async def test_reading_parts_does_not_mark_the_message(stage: Stage) -> None:
    """A text and an attachment, each as encoded in the message; the in-memory system has their sizes only."""
    mailbox = await stage.logged_on()
    sent = with_attachment(stage.account)
    (header,) = await stage.listed(sent)
    structure = await mailbox.structure(header.ref)
    assert structure.text is not None
    assert (structure.text.name, structure.text.content_type) == ("1", "text/plain")
    (attachment,) = structure.attachments
    assert (attachment.name, attachment.encoding) == ("2", "base64")
    for part in (structure.text, attachment):
        content = await mailbox.part(header.ref, part)
        # Servers differ about the CRLF in front of a boundary, and pymap counts the header of the part.
        assert part.size_bytes - 200 < len(content)
        assert not stage.states_sizes_of_mime or len(content) <= part.size_bytes + 2
        assert not stage.keeps_contents or bytes(content).removesuffix(b"\r\n") in sent
    assert [each.seen for each in await mailbox.headers(INBOX, None)] == [False]


@on_each_site
async def test_references_are_valid_in_later_sessions(stage: Stage) -> None:
    """Flags, moves, copies and expunges by references of an earlier session affect these messages only."""
    mailbox = await stage.logged_on()
    refs = [each.ref for each in await stage.listed(*[message(number) for number in range(6)])]
    mailbox.abandon()
    await mailbox.log_on()
    await mailbox.flag(refs[1:4], Flag.SEEN)
    await mailbox.flag([refs[2]], Flag.SEEN, on=False)
    await mailbox.copy([refs[1], refs[2]], FOLDER)
    await mailbox.move([refs[0], refs[5]], DELETED_ITEMS)
    await mailbox.expunge([refs[4]])
    left = await mailbox.headers(INBOX, None)
    assert [(each.ref, each.seen) for each in left] == [(refs[1], True), (refs[2], False), (refs[3], True)]
    copies = await mailbox.headers(FOLDER, None)
    assert (ids(copies), [each.seen for each in copies]) == (["n1.1", "n1.2"], [True, False])
    assert ids(await mailbox.headers(DELETED_ITEMS, None)) == ["n1.0", "n1.5"]


@on_each_site
async def test_new_mail_is_announced_once_and_returned_once(stage: Stage) -> None:
    """While the user watches, while another folder is open, and after a session was lost."""
    mailbox, observer = await stage.logged_on(), stage.observer
    await stage.deliver(message(0))
    assert ids(await mailbox.headers(INBOX, 50)) == ["n1.0"]
    await mailbox.watch()
    before = observer.announced
    await stage.deliver(message(1))
    await observer.until(lambda: observer.announced == before + 1)
    assert ids(await mailbox.arrived()) == ["n1.1"]
    assert list(await mailbox.arrived()) == []
    # Mail that came while another folder was open is announced when the Inbox is opened.
    await mailbox.open(FOLDER)
    await stage.deliver(message(2), message(3))
    assert observer.announced == before + 1
    await mailbox.open(INBOX)
    await observer.until(lambda: observer.announced == before + 3)
    await mailbox.open(FOLDER)
    await mailbox.watch()
    assert observer.announced == before + 3
    assert ids(await mailbox.arrived()) == ["n1.2", "n1.3"]
    # Mail that came between two sessions is returned.
    mailbox.abandon()
    await stage.deliver(message(4))
    await mailbox.log_on()
    assert ids(await mailbox.arrived()) == ["n1.4"]
    assert ids(await mailbox.arrived(reopen=True))[-4:] == ["n1.1", "n1.2", "n1.3", "n1.4"]
    assert list(await mailbox.arrived()) == []
    assert observer.announced == before + 3
    assert not observer.losses


@on_each_site
async def test_any_call_ends_the_watch(stage: Stage) -> None:
    """A user who watches can do everything at once, and watch again."""
    mailbox = await stage.logged_on()
    await mailbox.watch()
    assert set(await mailbox.folders()) == stage.folders
    await mailbox.watch()
    await mailbox.watch()
    await mailbox.append(FOLDER, message(1))
    await mailbox.watch()
    await stage.deliver(message(2))
    await stage.observer.until(lambda: stage.observer.announced == 1)
    await mailbox.watch()
    await mailbox.log_off()
    assert not stage.observer.losses


@on_each_site
async def test_a_missing_folder_is_refused(stage: Stage) -> None:
    """Each operation that names it raises `ServerRefused`, changes nothing, and the session continues."""
    mailbox = await stage.logged_on()
    (header,) = await stage.listed(message(1))
    calls: list[Awaitable[Any]] = [
        mailbox.open(MISSING),
        mailbox.headers(MISSING, None),
        mailbox.move([header.ref], MISSING),
        mailbox.copy([header.ref], MISSING),
        mailbox.append(MISSING, message(2)),
    ]
    for call in calls:
        with pytest.raises(ServerRefused):
            await call
    assert ids(await mailbox.headers(INBOX, None)) == ["n1.1"]
    assert set(await mailbox.folders()) == stage.folders
    assert not stage.observer.losses


@on_each_site
async def test_a_missing_message_is_refused(stage: Stage) -> None:
    """Servers answer OK to commands on a message that is gone; the port refuses what needs it."""
    mailbox = await stage.logged_on()
    (header,) = await stage.listed(message(1))
    await mailbox.expunge([header.ref])
    calls: list[Awaitable[Any]] = [
        mailbox.structure(header.ref),
        mailbox.part(header.ref, Part("1", "text/plain", 10)),
        mailbox.move([header.ref], FOLDER),
        mailbox.copy([header.ref], FOLDER),
    ]
    for call in calls:
        with pytest.raises(ServerRefused):
            await call
    assert list(await mailbox.headers(FOLDER, None)) == []
    assert not stage.observer.losses


@on_each_site
async def test_a_refused_log_on_names_no_password(stage: Stage) -> None:
    """There is no session after it, and a later log-on works."""
    intruder = stage.intruder()
    with pytest.raises(ServerRefused) as refusal:
        await intruder.log_on()
    assert stage.log_on_command in refusal.value.kind
    assert "wr0ng" not in str(refusal.value)
    assert stage.observer.outcomes[-1] == "refused"
    with pytest.raises(ServerLost):
        await intruder.folders()
    stage.mend()
    await stage.logged_on()


@dataclass(frozen=True)
class Call:
    command: str
    do: Callable[[Mailbox, MessageRef], Awaitable[object]]
    on_the_network_only: bool = False


CALLS = {
    "folders": Call("LIST", lambda mailbox, _: mailbox.folders()),
    "open": Call("SELECT", lambda mailbox, _: mailbox.open(FOLDER)),
    "headers": Call("FETCH", lambda mailbox, _: mailbox.headers(INBOX, 50)),
    "headers, opening": Call("SELECT", lambda mailbox, _: mailbox.headers(FOLDER, 50)),
    "arrived": Call("FETCH", lambda mailbox, _: mailbox.arrived()),
    "watch": Call("IDLE", lambda mailbox, _: mailbox.watch(), on_the_network_only=True),
    "structure": Call("FETCH", lambda mailbox, ref: mailbox.structure(ref)),
    "part": Call("FETCH", lambda mailbox, ref: mailbox.part(ref, Part("1", "text/plain", 8))),
    "flag": Call("STORE", lambda mailbox, ref: mailbox.flag([ref], Flag.SEEN)),
    "move": Call("MOVE", lambda mailbox, ref: mailbox.move([ref], FOLDER)),
    "copy": Call("COPY", lambda mailbox, ref: mailbox.copy([ref], FOLDER)),
    "append": Call("APPEND", lambda mailbox, _: mailbox.append(FOLDER, message(2))),
    "expunge": Call("EXPUNGE", lambda mailbox, ref: mailbox.expunge([ref])),
    "log off": Call("LOGOUT", lambda mailbox, _: mailbox.log_off()),
}


@pytest.mark.parametrize("how", [ServerLost, ServerSilent])
@pytest.mark.parametrize("call", CALLS)
@on_each_site
async def test_a_call_without_an_answer_fails_and_ends_the_session(
    stage: Stage, call: str, how: type[TaskFailed]
) -> None:
    """A broken connection fails it at once, silence at the time limit. The next call fails; a new log-on works."""
    about = CALLS[call]
    mailbox = await stage.logged_on()
    (header,) = await stage.listed(message(1))
    stage.fail(about.command, how)
    if (about.on_the_network_only and isinstance(stage, InMemoryStage)) or call in stage.without_command:
        await about.do(mailbox, header.ref)  # takes no time, and cannot fail
        return
    calling = asyncio.ensure_future(about.do(mailbox, header.ref))
    if how is ServerSilent:
        await stage.outlast()
    with pytest.raises(how):
        await calling
    assert stage.observer.outcomes[-1] == ("lost" if how is ServerLost else "timeout")
    with pytest.raises((ServerLost, how)):
        await mailbox.folders()
    assert not stage.observer.losses  # the call has raised it
    stage.mend()
    await mailbox.log_on()
    assert set(await mailbox.folders()) == stage.folders


@pytest.mark.parametrize("how", [ServerLost, ServerSilent])
@on_each_site
async def test_a_log_on_without_an_answer_fails(stage: Stage, how: type[TaskFailed]) -> None:
    """It fails as other calls do, and can be repeated."""
    stage.fail(stage.log_on_command, how)
    calling = asyncio.ensure_future(stage.mailbox.log_on())
    if how is ServerSilent:
        await stage.outlast()
    with pytest.raises(how):
        await calling
    assert not stage.observer.losses
    stage.mend()
    await stage.logged_on()


@on_each_site
async def test_a_session_lost_while_idle_is_reported_once(stage: Stage) -> None:
    """The observer gets the loss, then the next call fails; the session after that is whole."""
    mailbox, observer = await stage.logged_on(), stage.observer
    await mailbox.watch()
    stage.break_off()
    await observer.until(lambda: bool(observer.losses))
    assert isinstance(observer.losses[0], ServerLost)
    for _ in range(2):
        with pytest.raises(ServerLost):
            await mailbox.arrived()
    assert len(observer.losses) == 1
    await mailbox.log_on()
    assert list(await mailbox.arrived()) == []


@on_each_site
async def test_an_abandoned_session_is_not_reported_as_lost(stage: Stage) -> None:
    """At any time, and repeatedly: before a log-on, in a watch, after a log-off."""
    mailbox = stage.mailbox
    mailbox.abandon()
    await mailbox.log_on()
    await mailbox.watch()
    mailbox.abandon()
    mailbox.abandon()
    with pytest.raises(ServerLost):
        await mailbox.headers(INBOX, None)
    await mailbox.log_on()
    await mailbox.log_off()
    mailbox.abandon()
    assert not stage.observer.losses


@pytest.mark.parametrize("call", CALLS)
@on_each_site
async def test_no_call_works_without_a_session(stage: Stage, call: str) -> None:
    """Each raises `ServerLost`, before a log-on and after a log-off."""
    mailbox = await stage.logged_on()
    (header,) = await stage.listed(message(1))
    await mailbox.log_off()
    with pytest.raises(ServerLost):
        await CALLS[call].do(mailbox, header.ref)
    assert not stage.observer.losses


@on_each_site
async def test_a_message_is_sent_to_all_recipients_or_to_none(stage: Stage) -> None:
    """One unknown recipient, and the server refuses it for all; the next message goes through."""
    mailbox, own = await stage.logged_on(), stage.account.address
    await mailbox.watch()
    for number, submission in enumerate(stage.submissions, start=1):
        with pytest.raises(ServerRefused, match=stage.recipient_command):
            await submission.send(own, [own, f"nobody@{stage.account.domain}"], message(1, own, sender=own))
        await submission.send(own, [own], message(2, own, "sent", own))
        await stage.observer.until(lambda number=number: stage.observer.announced >= number)  # type: ignore[misc]
        await submission.check()
        for _ in range(2):
            await submission.close()
    assert [each.subject for each in await mailbox.headers(INBOX, None)] == ["sent"] * len(stage.submissions)
    submission = stage.submissions[0]
    await submission.send(own, [own], message(3, own, sender=own))
    await submission.close()


@on_each_site
async def test_sent_messages_are_saved_once(stage: Stage) -> None:
    """In any order: a server may file them itself."""
    mailbox, own, submission = await stage.logged_on(), stage.account.address, stage.submissions[0]
    sent = [message(number, own, f"sent {number}", own) for number in (1, 2)]
    for each in sent:
        await submission.send(own, [own], each)
    for each in sent:
        await mailbox.append(SENT_ITEMS, each, [Flag.SEEN])
    await submission.close()
    assert sorted(each.subject for each in await mailbox.headers(SENT_ITEMS, None)) == ["sent 1", "sent 2"]


@on_each_site
async def test_a_message_is_sent_without_a_mailbox_session(stage: Stage) -> None:
    submission, own = stage.submissions[0], stage.account.address
    await submission.send(own, [own], message(1, own, "sent", own))
    await submission.close()
    mailbox = await stage.logged_on()
    if not await mailbox.headers(INBOX, None):  # accepted, and not delivered yet
        await mailbox.watch()
        await stage.observer.until(lambda: stage.observer.announced == 1)
    assert [each.subject for each in await mailbox.headers(INBOX, None)] == ["sent"]


@pytest.mark.parametrize("driver", ["imap", "aioimaplib", "mapi", "jmap"])
def test_a_port_without_a_server_is_server_lost(driver: str) -> None:
    """Log-on, check and message raise `ServerLost`."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        nowhere = Endpoint("127.0.0.1", listener.getsockname()[1])
    services = Services(nowhere, nowhere, LIMIT_S, mapi=nowhere, jmap=nowhere)
    account = Account(1, "user1", "user1@example.test", "secret")

    async def scenario() -> None:
        session = open_driver(driver, services).session(account, Observed(time.monotonic_ns))
        calls: list[Awaitable[Any]] = [
            session.mailbox.log_on(),
            session.submission.check(),
            session.submission.send(account.address, [account.address], message(1)),
        ]
        for call in calls:
            with pytest.raises(ServerLost):
                await call

    asyncio.run(scenario())
