"""The audit of a run: each mailbox is read once, and compared with the run's records."""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.completeness import users_present
from loadsim.analysis.delivery import in_any
from loadsim.audit.audit_file import NAME, AuditFile, AuditTotals, open_audit_file
from loadsim.audit.expected import ExpectedMail, InitialMail
from loadsim.audit.judged import Fault, HeldCopy, Judged, judge
from loadsim.audit.reading import read_events, read_mailbox
from loadsim.errors import ConfigError
from loadsim.files import locked
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.formats import Value
from loadsim.model.message_tag import INITIAL, INITIAL_RUN, initial_id
from loadsim.model.ports import INBOX, OF_ALL_USERS, PUBLIC, USER_FLAGS, Account, Services
from loadsim.model.provisioning_ports import Provisioning
from loadsim.model.terms import CALDAV, ONE_COPY, POP3
from loadsim.provisioning.hold import Hold, held
from loadsim.provisioning.public_folder import keeper_among, public_folder
from loadsim.provisioning.sessions import Progress, accounts_on_server, name_of, visit
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.workload import Workload
from loadsim.timinglog.audited import AuditRecord, write_audit
from loadsim.timinglog.reader import TimingLog

MOST_LISTED = 20
"""The most faults per code in `audit.json`; `audit.csv` has all of them."""

PAUSE_S = 2.0
"""The pause before mailboxes are read again because mail to them is still under way."""

_ALL_FLAGS = frozenset(flag.lower() for flag in USER_FLAGS)

COLUMNS = ("code", "message_id", "user", "folder", "wanted")


async def audit(
    directory: Path,
    log: TimingLog,
    scenario: Scenario,
    services: Services,
    progress: Progress,
    hold: Hold | None = None,
) -> AuditRecord:
    """Audit the run in this directory, which has this log; write `audit.json` and `audit.csv` there.

    `hold` is the run's hold on its accounts. Without it, no other loadsim may have used them since the run.

    Until `limits.drain` ends, a mailbox is read again if accepted mail is missing that no user has seen. An audit that
    was interrupted, or could not read some mailboxes, leaves `audit.sqlite`, from which the next audit continues. The
    result of an earlier audit is kept if that audit read more mailboxes.

    Raises `ConfigError` if the scenario is not the run's, if the directory cannot be written to, or if another loadsim
    works on the accounts, or has done so since the run.
    """
    _check_scenario(directory, log, scenario)
    accounts = accounts_on_server(scenario)
    run = log.sources[0].run
    with locked(directory, "audit", "audit"), open_audit_file(directory / NAME, log) as file:
        auditor = Auditor(Workload(scenario), log, file)
        async with nullcontext(hold) if hold else held(accounts, services, "audit", run, after=True) as hold:
            await auditor.read_all(accounts, services, partial(progress, "audit"))
            await hold.renew(limit_s=None)
            if hold.failure:  # others may have used the mailboxes: the next audit finds out
                file.unread(accounts[0].number, hold.failure.removeprefix(f"{name_of(accounts[0])}: "))
        if hold.lost:
            file.forget()
            raise ConfigError(f"another loadsim has worked on the mailboxes: {hold.lost}")
        totals = file.settle(auditor.unsure_senders)
        by_plugins = min(int(auditor.by_plugins.sum()), totals.unjudged)
        record = record_of(run, scenario, totals, file)
        record = record._replace(allowed=log.header.audit_allow, by_plugins=by_plugins)
        least = log.audit.mailboxes if log.audit else 0 if log.header.audited else 1
        if record.mailboxes >= least:
            _write_all(directory / "audit.csv", run, scenario, file)
            write_audit(directory, record)
    if not record.unread:
        (directory / NAME).unlink()
    return record


def _check_scenario(directory: Path, log: TimingLog, scenario: Scenario) -> None:
    """Check that a scenario has the load, accounts and allowed faults of the run. Raises `ConfigError`."""
    other_load = log.header.scenario_digest not in (None, scenario.digest())  # different users or start state
    others = log.header.accounts_digest not in (None, scenario.accounts_digest())  # or their order
    if other_load or others or scenario.audit_allow != log.header.audit_allow:
        raise ConfigError(
            f"{directory}: expected the scenario of its run, found one of another load, of other accounts, or that"
            " allows other faults: give no --set but of passwords and the server's addresses, and the accounts in their"
            " order, the profiles and plug-ins as they were"
        )


class Auditor:
    """Judges a run's mailboxes by its log and workload."""

    def __init__(self, workload: Workload, log: TimingLog, file: AuditFile) -> None:
        self._workload = workload
        self._log = log
        self._file = file

    async def read_all(
        self, accounts: Sequence[Account], services: Services, progress: Callable[[int, int], None]
    ) -> None:
        """Read and judge all mailboxes that are not in the file yet, and reread those with mail under way."""
        scenario, file, run = self._workload.scenario, self._file, self._log.sources[0].run
        keeper = keeper_among(scenario, accounts)

        async def work(account: Account, mailbox: Provisioning) -> None:
            if account == keeper:  # first: with their own mailbox, both count as read
                async with public_folder(account, mailbox, services) as public:
                    self.judge(OF_ALL_USERS, (await read_mailbox(account, public, run, [PUBLIC]))[0])
            found, bounces = await read_mailbox(account, mailbox, run)
            if self._workload.population.group(account.number).calendar == CALDAV:
                found += await read_events(account, services, run)
            self.judge(account.number, found)
            file.bounced(account.number, bounces)

        async def read(some: Sequence[Account]) -> None:
            results = await visit(some, services, work, progress)
            for account, result in zip(some, results, strict=True):
                if isinstance(result, ConfigError):
                    file.unread(account.number, str(result).removeprefix(f"{name_of(account)}: "))

        await read([account for account in accounts if not file.is_read(account.number)])
        deadline = asyncio.get_running_loop().time() + scenario.limits.drain_s
        while (waiting := file.waits()) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(PAUSE_S)
            await read([scenario.account(user) for user in waiting])

    def judge(self, user: int, found: Sequence[HeldCopy]) -> Judged:
        """Compare the copies found in a mailbox, or in the public folder, with the records, and keep the result."""
        known = self._workload.scenario.initialise != "never"
        protocol = "" if user == OF_ALL_USERS else self._workload.population.group(user).protocol
        expected = ExpectedMail(user, start_of(self._workload, user) if known else None, protocol in ONE_COPY)
        expected.replay(self._file.events(user))
        if protocol == POP3:  # Dovecot flags what it sends, other servers do not
            found = [copy._replace(never_kept=_ALL_FLAGS) for copy in found]
        judged = judge(expected, found, complete=bool(self._complete[user]))
        self._file.take(user, judged)
        return judged

    @property
    def unsure_senders(self) -> list[int]:
        """The users and outside senders whose records are incomplete."""
        return [int(user) for user in np.flatnonzero(~self._complete) if user]

    @cached_property
    def _complete(self) -> NDArray[np.bool_]:
        """True for each user and outside sender whose actions are all in the log, and for all users if each is.

        Their engine has reached the end without a fault.
        """
        scenario = self._workload.scenario
        users = np.arange(scenario.users + scenario.senders + 1)
        engines = [source for source in self._log.sources if source.simulates]
        good = [
            source.assignment and source.assignment.with_senders(scenario.senders)
            for source in engines
            if source.started
            and source.ended
            and not (source.facts.own_faults or source.facts.users_given_up or source.is_damaged)
        ]
        if None in good:
            complete = np.full(len(users), len(good) == len(engines) and users_present(self._log) >= scenario.users)
        else:
            complete = in_any(users, good)
        complete = complete & ~self.by_plugins
        complete[OF_ALL_USERS] = complete[1 : scenario.users + 1].all()
        return complete

    @cached_property
    def by_plugins(self) -> NDArray[np.bool_]:
        """True for each user with tasks of plug-ins, which may do anything without a record; False for each sender."""
        scenario, group = self._workload.scenario, self._workload.population.group
        tasks, users = scenario.plugin_tasks, range(1, scenario.users + 1)
        return np.array(
            [
                False,
                *(bool(tasks) and not group(user).profile.tasks.keys().isdisjoint(tasks) for user in users),
                *(False for _ in self._workload.senders),
            ]
        )


def start_of(workload: Workload, user: int) -> Iterator[InitialMail]:
    """Yield the messages of a user's start state."""
    unread = workload.initially_unread(user) if user != OF_ALL_USERS else 0
    for folder, count in workload.start_state(user).items():
        for index in range(count):
            yield InitialMail(initial_id(user, folder, index), folder, folder != INBOX or index < count - unread)


def _message_id(message: str, run: str, scenario: Scenario) -> str:
    return f"<{message}.{INITIAL_RUN if message.startswith(INITIAL) else run}@{scenario.domain}>"


def _finding(user: int, fault: Fault, run: str, scenario: Scenario) -> Finding:
    values: dict[str, Value] = {
        "message_id": _message_id(fault.message, run, scenario),
        "user": user,
        "folder": fault.folder,
        "wanted": fault.wanted,
    }
    whose = scenario.account(user).login if user != OF_ALL_USERS else "all users"
    return finding(fault.code, whose, **{name: values[name] for name in values if name in fault.code.fields})


def record_of(run: str, scenario: Scenario, totals: AuditTotals, file: AuditFile) -> AuditRecord:
    """Return the record of an audit with these totals."""
    unread = [
        finding(Code.MAILBOX_UNREAD, name_of(scenario.account(user)), why=why)
        for user, why in file.failures(MOST_LISTED)
    ]
    faults = [_finding(user, fault, run, scenario) for user, fault in file.faults(MOST_LISTED)]
    return AuditRecord(
        run=run,
        mailboxes=totals.mailboxes,
        unread=totals.unread,
        unjudged=totals.unjudged,
        messages=totals.messages,
        unknown=totals.unknown,
        bounces=file.bounces(),
        counts={code.id: count for code, count in file.counts().items()},
        findings=(*unread, *faults),
    )


def _write_all(path: Path, run: str, scenario: Scenario, kept: AuditFile) -> None:
    """Write all faults as CSV."""
    new = path.with_name(f"{path.name}.new")
    with new.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for user, fault in kept.faults():
            message_id = _message_id(fault.message, run, scenario)
            writer.writerow((fault.code.id, message_id, user, fault.folder, fault.wanted))
    new.replace(path)
