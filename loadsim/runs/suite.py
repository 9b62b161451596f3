"""The runs of a suite: each is a whole run on this machine, between commands, in an order that drift cannot favour."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from loadsim.analysis.compare_runs import compare_runs
from loadsim.analysis.suite import (
    ANSWERED,
    FAILED,
    INVALID,
    MEASURED,
    OVERLOADED,
    CellFigures,
    ComparedCells,
    HookResult,
    Result,
    SuiteFigures,
    SuiteRun,
)
from loadsim.analysis.verdict import ENDED, server_failed
from loadsim.dryrun.forecast import not_valid
from loadsim.engine.signals import handled_by, noticed_signals
from loadsim.errors import ConfigError, RunInvalid, printable, together
from loadsim.model.scenario import Scenario
from loadsim.model.suite import Hook, Pair, Slot, Suite
from loadsim.runs.directory import dated, hand_over
from loadsim.runs.hooks import run_hook
from loadsim.runs.local import run_locally
from loadsim.runs.quick_forecast import quick_load
from loadsim.runs.quiet_down import QUIET_DOWN, QuietDown
from loadsim.runs.resumable import Interrupted, finished_score, own_directory, set_aside
from loadsim.runs.suite_cells import Terms, scenarios_of, terms_of
from loadsim.runs.suite_file import FILE_NAME, HOOKS, RUNS, read_runs, run_name, write
from loadsim.runs.watcher import SILENT, Watcher

MOST_REASONS = 5
"""The most reasons that `suite.json` has of a run; its directory has all."""

LONGEST_REASON = 500
"""The most characters of a reason: it may have a server's or a command's words."""

Scenarios = Mapping[str, Scenario]
"""The scenarios by the names of cells."""


When = Literal["before", "after"]
"""The times of commands around a run."""

Watch = Callable[[Scenario], AbstractContextManager[Watcher]]
"""Returns the watcher of a run with this scenario, for as long as the block."""

Planning = Callable[[], AbstractContextManager[Callable[[float], None]]]
"""Returns a function that receives the planned share of the cells, for as long as the block."""


def run_suite(
    suite: Suite,
    out: Path | None = None,
    *,
    watch: Watch = lambda _: nullcontext(SILENT),
    planning: Planning = lambda: nullcontext(lambda _: None),
    begun: Callable[[SuiteFigures, Scenarios], None] = lambda *_: None,
    began_run: Callable[[Slot, int], None] = lambda *_: None,
    ended_run: Callable[[SuiteFigures], None] = lambda _: None,
    began_commands: Callable[[When], None] = lambda _: None,
    quiet_down: QuietDown = QUIET_DOWN,
) -> SuiteFigures:
    """Make the runs of a suite in the directory `out`, new or with the same suite; None creates one in `runs`.

    `begun` receives the suite with the runs that it already has, before the first run. `began_run` receives the place
    and the attempt of each run, `began_commands` is called before its commands, and `ended_run` receives the suite with
    it. Raises `ConfigError` for a fault found before a run, and `Interrupted`. A run that fails is recorded, and the
    suite continues. After a signal in a run that had done its work, the suite ends if runs are left.
    """
    signalled = noticed_signals()
    scenarios: Scenarios = scenarios_of(suite, passwords=False)
    terms = terms_of(suite, scenarios)
    with own_directory(out, dated(datetime.now(UTC), f"suite-{suite.name}"), FILE_NAME, "suite") as out:
        try:
            # 1. Read the runs that it has, and check all cells before the first of the others.
            runs = read_runs(out, suite, terms) if (out / FILE_NAME).exists() else ()
            figures = with_runs(out, suite, terms, runs)
            if figures.left:  # else, the file has the answer
                scenarios = _checked(suite, planning)
                write(figures)
            begun(figures, scenarios)
            # 2. Make the runs that are left.
            figures = _Making(
                suite, terms, scenarios, watch, quiet_down, signalled, began_run, ended_run, began_commands
            ).all(figures)

            # 3. Compare.
            figures = replace(figures, comparisons=compared(suite, figures))
            write(figures)
        finally:
            hand_over(out)
    return figures


def status_of(suite: Suite, out: Path | None) -> tuple[SuiteFigures | None, Scenarios]:
    """Return the suite that a directory holds, None without one, and its scenarios without passwords.

    Nothing is run or written. Raises `ConfigError` for faults of the suite, and for a directory with another suite.
    """
    scenarios = scenarios_of(suite, passwords=False)
    terms = terms_of(suite, scenarios)
    if out is None or not (out / FILE_NAME).exists():
        return None, scenarios
    return with_runs(out, suite, terms, read_runs(out, suite, terms)), scenarios


def _checked(suite: Suite, planning: Planning) -> Scenarios:
    """Return the scenarios with passwords. Raises `ConfigError` for one whose runs cannot become valid by their plan.

    A scenario that takes long to plan is planned by its first run.
    """
    scenarios = scenarios_of(suite, passwords=True)
    found = []
    with planning() as progress:
        for at, (name, scenario) in enumerate(scenarios.items()):
            if why := not_valid(scenario, quick_load(scenario, _share(progress, at, len(scenarios)))):
                found.append(f"{suite.origin.file}: cell {name}: {why}")
    if found:
        raise together([ConfigError(text, suite.origin.file) for text in found])
    return scenarios


def _share(progress: Callable[[float], None], at: int, count: int) -> Callable[[float], None]:
    """Return a function that receives the finished share of one of several plans."""
    return lambda share: progress((at + share) / count)


def with_runs(out: Path, suite: Suite, terms: Terms, runs: Sequence[SuiteRun]) -> SuiteFigures:
    """Return a suite with these runs, and with the figures of its cells."""
    of_cell: dict[str, list[SuiteRun]] = {cell.name: [] for cell in suite.cells}
    for run in runs:
        of_cell[run.cell].append(run)
    cells = (CellFigures.of(cell.name, cell.levels, suite.repeats, of_cell[cell.name]) for cell in suite.cells)
    return SuiteFigures(
        directory=out,
        name=suite.name,
        terms=terms.document,
        total=suite.repeats * len(suite.cells),
        retries=suite.retries,
        runs=tuple(runs),
        cells=tuple(cells),
    )


@dataclass(frozen=True, slots=True)
class _Making:
    """The making of runs."""

    suite: Suite
    terms: Terms
    scenarios: Scenarios
    watch: Watch
    quiet_down: QuietDown
    signalled: Callable[[], bool]
    began_run: Callable[[Slot, int], None]
    ended_run: Callable[[SuiteFigures], None]
    began_commands: Callable[[When], None]

    def all(self, figures: SuiteFigures) -> SuiteFigures:
        """Make the runs that are left, until too many in a row have no answer. Raises `Interrupted`."""
        in_a_row, done = 0, figures.done
        for slot in self.suite.slots:
            while slot.number not in done:
                attempt = 1 + sum(run.number == slot.number for run in figures.runs)
                self.began_run(slot, attempt)
                run = self._run(figures, slot, attempt)
                in_a_row = 0 if run.result in ANSWERED else in_a_row + 1
                figures = with_runs(figures.directory, self.suite, self.terms, (*figures.runs, run))
                done = figures.done
                if in_a_row >= self.suite.stop_after and figures.left:
                    why = f"{in_a_row} runs in a row were not measured (stop_after)"
                    figures = replace(figures, ended_why=why)
                write(figures)
                self.ended_run(figures)
                if figures.ended_why:
                    return figures
                if figures.left and self.signalled():
                    raise Interrupted(kept=True)
        return figures

    def _run(self, figures: SuiteFigures, slot: Slot, attempt: int) -> SuiteRun:
        """Return a run that has ended, or make it between its commands. Raises `Interrupted`."""
        name = run_name(self.suite, slot, attempt)
        directory = figures.directory / RUNS / name
        around = _Around(figures.directory, directory, self.suite, slot, self.began_commands)
        began: datetime | None = None
        began_s = time.monotonic()
        before: tuple[HookResult, ...] = ()
        failure: str | None = None

        # 1. Read what a crash left, or set it aside.
        left = directory.exists()
        follows = bool(left or figures.runs)
        score = finished_score(directory) if left else None
        if score is None:
            if left:
                set_aside(directory)
            if self.suite.pause_s and follows:
                self.quiet_down.sleep(self.suite.pause_s)

        # 2. Run between the commands.
        try:
            if score is None:
                began, began_s = datetime.now(UTC), time.monotonic()
                before, failure = around.hooks("before", slot.cell.before)
                if failure is None:
                    score, failure = self._measure(slot, directory, follows)
            interrupted = self.signalled() if score is None else ENDED in score["verdict"]["causes"]
        finally:
            with handled_by(lambda _: None):  # a signal ends the suite after these commands
                after, _ = around.hooks("after", slot.cell.after, go_on=True)

        # 3. Record it, unless a signal made it end or fail.
        if interrupted:
            if directory.exists():
                set_aside(directory)
            raise Interrupted
        return _record(
            figures.directory,
            directory,
            slot,
            attempt,
            began,
            time.monotonic() - began_s,
            score,
            failure,
            before,
            after,
        )

    def _measure(self, slot: Slot, directory: Path, follows: bool) -> tuple[Mapping[str, Any] | None, str | None]:
        """Run once the send queues that probes show are empty. Return the content of score.json, or why there is none.

        `follows` is False for the first run of the suite.
        """
        scenario = self.scenarios[slot.cell.name]
        with self.watch(scenario) as watcher:
            try:
                if why := self.quiet_down.until_empty(scenario, watcher, first=not follows):
                    return None, why
                result = run_locally(
                    scenario, directory, engines=self.suite.engines, pin=self.suite.pin, watcher=watcher
                )
            except (ConfigError, RunInvalid) as error:
                return None, str(error)
        return result.summary.score, None


@dataclass(frozen=True, slots=True)
class _Around:
    """The commands around a run."""

    out: Path
    directory: Path
    suite: Suite
    slot: Slot
    began: Callable[[When], None]

    def hooks(
        self, when: When, hooks: Sequence[Hook], *, go_on: bool = False
    ) -> tuple[tuple[HookResult, ...], str | None]:
        """Execute commands up to the first that fails, or all with `go_on`. Return their ends, and the first failure.

        Their outputs are files in the directory `HOOKS`, which keeps those of interrupted runs.
        """
        found: list[HookResult] = []
        if hooks:
            self.began(when)
        for number, hook in enumerate(hooks, 1):
            output = self.out / HOOKS / f"{self.directory.name}.{when}-{number}.txt"
            output.parent.mkdir(exist_ok=True)
            if output.exists():
                set_aside(output)
            found.append(run_hook(hook, self.suite.directory, self._variables(), output))
            if found[-1].failure is not None and not go_on:
                break
        failure = next((one.failure for one in found if one.failure is not None), None)
        return tuple(found), None if failure is None else f"command {when} the run failed: {failure}"

    def _variables(self) -> dict[str, str]:
        cell = self.slot.cell
        levels = {name.upper(): str(level) for name, level in cell.levels.items() if level is not None}
        named = {
            "CELL": cell.name,
            "REPEAT": str(self.slot.repeat),
            "RUN": str(self.directory.absolute()),
            **levels,
        }
        return {f"LOADSIM_{name}": value for name, value in named.items()}


def _record(
    out: Path,
    directory: Path,
    slot: Slot,
    attempt: int,
    began: datetime | None,
    took_s: float,
    score: Mapping[str, Any] | None,
    failure: str | None,
    before: tuple[HookResult, ...],
    after: tuple[HookResult, ...],
) -> SuiteRun:
    """Return the entry of a run: with figures if it has a score file, else with the reason."""
    verdict = score["verdict"] if score is not None else {}
    reasons = [failure] if failure is not None else verdict.get("reasons", [])
    modules = score["by_protocol"] if score is not None else {}
    return SuiteRun(
        run=directory.relative_to(out).as_posix(),
        number=slot.number,
        cell=slot.cell.name,
        repeat=slot.repeat,
        attempt=attempt,
        result=_result(verdict),
        began=None if began is None else began.isoformat(timespec="seconds"),
        took_s=None if began is None else round(took_s, 1),
        validity=verdict.get("validity"),
        passed=verdict.get("passed"),
        score_ms=None if score is None else score["score_ms"],
        tasks_per_s=None if score is None else score["tasks_per_s"],
        scored=tuple(f"{name}: {task}" for name, module in modules.items() for task in module["covers"]["scored"]),
        reasons=tuple(printable(reason)[:LONGEST_REASON] for reason in reasons[:MOST_REASONS]),
        before=before,
        after=after,
    )


def _result(verdict: Mapping[str, Any]) -> Result:
    """Return the result of a run with this verdict; an empty one is that of a run without figures."""
    if not verdict:
        return FAILED
    if verdict["validity"] != "invalid":
        return MEASURED
    return OVERLOADED if server_failed(verdict["causes"]) else INVALID


# --- comparisons ------------------------------------------------------------------------------------------------------


def compared(suite: Suite, figures: SuiteFigures) -> tuple[ComparedCells, ...]:
    """Compare the chosen cells by their measured runs. Reasons against a comparison are part of it.

    A cell with an overloaded run is not compared: the other runs alone would flatter it.
    """
    cells = {cell.name: cell for cell in figures.cells}
    return tuple(_compared(pair, cells, figures.directory) for pair in suite.pairs)


def _compared(pair: Pair, cells: Mapping[str, CellFigures], out: Path) -> ComparedCells:
    for name in (pair.base, pair.new):
        if not cells[name].runs or cells[name].overloaded:
            return ComparedCells(pair.base, pair.new, None, f"{name}: {cells[name].no_score}")
    sides = [[out / run for run in cells[name].runs] for name in (pair.base, pair.new)]
    try:
        return ComparedCells(pair.base, pair.new, compare_runs(*sides, max_regression=pair.max_regression))
    except ConfigError as refused:
        return ComparedCells(pair.base, pair.new, None, printable(str(refused).removeprefix("compare: ")))
