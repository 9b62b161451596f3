"""The search for the largest number of users that passes: each step is a whole run, here or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from loadsim.analysis.summary import Summary
from loadsim.build_fingerprint import build_fingerprint
from loadsim.campaign.file import RUNS, finished_summary, own_directory, resumed, write
from loadsim.campaign.quiet_down import PAUSE_S, QUIET_DOWN, QuietDown, default_pause_s
from loadsim.campaign.runner import UNWATCHED, CampaignWatcher, Making, PlannedRun, Runner
from loadsim.campaign.runs import VOID, CampaignRun
from loadsim.capacity.capacity import Capacity, SearchTerms
from loadsim.capacity.search import AGREEING, EVIDENCE, Settings, next_step
from loadsim.dryrun.forecast import forecast
from loadsim.dryrun.plan_cache import planned_load
from loadsim.errors import ConfigError, RunInvalid
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.severity import Severity
from loadsim.model.terms import MOST_USERS, STRESS
from loadsim.runs.local import check_machine, run_locally
from loadsim.scenario.criteria import refuse_monitors
from loadsim.scenario.population import resized
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.server import Server
from loadsim.version import __version__

COARSE = 8
"""By default, the first number is the maximum divided by this: three doublings below it."""

MOST_VOID = 2
"""The search stops after this many void runs in a row with one number; when resumed, it measures the number again."""

Overridden = Callable[[Sequence[str]], Scenario]
"""Reads the scenario with further settings, such as `topology.0.users=200`. Raises `ConfigError`."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A user's requests; None is the default.

    `quick`: two equal results end the search, usually without an interval. `clients` is the number of clients if the
    runner makes the steps on a cluster. `pause_s` defaults to `default_pause_s`, or to `PAUSE_S` on a cluster.
    """

    first: int | None = None
    most: int | None = None
    width: float = 0.2
    pause_s: float | None = None
    engines: int | None = None
    pin: bool = False
    clients: int | None = None
    quick: bool = False


def find_capacity(
    read: Overridden,
    wanted: Wanted,
    out: Path | None = None,
    *,
    runner: Runner | None = None,
    watcher: CampaignWatcher = UNWATCHED,
    quiet_down: QuietDown = QUIET_DOWN,
    finished: Callable[[Path], Summary | None] = finished_summary,
) -> Capacity:
    """Search in the directory `out`, new or with an unfinished search; None creates one in `runs`.

    `runner` makes the runs; None makes them on this machine. `finished` reads a run that a crash left behind.

    Raises `ConfigError` for a fault found before a run, and `RunInvalid` if two runs with one number are invalid for
    reasons other than server or generator, or if a send queue is not empty; the search can then be resumed. Raises
    `Interrupted`, even if the last run had done its work when a signal arrived.
    """
    scenario = read(())
    if scenario.run.mode == STRESS:
        raise ConfigError(f"{scenario.name}: run.mode: expected canonical for a search, found {STRESS}")
    refuse_monitors(scenario.criteria, scenario.monitors, f"{scenario.name}: ")
    terms = _terms(scenario, wanted)
    most = terms.settings.most

    def sized(users: int) -> Scenario:
        return read(resized(scenario, users, most))

    def check(scenario: Scenario) -> None:
        if runner is None:  # other machines do their own checks
            check_machine(scenario, engines=terms.engines, pin=terms.pin)

    sized(most)  # check the accounts before anything is measured

    with own_directory(out, f"capacity-{scenario.name}") as out:
        capacity = resumed(Capacity(out, terms, ()), may_change=("settings.evidence",))
        if not capacity.runs:
            check(sized(most))  # now rather than after hours
        write(capacity)
        making = Making(
            runner=runner or partial(run_locally, engines=terms.engines, pin=terms.pin),
            pause_s=terms.pause_s,
            goes_on=False,
            on_cluster=terms.clients is not None,
            watcher=watcher,
            quiet_down=quiet_down,
            finished=finished,
        )
        capacity = making.all(capacity, _Search(sized, check, watcher, len(capacity.runs)).next_run)
        write(capacity)
    return capacity


@dataclass(frozen=True, slots=True)
class _Search:
    """Plans the runs of a search.

    `sized` returns the scenario with a number of users. `check` raises `ConfigError` if this machine cannot run it. The
    first `resumed` runs do not count in a series of void ones.
    """

    sized: Callable[[int], Scenario]
    check: Callable[[Scenario], None]
    watcher: CampaignWatcher
    resumed: int

    def next_run(self, capacity: Capacity) -> tuple[Capacity, PlannedRun | None]:
        """Return the search and its next run, or the ended search and None.

        Raises `ConfigError` if no run can be made at all, and `RunInvalid` if the search cannot go on.
        """
        settings, made = capacity.terms.settings, capacity.runs[self.resumed :]
        last = [run for run in made if run.users == made[-1].users][-MOST_VOID:]
        if [run.result for run in last] == [VOID] * MOST_VOID:
            reasons, place = "; ".join(last[-1].reasons), capacity.directory / last[-1].run
            raise RunInvalid(
                f"the search stops without a capacity: {last[-1].users} users were invalid twice: {reasons} ({place})"
            )
        while isinstance(users := next_step(capacity.runs, settings, capacity.refused_users), int):
            scenario = self.sized(users)
            number = 1 + sum(run.users == users for run in capacity.runs)
            directory = f"{RUNS}/{users:05d}-{number}"
            run = CampaignRun(directory, f"{users} users", users, len(capacity.runs) + 1, number)
            if (capacity.directory / directory).exists() or not (why := self._refused(scenario)):
                return capacity, PlannedRun(run, scenario, f"Run {run.number}: {users:,} users")
            capacity = _with_refused(capacity, users, why)
        return replace(capacity, found=users), None

    def _refused(self, scenario: Scenario) -> tuple[Finding, ...]:
        """Return why this machine, or the plan, rules out a valid run; () if one is possible."""
        try:
            self.check(scenario)
        except ConfigError as error:
            return (finding(Code.MACHINE_LACKS, why=str(error)),)
        with self.watcher.watch(scenario) as watcher:
            watcher.stage("plan")
            load = planned_load(
                scenario, build_fingerprint(), watcher.message, watcher.warning, progress=watcher.planned
            )
            findings = forecast(scenario, load)
        return tuple(finding for finding in findings if finding.severity is Severity.INVALID)


def _terms(scenario: Scenario, wanted: Wanted) -> SearchTerms:
    """Return the terms of a search, with defaults filled in. Raises `ConfigError` for numbers that do not fit."""
    # Mail needs two users; each group and each engine needs one.
    least = max(2, len(scenario.topology), wanted.engines or 1)
    most = scenario.users if wanted.most is None else wanted.most
    first = max(least, most // COARSE) if wanted.first is None else wanted.first
    if wanted.engines is not None and wanted.engines > most:
        raise ConfigError(f"--engines: expected a number from 1 to {most}, found {wanted.engines}")
    for option, value, highest in (("--most", most, MOST_USERS), ("--from", first, most)):
        if not least <= value <= highest:
            why = f" (one for each of {wanted.engines} --engines)" if least == wanted.engines else ""
            raise ConfigError(f"{option}: expected a number from {least} to {highest} users{why}, found {value}")
    default_s = default_pause_s(scenario) if wanted.clients is None else PAUSE_S
    document = f"{scenario.to_yaml()}{scenario.digest()}"
    return SearchTerms(
        software=f"loadsim {__version__}",
        name=scenario.name,
        scenario=sha256(document.encode()).hexdigest(),
        seed=scenario.run.seed,
        embedded=not isinstance(scenario.server, Server),
        day_s=scenario.run.day_length_s,
        compression=scenario.compression,
        score_limit_ms=_limit(scenario, "score_ms"),
        response_score_limit_ms=_limit(scenario, "response_score_ms"),
        settings=Settings(first, most, least, wanted.width, evidence=AGREEING if wanted.quick else EVIDENCE),
        pause_s=default_s if wanted.pause_s is None else wanted.pause_s,
        engines=wanted.engines,
        pin=wanted.pin,
        clients=wanted.clients,
    )


def _limit(scenario: Scenario, name: str) -> float | None:
    bound = scenario.criteria.get(name)
    return min((limit for limit in (bound.max, bound.below) if limit is not None), default=None) if bound else None


def _with_refused(capacity: Capacity, users: int, why: Sequence[Finding]) -> Capacity:
    """Exclude a number from a search. Raises `ConfigError` if no number, or already this one, was measured."""
    if not capacity.runs or any(run.users == users for run in capacity.runs):
        raise ConfigError(f"{users} users: {'; '.join(reason.text for reason in why)}")
    refused = finding(Code.NUMBER_REFUSED, users=users, why=tuple(reason.words for reason in why))
    return replace(capacity, refused=(*capacity.refused, refused))
