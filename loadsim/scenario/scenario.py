"""Scenarios: the server, the users, the length of a day, the seeds, and the criteria; read from `scenarios/`.

A scenario file is read as a document, which `--set` changes, and is resolved to a `Scenario` with all defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from loadsim.documents.schema import with_nearest
from loadsim.documents.yaml_reader import Origin, Problems, located, override, parse, read_document, write_yaml
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.formats import length
from loadsim.model.mail_program import OUTLOOK_LIKE, MailProgram, default_submission, program_names
from loadsim.model.message_tag import OUTSIDE_DOMAIN
from loadsim.model.ports import Account, FolderSettings, Services
from loadsim.model.terms import CALDAV, CHECKING, IN_MAILBOX, INJECT, MOST_USERS, RESOLVE, STRESS, UNSCORED, OutageCause
from loadsim.plugins import origin
from loadsim.scenario.accounts import (
    MASK,
    AccountPattern,
    AccountTable,
    exposed_passwords,
    prefer_set_password,
    resolve_accounts,
)
from loadsim.scenario.criteria import DEFAULT, DELIVERY, DELIVERY_MS, Criteria, documents, read_criteria, unfolded
from loadsim.scenario.document import EMBEDDED, ScenarioDocument
from loadsim.scenario.groups import (
    Group,
    SenderGroup,
    check_calendars,
    check_library,
    check_profiles,
    check_programs,
    check_public_folder,
    read_group,
    resolve_lists,
    users_and_senders,
    with_connection,
    with_submission,
)
from loadsim.scenario.limits import Limits
from loadsim.scenario.mailboxes import DEEPEST, PROFILES, MailboxSection, levels
from loadsim.scenario.profile import Profile, Receipts
from loadsim.scenario.run_times import RunTimes, resolve_run, seconds
from loadsim.scenario.sections import AbortOn, Client, ListsSection, Losses, Outage
from loadsim.scenario.server import Server, insecure, resolve_server, server_document
from loadsim.scenario.weights import load_weights

# --- the scenario -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scenario:
    """A resolved scenario, with all defaults filled in."""

    name: str
    server: Server | Literal["embedded"]
    folders: FolderSettings
    domain: str
    accounts: AccountPattern | AccountTable
    topology: tuple[Group, ...]
    mailbox: MailboxSection
    lists: ListsSection
    run: RunTimes
    client: Client
    initialise: str
    weights: dict[str, float]
    criteria: Criteria
    limits: Limits
    abort_on: AbortOn
    cluster: Losses
    probes: Mapping[str, Mapping[str, Any]]
    allow_hosts: tuple[str, ...]
    monitors: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    outage: Outage | None = None
    outside: tuple[SenderGroup, ...] = ()
    """The groups of outside senders, whose numbers follow the users'."""
    audit: bool | None = None
    audit_allow: tuple[str, ...] = ()
    exposed: tuple[Finding, ...] = field(default=(), compare=False)
    """A finding for each password that other users of this machine may be able to read."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings that a run repeats in its events and result."""
        findings = [*insecure(self.server)] if isinstance(self.server, Server) else []
        if self.initialise == "never":
            findings.append(finding(Code.START_STATE_UNKNOWN))
        if self.lacks_lists:
            findings.append(finding(Code.NO_LISTS))
        drivers = {group.protocol for group in self.topology}
        if self.client.check_state > Client().check_state and drivers.isdisjoint(CHECKING):
            findings.append(finding(Code.STATE_NOT_CHECKED))
        return tuple(findings)

    @property
    def lacks_lists(self) -> bool:
        """True if users would send to distribution lists, but there are none."""
        groups: tuple[Group | SenderGroup, ...] = (*self.topology, *self.outside)
        return self.lists.count == 0 and any(group.profile.new_mail.list_chance > 0 for group in groups)

    @property
    def log_on(self) -> str | None:
        """The log-on methods of the server's services; None for the default methods, or without a real server."""
        return self.server.log_on if isinstance(self.server, Server) else None

    @property
    def users(self) -> int:
        """The number of users, who have mailboxes."""
        return sum(group.users for group in self.topology)

    @property
    def senders(self) -> int:
        """The number of outside senders."""
        return sum(group.users for group in self.outside)

    @property
    def duration_s(self) -> float:
        """The time from the common start to the end."""
        return self.run.duration_s

    @property
    def compression(self) -> float:
        """The length of the profiles' day, divided by the length of the simulated day."""
        return self.topology[0].profile.day_s / self.run.day_length_s

    @property
    def submission(self) -> str:
        """The ways in which users submit: the scenario's, or their drivers' and mail programs'."""
        return self.client.submission or ", ".join(sorted({group.submission for group in self.topology}))

    @property
    def programs(self) -> str | None:
        """The names of the users' mail programs; None if all use the default one."""
        if all(group.programs == (OUTLOOK_LIKE,) for group in self.topology):
            return None
        return ", ".join(sorted({program_names(group.programs) for group in self.topology}))

    @property
    def calendars(self) -> str | None:
        """Where users keep their calendars; None if all keep them in their mailboxes."""
        kept = {group.calendar for group in self.topology}
        return None if kept == {IN_MAILBOX} else ", ".join(sorted(kept))

    @property
    def plugin_tasks(self) -> tuple[str, ...]:
        """The names of the plug-in tasks that users are planned to do."""
        rates = (task for group in self.topology for task in group.profile.tasks.items())
        return tuple(sorted({name for name, task in rates if task.per_day}))

    @property
    def plugins(self) -> dict[str, str]:
        """The plug-ins that take part in the load: package and version on this machine, by kind and name."""
        used = (
            *(("driver", group.protocol) for group in self.topology),
            *(("task", name) for name in self.plugin_tasks),
        )
        packages = {f"{kind} {name}": origin(kind, name) for kind, name in used}
        return {name: package for name, package in packages.items() if package is not None}

    def using(self, services: Services) -> Services:
        """Return services with the settings of client and folders."""
        return replace(self.client.using(services), folders=self.folders)

    def with_program(
        self, services: Services, protocol: str, program: MailProgram, companions: tuple[MailProgram, ...] = ()
    ) -> Services:
        """Return services for users of a driver and a program, whose settings the scenario overrides.

        `companions` are the users' other programs, which complete the driver's name in results.
        """
        smtp = services.smtp
        return replace(
            services,
            smtp=None if smtp is None else replace(smtp, connection=self._smtp_connection or program.connection),
            submission=self.client.submission or default_submission(protocol, program),
            program=program,
            companions=companions,
        )

    @property
    def _smtp_connection(self) -> str | None:
        smtp = self.server.smtp if isinstance(self.server, Server) else None
        return None if smtp is None else smtp.connection

    def account(self, index: int) -> Account:
        """Return the account of user `index` (from 1)."""
        return self.accounts.account(index, self.domain)

    def sender_account(self, number: int) -> Account:
        """Return what stands for the account of an outside sender: an address, without a password."""
        return Account(number, "", f"sender{number - self.users}@{OUTSIDE_DOMAIN}", "")

    def any_account(self, number: int) -> Account:
        """Return the account of a user, or what stands for that of an outside sender."""
        return self.account(number) if number <= self.users else self.sender_account(number)

    def digest(self) -> str:
        """Return the SHA-256 of everything that determines the load: users, profiles, lists, length of the day, seeds.

        Plug-ins count with the versions installed on this machine. Names, the server's address, accounts, the window,
        probes, monitors, weights, criteria and limits do not change the load.
        """
        server = self.server if isinstance(self.server, Server) else None
        imap = server.imap if server else None
        groups = [
            {
                "profile": _without(asdict(group.profile), "name", "calculated", *_unplanned(group.profile)),
                "users": group.users,
                "protocol": group.protocol,
                "programs": [_stated(program) for program in group.programs],
                "smtp_connection": self._smtp_connection or group.program.connection,
                **({"calendar": group.calendar} if group.calendar == CALDAV else {}),
            }
            for group in self.topology
        ]
        load = {
            "groups": groups,
            "lists": asdict(self.lists),
            # The length of the night follows from the profiles.
            "run": _without(asdict(self.run), "warm_up_s", "window_s", "night_length_s", "ramp_shape"),
            "submission": self.submission,
            "tls_resumption": self.client.tls_resumption,
            "empty_start": self.initialise == "never",
            "plugins": self.plugins,
            "mailbox": self.mailbox.document(),
            "ignored_capabilities": sorted(imap.ignored) if imap else [],
            "log_on": self.log_on,
        }
        if self.outside:
            load["outside"] = [
                {"profile": _without(asdict(group.profile), "name"), "users": group.users} for group in self.outside
            ]
            if server and server.outside is not None:
                load["outside_by"] = ["LMTP" if server.outside.lmtp else "SMTP", server.outside.connection]
        if server and server.ldap is not None:
            load["address_book"] = True
        if server and server.nntp is not None:
            load["newsgroup"] = True
        if self.run.ramp_shape:
            load["ramp_shape"] = self.run.ramp_shape
        if self.outage is not None:
            load["outage"] = {"at_s": self.outage.at_s, "by": self.outage.by}
        return sha256(json.dumps(load, sort_keys=True).encode()).hexdigest()

    def accounts_digest(self) -> str:
        """Return the SHA-256 of all users' log-on names and addresses, in order."""
        accounts = map(self.account, range(1, self.users + 1))
        return sha256("".join(f"{account.login}\n{account.address}\n" for account in accounts).encode()).hexdigest()

    def without_commands(self) -> Scenario:
        """Return the scenario for other processes: commands, which may contain secrets, run in this one only."""
        outage = self.outage
        if outage is not None and outage.command is not None:
            outage = replace(outage, command=())
        return replace(self, monitors={}, outage=outage)

    def to_yaml(self) -> str:
        """Write this scenario as a file for `load_scenario`, with masked passwords and absolute paths."""
        return write_yaml(_document(self))


def _without(document: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in keys}


def _unplanned(profile: Profile) -> list[str]:
    """Return the sections that older versions do not know, as far as the profile has no rates there."""
    without = [section for section in ("post", "browse_public") if not getattr(profile, section).per_day]
    return [*without, *(["receipts"] if profile.receipts == Receipts() else [])]


def _stated(program: MailProgram) -> dict[str, Any]:
    """Return a program's document, as older versions do for programs that they know."""
    newer = {key for key in ("status", "quota", "first_sync", "calls") if not getattr(program, key)}
    return _without(asdict(program), *newer)


def _document(scenario: Scenario) -> dict[str, Any]:
    run = scenario.run
    return {
        "name": scenario.name,
        "server": scenario.server if scenario.server == EMBEDDED else server_document(scenario.server),
        "folders": asdict(scenario.folders),
        "domain": scenario.domain,
        "accounts": (
            {"csv": scenario.accounts.csv}
            if isinstance(scenario.accounts, AccountTable)
            else {"user": scenario.accounts.user, **({"password": MASK} if scenario.accounts.password else {})}
        )
        | ({"manifest_key": MASK} if scenario.account(1).manifest_key is not None else {})
        | scenario.accounts.identity.document(),
        "topology": [
            {
                "profile": group.reference,
                "users": group.users,
                "protocol": group.protocol,
                "program": list(group.program_references) if group.companions else group.program_references[0],
                **({"calendar": group.calendar} if group.calendar == CALDAV else {}),
            }
            for group in scenario.topology
        ]
        + [{"profile": group.reference, "users": group.users} for group in scenario.outside],
        **({"mailbox": scenario.mailbox.document()} if scenario.mailbox != PROFILES else {}),
        "lists": asdict(scenario.lists),
        "run": {
            "day_length": seconds(run.day_length_s),
            **({"days": int(run.cycles)} if run.cycles.is_integer() else {"duration": seconds(run.duration_s)}),
            "ramp_up": seconds(run.ramp_up_s),
            "warm_up": seconds(run.warm_up_s),
            "window": seconds(run.window_s),
            "seed": run.seed,
            "mode": run.mode,
            **({"day_shape": list(run.day_shape)} if run.day_shape else {}),
            **({"ramp_shape": list(run.ramp_shape)} if run.ramp_shape else {}),
            **({} if scenario.outage is None else {"outage": _outage(scenario.outage)}),
            **({} if scenario.audit is None else {"audit": scenario.audit}),
            **({"audit_allow": list(scenario.audit_allow)} if scenario.audit_allow else {}),
        },
        "client": {**asdict(scenario.client), "source_addresses": list(scenario.client.source_addresses)},
        "initialise": scenario.initialise,
        "weights": dict(scenario.weights),
        "criteria": documents(scenario.criteria),
        "limits": _section(scenario.limits),
        "abort_on": _section(scenario.abort_on),
        "cluster": _section(scenario.cluster),
        **({"probes": scenario.probes} if scenario.probes else {}),
        **({"monitors": {name: {"command": MASK} for name in scenario.monitors}} if scenario.monitors else {}),
        "allow_hosts": list(scenario.allow_hosts),
    }


def _outage(outage: Outage) -> dict[str, Any]:
    how: dict[OutageCause, dict[str, Any]] = {"command": {"command": MASK}, "drop": {"drop_sessions": True}, "hand": {}}
    return {"at": seconds(outage.at_s), **how[outage.by]}


def _section(section: Limits | AbortOn | Losses) -> dict[str, Any]:
    """Return a section as in a file, where durations have their units in the value, not in the key."""
    return {
        name.removesuffix("_s"): seconds(value) if name.endswith("_s") else value
        for name, value in asdict(section).items()
    }


# --- reading ----------------------------------------------------------------------------------------------------


def load_scenario(reference: str, overrides: Sequence[str] = (), *, passwords: bool = True) -> Scenario:
    """Read a scenario from its name or path, with settings such as `topology.0.users=200`.

    Without `passwords`, no password is fetched: a scenario of unknown origin may name any file. Raises `ConfigError`
    with all errors in single values; if there are none, with errors in other files, and in how values fit together.
    """
    path, name = located("scenarios", reference)
    document, origin = read_document(path, name)
    if "criteria" in document:  # so that settings match both notations
        document["criteria"] = unfolded(document["criteria"], origin)
    origin = replace(origin, overridden=override(document, overrides))
    prefer_set_password(document, origin)
    return _resolve(parse(ScenarioDocument, document, origin), origin, path, passwords)


def _server_and_groups(
    document: ScenarioDocument, origin: Origin, directory: Path
) -> tuple[Server | Literal["embedded"], tuple[Group, ...], tuple[SenderGroup, ...]]:
    """Check the sections that need no profile, and read profiles and programs. Raises `ConfigError` with all errors."""
    problems, groups = Problems(), list[Group | SenderGroup]()
    users = sum(group.users for group in document.topology)
    with problems:
        if users > MOST_USERS:
            most = max(range(len(document.topology)), key=lambda at: document.topology[at].users)
            key = ("topology", most, "users") if document.topology[most].users > MOST_USERS else ("topology",)
            raise origin.error_saying(key, f"at most {MOST_USERS:,} users", f"{users:,}")
    with problems:
        server = document.server
        if isinstance(server, Server):
            server = resolve_server(server, document.accounts, document.allow_hosts, origin, directory)
    with problems:
        _check_accounts(document, origin)
    with problems:
        if (document.client.trace or 0) > users:
            raise origin.error(("client", "trace"), f"the number of a user, at most {users:,}", document.client.trace)
    for at, group in enumerate(document.topology):
        with problems:
            groups.append(read_group(group, at, origin, directory))
    problems.check()
    return server, *users_and_senders(groups, origin)


def _resolve(document: ScenarioDocument, origin: Origin, path: Path, passwords: bool) -> Scenario:
    """Read the files that the document refers to, fill in defaults, and check that its parts fit together."""
    server, topology, outside = _server_and_groups(document, origin, path.parent)
    users = sum(group.users for group in topology)

    # Check the sections that depend on the profiles.
    problems = Problems()
    with problems:
        check_profiles(topology, outside, origin)
    with problems:
        if outside and document.domain.lower() == OUTSIDE_DOMAIN:
            raise origin.error(("domain",), "a domain other than that of outside senders", document.domain)
    with problems:
        check_programs(topology, origin)
    with problems:
        check_library(document.client, topology, server, document.accounts, origin)
    with problems:
        check_calendars(topology, server, origin)
    with problems:
        check_public_folder(document.folders, document.mailbox, topology, server, origin)
    _check_weights(document.weights, topology, origin, problems)
    with problems:
        mailbox = _mailbox(document.mailbox, users, topology, origin)
    with problems:
        lists = resolve_lists(document.lists, topology, origin)
    with problems:
        run = resolve_run(document.run, users, topology[0].profile, origin)
        _check_outage(document.run.outage, run, origin)
    with problems:
        criteria = _criteria(document, topology, outside, origin)
    problems.check()

    # Fetch passwords last, and only for a valid scenario.
    accounts: AccountPattern | AccountTable = AccountPattern()
    if document.accounts is not None:
        most = max(users, document.mailbox.population or 0)
        accounts = resolve_accounts(document.accounts, document.domain, most, origin, path.parent, passwords)
    return Scenario(
        name=document.name or path.stem,
        server=with_connection(server, topology),
        folders=document.folders,
        domain=document.domain,
        accounts=accounts,
        topology=topology,
        mailbox=mailbox,
        lists=lists,
        run=run,
        client=with_submission(document.client, topology),
        initialise=document.initialise,
        weights=document.weights,
        criteria=criteria,
        limits=document.limits,
        abort_on=document.abort_on,
        cluster=document.cluster,
        probes=document.probes,
        allow_hosts=document.allow_hosts,
        monitors=document.monitors,
        outage=document.run.outage,
        outside=outside,
        audit=document.run.audit,
        audit_allow=document.run.audit_allow,
        exposed=exposed_passwords(document.accounts, origin, path.parent),
    )


def _check_weights(weights: Mapping[str, float], topology: Sequence[Group], origin: Origin, problems: Problems) -> None:
    """Check that each weight belongs to one of loadsim's tasks, or to a plug-in's task in the profiles."""
    own = (*load_weights(), *UNSCORED)
    known_names = tuple(dict.fromkeys((*own, *(task for group in topology for task in group.profile.tasks))))
    for task in weights:
        if task not in known_names:
            with problems:
                raise origin.error_saying(
                    ("weights", task), f"one of the tasks {', '.join(known_names)}", with_nearest(task, known_names)
                )


_ACCOUNTS = 'accounts: {user: "user{index:05d}", password_env: LOADSIM_PASSWORD}'
"""The section that an error suggests if accounts are missing."""


def _check_accounts(document: ScenarioDocument, origin: Origin) -> None:
    if document.accounts is None:
        if document.server != EMBEDDED:
            raise origin.error(("accounts",), f"accounts, as the server is not embedded, such as {_ACCOUNTS}", None)
    elif document.server == EMBEDDED and not document.accounts.has_password:
        raise origin.error_saying(("accounts",), "passwords, which the embedded server needs", "none")


def _mailbox(section: MailboxSection, users: int, topology: Sequence[Group], origin: Origin) -> MailboxSection:
    """Check the population, and that `fan_out` does not nest the profiles' folders (if used) too deeply."""
    if section.population is not None and not users <= section.population <= MOST_USERS:
        expected = f"a number from the {users:,} users of the topology to {MOST_USERS:,}"
        raise origin.error(("mailbox", "population"), expected, section.population)
    for group in topology if section.folders is None else ():
        if levels(group.profile.start_state.folders, section.fan_out) > DEEPEST:
            expected = f"a number that gives at most {DEEPEST} levels of folders"
            raise origin.error(("mailbox", "fan_out"), expected, section.fan_out)
    return section


def _check_outage(outage: Outage | None, run: RunTimes, origin: Origin) -> None:
    """Check that the outage is in the window, whose figures are to show it."""
    begin_s, end_s = run.warm_up_s, run.warm_up_s + run.window_s
    if outage is not None and not begin_s <= outage.at_s < end_s:
        expected = f"an instant in the window, from {length(begin_s)} to {length(end_s)}"
        raise origin.error_saying(("run", "outage", "at"), expected, length(outage.at_s))


def _criteria(
    document: ScenarioDocument, topology: Sequence[Group], outside: Sequence[SenderGroup], origin: Origin
) -> Criteria:
    has_directory = isinstance(document.server, Server) and document.server.ldap is not None
    planned: dict[str, set[str]] = {topology[0].driver_name: {INJECT} if outside else set()}
    for group in topology:
        resolves = has_directory and group.planned_tasks & {"SEND", "FORWARD"}
        planned.setdefault(group.driver_name, set()).update(group.planned_tasks | ({RESOLVE} if resolves else set()))
    stress, outage = document.run.mode == STRESS, document.run.outage is not None
    criteria = read_criteria(document.criteria, planned, stress, origin, document.probes, outage=outage)
    # The server is not late while the program is not looking.
    if criteria.get(DELIVERY) is DEFAULT[DELIVERY]:
        look_ms = 1000 * max(group.program.look_s for group in topology)
        criteria = {**criteria, DELIVERY: replace(DEFAULT[DELIVERY], below=DELIVERY_MS + look_ms)}
    return criteria
