"""The search for the largest number of users that passes: each step is a whole run, here or on a cluster."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Any

from loadsim.analysis.capacity import Capacity, Refused, Terms
from loadsim.analysis.capacity_search import (
    AGREEING,
    EVIDENCE,
    VOID,
    Found,
    Measure,
    NoAnswer,
    Settings,
    next_step,
)
from loadsim.analysis.capacity_step import MeasuredStep
from loadsim.analysis.verdict import ENDED
from loadsim.cluster.build_fingerprint import build_fingerprint
from loadsim.dryrun.forecast import not_valid
from loadsim.dryrun.plan_cache import planned_load
from loadsim.engine.signals import noticed_signals
from loadsim.errors import ConfigError, RunInvalid
from loadsim.model.criteria import refuse_monitors
from loadsim.model.scenario import Scenario
from loadsim.model.scenario_server import Server
from loadsim.model.terms import MOST_USERS, STRESS
from loadsim.runs.capacity_file import FILE_NAME, STEPS, resumed, write
from loadsim.runs.directory import dated, hand_over
from loadsim.runs.local import check_machine, run_locally
from loadsim.runs.quiet_down import PAUSE_S, QUIET_DOWN, QuietDown, default_pause_s
from loadsim.runs.result import RunResult
from loadsim.runs.resumable import Interrupted, finished_score, own_directory, set_aside
from loadsim.runs.watcher import SILENT, Watcher
from loadsim.version import __version__

COARSE = 8
"""The first number is this part of the most by default: three doublings before the last."""

Overridden = Callable[[Sequence[str]], Scenario]
"""Reads the scenario with further settings, such as `topology.0.users=200`. Raises `ConfigError`."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The wishes of a user; None is the default. `steps` are the only numbers to measure, if any.

    `quick`: two equal results end the search. The interval is then not stated in general. `clients` are those of the
    cluster on which the runner makes the steps. `pause_s` is by default `default_pause_s`, on a cluster `PAUSE_S`.
    """

    first: int | None = None
    most: int | None = None
    steps: tuple[int, ...] = ()
    width: float = 0.2
    pause_s: float | None = None
    engines: int | None = None
    pin: bool = False
    clients: int | None = None
    quick: bool = False


Runner = Callable[[Scenario, Path, Watcher], RunResult]
"""Makes a run in a new directory. Raises `ConfigError` and `RunInvalid`."""

Watch = Callable[[Scenario], AbstractContextManager[Watcher]]
"""Returns the watcher of a step with this scenario, for as long as the block."""


def find_capacity(
    read: Overridden,
    wanted: Wanted,
    out: Path | None = None,
    *,
    runner: Runner | None = None,
    watch: Watch = lambda _: nullcontext(SILENT),
    begun: Callable[[Capacity], None] = lambda _: None,
    began_step: Callable[[Measure], None] = lambda _: None,
    ended_step: Callable[[MeasuredStep], None] = lambda _: None,
    quiet_down: QuietDown = QUIET_DOWN,
) -> Capacity:
    """Search in the directory `out`, new or with an unfinished search; None creates one in `runs`.

    `runner` makes the runs; None makes them on this machine. `begun` receives the search with the steps that it already
    has, before the first step; `began_step` and `ended_step` are called around each step.

    Raises `ConfigError` for a fault found before a step, and `RunInvalid` if two runs with one number are invalid for
    other reasons than server or generator, or if a send queue is not empty; resumed, the search goes on. Raises
    `Interrupted`, also after a step that had done its work when a signal came.
    """
    signalled = noticed_signals()
    scenario = read(())
    if scenario.run.mode == STRESS:
        raise ConfigError(f"{scenario.name}: run.mode: expected canonical for a search, found {STRESS}")
    refuse_monitors(scenario.criteria, scenario.monitors, f"{scenario.name}: ")
    sizes = [group.users for group in scenario.topology]
    terms = _terms(scenario, wanted)
    make = runner or partial(_run_here, terms)
    check = partial(check_machine, engines=terms.engines, pin=terms.pin) if runner is None else _of_clients
    sized = _Sized(read, sizes, _common_keys(scenario, terms.settings.most))
    sized.scenario(terms.settings.most)  # check the accounts before anything is measured

    def measure(users: int, name: str) -> MeasuredStep | str:
        return _Measurement(sized.scenario(users), capacity, users, name, check, make, watch, quiet_down).step()

    with own_directory(out, dated(datetime.now(UTC), f"capacity-{scenario.name}"), FILE_NAME, "search") as out:
        capacity = _without_last_void(resumed(out, terms, keep_pause=wanted.pause_s is None))
        if not capacity.steps:
            check(sized.scenario(terms.settings.most))  # rather than after hours
        write(capacity)
        begun(capacity)

        while isinstance(step := _next_step(capacity), Measure):
            if signalled():
                raise Interrupted(kept=True)
            began_step(step)
            number = 1 + sum(each.users == step.users for each in capacity.steps)
            name = f"{STEPS}/{step.users:05d}-{number}"
            measured = measure(step.users, name)
            if isinstance(measured, str):
                capacity = _with_refused(capacity, Refused(step.users, measured))
                continue
            capacity = replace(capacity, steps=(*capacity.steps, measured))
            write(capacity)
            ended_step(measured)
        if isinstance(step, NoAnswer):
            raise _no_answer(capacity, step)
        assert isinstance(step, Found)
        capacity = replace(capacity, found=step)
        write(capacity)

        hand_over(out)
        return capacity


def _run_here(terms: Terms, scenario: Scenario, directory: Path, watcher: Watcher) -> RunResult:
    return run_locally(scenario, directory, engines=terms.engines, pin=terms.pin, watcher=watcher)


def _terms(scenario: Scenario, wanted: Wanted) -> Terms:
    """Return the terms of a search with their defaults. Raises `ConfigError` for numbers that do not fit."""
    # Mail needs two users, and each group and each engine one.
    least = max(2, len(scenario.topology), wanted.engines or 1)
    if wanted.steps:
        for option, value in (("--from", wanted.first), ("--most", wanted.most)):
            if value is not None:
                raise ConfigError(f"{option}: expected either it or --steps, found both")
        if sorted(set(wanted.steps)) != list(wanted.steps):
            raise ConfigError(f"--steps: expected rising numbers, found {','.join(map(str, wanted.steps))}")
    most = wanted.steps[-1] if wanted.steps else scenario.users if wanted.most is None else wanted.most
    first = wanted.steps[0] if wanted.steps else max(least, most // COARSE) if wanted.first is None else wanted.first
    if wanted.engines is not None and wanted.engines > most:
        raise ConfigError(f"--engines: expected a number from 1 to {most}, found {wanted.engines}")
    for option, value, highest in (("--most", most, MOST_USERS), ("--from", first, most)):
        if not least <= value <= highest:
            name = "--steps" if wanted.steps else option
            each = f" (one for each of {wanted.engines} --engines)" if least == wanted.engines else ""
            raise ConfigError(f"{name}: expected a number from {least} to {highest} users{each}, found {value}")
    default_s = default_pause_s(scenario) if wanted.clients is None else PAUSE_S
    pause_s = default_s if wanted.pause_s is None else wanted.pause_s
    document = f"{scenario.to_yaml()}{scenario.digest()}"
    return Terms(
        software=f"loadsim {__version__}",
        name=scenario.name,
        scenario=sha256(document.encode()).hexdigest(),
        seed=scenario.run.seed,
        embedded=not isinstance(scenario.server, Server),
        day_s=scenario.run.day_length_s,
        compression=scenario.compression,
        score_limit_ms=_limit(scenario, "score_ms"),
        response_score_limit_ms=_limit(scenario, "response_score_ms"),
        settings=Settings(
            first, most, least, wanted.width, wanted.steps, evidence=AGREEING if wanted.quick else EVIDENCE
        ),
        pause_s=pause_s,
        engines=wanted.engines,
        pin=wanted.pin,
        clients=wanted.clients,
    )


def _limit(scenario: Scenario, name: str) -> float | None:
    bound = scenario.criteria.get(name)
    return min((limit for limit in (bound.max, bound.below) if limit is not None), default=None) if bound else None


@dataclass(frozen=True, slots=True)
class _Sized:
    """The scenario with other numbers of users, in groups of the proportions `sizes`.

    `common` are further settings, which are the same for all numbers.
    """

    read: Overridden
    sizes: Sequence[int]
    common: Sequence[str]

    def scenario(self, users: int) -> Scenario:
        settings = [f"topology.{at}.users={size}" for at, size in enumerate(shared(users, self.sizes))]
        return self.read([*settings, *self.common])


def _common_keys(scenario: Scenario, most: int) -> list[str]:
    """Return the settings that make lists and mailboxes those of the largest number of users.

    So a server needs one set of lists, and a mailbox is filled once. Keys that the scenario states are left.
    """
    stated = {"lists": scenario.lists.population, "mailbox": scenario.mailbox.population}
    return [f"{section}.population={most}" for section, population in stated.items() if population is None]


def shared(users: int, sizes: Sequence[int]) -> list[int]:
    """Divide users among groups in proportion to their sizes, at least one each, by largest remainder."""
    spare, total = users - len(sizes), sum(sizes)
    wanted = [max(0.0, users * size / total - 1) for size in sizes]
    scale = spare / sum(wanted) if sum(wanted) else 0.0
    shares = [scale * each for each in wanted]
    whole = [int(share) for share in shares]
    by_remainder = sorted(range(len(sizes)), key=lambda at: (whole[at] - shares[at], at))
    for at in by_remainder[: spare - sum(whole)]:
        whole[at] += 1
    return [1 + each for each in whole]


def _of_clients(_: Scenario) -> None:
    """Leave the check of machines to the runs that other machines make."""


def _next_step(capacity: Capacity) -> Measure | Found | NoAnswer:
    return next_step(capacity.measured, capacity.terms.settings, [one.users for one in capacity.refused])


def _with_refused(capacity: Capacity, refused: Refused) -> Capacity:
    """Return a search without a number. Raises `ConfigError` if nothing else is measured, or the number already was."""
    if not capacity.steps or any(step.users == refused.users for step in capacity.steps):
        raise ConfigError(f"{refused.users} users: {refused.why}")
    return replace(capacity, refused=(*capacity.refused, refused))


def _without_last_void(capacity: Capacity) -> Capacity:
    """Return a search that void steps had ended without them, so that it goes on. Their directories are renamed.

    Raises `ConfigError` if one cannot be renamed.
    """
    while isinstance(end := next_step(capacity.measured, capacity.terms.settings), NoAnswer):
        own = [step for step in reversed(capacity.steps) if step.users == end.users]
        void = {step.run for step in takewhile(lambda step: step.result == VOID, own)}
        for run in sorted(void):
            if (capacity.directory / run).exists():  # a crash may have come after it was renamed
                set_aside(capacity.directory / run)
        capacity = replace(capacity, steps=tuple(step for step in capacity.steps if step.run not in void))
    return capacity


def _no_answer(capacity: Capacity, step: NoAnswer) -> RunInvalid:
    last = [one for one in capacity.steps if one.users == step.users][-1]
    reasons = "; ".join(last.reasons)
    place = capacity.directory / last.run
    return RunInvalid(
        f"the search stops without a capacity: {step.users} users were invalid twice: {reasons} ({place}); the same"
        f" command with --out {shlex.quote(str(capacity.directory))} measures them again"
    )


@dataclass(frozen=True, slots=True)
class _Measurement:
    """The measurement of one step, which may have been made before a crash. `name` is that of its run directory.

    `check` raises `ConfigError` for a scenario that this machine cannot run.
    """

    scenario: Scenario
    capacity: Capacity
    users: int
    name: str
    check: Callable[[Scenario], None]
    runner: Runner
    watch: Watch
    quiet_down: QuietDown

    def step(self) -> MeasuredStep | str:
        """Return the step of a finished run in its directory, or else run; or why no run can be made.

        Raises `Interrupted`, and what the runner raises.
        """
        directory = self.capacity.directory / self.name
        score = finished_score(directory) if directory.exists() else None
        if score is None:
            if directory.exists():
                set_aside(directory)
            found = self._run(directory)
            if isinstance(found, str):
                return found
            score = found
        if ENDED in score["verdict"]["causes"]:
            set_aside(directory)
            raise Interrupted
        return MeasuredStep.of(self.users, self.name, score)

    def _run(self, directory: Path) -> Mapping[str, Any] | str:
        """Wait until the server is quiet, and run. Return the content of score.json, or why no run can be made."""
        with self.watch(self.scenario) as watcher:
            if why := self._refusal(watcher):
                return why
            if isinstance(self.scenario.server, Server):
                self._pause(watcher)
            return self.runner(self.scenario, directory, watcher).summary.score

    def _pause(self, watcher: Watcher) -> None:
        """Let the server deliver mail of the last step or of an interrupted one; before the first step, of other work.

        Raises `RunInvalid` if a probe shows that it does not.
        """
        terms, out = self.capacity.terms, self.capacity.directory
        follows = any((out / STEPS).glob("*"))
        if terms.pause_s and follows:
            watcher.message(f"Pause of {terms.pause_s:g} s, for mail that the server has queued.")
            self.quiet_down.sleep(terms.pause_s)
        if terms.clients is not None:
            return
        if why := self.quiet_down.until_empty(self.scenario, watcher, first=not follows):
            raise RunInvalid(
                f"the search stops before {self.users} users: {why}, and this step would deliver what is left, too;"
                " deliver (postqueue -f), delete or hold it (postsuper -d or -h), and the same command with --out"
                f" {shlex.quote(str(out))} goes on"
            )

    def _refusal(self, watcher: Watcher) -> str:
        """Return why no run can be made: this machine cannot, or it could not be valid by its plan; "" if it can."""
        try:
            self.check(self.scenario)
        except ConfigError as error:
            return str(error)
        watcher.stage("plan")
        software, limit_s = build_fingerprint(), None
        load = planned_load(self.scenario, software, watcher.message, watcher.warning, limit_s, watcher.planned)
        return not_valid(self.scenario, load) or ""
