"""The runs of a suite: whole runs on this machine, between commands, ordered so that drift affects all cells alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from statistics import fmean

from loadsim.campaign.file import RUNS, own_directory, resumed, write
from loadsim.campaign.quiet_down import QUIET_DOWN, QuietDown
from loadsim.campaign.runner import UNWATCHED, CampaignWatcher, Making, PlannedRun
from loadsim.campaign.runs import CampaignRun
from loadsim.comparison.comparison import NotComparable, compare_runs
from loadsim.dryrun.forecast import forecast, refusal
from loadsim.dryrun.plan_cache import quick_load
from loadsim.errors import ConfigError, together
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.runs.directory import path_component
from loadsim.runs.local import run_locally
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.suite import Slot, Suite
from loadsim.suite.cells import scenarios_of, terms_of
from loadsim.suite.suite import CellFigures, ComparedCells, SuiteFigures

Scenarios = Mapping[str, Scenario]
"""The scenarios by cell name."""


MAY_CHANGE = ("retries",)
"""The terms that may change when a suite is resumed."""


def run_suite(
    suite: Suite, out: Path | None = None, *, watcher: CampaignWatcher = UNWATCHED, quiet_down: QuietDown = QUIET_DOWN
) -> SuiteFigures:
    """Make the runs of a suite in the directory `out`, new or with the same suite; None creates one in `runs`.

    Raises `ConfigError` for a fault found before a run, and `Interrupted`. A run that fails is recorded, and the suite
    continues. If a signal arrives in a run that has done its work, the suite ends after that run, if any are left.
    """
    scenarios: Scenarios = scenarios_of(suite, passwords=False)
    with own_directory(out, f"suite-{suite.name}") as out:
        # 1. Read the existing runs, and check all cells before making the others.
        figures = resumed(SuiteFigures(out, terms_of(suite, scenarios)), may_change=MAY_CHANGE)
        if figures.left:  # otherwise, the file already has the result
            scenarios = _checked(suite)
            write(figures)
        # 2. Make the remaining runs.
        making = Making(
            runner=partial(run_locally, engines=suite.stated.engines, pin=suite.stated.pin),
            pause_s=suite.stated.pause_s,
            goes_on=True,
            watcher=watcher,
            quiet_down=quiet_down,
        )
        figures = making.all(figures, _Order(suite, scenarios, len(figures.runs)).next_run)
        # 3. Compare.
        figures = replace(figures, comparisons=compared(figures))
        write(figures)
    return figures


def status_of(suite: Suite, out: Path | None) -> tuple[SuiteFigures, Scenarios]:
    """Return the suite with the runs in a directory, and its scenarios without passwords.

    Nothing is run or written. Raises `ConfigError` for errors in the suite, or if the directory has a different one.
    """
    scenarios = scenarios_of(suite, passwords=False)
    figures = SuiteFigures(out or Path(), terms_of(suite, scenarios))
    return figures if out is None else resumed(figures, may_change=MAY_CHANGE), scenarios


def planned_s(scenario: Scenario) -> float:
    """Return the duration of a run: ramp-up and work, without preparation and commands."""
    return scenario.run.ramp_up_s + scenario.duration_s


def time_left_s(suite: Suite, figures: SuiteFigures, scenarios: Scenarios) -> float:
    """Estimate how long the remaining runs will take: as long as the cell's earlier ones, or as planned."""
    done = figures.done
    left = [slot.cell.name for slot in suite.slots if slot.number not in done]
    taken = {
        name: [run.took_s for run in figures.runs if run.cell == name and run.validity and run.took_s is not None]
        for name in {*left}
    }
    run_s = {name: fmean(times) if times else planned_s(scenarios[name]) for name, times in taken.items()}
    return sum(run_s[name] for name in left) + suite.stated.pause_s * max(0, len(left) - 1)


def _checked(suite: Suite) -> Scenarios:
    """Return the scenarios with passwords. Raises `ConfigError` if the plan of one rules out valid runs.

    A scenario that takes long to plan is only checked by its first run.
    """
    scenarios = scenarios_of(suite, passwords=True)
    problems = [
        ConfigError(f"{suite.origin.file}: cell {name}: {why}", suite.origin.file)
        for name, scenario in scenarios.items()
        if (why := refusal(forecast(scenario, quick_load(scenario))))
    ]
    if problems:
        raise together(problems)
    return scenarios


@dataclass(frozen=True, slots=True)
class _Order:
    """Plans the runs of a suite. The first `resumed` runs do not count in a series of failures."""

    suite: Suite
    scenarios: Scenarios
    resumed: int

    def next_run(self, figures: SuiteFigures) -> tuple[SuiteFigures, PlannedRun | None]:
        """Return the suite and its next run, or None at its end or after too many failures in a row."""
        done = figures.done
        slot = next((slot for slot in self.suite.slots if slot.number not in done), None)
        if slot is None:
            return figures, None
        made = figures.runs[self.resumed :]
        in_a_row = sum(1 for _ in takewhile(lambda run: not run.answered, reversed(made)))
        if in_a_row >= self.suite.stated.stop_after:
            return replace(figures, ended=finding(Code.SUITE_ENDED, runs=in_a_row)), None
        return figures, self._planned(figures, slot)

    def _planned(self, figures: SuiteFigures, slot: Slot) -> PlannedRun:
        cell, scenario = slot.cell, self.scenarios[slot.cell.name]
        attempt = 1 + sum(run.number == slot.number for run in figures.runs)
        directory = f"{RUNS}/{run_name(self.suite, slot, attempt)}"
        named = {
            "CELL": cell.name,
            "REPEAT": str(slot.repeat),
            "RUN": str((figures.directory / directory).absolute()),
            **{name.upper(): str(level) for name, level in cell.levels.items() if level is not None},
        }
        retry = f", retry {attempt - 1}" if attempt > 1 else ""
        return PlannedRun(
            CampaignRun(directory, cell.name, scenario.users, slot.number, slot.repeat, attempt),
            scenario,
            f"Run {slot.number} of {figures.total}: {cell.name}, repeat {slot.repeat}{retry}",
            cell.before,
            cell.after,
            self.suite.directory,
            {f"LOADSIM_{name}": value for name, value in named.items()},
            time_left_s(self.suite, figures, self.scenarios),
        )


def run_name(suite: Suite, slot: Slot, attempt: int) -> str:
    """Return the name of a run's directory: position in the order, cell, repeat, and any retry."""
    width = max(3, len(str(suite.stated.repeats * len(suite.cells))))
    retry = f".retry-{attempt - 1}" if attempt > 1 else ""
    return f"{slot.number:0{width}d}-{path_component(slot.cell.name)}-{slot.repeat}{retry}"


def compared(figures: SuiteFigures) -> tuple[ComparedCells, ...]:
    """Compare the chosen cells by their measured runs, or state why they cannot be compared.

    A cell with an overloaded run is not compared: its other runs alone would flatter it.
    """
    cells = {cell.name: cell for cell in figures.cells}
    return tuple(
        _compared(cells[base], cells[new], limit, figures.directory) for base, new, limit in figures.terms.compare
    )


def _compared(base: CellFigures, new: CellFigures, max_regression: float | None, out: Path) -> ComparedCells:
    for cell in (base, new):
        if cell.no_score and (not cell.runs or cell.overloaded):
            return ComparedCells(base.name, new.name, None, (cell.no_score,))
    sides = [[out / run for run in cell.runs] for cell in (base, new)]
    try:
        return ComparedCells(base.name, new.name, compare_runs(*sides, max_regression=max_regression))
    except NotComparable as refused:
        return ComparedCells(base.name, new.name, None, refused.findings)
    except ConfigError as error:
        return ComparedCells(base.name, new.name, None, (finding(Code.NOT_COMPARED, why=str(error)),))
