"""What a run is: which server, which users, how long a day is, what counts as passed; read from `scenarios/`.

A scenario is first a document, on which `--set` works, and then one resolved value that has every default in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import PlainValidator, TypeAdapter

from loadsim.errors import ConfigError
from loadsim.model.abort import AbortOn as AbortOn
from loadsim.model.accounts import AccountPattern, AccountTable, Domain, read_table
from loadsim.model.client import Client as Client
from loadsim.model.criteria import Criteria as Criteria
from loadsim.model.criteria import documents, planned_tasks, read_criteria, unfolded
from loadsim.model.distribution import Distribution, SpreadOfCounts
from loadsim.model.losses import Losses
from loadsim.model.ports import Account
from loadsim.model.profile import (
    Profile,
    expected_profile,
    load_profile,
    load_weights,
    read_weights,
)
from loadsim.model.scenario_sections import GeneratorLimits as GeneratorLimits
from loadsim.model.scenario_sections import Limits as Limits
from loadsim.model.schema import (
    LONGEST_S,
    Count,
    Duration,
    OrWord,
    Positive,
    Share,
    SomeDuration,
    Text,
    strict,
    word,
)
from loadsim.model.server import Server as Server
from loadsim.model.server import is_loopback
from loadsim.model.terms import CANONICAL, MOST_USERS, STRESS, UNSCORED
from loadsim.model.yaml_reader import (
    Origin,
    beside,
    known,
    locate,
    override,
    parse,
    read_file,
    refused,
    show,
    write_yaml,
)
from loadsim.passwords import from_command, from_environment, from_file, open_to_others

EMBEDDED: Literal["embedded"] = "embedded"
MASK = "***"
"""What stands for a password in a scenario that is written down."""


# --- users, lists, time -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Group:
    """Users of one profile through one client module; `reference` is what names the profile in a file."""

    profile: Profile
    profile_name: str
    users: int
    protocol: str = "imap"
    reference: str = ""


@dataclass(frozen=True, slots=True)
class Lists:
    """Distribution lists: `count` of them, or to `cover` a share of the population (None: the users).

    The seed is their own: they stay the same when a run's seed or its number of users changes.
    """

    count: int | None
    cover: float | None
    size: Distribution
    population: int | None = None
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Run:
    """How long: `duration_s` of days of `day_length_s`; log-ons spread over `ramp_up_s` before the common start.

    After each day comes a night of `night_length_s`; a day and its night are a cycle. What is due from `warm_up_s` on,
    for `window_s`, both from the common start, is scored. In `mode` stress every user does his plan's activities one
    after the other, without a pause, and without nights.
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
        """Return how many days with their nights the run lasts."""
        return self.duration_s / (self.day_length_s + self.night_length_s)

    @property
    def active_s(self) -> float:
        """Return how much of the run is day."""
        if not self.night_length_s:
            return self.duration_s
        cycles, rest_s = divmod(self.duration_s, self.day_length_s + self.night_length_s)
        return cycles * self.day_length_s + min(rest_s, self.day_length_s)

    @property
    def days(self) -> float:
        """Return how many days the run has, nights left out."""
        return self.active_s / self.day_length_s


PASSWORDS = ("password", "password_file", "password_env", "password_command")
"""The sources of the pattern of the passwords."""


@strict
@dataclass(frozen=True, slots=True)
class _Accounts:
    user: Text | None = None
    password: Text | None = None
    password_file: Text | None = None
    password_env: Text | None = None
    password_command: Text | None = None
    csv: Text | None = None
    manifest_key: Text | None = None

    def __post_init__(self) -> None:
        sources = [source for source in PASSWORDS if getattr(self, source) is not None]
        if self.csv is not None and (self.user is not None or sources):
            raise refused("either csv, or user and password", "both")
        if len(sources) > 1:
            raise refused(f"one of {', '.join(PASSWORDS)}", f"{' and '.join(sources)}")
        if self.csv is None and (self.user is None or not sources):
            found = "only a password" if sources else "only a user" if self.user else "neither"
            raise refused("either csv, or user and password", found)


def _protocol(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[a-z][a-z0-9_-]*", value):
        raise refused("the name of a client module such as imap")
    return value


@strict
@dataclass(frozen=True, slots=True)
class _Group:
    profile: Text
    users: Positive
    protocol: Annotated[str, PlainValidator(_protocol)] = "imap"


@strict
@dataclass(frozen=True, slots=True)
class _Lists:
    count: Count | None = None
    cover: Share | None = None
    size: SpreadOfCounts | None = None
    population: Positive | None = None
    seed: Count = 1

    def __post_init__(self) -> None:
        if self.count is not None and self.cover is not None:
            raise refused("either count or cover", "both")
        if self.size is not None and self.size.min < 1:
            raise refused("lists of at least 1 member", show(self.size.min), at=("size", "min"))


@strict
@dataclass(frozen=True, slots=True)
class _Run:
    day_length_s: SomeDuration | None = None
    days: Positive | None = None
    duration_s: SomeDuration | None = None
    ramp_up_s: Duration | None = None
    warm_up_s: Duration | None = None
    window_s: SomeDuration | None = None
    seed: Count = 1
    mode: Annotated[str, word(CANONICAL, STRESS)] = CANONICAL

    def __post_init__(self) -> None:
        if self.days is not None and self.duration_s is not None:
            raise refused("either days or duration", "both")


# --- the scenario -----------------------------------------------------------------------------------------------


def _weights(value: object) -> dict[str, float]:
    given, own = read_weights(value), load_weights()
    for task in given:
        if task not in own and task not in UNSCORED:
            raise refused(f"one of the tasks {', '.join((*own, *UNSCORED))}", show(task), at=(task,))
    weights = {**own, **given}
    if not any(weights.values()):
        raise refused("a weight above 0", "none")
    return weights


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    name: Text | None = None
    server: Annotated[Server | Literal["embedded"], OrWord(EMBEDDED, Server)]
    domain: Domain = "loadsim.test"
    accounts: _Accounts | None = None
    topology: tuple[_Group, ...]
    lists: _Lists = field(default_factory=_Lists)
    run: _Run = field(default_factory=_Run)
    client: Client = field(default_factory=Client)
    initialise: Annotated[str, word("auto", "always", "never")] = "auto"
    weights: Annotated[dict[str, float], PlainValidator(_weights)] = field(default_factory=load_weights)
    criteria: Any = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    abort_on: AbortOn = field(default_factory=AbortOn)
    cluster: Losses = field(default_factory=Losses)
    allow_hosts: tuple[Text, ...] = ()

    def __post_init__(self) -> None:
        if not self.topology:
            raise refused("a list of at least one group", "none", at=("topology",))


_DOCUMENT = TypeAdapter(_Document)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that says what a run is, with nothing left to be looked up."""

    name: str
    server: Server | Literal["embedded"]
    domain: str
    accounts: AccountPattern | AccountTable
    topology: tuple[Group, ...]
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
    """Warnings, one for each way in which others may read a password."""

    @property
    def in_the_clear(self) -> tuple[str, ...]:
        """Return a warning for each endpoint off this machine that is sent passwords without TLS."""
        if not isinstance(self.server, Server):
            return ()
        sent = {"IMAP": self.server.imap} | ({"SMTP": self.server.smtp} if self.server.smtp.auth else {})
        return tuple(
            f"passwords go to {service} at {endpoint.host}:{endpoint.port} in the clear (tls: none)"
            for service, endpoint in sent.items()
            if endpoint.tls == "none" and not is_loopback(endpoint.host)
        )

    @property
    def users(self) -> int:
        """How many users the groups have together."""
        return sum(group.users for group in self.topology)

    @property
    def duration_s(self) -> float:
        """From the common start to the end."""
        return self.run.duration_s

    @property
    def compression(self) -> float:
        """How many times faster than the profiles' day the simulated one goes by."""
        return self.topology[0].profile.day_s / self.run.day_length_s

    def account(self, index: int) -> Account:
        """The account of user `index`, from 1."""
        return self.accounts.account(index, self.domain)

    def digest(self) -> str:
        """SHA-256 over what says what load is made: users, what they do and how, lists, length of the day, seeds.

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
            }
            for group in self.topology
        ]
        for group in groups:
            if not group["profile"]["night_s"]:  # as it was before there were nights
                del group["profile"]["night_s"]
        apart = ("warm_up_s", "window_s", "night_length_s")  # the night follows from the profiles
        run = {key: value for key, value in asdict(self.run).items() if key not in apart}
        if run["mode"] == CANONICAL:  # as it was before there was another
            del run["mode"]
        load = {
            "groups": groups,
            "lists": asdict(self.lists),
            "run": run,
            "submission": self.client.submission,
            "tls_resumption": self.client.tls_resumption,
            "empty_start": self.initialise == "never",
        }
        return sha256(json.dumps(load, sort_keys=True).encode()).hexdigest()

    def criteria_document(self) -> dict[str, dict[str, float] | None]:
        """The criteria as they stand in a file and in a log's header, those that are off with null."""
        return documents(self.criteria)

    def to_yaml(self) -> str:
        """This scenario as a file that `load_scenario` reads; passwords are masked, paths absolute."""
        return write_yaml(_document(self))


def _seconds(value: float) -> str:
    """A duration as it is written in a file, exactly."""
    return f"{value:.0f}s" if value == int(value) else f"{value:.17f}".rstrip("0") + "s"


def _document(scenario: Scenario) -> dict[str, Any]:
    run, limits = scenario.run, scenario.limits
    return {
        "name": scenario.name,
        "server": scenario.server if scenario.server == EMBEDDED else _server_document(scenario.server),
        "domain": scenario.domain,
        "accounts": (
            {"csv": scenario.accounts.csv}
            if isinstance(scenario.accounts, AccountTable)
            else {"user": scenario.accounts.user, "password": MASK}
        )
        | ({"manifest_key": MASK} if scenario.account(1).manifest_key is not None else {}),
        "topology": [
            {"profile": group.reference or group.profile_name, "users": group.users, "protocol": group.protocol}
            for group in scenario.topology
        ],
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
        "criteria": scenario.criteria_document(),
        "limits": {
            "lost_users": limits.lost_users,
            "done": limits.done,
            "load": limits.load,
            "hits": limits.hits,
            "window": _seconds(limits.window_s),
            "command": _seconds(limits.command_s),
            "grace": _seconds(limits.grace_s),
            "drain": _seconds(limits.drain_s),
            "generator": asdict(limits.generator),
        },
        "abort_on": {
            "failed_share": scenario.abort_on.failed_share,
            "lost_users": scenario.abort_on.lost_users,
            "sessions_lost": scenario.abort_on.sessions_lost,
            "period": _seconds(scenario.abort_on.period_s),
        },
        "cluster": {
            "on_client_loss": scenario.cluster.on_client_loss,
            "on_control_loss": scenario.cluster.on_control_loss,
            "control_limit": _seconds(scenario.cluster.control_limit_s),
        },
        "allow_hosts": list(scenario.allow_hosts),
    }


def _server_document(server: Server) -> dict[str, Any]:
    imap, smtp = asdict(server.imap), asdict(server.smtp)
    where = ("host", "port", "tls", "ca_file")
    return {
        "imap": {key: imap[key] for key in where},
        "smtp": {key: smtp[key] for key in (*where, "connection", "auth")},
    }


# --- reading ----------------------------------------------------------------------------------------------------


def load_scenario(reference: str, overrides: Sequence[str] = (), *, passwords: bool = True) -> Scenario:
    """Read the scenario that a bare name or a path means, with settings such as `topology.0.users=200`.

    Without `passwords`, none is fetched: a scenario from others may name any command. Raises ConfigError, one line, for
    an invalid scenario.
    """
    found = locate("scenarios", reference, None)
    if found is None:
        names = ", ".join(known("scenarios"))
        raise ConfigError(f"scenario: expected one of {names}, or the path of a .yaml file, found {show(reference)}")
    path, name = found
    document = read_file(path, name)
    if "criteria" in document:  # a setting of one of them finds it, however it is written
        document["criteria"] = unfolded(document["criteria"], Origin(name))
    origin = Origin(name, override(document, overrides))
    _prefer_set_password(document, origin)
    return _resolve(parse(_DOCUMENT, document, origin), origin, path, passwords)


def _prefer_set_password(document: dict[str, Any], origin: Origin) -> None:
    """Remove the file's source of the passwords if the command line names one."""
    chosen = {source for source in PASSWORDS if ("accounts", source) in origin.overridden}
    accounts = document.get("accounts")
    if chosen and isinstance(accounts, dict):
        for source in PASSWORDS:
            if source not in chosen:
                accounts.pop(source, None)


def _resolve(document: _Document, origin: Origin, path: Path, passwords: bool) -> Scenario:
    """Look up what the document refers to, fill in what it leaves open, and check what must fit together."""
    topology = tuple(_group(group, at, origin, path.parent) for at, group in enumerate(document.topology))
    _check_profiles(topology, origin)
    users = sum(group.users for group in topology)
    if users > MOST_USERS:
        raise origin.refuse_showing(("topology",), f"at most {MOST_USERS} users", show(users))
    return Scenario(
        name=document.name or path.stem,
        server=_server(document, origin, path.parent),
        domain=document.domain,
        accounts=_resolve_accounts(document, users, origin, path.parent, passwords),
        topology=topology,
        lists=_resolve_lists(document.lists, topology, origin),
        run=_resolve_run(document.run, users, topology[0].profile, origin),
        client=document.client,
        initialise=document.initialise,
        weights=document.weights,
        criteria=_criteria(document, topology, origin),
        limits=document.limits,
        abort_on=document.abort_on,
        cluster=document.cluster,
        allow_hosts=document.allow_hosts,
        exposed=_exposed(document.accounts, origin, path.parent),
    )


def _group(shape: _Group, at: int, origin: Origin, directory: Path) -> Group:
    found = locate("profiles", shape.profile, directory)
    if found is None:
        raise origin.refuse(("topology", at, "profile"), expected_profile(), shape.profile)
    reference = shape.profile if shape.profile in known("profiles") else str(found[0].resolve())
    profile = load_profile(shape.profile, directory)
    return Group(profile, profile.name, shape.users, shape.protocol, reference)


def _check_profiles(topology: Sequence[Group], origin: Origin) -> None:
    """One name means one profile, and there is one length of a day, and of a night, to compress."""
    first = topology[0].profile
    named: dict[str, Profile] = {}
    for at, group in enumerate(topology):
        key = ("topology", at, "profile")
        if named.setdefault(group.profile_name, group.profile) != group.profile:
            raise origin.refuse(key, "a name for each profile", group.profile_name)
        if group.profile.day_s != first.day_s:
            found = f"one of {_seconds(group.profile.day_s)}"
            raise origin.refuse_showing(key, f"profiles with a day of {_seconds(first.day_s)}", found)
        if group.profile.night_s != first.night_s:
            found = f"one of {_seconds(group.profile.night_s)}"
            raise origin.refuse_showing(key, f"profiles with a night of {_seconds(first.night_s)}", found)


def _server(document: _Document, origin: Origin, directory: Path) -> Server | Literal["embedded"]:
    server = document.server
    if not isinstance(server, Server):
        return server
    allowed = {host.lower() for host in document.allow_hosts}
    found = {"imap": server.imap, "smtp": server.smtp}
    for service, endpoint in found.items():
        if not is_loopback(endpoint.host) and endpoint.host.lower() not in allowed:
            expected = "a loopback address, or a host that stands in allow_hosts"
            raise origin.refuse(("server", service, "host"), expected, endpoint.host)
        if endpoint.ca_file is not None:
            ca_file = beside(endpoint.ca_file, directory)
            if not ca_file.is_file():
                raise origin.refuse(("server", service, "ca_file"), "a file", endpoint.ca_file)
            if endpoint.tls == "none":  # whoever names an authority does not want passwords to go in the clear
                key = ("server", service, "tls")
                raise origin.refuse(key, "starttls or implicit where there is a ca_file", endpoint.tls)
            found[service] = replace(endpoint, ca_file=str(ca_file.resolve()))
    return Server(**found)


def _exposed(shape: _Accounts | None, origin: Origin, directory: Path) -> tuple[str, ...]:
    """Return warnings, one for each way in which others may read a password."""
    found = []
    if ("accounts", "password") in origin.overridden or ("accounts",) in origin.overridden:
        others = ", ".join(PASSWORDS[1:])
        found.append(f"--set accounts.password: other users can see it (ps), and shells keep it: use one of {others}")
    for key in ("password_file", "csv"):
        named = shape and getattr(shape, key)
        if named and open_to_others(path := beside(named, directory)):
            found.append(f"accounts.{key}: {path}: others can read it; chmod 600 ends that")
    return tuple(found)


def _password(shape: _Accounts, origin: Origin, directory: Path, fetched: bool) -> str:
    """Return the pattern of the passwords from the source that the scenario names."""
    if shape.password is not None or not fetched:
        return shape.password or MASK
    if shape.password_file is not None:
        return from_file(beside(shape.password_file, directory), origin.where(("accounts", "password_file")))
    if shape.password_env is not None:
        return from_environment(shape.password_env, origin.where(("accounts", "password_env")))
    return from_command(shape.password_command or "", origin.where(("accounts", "password_command")))


def _resolve_accounts(
    document: _Document, users: int, origin: Origin, directory: Path, passwords: bool
) -> AccountPattern | AccountTable:
    shape = document.accounts
    if shape is None:
        if document.server != EMBEDDED:
            raise origin.refuse(("accounts",), "the accounts of a server that is not embedded", None)
        return AccountPattern()
    if shape.csv is not None:
        table = read_table(beside(shape.csv, directory), document.domain, shape.manifest_key)
        if len(table.rows) < users:
            found = f"{len(table.rows)} rows"
            raise origin.refuse_showing(("accounts", "csv"), f"a row for each of {users} users", found)
        return table
    password = _password(shape, origin, directory, passwords)
    pattern = AccountPattern(shape.user or "", password, shape.manifest_key)
    problem = pattern.problem(document.domain, users)
    if problem:
        raise origin.refuse(("accounts", "user"), problem, pattern.user)
    return pattern


def _criteria(document: _Document, topology: Sequence[Group], origin: Origin) -> Criteria:
    planned: dict[str, set[str]] = {}
    for group in topology:
        planned.setdefault(group.protocol, set()).update(planned_tasks(group.profile))
    return read_criteria(document.criteria, planned, document.run.mode == STRESS, origin)


def _resolve_lists(shape: _Lists, topology: Sequence[Group], origin: Origin) -> Lists:
    """What the scenario does not say of the lists, its profiles say; if they agree."""
    rules = {group.profile.lists: group.profile_name for group in topology}
    counted = shape.count is not None or shape.cover is not None
    unlike = {(None if counted else (rule.count, rule.cover), None if shape.size else rule.size) for rule in rules}
    if len(unlike) > 1:
        expected = "what the profiles do not agree on, such as {count: 30, size: {min: 2, average: 10, max: 20}}"
        raise origin.refuse_showing(("lists",), expected, f"other lists in {' than in '.join(rules.values())}")
    rule = topology[0].profile.lists
    return Lists(
        count=shape.count if counted else rule.count,
        cover=shape.cover if counted else rule.cover,
        size=shape.size or rule.size,
        population=shape.population,
        seed=shape.seed,
    )


def _resolve_run(shape: _Run, users: int, profile: Profile, origin: Origin) -> Run:
    """Fill in the lengths that the scenario leaves open, and check that the window lies in a day.

    The published procedure for an 8-hour run discards the first 2 hours and scores 4: a quarter, and half. Where there
    are nights, these are parts of one day instead: the window lies in one, or tasks per second would be of both.
    """
    day_length_s = profile.day_s if shape.day_length_s is None else shape.day_length_s
    night_length_s = 0.0 if shape.mode == STRESS else profile.night_s * day_length_s / profile.day_s
    cycle_s, days = day_length_s + night_length_s, shape.days or 1
    duration_s = days * cycle_s if shape.duration_s is None else shape.duration_s
    if duration_s > LONGEST_S:
        expected = f"a run of at most {_seconds(LONGEST_S)}"
        raise origin.refuse_showing(("run", "days"), expected, f"{days} days of {_seconds(cycle_s)}")

    # The time that the window may lie in: the run, or one of its days.
    begin_s, end_s, within = 0.0, duration_s, f"the run of {_seconds(duration_s)}"
    if night_length_s:
        last_whole = (duration_s + night_length_s) // cycle_s - 1
        number = max(0.0, last_whole) if shape.warm_up_s is None else shape.warm_up_s // cycle_s
        begin_s = number * cycle_s
        end_s = min(begin_s + day_length_s, duration_s)
        within = f"a day of {_seconds(day_length_s)}, before its night"

    length_s = end_s - begin_s
    warm_up_s = begin_s + length_s / 4 if shape.warm_up_s is None else shape.warm_up_s
    window_s = min(length_s / 2, end_s - warm_up_s) if shape.window_s is None else shape.window_s
    if window_s <= 0 or warm_up_s + window_s > end_s + 1e-9:
        expected = f"warm_up and window to end within {within}"
        found = f"{_seconds(warm_up_s)} and {_seconds(max(window_s, 0))}"
        raise origin.refuse_showing(("run", "window" if shape.window_s else "warm_up"), expected, found)
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
