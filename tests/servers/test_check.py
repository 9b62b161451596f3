"""`loadsim check`: what it finds on servers, and that it leaves nothing there."""

from __future__ import annotations

import asyncio
import imaplib
import json
import re
import smtplib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from email.message import EmailMessage
from email.policy import SMTP as SMTP_POLICY
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from threading import Event
from typing import Any, TypeVar, cast

import pytest
from aiosmtpd.smtp import SMTP, Envelope, Session
from lying_proxy import Answers, Rewrites, bare, lying_proxy
from mailservers import logged_on, numbered_accounts, submit
from provisioning import FOREIGN, USERS, Lab, Snapshot, lab_maker, own_message, put, quiet
from smtp_peers import Accepting, aiosmtpd, endpoint

from loadsim.cli import main
from loadsim.cli.check import CAN_RUN, ENDED
from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.ports import Flag, Services
from loadsim.model.provisioning_ports import Provisioning
from loadsim.protocols.registry import open_driver
from loadsim.provisioning import check_mail, manifest
from loadsim.provisioning.check_tasks import FIRST_POLL_S
from loadsim.provisioning.clean import clean
from loadsim.provisioning.hold import Hold, held
from loadsim.provisioning.initialise import initialise
from loadsim.provisioning.preflight import check_server_limits
from loadsim.provisioning.server_check import check_server
from loadsim.provisioning.server_report import ServerReport
from loadsim.provisioning.sessions import NullObserver, accounts_on_server
from loadsim.scenario.accounts import AccountTable
from loadsim.scenario.criteria import planned_tasks
from loadsim.scenario.population import distribution_lists
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import Workload
from loadsim.servers.dovecot_postfix import check_machine, start_dovecot_postfix
from loadsim.servers.dovecot_postfix_config import DIALECTS, Layout
from loadsim.servers.running import RunningServer

T = TypeVar("T")

STATUS = re.compile(r"(NO|BAD)( \[[^]]*\])?")
"""The beginning of a refusal: its status and response code."""

NO_LISTS = ("lists.count=0",)
WITH_LIST = ("lists.count=1", "lists.size.min=2", "lists.size.average=2", "lists.size.max=2")


@pytest.fixture(autouse=True)
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks for other programs in Inboxes where there are none: a check that found a fault ends with one."""
    monkeypatch.setattr(check_mail, "FIRST_POLL_S", 0.3)


@pytest.fixture
def lab(lab: Lab) -> Lab:
    """A scenario of three users with new accounts, without lists, which the server does not have."""
    return lab.with_settings(*NO_LISTS)


def silent(step: str) -> None:
    """Ignore the progress."""


def check(lab: Lab, wait_s: float = 20.0) -> ServerReport:
    return asyncio.run(check_server(lab.workload, lab.services, silent, wait_s))


def contents(snapshots: list[Snapshot]) -> list[dict[str, list[tuple[frozenset[str], bytes]]]]:
    """The messages and flags in each folder, without UIDs: the manifest is written again."""
    return [
        {folder: [(each.flags - {"\\Recent"}, each.message) for each in messages] for folder, messages in one.items()}
        for one in snapshots
    ]


def test_each_planned_task_is_done_and_nothing_is_left(lab: Lab) -> None:
    """Also among others' mail, which a run would refuse, with both drivers."""
    lab = lab.with_settings(*NO_LISTS, "topology.0.protocol=aioimaplib")
    lab.put(1, "INBOX", FOREIGN % 1)
    lab.put(1, "INBOX", FOREIGN % 2, "(\\Seen \\Flagged)")
    before = lab.snapshots()
    report = check(lab)
    assert [(one.code, one.values) for one in report.lacks] == [(Code.MAILBOX_NOT_EMPTY, {"messages": 2})]
    assert (report.wrong, report.leftovers) == ([], ())
    assert report.accounts == tuple(lab.scenario.account(user).login for user in (1, USERS))
    planned = planned_tasks(lab.scenario.topology[0].profile)
    for driver in ("imap", "aioimaplib"):
        assert {task.task for task in report.tasks if task.driver == driver} == planned
    assert lab.snapshots() == before
    assert {each.subject: each.seen for each in report.server}["sessions"] == f"{USERS} of {USERS} at once"


@pytest.mark.parametrize("others", [True, False])
def test_mailboxes_in_use_by_people_are_not_judged(lab: Lab, others: bool) -> None:
    if others:
        lab.put(USERS, "INBOX", FOREIGN % 1)
    rows = {each.subject: each for each in check(lab).mail}
    assert rows["state"].finding is None
    assert rows["state"].seen.startswith("not judged" if others else "no response contradicts")


@pytest.mark.parametrize("pair", [(1, USERS), (1, 2), (2, USERS)])
def test_two_users_of_one_mailbox_are_refused_before_the_server_is_accused(lab: Lab, pair: tuple[int, int]) -> None:
    """Each user does tasks here; nothing stays in the mailbox."""
    accounts = lab.accounts
    one, other = (accounts[user - 1] for user in pair)
    accounts[pair[1] - 1] = replace(other, login=one.login, password=one.password)
    groups = tuple(replace(lab.scenario.topology[0], users=1) for _ in range(USERS))
    shared = replace(lab, scenario=replace(lab.scenario, accounts=AccountTable("", tuple(accounts)), topology=groups))
    with pytest.raises(ConfigError, match="expected a mailbox for each user, found another user's manifest"):
        check(shared)
    assert not any(messages for mailbox in lab.snapshots() for messages in mailbox.values())
    assert all("LoadSim" not in mailbox for mailbox in lab.snapshots())


def test_folders_are_made_for_one_user_at_a_time(lab: Lab) -> None:
    """Of two users of one mailbox, the second finds the first one's manifest; at once, either would write theirs."""
    used: list[int] = []
    sessions: dict[str, list[int]] = {}

    def progress(step: str) -> None:
        sessions[step] = [number for number, _ in groupby(used)]
        used.clear()

    refusing(lab, 1000, lambda services: check_server(lab.workload, services, progress), used.append)
    one, other = sessions["tasks"]
    assert one < other


def test_a_check_that_ends_early_prints_its_findings(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status and the last line are those of bad input: here, a mailbox of two users."""

    async def leave_manifest() -> None:
        mailbox = cast(Provisioning, open_driver("imap", lab.services).session(lab.accounts[0], NullObserver()).mailbox)
        await mailbox.log_on()
        await mailbox.create(manifest.FOLDER)
        await manifest.write(mailbox, lab.accounts[1], ["Folder 10"])
        await mailbox.log_off()

    asyncio.run(leave_manifest())
    command = ["check", str(lab.path), "--set", NO_LISTS[0]]
    assert main(command) == 2
    out, error = capsys.readouterr()
    assert out.splitlines()[0] == ENDED and f"  - sessions: {USERS} of {USERS} at once" in out
    assert re.search(r"^loadsim: account .*: expected a mailbox for each user", error, re.MULTILINE)
    assert main([*command, "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["can_run"], document["findings"]) == (False, [])
    assert "expected a mailbox for each user" in document["ended"]


@pytest.mark.system
def test_accounts_with_a_shared_home_are_named(server_directory: Path, tmp_path: Path) -> None:
    """As by `%u` in Dovecot 2.4's mail_home. `check`, `init` and `clean` agree, in any order, and `clean` ends."""
    layout, accounts = Layout(server_directory), numbered_accounts(USERS)
    layout.dovecot_extra.parent.mkdir(mode=0o755)
    layout.dovecot_extra.write_text(f"mail_home = {layout.mail}/shared\n")
    with start_dovecot_postfix(accounts, {}, server_directory) as server:
        lab = lab_maker(server, accounts, tmp_path)().with_settings(*NO_LISTS)
        before = lab.snapshots()

        def hold_and_initialise() -> None:
            async def work() -> None:
                async with held(lab.accounts, lab.services, "init"):
                    await initialise(lab.workload, lab.services, "auto", quiet)

            asyncio.run(work())

        for work in (lambda: check(lab), hold_and_initialise, lambda: check(lab)):
            with pytest.raises(ConfigError, match="expected a mailbox for each user, found another user's manifest"):
                work()
        while any(asyncio.run(clean(lab.scenario, lab.services, False, quiet))):
            pass
        assert lab.snapshots() == before


@pytest.mark.system
def test_accounts_with_a_shared_inbox_are_named(server_directory: Path, tmp_path: Path) -> None:
    """With homes and manifests of their own. This server lacks a list, too, which needs no mailbox to be seen."""
    layout, accounts = Layout(server_directory), numbered_accounts(USERS)
    shared = layout.mail / "inbox"
    layout.dovecot_extra.parent.mkdir(mode=0o755)
    is_old = check_machine()[0] == DIALECTS[2, 3]
    layout.dovecot_extra.write_text(
        f"mail_location = maildir:~/Maildir:INBOX={shared}\n" if is_old else f"mail_inbox_path = {shared}\n"
    )
    with start_dovecot_postfix(accounts, {}, server_directory) as server:
        lab = lab_maker(server, accounts, tmp_path)().with_settings(*WITH_LIST)
        assert [one.code for one in check(lab).lacks] == [Code.INBOX_SHARED, Code.LIST_UNKNOWN]


def test_concurrent_use_of_the_accounts_by_another_loadsim_is_named(lab: Lab) -> None:
    """Its changes look like faults of the server. It may need the folders, which `clean` removes.

    A list that is missing is said all the same, and what may remain in this account.
    """
    lab = lab.with_settings(*WITH_LIST)
    before, ended = lab.snapshots(), list[ServerReport]()

    async def use() -> None:
        hold = Hold(lab.accounts, lab.services, "run", "r1")
        await hold.take(create=True, after=False)
        hold.used = True
        await hold.release()

    def progress(step: str) -> None:
        if step == "remove":
            with ThreadPoolExecutor(1) as pool:
                pool.submit(asyncio.run, use()).result()

    with pytest.raises(ConfigError, match="expected no other loadsim at work there, found loadsim run on"):
        asyncio.run(check_server(lab.workload, lab.services, progress, ended=ended.append))
    (report,) = ended
    assert (report.can_run, [one.code for one in report.lacks]) == (False, [Code.LIST_UNKNOWN])
    assert [lab.accounts[0].login in each for each in report.leftovers].count(True) == 1
    assert any("Calendar" in mailbox for mailbox in lab.snapshots())
    asyncio.run(clean(lab.scenario, lab.services, False, quiet))
    assert lab.snapshots() == before


def test_a_filter_that_empties_an_inbox_is_named_before_the_server_is_accused(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mail would be missing, and messages gone that no session removed."""
    monkeypatch.setattr(check_mail, "FIRST_POLL_S", FIRST_POLL_S)
    over = Event()

    def file_mail() -> None:
        with logged_on(lab.server, lab.accounts[0]) as client:
            client.select("INBOX")
            while not over.wait(0.02):
                client.uid("STORE", "1:*", "+FLAGS", r"(\Deleted)")
                client.expunge()

    with ThreadPoolExecutor(1) as pool:
        filtering = pool.submit(file_mail)
        try:
            report = check(lab, wait_s=3.0)
        finally:
            over.set()
        filtering.result()
    (shared,) = [each.finding for each in report.server if each.finding is not None and each.lacks]
    assert (shared.code, shared.values["found"]) in [
        (Code.INBOX_SHARED, found) for found in ("it removed", "it flagged \\deleted")
    ]
    accused = [each.finding for each in report.mail if each.finding is not None]
    assert Code.MAIL_NOT_DELIVERED not in [one.code for one in accused]
    assert [one.values for one in accused if one.code is Code.SERVER_STATE_WRONG and one.values["user"] == 1] == []


@pytest.mark.nightly(part="drivers")
def test_mail_that_is_not_announced_is_noted(lab: Lab) -> None:
    """Waiting users are notified late, as on Courier: the scenario can run, and makes less load in a short day."""
    lab = lab.with_settings(*NO_LISTS)
    services = replace(lab.services, imap=replace(lab.services.imap, ignored=frozenset({"IDLE"})))
    report = asyncio.run(check_server(lab.workload, services, silent))
    assert report.can_run
    note = next(each.finding for each in report.mail if each.subject == "to a user")
    assert note is not None and (note.code, note.values["announced"]) == (Code.MAIL_ANNOUNCED_LATE, 0)


@pytest.mark.parametrize("protocol", ["imap", "aioimaplib"])
def test_an_initialised_mailbox_stays_as_it_is(lab: Lab, protocol: str) -> None:
    """Also its manifest, so that `clean` knows the folders of `init` afterwards; and the calendar of an earlier run.

    What a driver without state checks removes from its folders is no fault of the server.
    """
    lab = lab.with_settings(*NO_LISTS, f"topology.0.protocol={protocol}")
    asyncio.run(initialise(lab.workload, lab.services, "auto", quiet))
    lab.put(1, "Calendar", own_message(1))
    before = lab.snapshots()
    report = check(lab)
    assert (report.lacks, report.wrong) == ([], [])
    assert contents(lab.snapshots()) == contents(before)
    asyncio.run(clean(lab.scenario, lab.services, False, quiet))
    assert all(not any(folders.values()) for folders in lab.snapshots())


@pytest.mark.parametrize("step", ["tasks", "mail"])
def test_a_cancelled_check_leaves_nothing(lab: Lab, step: str) -> None:
    """Ctrl-C cancels the task, and what is on the server by then is removed. The findings so far blame no server."""
    before, ended = lab.snapshots(), list[ServerReport]()

    async def cancelled() -> None:
        task = asyncio.current_task()
        assert task is not None

        def progress(now: str) -> None:
            if now == step:
                task.cancel()

        await check_server(lab.workload, lab.services, progress, ended=ended.append)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert lab.snapshots() == before
    (report,) = ended
    assert (report.can_run, report.lacks, report.wrong, report.leftovers) == (False, [], [], ())
    assert {each.subject: each.seen for each in report.server}["sessions"] == f"{USERS} of {USERS} at once"


def test_a_missing_list_is_named(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """By the check with status 1, and by the preflight of a run with status 2, before any load."""
    settings = [word for setting in WITH_LIST for word in ("--set", setting)]
    assert main(["check", str(lab.path), *settings]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[:2] == ["This scenario cannot run on this server.", "To change:"]
    said = " ".join(line.strip() for line in lines[2 : lines.index("Server:")])
    assert said.startswith("- the server does not know the list list-1-1@example.test: 55")
    assert said.endswith(f"[list-unknown]: {Code.LIST_UNKNOWN.remedy}")
    assert any(re.match(r"  - to a list: FAILED: 55\d RCPT: 55\d .*", line) for line in lines)
    listed = lab.with_settings(*WITH_LIST)
    with pytest.raises(ConfigError, match=r"lists: expected the server to accept mail for list-1-1@example\.test,"):
        asyncio.run(check_server_limits(listed.workload, listed.services))


@pytest.mark.parametrize(("protocol", "server"), [("imap", "embedded_server"), ("mapi", "embedded_mapi_server")])
def test_lists_of_fewer_users_are_refused(protocol: str, server: str, request: pytest.FixtureRequest) -> None:
    """Their last list lacks a member of this scenario's, whose mail an audit would call lost."""

    def workload(users: int) -> Workload:
        groups = f"topology=[{{profile: loadsim-5.5/medium, users: {users}, protocol: {protocol}}}]"
        lists = "lists={cover: 100%, size: {min: 2, average: 2, max: 3}}"
        return Workload(load_scenario("quickstart", [groups, lists]))

    four, five = workload(4), workload(5)
    start = request.getfixturevalue(server)
    services = start(accounts_on_server(five.scenario), distribution_lists(four.scenario)).services
    asyncio.run(check_server_limits(four, services))
    with pytest.raises(ConfigError, match=r"lists: expected the server to accept mail for list-3-5@"):
        asyncio.run(check_server_limits(five, services))


@pytest.mark.nightly(part="drivers")
def test_tasks_are_done_with_the_mail_program_of_each_group(lab: Lab) -> None:
    """A program's commands may fail where the default ones do not. Others' mail stays as it is."""
    lab.put(1, "INBOX", FOREIGN % 1)
    before = lab.snapshots()
    for program in ("thunderbird", "apple-mail", "phone"):
        of_program = lab.with_settings(*NO_LISTS, f"topology.0.program={program}")
        report = asyncio.run(check_server(of_program.workload, of_program.services, silent))
        assert [finding.code for finding in report.lacks] == [Code.MAILBOX_NOT_EMPTY]
        assert {task.driver for task in report.tasks} == {f"imap/{program}"}
        assert {task.task for task in report.tasks} == planned_tasks(of_program.scenario.topology[0].profile)
        assert lab.snapshots() == before


def test_a_wrong_domain_is_one_finding(lab: Lab) -> None:
    listed = lab.with_settings(*WITH_LIST)
    report = relayed(listed, 5.0, lambda _, recipient: f"554 5.7.1 <{recipient}>: Relay access denied")
    assert sum(task.failure is not None for task in report.tasks) > 1
    assert [one.code for one in report.lacks] == [Code.MAIL_FORBIDDEN]


def test_a_server_without_mail_from_outside_is_bad_input(lab: Lab) -> None:
    """As for the run; nothing is left on the server."""
    groups = [json.dumps({"profile": group.reference, "users": group.users}) for group in lab.scenario.topology]
    outside = '{"profile": "outside/machine", "users": 1}'
    mixed = lab.with_settings(*NO_LISTS, f"topology=[{', '.join([*groups, outside])}]")
    before = lab.snapshots()
    refusal = r"server\.smtp: expected to accept mail for .* from outside, .*554 5\.7\.1 no"
    with pytest.raises(ConfigError, match=refusal):
        relayed(mixed, 5.0, lambda sender, _: "554 5.7.1 no" if sender.endswith("@outside.test") else None)
    assert lab.snapshots() == before


def test_a_list_that_leaves_out_the_sender_is_noted(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member sends; all others get it, and nothing of the sender's copy is left to wait for."""
    monkeypatch.setattr(check_mail, "LEFT_OUT_S", 0.3)
    listed = lab.with_settings("lists={count: 1, size: {min: 3, average: 3, max: 3}}")
    report = relayed(listed, 20.0, lambda _, recipient: None, leaves_out=True)
    assert (report.can_run, report.leftovers) == (True, ())
    (found,) = [each for each in report.mail if each.subject == "to a list"]
    assert (found.finding, found.seen[:21]) == (finding(Code.SENDER_LEFT_OUT), "2 of 3 members got it")


def test_findings_are_written_as_json(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(lab.path), "--json", "--set", NO_LISTS[0], "--set", "limits.hits=1"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["can_run"] is True
    assert document["verdict"] == f"{CAN_RUN}."
    assert [one["code"] for one in document["findings"]] == ["few-planned", "expect-provisional", "no-lists"]
    assert {task["task"]: task["commands"] for task in document["tasks"]}["MOVE"] == ["UID MOVE"]


def test_facts_of_the_server_are_shown(lab: Lab) -> None:
    """They are what imaplib and smtplib see."""
    facts = check(lab).facts
    with logged_on(lab.server, lab.accounts[0]) as client:
        assert set(facts.imap_capabilities) == set(client.capability()[1][0].decode().upper().split())
        attached = EmailMessage(SMTP_POLICY)
        attached.set_content("text")
        attached.add_attachment(b"file", "application", "octet-stream")
        for message in (own_message(1), attached.as_bytes()):
            put(client, "INBOX", message)
        assert client.select("INBOX")[0] == "OK"
        flags = [imaplib.ParseFlags(each) for each in client.fetch("1:2", "(FLAGS)")[1]]
        keywords = {each.decode().lower() for each in chain(*flags)} - {"\\recent"}
        for found in (facts.delivered_keywords, facts.appended_keywords):
            assert found is not None and set(found) <= keywords and bool(found) == bool(keywords)
        (lasting,) = client.response("PERMANENTFLAGS")[1]
        assert set(facts.permanent_flags.strip("()").split()) == set(lasting.decode().strip("()").split())
        status, said = client.select("missing")
        answer, expected = (STATUS.match(each) for each in (facts.missing_folder, f"{status} {said[0].decode()}"))
        assert answer is not None and expected is not None and answer[0] == expected[0]
    with smtplib.SMTP(lab.services.smtp.host, lab.services.smtp.port) as client:
        client.ehlo()
        assert {each.partition(" ")[0] for each in facts.smtp_extensions} == {
            each.upper() for each in client.esmtp_features
        }
        assert facts.message_limit_bytes == int(client.esmtp_features["size"])
    assert facts.copyuid == "untagged, before EXPUNGE"
    assert facts.announced_ms is not None


def test_a_run_that_cannot_become_valid_is_named(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """The server lacks nothing, and so the exit status is 0; the first sentence says what `plan` warns of."""
    hits = ("--set", "limits.hits=1000", "--set", NO_LISTS[0])
    assert main(["check", str(lab.path), *hits]) == 0
    out = capsys.readouterr().out
    said = " ".join(out.partition("\nServer:\n")[0].split())
    assert said.startswith(f"{CAN_RUN}; but this run cannot become valid: ") and said.endswith("[few-planned].")
    assert max(map(len, out.splitlines())) <= 80
    assert main(["check", str(lab.path), *hits, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["can_run"] is True
    assert document["findings"][0]["code"] == "few-planned"


def test_the_embedded_server_is_started(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "quickstart", "--set", "run.mode=stress"]) == 0
    out = capsys.readouterr().out
    assert CAN_RUN in out
    assert re.search(r"  - to a list: (\d+) of \1 members got it within \d\.\d\d s\n", out)


def test_a_wrong_password_is_bad_input(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No check is possible; the line names the account, and has no password."""
    table = tmp_path / "accounts.csv"
    table.write_text("user,password\n" + "".join(f"{each.login},wrong-word\n" for each in lab.accounts))
    table.chmod(0o600)
    assert main(["check", str(lab.path), "--set", f"accounts.csv={table}"]) == 2
    error = capsys.readouterr().err
    assert re.search(rf"account {lab.accounts[0].login} .*: expected to log on( over SMTP)?, the server answer", error)
    assert "wrong-word" not in error


def automatic_reply(message: bytes) -> bytes:
    found = re.search(rb"(?im)^Message-ID: (<[^>]*>)", message)
    assert found is not None
    head = b"From: away@example.test\r\nSubject: Auto: away\r\nAuto-Submitted: auto-replied (vacation)\r\n"
    return head + b"In-Reply-To: %b\r\n\r\nI am away.\r\n" % found[1]


class Relaying(Accepting):
    """Relays accepted messages to a real server; `answers` gives the reply to RCPT, None to accept.

    `members` are those of its lists, by address; `leaves_out`: a sender gets no copy of their own message. The address
    `on_vacation` answers new mail as RFC 5230 section 5.8 has it.
    """

    def __init__(
        self,
        server: RunningServer,
        answers: Callable[[str, str], str | None],
        members: Mapping[str, Sequence[str]],
        leaves_out: bool,
        on_vacation: str,
    ) -> None:
        super().__init__()
        self._on_vacation = on_vacation
        self._leaves_out = leaves_out
        self._server = server
        self._answers = answers
        self._members = members

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        refusal = self._answers(str(envelope.mail_from), address)
        return refusal or await super().handle_RCPT(server, session, envelope, address, options)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        message = envelope.content
        assert isinstance(message, bytes)
        recipients = [each for address in envelope.rcpt_tos for each in self._members.get(address, (address,))]
        if self._leaves_out:
            recipients = [each for each in recipients if each != envelope.mail_from]
        await asyncio.to_thread(submit, self._server.services, str(envelope.mail_from), recipients, message)
        if self._on_vacation in recipients:
            reply = automatic_reply(message)
            await asyncio.to_thread(submit, self._server.services, "<>", [str(envelope.mail_from)], reply)
        return "250 relayed"


def relayed(
    lab: Lab, wait_s: float, answers: Callable[[str, str], str | None], leaves_out: bool = False, on_vacation: str = ""
) -> ServerReport:
    async def work() -> ServerReport:
        members = distribution_lists(lab.scenario)
        async with aiosmtpd(Relaying(lab.server, answers, members, leaves_out, on_vacation)) as (port, _):
            services = replace(lab.services, smtp=endpoint(port))
            return await check_server(lab.workload, services, silent, wait_s)

    return asyncio.run(work())


def test_automatic_replies_are_named_and_removed(lab: Lab) -> None:
    before = lab.snapshots()
    report = relayed(lab, 20.0, lambda _, recipient: None, on_vacation=lab.accounts[0].address)
    found = {each.subject: each.finding for each in report.mail}["automatic replies"]
    assert found is not None and found.code is Code.AUTOMATIC_REPLIES and found.values["replies"]
    assert (report.can_run, report.wrong, report.leftovers) == (True, [], ())
    assert lab.snapshots() == before


FIRST_AND_LAST = 2
"""The connections of a check before the sessions at once: the first and the last user log on."""


def check_refusing(lab: Lab, nth: int) -> ServerReport:
    """A check through a proxy that refuses the connection with this number, from 1."""
    return refusing(lab, nth, lambda services: check_server(lab.workload, services, silent))


def refusing(
    lab: Lab, nth: int, use: Callable[[Services], Awaitable[Any]], note: Callable[[int], object] = lambda _: None
) -> Any:
    """Use a server through a proxy as in `check_refusing`; `note` is called with the number of a used connection."""
    made = 0

    async def work() -> Any:
        imap, running = lab.services.imap, set[asyncio.Task[None]]()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal made
            made = number = made + 1
            if number == nth:
                writer.write(b"* BYE Too many connections\r\n")
                writer.close()
                return
            server_reader, server_writer = await asyncio.open_connection(imap.host, imap.port)
            running.add(asyncio.create_task(forward(reader, server_writer, partial(note, number))))
            running.add(asyncio.create_task(forward(server_reader, writer)))

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            services = replace(lab.services, imap=replace(imap, port=port))
            try:
                return await use(services)
            finally:
                await asyncio.gather(*running)

    return asyncio.run(work())


def test_a_limit_of_sessions_is_named(lab: Lab) -> None:
    """The third session is refused, as by a limit for each address; alone, its account can log on."""
    limit = finding(Code.FEW_SESSIONS, on=2, tried=3, answer="BYE: Too many connections")
    assert lacks(check_refusing(lab, FIRST_AND_LAST + USERS)) == {"sessions": ("2 of 3 at once", limit)}


def test_a_server_with_one_session_for_each_account_can_be_loaded(lab: Lab) -> None:
    """The session that only watches is refused: the scenario needs none."""
    report = check_refusing(lab, FIRST_AND_LAST + 3 * USERS + 1)  # after that of the hold
    assert (report.can_run, report.wrong, report.leftovers) == (True, [], ())
    assert "state" in {each.subject for each in report.server}
    assert "state" not in {each.subject for each in report.mail}  # as nothing was held against it


@pytest.mark.parametrize(("program", "count"), [("[outlook-like, phone]", 2), ("thunderbird", 5)])
def test_a_limit_of_connections_of_a_user_is_named(lab: Lab, program: str, count: int) -> None:
    """Two programs, or one with several connections: a server that refuses the second is found before a run."""
    lab = lab.with_settings(*NO_LISTS, f"topology.0.program={program}")
    report = check(lab)
    assert (report.lacks, report.wrong, report.leftovers) == ([], [], ())
    names = f"of a user at once ({program.strip('[]').replace(', ', '+')})"
    assert [each.seen for each in report.server if each.subject == "connections"] == [f"{count} of {count} {names}"]
    limit = finding(Code.FEW_CONNECTIONS, made=count - 1, wanted=count, answer="BYE: Too many connections")
    assert lacks(check_refusing(lab, FIRST_AND_LAST + USERS + 2)) == {
        "connections": (f"{count - 1} of {count} {names}", limit)
    }
    with pytest.raises(ConfigError) as refused:
        refusing(lab, 2, lambda services: check_server_limits(lab.workload, services))
    assert f": expected all connections, found {count - 1} of {count} {names}: BYE: Too many" in str(refused.value)
    refusing(lab, 1000, lambda services: check_server_limits(lab.workload, services))


async def forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[], object] = lambda: None
) -> None:
    """Forward bytes until the end of a stream; call `note` before."""
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            note()
            writer.write(data)
            await writer.drain()
    writer.close()


def lacks(report: ServerReport) -> dict[str, tuple[str, Finding | None]]:
    return {each.subject: (each.seen, each.finding) for each in report.server if each.lacks}


def test_greylisting_is_named(lab: Lab) -> None:
    report = relayed(lab, 5.0, lambda sender, recipient: "450 4.2.0 Greylisted, see you in 5 minutes")
    first = report.lacks[0]
    assert first == finding(Code.GREYLISTED, answer="450 RCPT: 450 4.2.0 Greylisted, see you in 5 minutes")


def refuses(*commands: str) -> Answers:
    """Return answers that refuse commands which begin with one of these words."""

    def answer(command: bytes) -> bytes | None:
        tag, _, rest = command.partition(b" ")
        return tag + b" NO Mailboxes are closed.\r\n" if rest.startswith(tuple(map(str.encode, commands))) else None

    return answer


@pytest.mark.parametrize("commands", [("LIST", "STATUS"), ("SELECT", "STATUS")])
def test_a_server_that_refuses_all_accounts_is_named(lab: Lab, commands: Sequence[str]) -> None:
    """Also if it does so after the log-on, so that the check has no mailbox at all."""
    with lying_proxy(lab.services.imap.port, refuses(*commands)) as port:
        services = replace(lab.services, imap=replace(lab.services.imap, port=port))
        report = asyncio.run(check_server(lab.workload, services, silent, 2.0))
    answers = {one.values["answer"] for one in report.lacks}
    assert any(answer.startswith("NO") and answer.endswith("Mailboxes are closed.") for answer in answers), answers


def test_a_flag_that_the_folder_does_not_keep_is_not_sent(lab: Lab) -> None:
    """As on Exchange: PERMANENTFLAGS has no keywords, and STORE of one is refused."""

    def answer(command: bytes) -> bytes | None:
        tag = command.partition(b" ")[0]
        return tag + b" BAD Command Argument Error.\r\n" if b" STORE " in command and b"$" in command else None

    def rewrite(line: bytes, literal: bytes) -> bytes:
        stated = rb"[PERMANENTFLAGS (\\Seen \\Answered \\Flagged \\Deleted \\Draft)]"
        return re.sub(rb"\[PERMANENTFLAGS [^]]*\]", stated, line) + literal

    async def work(services: Services) -> None:
        driver = open_driver("imap", services)
        mailbox = cast(Provisioning, driver.session(lab.accounts[0], NullObserver()).mailbox)
        await mailbox.log_on()
        await mailbox.append("INBOX", own_message(1))
        refs = [each.ref for each in await mailbox.headers("INBOX", 10)]
        await mailbox.flag(refs, Flag.FORWARDED)
        await mailbox.set_flags(refs, [Flag.SEEN])
        await mailbox.log_off()

    with lying_proxy(lab.services.imap.port, answer, rewrites=rewrite) as port:
        asyncio.run(work(replace(lab.services, imap=replace(lab.services.imap, port=port))))
    assert [each.flags for each in lab.snapshots()[0]["INBOX"]] == [{"\\seen"}]


def test_read_marks_that_the_inbox_does_not_keep_are_named(lab: Lab) -> None:
    def rewrite(line: bytes, literal: bytes) -> bytes:
        return re.sub(rb"\[PERMANENTFLAGS [^]]*\]", rb"[PERMANENTFLAGS (\\Answered \\Deleted \\*)]", line) + literal

    report = through(lab, rewrite, lambda services: check_server(lab.workload, services, silent))
    assert finding(Code.FLAGS_NOT_KEPT, flags="\\Seen") in [each.finding for each in report.server]
    assert report.can_run and report.leftovers == ()


def test_messages_stored_in_place_of_copies_are_named(lab: Lab) -> None:
    """As pymap's maildir, which stores empty ones. They stay, since no tag says that they are the check's."""
    copied: dict[str, int] = Counter()

    def answer(command: bytes) -> bytes | None:
        tag, _, rest = command.partition(b" ")
        if not (found := re.match(rb'UID COPY \S+ "?(Folder 9\d|Deleted Items)"?', rest)):
            return None
        copied[found[1].decode()] += 1
        with logged_on(lab.server, lab.accounts[0]) as client:
            put(client, found[1].decode(), b"\r\n")
        return tag + b" OK Copied.\r\n"

    with logged_on(lab.server, lab.accounts[0]) as client:
        client.create('"Deleted Items"')
        put(client, "Deleted Items", FOREIGN % 1)
    with lying_proxy(lab.services.imap.port, answer) as port:
        imap = replace(lab.services.imap, port=port, ignored=frozenset({"UIDPLUS", "MOVE"}))
        report = asyncio.run(check_server(lab.workload, replace(lab.services, imap=imap), silent))
    assert "copy-differs" in [one.values["rule"] for one in report.wrong]
    (left,) = [each for each in report.leftovers if lab.accounts[0].login in each]
    more = re.findall(r"more messages than before in ([^:;]+): (\d+)", left)
    assert {folder: int(times) for folder, times in more} == copied


def altered_digits(line: bytes, literal: bytes) -> bytes:
    return line + (literal.replace(b"0", b"1") if b"BODY[TEXT]" in line else literal)


def through(lab: Lab, rewrites: Rewrites, work: Callable[[Services], Coroutine[Any, Any, T]]) -> T:
    with lying_proxy(lab.services.imap.port, rewrites=rewrites) as port:
        services = replace(lab.services, imap=replace(lab.services.imap, port=port))
        return asyncio.run(work(services))


@pytest.mark.parametrize("allowed", [False, True])
def test_altered_content_is_named(lab: Lab, allowed: bool) -> None:
    """Texts of the same length; a filter may be meant to change mail."""

    def altered(line: bytes, literal: bytes) -> bytes:
        return line + (literal.replace(b"e", b"E") if b"BODY[1]" in line else literal)

    if allowed:
        lab = lab.with_settings(*NO_LISTS, "run.audit_allow=[mail-altered]")
    report = through(lab, altered, lambda services: check_server(lab.workload, services, silent))
    assert [one.code for one in report.wrong] == ([] if allowed else [Code.MAIL_SHOWN_ALTERED])
    (found,) = [each.finding for each in report.mail if each.subject == "content"]
    assert found is not None and found.code is Code.MAIL_SHOWN_ALTERED
    read = sum(task.task in ("READ", "BROWSE") for task in report.tasks)
    assert found.values["messages"] > read  # the state's three rounds, too
    assert report.can_run and report.leftovers == ()


def test_mail_that_arrives_with_another_sender_is_named_and_removed(lab: Lab) -> None:
    """As by a server that writes a public domain into headers: it has arrived, and is no mail of others."""

    def rewritten(line: bytes, literal: bytes) -> bytes:
        is_mail = b"ENVELOPE (" in line and b"Folders that loadsim created" not in line
        return (line.replace(b"example.test", b"public.example") if is_mail else line) + literal

    before = lab.snapshots()
    lab = lab.with_settings(*NO_LISTS)
    report = through(lab, rewritten, lambda services: check_server(lab.workload, services, silent, 3.0))
    assert {one.code for one in report.lacks} == {Code.HEADER_CHANGED}
    assert report.leftovers == ()
    assert lab.snapshots() == before


def test_bare_line_feeds_are_named(lab: Lab) -> None:
    """`check` names it, and `clean` reads the manifest: it removes the folders that `init` created."""
    report = through(lab, bare, lambda services: check_server(lab.workload, services, silent, 3.0))
    assert Code.BARE_LINE_FEEDS in [one.code for one in report.lacks]
    before = lab.snapshots()
    through(lab, bare, lambda services: initialise(lab.workload, services, "auto", quiet))
    assert lab.snapshots() != before
    through(lab, bare, lambda services: clean(lab.scenario, services, False, quiet))
    assert lab.snapshots() == before


def test_no_folder_is_created_if_the_manifest_does_not_read_back(lab: Lab) -> None:
    """`clean` could not remove it."""
    folders = [{*each, manifest.FOLDER} for each in lab.snapshots()]
    with pytest.raises(ConfigError, match="expected the manifest just written there"):
        through(lab, altered_digits, lambda services: initialise(lab.workload, services, "auto", quiet))
    assert [{*each} for each in lab.snapshots()] == folders


class Silent(Relaying):
    """Never answers RCPT of one sender."""

    sender = ""

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if envelope.mail_from == self.sender:
            await asyncio.Event().wait()
        return await super().handle_RCPT(server, session, envelope, address, options)


def test_no_task_follows_a_server_that_fell_silent(lab: Lab) -> None:
    """It is the server that fails, not each task: no other task, and no second log-on, is tried and named."""

    async def work() -> ServerReport:
        relay = Silent(lab.server, lambda *_: None, {}, False, "")
        relay.sender = lab.accounts[0].address
        async with aiosmtpd(relay) as (port, _):
            return await check_server(lab.workload, replace(lab.services, smtp=endpoint(port)), silent, 3.0)

    report = asyncio.run(work())
    failed = [task.task for task in report.tasks if task.failure is not None]
    assert failed == ["REPLY", "SEND"]  # of the first user, and of the last one, to whom the first sends
