"""POP3: the driver against poplib and imaplib, and runs against Dovecot's own counts, and on other servers."""

import asyncio
import imaplib
import json
import poplib
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agreement import differences, mailboxes_by_doveadm, mailboxes_by_log
from breaking_network import Network
from imap_script import Ear
from mailservers import StartDovecotPostfix, numbered_accounts
from other_servers.courier import start_courier
from other_servers.cyrus import start_cyrus
from other_servers.greenmail import start_greenmail
from other_servers.james import start_james
from patience import PATIENCE_S
from skipping import turns
from small_runs import loadsim, on, population_of, written
from whole_mailboxes import ids_of, looking

from loadsim.errors import ConfigError, MailMissing, ServerLost, ServerRefused
from loadsim.model.ports import INBOX, Account, Endpoint, Mailbox, Services
from loadsim.model.records import FAILURES, OUTCOMES
from loadsim.protocols.registry import check_drivers, open_driver
from loadsim.provisioning.preflight import check_submission
from loadsim.provisioning.sessions import services_of
from loadsim.runs.local import run_locally
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.workload import Workload
from loadsim.servers.dovecot_postfix import DovecotPostfix
from loadsim.servers.running import RunningServer
from loadsim.timinglog.merge import read_logs

pytestmark = [pytest.mark.system, pytest.mark.slow]

BODIES = (b".\r\n..\r\n.leading\r\nnone\r\n", b"\r\n\r\n", b"x" * 990 + b"\r\n.", b"8 bit \xc3\xa4\r\n")
"""Texts whose lines begin with dots, one of empty lines, and one without a line end."""


@pytest.fixture(scope="module")
def server(dovecot_postfix: StartDovecotPostfix) -> DovecotPostfix:
    return dovecot_postfix(numbered_accounts(20))


@pytest.fixture(scope="module")
def accounts() -> Iterator[Account]:
    """Accounts that no other test has used."""
    return iter(numbered_accounts(20))


def imap_of(services: Services, account: Account) -> imaplib.IMAP4:
    client = imaplib.IMAP4(services.endpoint("imap").host, services.endpoint("imap").port)
    client.login(account.login, account.password)
    client.select(INBOX)
    return client


def put(services: Services, account: Account, *bodies: bytes) -> None:
    with imap_of(services, account) as client:
        for number, body in enumerate(bodies):
            assert client.append(INBOX, "", "", b"Subject: %d\r\n\r\n" % number + body)[0] == "OK"


def pop_of(services: Services, account: Account) -> poplib.POP3:
    client = poplib.POP3(services.endpoint("pop3").host, services.endpoint("pop3").port, timeout=PATIENCE_S)
    client.user(account.login)
    client.pass_(account.password)
    return client


@asynccontextmanager
async def mailbox_of(services: Services, account: Account, ear: Ear) -> AsyncIterator[Mailbox]:
    mailbox = open_driver("pop3", services).session(account, ear).mailbox
    try:
        yield mailbox
    finally:
        mailbox.abandon()
        await turns()


async def is_poplib_s(services: Services, account: Account) -> list[int]:
    """Compare unique-ids, sizes and texts; what is expunged is gone for both. Return what RETR adds to sizes."""
    put(services, account, *BODIES)
    other = pop_of(services, account)
    unique_ids = [line.split()[1].decode() for line in other.uidl()[1]]
    sizes = [int(line.split()[1]) for line in other.list()[1]]
    whole = [b"\r\n".join(other.retr(number)[1]) + b"\r\n" for number in range(1, len(BODIES) + 1)]
    other.quit()
    async with mailbox_of(services, account, Ear()) as mailbox:
        headers = await mailbox.headers(INBOX, 50)
        assert [each.ref for each in headers] == unique_ids
        assert [each.size_bytes for each in headers] == sizes
        assert [each.subject for each in headers] == ["0", "1", "2", "3"]
        for header, expected in zip(headers, whole, strict=True):
            structure = await mailbox.structure(header.ref)
            assert structure.text is not None
            assert await mailbox.part(header.ref, structure.text) == expected.partition(b"\r\n\r\n")[2]
        await mailbox.expunge([headers[1].ref, headers[3].ref])
        other = pop_of(services, account)
        assert [line.split()[1].decode() for line in other.uidl()[1]] == [unique_ids[0], unique_ids[2]]
        other.quit()
    return [len(each) - size for each, size in zip(whole, sizes, strict=True)]


async def test_a_mailbox_is_poplib_s(server: DovecotPostfix, accounts: Iterator[Account]) -> None:
    """Dovecot ends the line of the third message."""
    assert await is_poplib_s(server.services, next(accounts)) == [0, 0, 2, 0]


@pytest.mark.nightly(part="servers")
@pytest.mark.parametrize("start", [start_james, start_greenmail, start_cyrus, start_courier])
async def test_other_servers_are_poplib_s(server_directory: Path, start: Callable[..., RunningServer]) -> None:
    """James announces TOP after the log-on only, and GreenMail lists sizes of bodies."""
    (account,) = numbered_accounts(1)
    with start([account], {}, server_directory) as running:
        assert min(await is_poplib_s(running.services, account)) >= 0


@pytest.mark.parametrize("method", ["plain", "login", "login-command"])
async def test_users_log_on_by_each_method(server: DovecotPostfix, accounts: Iterator[Account], method: str) -> None:
    account = next(accounts)
    endpoint = replace(server.services.endpoint("pop3"), methods=(method,))
    ear = Ear()
    async with mailbox_of(replace(server.services, pop3=endpoint), account, ear) as mailbox:
        assert list(await mailbox.folders()) == [INBOX]
        await mailbox.log_off()

    sent = [name for name, *_ in ear.commands]
    assert ("POP3 AUTH" in sent) == (method != "login-command") != ("POP3 PASS" in sent)
    async with mailbox_of(server.services, replace(account, password="wr0ng"), ear) as mailbox:
        with pytest.raises(ServerRefused, match=r"ERR \[AUTH\]") as refused:
            await mailbox.log_on()
    assert "wr0ng" not in str(refused.value)


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
async def test_users_log_on_over_tls(dovecot_postfix: StartDovecotPostfix, tls: str) -> None:
    (account,) = numbered_accounts(1)
    ear = Ear()
    async with mailbox_of(dovecot_postfix([account], tls=tls).services, account, ear) as mailbox:
        for _ in range(2):
            await mailbox.folders()
            await mailbox.log_off()

    assert [name for name, *_ in ear.commands].count("POP3 STLS") == (2 if tls == "starttls" else 0)


async def test_two_clients_may_remove_the_same_message(server: DovecotPostfix, accounts: Iterator[Account]) -> None:
    account, services = next(accounts), server.services
    put(services, account, *BODIES)
    ear = Ear()
    async with mailbox_of(services, account, ear) as one, mailbox_of(services, account, ear) as two:
        headers = await one.headers(INBOX, None)
        await two.headers(INBOX, None)
        await asyncio.gather(one.expunge([headers[0].ref]), two.expunge([headers[0].ref, headers[1].ref]))
        assert [each.ref for each in await one.headers(INBOX, None)] == [each.ref for each in headers[2:]]

    assert not ear.losses


async def test_what_imap_expunges_meanwhile_is_an_outcome(server: DovecotPostfix, accounts: Iterator[Account]) -> None:
    """The session goes on; the next one knows that the message is gone."""
    account, services = next(accounts), server.services
    put(services, account, *BODIES)
    async with mailbox_of(services, account, Ear()) as mailbox:
        headers = await mailbox.headers(INBOX, None)
        with imap_of(services, account) as client:
            client.store("1", "+FLAGS", "\\Deleted")
            client.expunge()
        with pytest.raises(ServerRefused, match="ERR RETR") as refused:
            await mailbox.structure(headers[0].ref)
        assert not isinstance(refused.value, MailMissing)
        await mailbox.structure(headers[1].ref)
        await mailbox.log_off()
        with pytest.raises(MailMissing):
            await mailbox.structure(headers[0].ref)


async def test_a_session_that_is_lost_before_quit_removes_nothing(
    server: DovecotPostfix, accounts: Iterator[Account]
) -> None:
    account, services = next(accounts), server.services
    put(services, account, *BODIES)
    network = Network(services, "pop3")
    async with network(limit_s=PATIENCE_S) as through, mailbox_of(through, account, Ear()) as mailbox:
        headers = await mailbox.headers(INBOX, None)
        network.cut_at = b"QUIT"
        with pytest.raises(ServerLost):
            await mailbox.expunge([each.ref for each in headers])
        network.cut_at = None
        await mailbox.log_on()
        assert [each.ref for each in await mailbox.headers(INBOX, None)] == [each.ref for each in headers]
        await mailbox.log_off()


DAY = {"day_length": "8s", "ramp_up": "1s", "warm_up": "1s", "window": "7s"}


def users(place: Path) -> dict[str, Any]:
    """Users who delete all mail and users who keep it, with a program that looks each two seconds."""
    program = "name: quick\nidle: no\npoll: 2s\nsession: per-view\n"
    (place / "quick.yaml").write_text(program)
    groups = []
    for name in ("delete", "keep"):
        profile = {"name": name, "from": f"pop3/{name}", "process_inbox": {"per_day": 12}}
        rates = {"start_state": {"inbox": 5}, "new_mail": {"per_day": 8}, "calculated": {"sent": 8, "received": 32}}
        (place / f"{name}.yaml").write_text(json.dumps(profile | rates))
        group = {"profile": str(place / f"{name}.yaml"), "users": 3, "protocol": "pop3"}
        groups.append(group | {"program": str(place / "quick.yaml")})
    return {"topology": groups}


def scenario_of(place: Path, services: Services, password: str = "secret-{index}", **changes: Any) -> Scenario:
    keys = on(services, password)
    for name, endpoint in services.endpoints.items():
        keys["server"][name] = {"host": endpoint.host, "port": endpoint.port}
    return load_scenario(str(written(place / "pop3.yaml", **users(place), **keys, **changes)))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pop3")


@pytest.fixture(scope="module")
def of_users(server: DovecotPostfix, dovecot_postfix: StartDovecotPostfix, place: Path) -> DovecotPostfix:
    """A server with the run's accounts."""
    return dovecot_postfix(*population_of(scenario_of(place, server.services)))


def test_a_run_is_as_dovecot_counts_it(of_users: DovecotPostfix, place: Path, tmp_path: Path) -> None:
    """Dovecot's sessions, TOP, RETR and DELE; mailboxes as doveadm reads them; a second run of other initial mail."""
    scenario = scenario_of(place, of_users.services, mailbox={"inbox": 6}, run=DAY)
    assert run_locally(scenario, tmp_path / "out").exit_status == 0
    log = read_logs([tmp_path / "out"])
    sent = [log.strings[command] for command in log.commands["command"]]
    told = of_users.layout.dovecot_log.read_text()
    ends = re.findall(r"pop3\(user\d+\).*Logged out top=(\d+)/\d+, retr=(\d+)/\d+, del=(\d+)/", told)
    checks = 1  # the log-on before a run
    assert len(ends) == sent.count("POP3 QUIT") + checks > 50
    for at, name in enumerate(("TOP", "RETR", "DELE")):
        assert sum(int(end[at]) for end in ends) == sent.count(f"POP3 {name}") > 50
    held = mailboxes_by_doveadm(population_of(scenario)[0], of_users.doveadm)
    assert differences(mailboxes_by_log(Workload(scenario), log), held) == []
    # The audit, by IMAP.
    audit = loadsim("audit", tmp_path / "out", "--json", "--set", "accounts.password=secret-{index}")
    assert (audit.returncode, json.loads(audit.stdout)["findings"]) == (0, [])
    # The users who delete have only what came last.
    score = json.loads((tmp_path / "out" / "score.json").read_text())
    assert score["load"]["tasks"]["EVICT"]["made"] > 5
    answer = loadsim("log", "answer", tmp_path / "out").stdout
    assert "seen at the next log-on only" in " ".join(answer.split())
    assert "flags-not-kept" not in [finding["code"] for finding in score["findings"]]


@pytest.mark.nightly(part="servers")
@pytest.mark.parametrize("start", [start_cyrus, start_courier])
def test_a_run_on_other_servers(server_directory: Path, tmp_path: Path, start: Callable[..., RunningServer]) -> None:
    """No task fails, and the mailboxes as imaplib reads them are as the log has them."""
    nowhere = Services(Endpoint("127.0.0.1", 1), Endpoint("127.0.0.1", 1), pop3=Endpoint("127.0.0.1", 1))
    with start(*population_of(scenario_of(tmp_path, nowhere)), server_directory) as server:
        scenario = scenario_of(tmp_path, server.services, run=DAY)
        assert run_locally(scenario, tmp_path / "out").exit_status == 0
        held = {}
        for account in population_of(scenario)[0]:
            with looking(server.services, account, {}) as eye:
                held[account.number] = ids_of(eye.read())
    log = read_logs([tmp_path / "out"])
    assert {OUTCOMES[outcome] for outcome in log.tasks["outcome"]}.isdisjoint(FAILURES)
    assert differences(mailboxes_by_log(Workload(scenario), log), held) == []


async def test_a_run_in_which_no_message_can_be_removed_loses_none(
    of_users: DovecotPostfix, place: Path, tmp_path: Path
) -> None:
    """Each DELE breaks the connection: tasks are lost, messages stay, and the audit finds no fault."""
    network = Network(of_users.services, "pop3")
    async with network() as through:
        scenario = scenario_of(place, through, run=DAY)
        network.cut_at = b"DELE"
        await asyncio.to_thread(run_locally, scenario, tmp_path / "out")
    log = read_logs([tmp_path / "out"])
    evicted = [OUTCOMES[record["outcome"]] for record in log.tasks if log.strings[record["task"]] == "EVICT"]
    assert {*evicted} - {"skipped"} == {"lost"}
    audit = loadsim("audit", tmp_path / "out", "--json", "--set", "accounts.password=secret-{index}")
    assert json.loads(audit.stdout)["findings"] == []
    held = mailboxes_by_doveadm(population_of(scenario)[0], of_users.doveadm)
    assert differences(mailboxes_by_log(Workload(scenario), log), held) == []


async def test_one_user_logs_on_before_a_run(of_users: DovecotPostfix, place: Path) -> None:
    scenario = scenario_of(place, of_users.services)
    workload, services = Workload(scenario), services_of(scenario)
    await check_submission(workload, services)
    closed = replace(services.endpoint("pop3"), port=services.endpoint("smtp").port)
    with pytest.raises(ConfigError, match=r"server: pop3: expected a mail server at .* found: no POP3"):
        await check_submission(workload, replace(services, pop3=closed))
    wrong = scenario_of(place, of_users.services, password="wrong")
    with pytest.raises(ConfigError, match=r"expected to log on"):
        await check_submission(Workload(wrong), replace(services, smtp=replace(services.endpoint("smtp"), auth=False)))


def test_a_profile_with_folders_is_refused(of_users: DovecotPostfix, place: Path) -> None:
    scenario = scenario_of(place, of_users.services)
    services = services_of(scenario)
    check_drivers(scenario, services)
    (place / "medium.yaml").write_text((place / "pop3.yaml").read_text().replace(str(place / "keep.yaml"), "today"))
    with pytest.raises(ConfigError, match=r"topology\[1\].protocol: expected a driver that supports .*BROWSE"):
        check_drivers(load_scenario(str(place / "medium.yaml")), services)
