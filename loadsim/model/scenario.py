"""Scenarios: which server and users, the length of a day, the seeds, and what counts as passed; read from `scenarios/`.

A scenario file is read as a document, to which `--set` applies. The document is resolved to a `Scenario`, which holds
every default.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import PlainValidator, TypeAdapter

from loadsim.errors import ConfigError
from loadsim.model.accounts import (
    MASK,
    AccountPattern,
    AccountsSection,
    AccountTable,
    Domain,
    exposed_passwords,
    prefer_set_password,
    resolve_accounts,
)
from loadsim.model.criteria import Criteria, documents, planned_tasks, read_criteria, unfolded
from loadsim.model.distribution import Distribution
from loadsim.model.mail_program import OUTLOOK_LIKE, MailProgram, module_name, program_names
from loadsim.model.mailboxes import DEEPEST, PROFILES, Mailbox, levels
from loadsim.model.ports import OF_SERVER, Account, FolderSettings, Services
from loadsim.model.profile import Profile, expected_profile, load_profile, load_weights, read_weights
from loadsim.model.programs import expected_program, load_program
from loadsim.model.scenario_sections import (
    AbortOn,
    Client,
    Folders,
    GroupSection,
    Limits,
    ListsSection,
    Losses,
    RunSection,
)
from loadsim.model.scenario_server import INSECURE, Server, is_loopback, proves_only, resolve_server, server_document
from loadsim.model.schema import LONGEST_S, KeywordOr, Text, strict, word
from loadsim.model.terms import CANONICAL, MOST_USERS, STRESS, UNSCORED
from loadsim.model.yaml_reader import (
    Origin,
    known,
    locate,
    mismatch,
    override,
    parse,
    read_file,
    show,
    write_yaml,
)

EMBEDDED: Literal["embedded"] = "embedded"

TRUST = "trust"
"""The value of `initialise` with which only a few mailboxes are inspected."""

DEFAULT_LOG_ON = "IMAP auto, SMTP auto"
"""The log-on methods of a server for which a scenario states none."""


# --- users, lists, time -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Group:
    """Users of one profile with one driver and one mail program, or several at once.

    `program` does the users' tasks; `companions` only watch. `reference` and `program_references` name the profile and
    the programs in a file.
    """

    profile: Profile
    profile_name: str
    users: int
    protocol: str = "imap"
    reference: str = ""
    program: MailProgram = OUTLOOK_LIKE
    companions: tuple[MailProgram, ...] = ()
    program_references: tuple[str, ...] = (OUTLOOK_LIKE.name,)

    @property
    def programs(self) -> tuple[MailProgram, ...]:
        """The users' mail programs; the first one does their tasks."""
        return (self.program, *self.companions)

    @property
    def connections(self) -> int:
        """The most connections to a user's mailbox at once: companions have one each, for the Inbox."""
        return self.program.connections + len(self.companions)

    @property
    def module(self) -> str:
        """The name of driver and programs in results."""
        return module_name(self.protocol, self.program, self.companions)


@dataclass(frozen=True, slots=True)
class Lists:
    """Distribution lists: `count` of them, or as many as `cover` a share of the population (None: the users).

    Their own seed keeps them the same if the seed of the run or the number of users changes.
    """

    count: int | None
    cover: float | None
    size: Distribution
    population: int | None = None
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Run:
    """The times of a run: `duration_s`, in days of `day_length_s`; log-ons take `ramp_up_s` before the common start.

    A night of `night_length_s` follows each day; a day and its night are a cycle. The window begins `warm_up_s` after
    the common start and lasts `window_s`; tasks that are due in it are scored. In `mode` stress, users do the
    activities of their plans one after the other, without pauses and nights.
    """

    day_length_s: float
    duration_s: float
    ramp_up_s: float
    warm_up_s: float
    window_s: float
    seed: int = 1
    mode: str = CANONICAL
    night_length_s: float = 0.0

    @property
    def cycles(self) -> float:
        """Return the length of the run in cycles."""
        return self.duration_s / (self.day_length_s + self.night_length_s)

    @property
    def active_s(self) -> float:
        """Return the time of the run without nights."""
        if not self.night_length_s:
            return self.duration_s
        cycles, rest_s = divmod(self.duration_s, self.day_length_s + self.night_length_s)
        return cycles * self.day_length_s + min(rest_s, self.day_length_s)

    @property
    def days(self) -> float:
        """Return the time of the run without nights, in days."""
        return self.active_s / self.day_length_s


# --- the scenario -----------------------------------------------------------------------------------------------


def _weights(value: object) -> dict[str, float]:
    given, own = read_weights(value), load_weights()
    for task in given:
        if task not in own and task not in UNSCORED:
            raise mismatch(f"one of the tasks {', '.join((*own, *UNSCORED))}", show(task), at=(task,))
    weights = {**own, **given}
    if not any(weights.values()):
        raise mismatch("a weight above 0", "none")
    return weights


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    name: Text | None = None
    server: Annotated[Server | Literal["embedded"], KeywordOr(EMBEDDED, Server)]
    folders: Folders = OF_SERVER
    domain: Domain = "loadsim.test"
    accounts: AccountsSection | None = None
    topology: tuple[GroupSection, ...]
    mailbox: Mailbox = PROFILES
    lists: ListsSection = field(default_factory=ListsSection)
    run: RunSection = field(default_factory=RunSection)
    client: Client = field(default_factory=Client)
    initialise: Annotated[str, word("auto", "always", "never", TRUST)] = "auto"
    weights: Annotated[dict[str, float], PlainValidator(_weights)] = field(default_factory=load_weights)
    criteria: Any = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    abort_on: AbortOn = field(default_factory=AbortOn)
    cluster: Losses = field(default_factory=Losses)
    allow_hosts: tuple[Text, ...] = ()

    def __post_init__(self) -> None:
        if not self.topology:
            raise mismatch("a list of at least one group", "none", at=("topology",))


_DOCUMENT = TypeAdapter(_Document)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A resolved scenario, which holds every default."""

    name: str
    server: Server | Literal["embedded"]
    folders: FolderSettings
    domain: str
    accounts: AccountPattern | AccountTable
    topology: tuple[Group, ...]
    mailbox: Mailbox
    lists: Lists
    run: Run
    client: Client
    initialise: str
    weights: dict[str, float]
    criteria: Criteria
    limits: Limits
    abort_on: AbortOn
    cluster: Losses
    allow_hosts: tuple[str, ...]
    exposed: tuple[str, ...] = field(default=(), compare=False)
    """Warnings, one for each password that other users of this machine may read."""

    @property
    def in_the_clear(self) -> tuple[str, ...]:
        """Return a warning for each endpoint on another machine that receives passwords without TLS."""
        if not isinstance(self.server, Server):
            return ()
        sent = {"IMAP": self.server.imap} | ({"SMTP": self.server.smtp} if self.server.smtp.auth else {})
        return tuple(
            f"passwords go to {service} at {endpoint.host}:{endpoint.port} in the clear (tls: none)"
            for service, endpoint in sent.items()
            if endpoint.tls == "none" and not is_loopback(endpoint.host) and not proves_only(endpoint)
        )

    @property
    def unverified(self) -> tuple[str, ...]:
        """Return a warning for each endpoint whose certificate is not verified."""
        if not isinstance(self.server, Server):
            return ()
        return tuple(
            f"the certificate of {service} at {endpoint.host}:{endpoint.port} is not verified (tls_verify: {INSECURE}):"
            " anyone between can read passwords and mail"
            for service, endpoint in (("IMAP", self.server.imap), ("SMTP", self.server.smtp))
            if not endpoint.tls_verify
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings that a run's events and result repeat."""
        trusted = "the start state of most mailboxes was trusted, not inspected (initialise: trust)"
        return (*self.in_the_clear, *self.unverified, *([trusted] if self.initialise == TRUST else []))

    @property
    def log_on(self) -> str | None:
        """Return the log-on methods of the server's services; None for the default methods, and on no real server."""
        found = self.server.log_on if isinstance(self.server, Server) else None
        return None if found == DEFAULT_LOG_ON else found

    @property
    def users(self) -> int:
        return sum(group.users for group in self.topology)

    @property
    def duration_s(self) -> float:
        """Return the time from the common start to the end."""
        return self.run.duration_s

    @property
    def compression(self) -> float:
        """Return the length of the profiles' day divided by that of the simulated day."""
        return self.topology[0].profile.day_s / self.run.day_length_s

    @property
    def submission(self) -> str:
        """The SMTP drivers of the users; the default program's only one, unless the scenario states another."""
        return self.client.submission or ", ".join(sorted({group.program.submission for group in self.topology}))

    @property
    def programs(self) -> str | None:
        """Return the names of the users' mail programs; None if all use the default one."""
        if all(group.programs == (OUTLOOK_LIKE,) for group in self.topology):
            return None
        return ", ".join(sorted({program_names(group.programs) for group in self.topology}))

    def using(self, services: Services) -> Services:
        """Return services with the settings of the client and of the folders."""
        return replace(self.client.using(services), folders=self.folders)

    def with_program(
        self, services: Services, program: MailProgram, companions: tuple[MailProgram, ...] = ()
    ) -> Services:
        """Return services for users of a program. What the scenario states has precedence over the program.

        `companions` are the users' others, for the name of the driver in results.
        """
        stated = self.server.smtp.connection if isinstance(self.server, Server) else None
        return replace(
            services,
            smtp=replace(services.smtp, connection=stated or program.connection),
            submission=self.client.submission or program.submission,
            program=program,
            companions=companions,
        )

    def account(self, index: int) -> Account:
        """Return the account of user `index` (from 1)."""
        return self.accounts.account(index, self.domain)

    def digest(self) -> str:
        """Return SHA-256 over all that determines the load: users, their profiles, lists, length of the day, seeds.

        Names, the server's address, accounts, the window, weights, criteria and limits do not change the load.
        """
        groups: list[dict[str, Any]] = [
            {
                "profile": {
                    key: value
                    for key, value in asdict(group.profile).items()
                    if key not in ("name", "source", "sources", "calculated")
                },
                "users": group.users,
                "protocol": group.protocol,
                **({"program": group.program.document()} if group.program != OUTLOOK_LIKE else {}),
                **({"companions": [each.document() for each in group.companions]} if group.companions else {}),
            }
            for group in self.topology
        ]
        for group in groups:
            if not group["profile"]["night_s"]:  # keeps the digests of versions without nights
                del group["profile"]["night_s"]
        apart = ("warm_up_s", "window_s", "night_length_s")  # the night follows from the profiles
        run = {key: value for key, value in asdict(self.run).items() if key not in apart}
        if run["mode"] == CANONICAL:  # keeps the digests of versions without modes
            del run["mode"]
        load = {
            "groups": groups,
            "lists": asdict(self.lists),
            "run": run,
            "submission": self.submission,
            "tls_resumption": self.client.tls_resumption,
            "empty_start": self.initialise == "never",
        }
        if self.mailbox != PROFILES:  # keeps the digests of versions without this section
            load["mailbox"] = self.mailbox.document()
        if isinstance(self.server, Server) and self.server.imap.ignored:
            load["ignored_capabilities"] = sorted(self.server.imap.ignored)
        connection = self.server.smtp.connection if isinstance(self.server, Server) else None
        if any(group.program.connection != (connection or group.program.connection) for group in self.topology):
            load["smtp_connection"] = connection
        if self.log_on is not None:  # keeps the digests of versions without methods
            load["log_on"] = self.log_on
        return sha256(json.dumps(load, sort_keys=True).encode()).hexdigest()

    def to_yaml(self) -> str:
        """Return this scenario as a file that `load_scenario` reads, with passwords masked and absolute paths."""
        return write_yaml(_document(self))


def _seconds(value: float) -> str:
    """Return the exact notation of a duration in a file."""
    return f"{value:.0f}s" if value == int(value) else f"{value:.17f}".rstrip("0") + "s"


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
                "profile": group.reference or group.profile_name,
                "users": group.users,
                "protocol": group.protocol,
                "program": list(group.program_references) if group.companions else group.program_references[0],
            }
            for group in scenario.topology
        ],
        **({"mailbox": scenario.mailbox.document()} if scenario.mailbox != PROFILES else {}),
        "lists": asdict(scenario.lists),
        "run": {
            "day_length": _seconds(run.day_length_s),
            **({"days": int(run.cycles)} if run.cycles.is_integer() else {"duration": _seconds(run.duration_s)}),
            "ramp_up": _seconds(run.ramp_up_s),
            "warm_up": _seconds(run.warm_up_s),
            "window": _seconds(run.window_s),
            "seed": run.seed,
            "mode": run.mode,
        },
        "client": {**asdict(scenario.client), "source_addresses": list(scenario.client.source_addresses)},
        "initialise": scenario.initialise,
        "weights": dict(scenario.weights),
        "criteria": documents(scenario.criteria),
        "limits": _section(scenario.limits),
        "abort_on": _section(scenario.abort_on),
        "cluster": _section(scenario.cluster),
        "allow_hosts": list(scenario.allow_hosts),
    }


def _section(section: Limits | AbortOn | Losses) -> dict[str, Any]:
    """Return a section as in a file, where the notation of a duration has its unit, and so its key has none."""
    return {
        name.removesuffix("_s"): _seconds(value) if name.endswith("_s") else value
        for name, value in asdict(section).items()
    }


# --- reading ----------------------------------------------------------------------------------------------------


def load_scenario(reference: str, overrides: Sequence[str] = (), *, passwords: bool = True) -> Scenario:
    """Read a scenario by its name or path, with settings such as `topology.0.users=200`.

    Without `passwords`, no password is fetched: a scenario of unknown origin may name any command. Raises `ConfigError`
    with one line for an invalid scenario.
    """
    found = locate("scenarios", reference, None)
    if found is None:
        names = ", ".join(known("scenarios"))
        raise ConfigError(f"scenario: expected one of {names}, or the path of a .yaml file, found {show(reference)}")
    path, name = found
    document = read_file(path, name)
    if "criteria" in document:  # so that a setting matches both notations
        document["criteria"] = unfolded(document["criteria"], Origin(name))
    origin = Origin(name, override(document, overrides))
    prefer_set_password(document, origin)
    return _resolve(parse(_DOCUMENT, document, origin), origin, path, passwords)


def _resolve(document: _Document, origin: Origin, path: Path, passwords: bool) -> Scenario:
    """Read the files that the document refers to, fill in defaults, and check that its parts fit together."""
    topology = tuple(_group(group, at, origin, path.parent) for at, group in enumerate(document.topology))
    _check_profiles(topology, origin)
    _check_programs(topology, origin)
    users = sum(group.users for group in topology)
    if document.initialise == TRUST and document.server == EMBEDDED:
        raise origin.error(("initialise",), "auto, always or never with the embedded server, which starts empty", TRUST)
    if users > MOST_USERS:
        raise origin.error_saying(("topology",), f"at most {MOST_USERS} users", show(users))
    return Scenario(
        name=document.name or path.stem,
        server=_with_connection(_server(document, origin, path.parent), topology),
        folders=document.folders,
        domain=document.domain,
        accounts=_accounts(document, users, origin, path.parent, passwords),
        topology=topology,
        mailbox=_mailbox(document.mailbox, topology, origin),
        lists=_resolve_lists(document.lists, topology, origin),
        run=_resolve_run(document.run, users, topology[0].profile, origin),
        client=_with_submission(document.client, topology),
        initialise=document.initialise,
        weights=document.weights,
        criteria=_criteria(document, topology, origin),
        limits=document.limits,
        abort_on=document.abort_on,
        cluster=document.cluster,
        allow_hosts=document.allow_hosts,
        exposed=exposed_passwords(document.accounts, origin, path.parent),
    )


def _group(shape: GroupSection, at: int, origin: Origin, directory: Path) -> Group:
    found = locate("profiles", shape.profile, directory)
    if found is None:
        raise origin.error(("topology", at, "profile"), expected_profile(), shape.profile)
    reference = shape.profile if shape.profile in known("profiles") else str(found[0].resolve())
    profile = load_profile(shape.profile, directory)
    programs = [_program(each, at, origin, directory) for each in shape.program]
    return Group(
        profile=profile,
        profile_name=profile.name,
        users=shape.users,
        protocol=shape.protocol,
        reference=reference,
        program=programs[0][0],
        companions=tuple(program for program, _ in programs[1:]),
        program_references=tuple(program_reference for _, program_reference in programs),
    )


def _program(reference: str, at: int, origin: Origin, directory: Path) -> tuple[MailProgram, str]:
    """Return the mail program with this name or path, and its name or absolute path."""
    found = locate("programs", reference, directory)
    if found is None:
        raise origin.error(("topology", at, "program"), expected_program(), reference)
    program = load_program(reference, directory)
    return program, reference if reference in known("programs") else str(found[0].resolve())


def _check_programs(topology: Sequence[Group], origin: Origin) -> None:
    """Check that each name has one program, and each user each program once: results name programs."""
    named: dict[str, MailProgram] = {}
    for at, group in enumerate(topology):
        names = [program.name for program in group.programs]
        for program in group.programs:
            if named.setdefault(program.name, program) != program:
                raise origin.error(("topology", at, "program"), "a name for each program", program.name)
            if names.count(program.name) > 1:
                found = f"{show(program.name)} twice"
                raise origin.error_saying(("topology", at, "program"), "each mail program once", found)


def _with_submission(client: Client, topology: Sequence[Group]) -> Client:
    """Return the client with the programs' SMTP driver, unless the scenario states one or the programs differ."""
    drivers = {group.program.submission for group in topology}
    return client if client.submission or len(drivers) > 1 else replace(client, submission=drivers.pop())


def _with_connection(server: Server | Literal["embedded"], topology: Sequence[Group]) -> Server | Literal["embedded"]:
    """Return the server with the programs' way to connect to SMTP, unless the scenario states it or they differ."""
    ways = {group.program.connection for group in topology}
    if not isinstance(server, Server) or server.smtp.connection is not None or len(ways) > 1:
        return server
    return replace(server, smtp=replace(server.smtp, connection=ways.pop()))


def _check_profiles(topology: Sequence[Group], origin: Origin) -> None:
    """Check that each name has one profile, and that all profiles have the same length of day and of night."""
    first = topology[0].profile
    named: dict[str, Profile] = {}
    for at, group in enumerate(topology):
        key = ("topology", at, "profile")
        if named.setdefault(group.profile_name, group.profile) != group.profile:
            raise origin.error(key, "a name for each profile", group.profile_name)
        if group.profile.day_s != first.day_s:
            found = f"one of {_seconds(group.profile.day_s)}"
            raise origin.error_saying(key, f"profiles with a day of {_seconds(first.day_s)}", found)
        if group.profile.night_s != first.night_s:
            found = f"one of {_seconds(group.profile.night_s)}"
            raise origin.error_saying(key, f"profiles with a night of {_seconds(first.night_s)}", found)


def _server(document: _Document, origin: Origin, directory: Path) -> Server | Literal["embedded"]:
    if not isinstance(document.server, Server):
        return document.server
    return resolve_server(document.server, document.accounts, document.allow_hosts, origin, directory)


def _accounts(
    document: _Document, users: int, origin: Origin, directory: Path, passwords: bool
) -> AccountPattern | AccountTable:
    if document.accounts is None:
        if document.server != EMBEDDED:
            raise origin.error(("accounts",), "the accounts of a server that is not embedded", None)
        return AccountPattern()
    if document.server == EMBEDDED and not document.accounts.has_password:
        raise origin.error_saying(("accounts",), "passwords, which the embedded server needs", "none")
    return resolve_accounts(document.accounts, document.domain, users, origin, directory, passwords)


def _mailbox(section: Mailbox, topology: Sequence[Group], origin: Origin) -> Mailbox:
    """Check that the profiles' folders, if they remain, have few levels with the section's `fan_out`."""
    for group in topology if section.folders is None else ():
        if levels(group.profile.start_state.folders, section.fan_out) > DEEPEST:
            expected = f"a number that gives at most {DEEPEST} levels of folders"
            raise origin.error(("mailbox", "fan_out"), expected, section.fan_out)
    return section


def _criteria(document: _Document, topology: Sequence[Group], origin: Origin) -> Criteria:
    planned: dict[str, set[str]] = {}
    for group in topology:
        planned.setdefault(group.module, set()).update(planned_tasks(group.profile))
    return read_criteria(document.criteria, planned, document.run.mode == STRESS, origin)


def _resolve_lists(shape: ListsSection, topology: Sequence[Group], origin: Origin) -> Lists:
    """Take from the profiles what the scenario leaves open. Raises `ConfigError` if the profiles differ in it."""
    rules = {group.profile.lists: group.profile_name for group in topology}
    counted = shape.count is not None or shape.cover is not None
    unlike = {(None if counted else (rule.count, rule.cover), None if shape.size else rule.size) for rule in rules}
    if len(unlike) > 1:
        expected = "what the profiles do not agree on, such as {count: 30, size: {min: 2, average: 10, max: 20}}"
        raise origin.error_saying(("lists",), expected, f"other lists in {' than in '.join(rules.values())}")
    rule = topology[0].profile.lists
    return Lists(
        count=shape.count if counted else rule.count,
        cover=shape.cover if counted else rule.cover,
        size=shape.size or rule.size,
        population=shape.population,
        seed=shape.seed,
    )


def _resolve_run(shape: RunSection, users: int, profile: Profile, origin: Origin) -> Run:
    """Fill in the lengths that the scenario leaves open, and check that the window lies in a day.

    The published procedure for an 8-hour run discards the first 2 hours and scores 4: a quarter and a half. With
    nights, they are a quarter and a half of one day: a rate over days and nights would describe neither.
    """
    # Compute the lengths of day, night and run.
    day_length_s = profile.day_s if shape.day_length_s is None else shape.day_length_s
    night_length_s = 0.0 if shape.mode == STRESS else profile.night_s * day_length_s / profile.day_s
    cycle_s, days = day_length_s + night_length_s, shape.days or 1
    duration_s = days * cycle_s if shape.duration_s is None else shape.duration_s
    if duration_s > LONGEST_S:
        expected = f"a run of at most {_seconds(LONGEST_S)}"
        raise origin.error_saying(("run", "days"), expected, f"{days} days of {_seconds(cycle_s)}")

    # Find the time that the window may lie in: the run, or one of its days.
    begin_s, end_s, within = 0.0, duration_s, f"the run of {_seconds(duration_s)}"
    if night_length_s:
        last_whole = (duration_s + night_length_s) // cycle_s - 1
        number = max(0.0, last_whole) if shape.warm_up_s is None else shape.warm_up_s // cycle_s
        begin_s = number * cycle_s
        end_s = min(begin_s + day_length_s, duration_s)
        within = f"a day of {_seconds(day_length_s)}, before its night"

    # Place the window in it.
    length_s = end_s - begin_s
    warm_up_s = begin_s + length_s / 4 if shape.warm_up_s is None else shape.warm_up_s
    window_s = min(length_s / 2, end_s - warm_up_s) if shape.window_s is None else shape.window_s
    if window_s <= 0 or warm_up_s + window_s > end_s + 1e-9:
        expected = f"warm_up and window to end within {within}"
        found = f"{_seconds(warm_up_s)} and {_seconds(max(window_s, 0))}"
        raise origin.error_saying(("run", "window" if shape.window_s else "warm_up"), expected, found)
    return Run(
        day_length_s=day_length_s,
        duration_s=duration_s,
        ramp_up_s=max(1.0, users / 50) if shape.ramp_up_s is None else shape.ramp_up_s,
        warm_up_s=warm_up_s,
        window_s=window_s,
        seed=shape.seed,
        mode=shape.mode,
        night_length_s=night_length_s,
    )
