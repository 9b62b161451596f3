"""Reasons against a comparison of two sets of runs, and warnings about one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from loadsim.analysis.criteria import Result
from loadsim.analysis.run_warnings import shared_warnings
from loadsim.analysis.verdict import Verdict
from loadsim.comparison.comparability import SAME, difference
from loadsim.comparison.compared_run import BASE, NEW, Criteria, Run, Sides, of_both
from loadsim.comparison.unequal_machines import unequal_machines
from loadsim.errors import ConfigError
from loadsim.timinglog.header_words import OFF, differences

LOAD = ("scenario_digest", "plan_digest", "start_state_digest")
"""Header keys that depend on the seed: they must agree, or occur equally often on both sides."""

NOT_LOAD = ("name", "server", "accounts", "weights", "criteria", "limits", "probes")
"""Keys of a scenario that do not change its load, but for `OF_SERVER`."""

OF_SERVER = ("server.imap.ignore_capabilities", "server.smtp.connection")
"""Keys of the server that change the commands of users."""


def check_distinct(runs: Sides) -> None:
    """Raise `ConfigError` if a run occurs twice, even with `force`."""
    seen: dict[str, tuple[str, Run]] = {}
    for side, of_side in runs.items():
        for run in of_side:
            name = run.entry.run or str(Path(run.entry.path).resolve())
            if name in seen:
                other, first = seen[name]
                where = f"twice in {side}" if side == other else "in base and in new"
                paths = " and ".join(dict.fromkeys((first.entry.path, run.entry.path)))
                raise ConfigError(f"compare: expected each run once, found {name} {where} ({paths})")
            seen[name] = side, run


def complaints(runs: Sides) -> list[str]:
    """Return the reasons against a comparison. Loads that differ are one only if no key does that explains them."""
    first = runs[BASE][0]
    found = [
        f"{run.entry.path}: expected a valid run, found an invalid one: {'; '.join(run.verdict.defects)}"
        for run in of_both(runs)
        if run.verdict.validity == "invalid"
    ]
    differing = [
        next(
            filter(None, (difference(key, first.header, run.header, (first.name, run.name)) for run in of_both(runs))),
            "",
        )
        for key in SAME
    ]
    found += filter(None, differing)
    found += _differing(runs, "drivers", lambda run: ", ".join(run.figures.by_protocol))
    found += _differing(runs, "tasks in the score", _scored)
    return found if any(differing) else [*found, *_differing_loads(runs)]


def _scored(run: Run) -> str:
    return "; ".join(", ".join(found.covers.scored) for found in run.figures.by_protocol.values())


def _differing(runs: Sides, key: str, of: Callable[[Run], Any]) -> list[str]:
    first = runs[BASE][0]
    other = next((run for run in of_both(runs) if of(run) != of(first)), None)
    if other is None:
        return []
    found = f"{of(first)} in {first.name} and {of(other)} in {other.name}"
    return [f"{key}: expected the same in all runs, found {found}"]


def _differing_loads(runs: Sides) -> list[str]:
    """Return the differing keys of `LOAD` in one line, unless each load occurs equally often on both sides."""

    def load(run: Run) -> tuple[Any, ...]:
        return tuple(run.header.get(key) for key in LOAD)

    first = runs[BASE][0]
    others = [run for run in of_both(runs) if load(run) != load(first)]
    if not others or Counter(map(load, runs[BASE])) == Counter(map(load, runs[NEW])):
        return []
    other = others[0]
    differing = [key for key in LOAD if any(run.header.get(key) != first.header.get(key) for run in others)]
    one, another = (run.recorded.scenario for run in (first, other))
    found = (
        [name for name, *_ in differences(one, another, sorted({*one, *another}, key=str))] if one and another else []
    )
    keys = [name for name in found if name in OF_SERVER or name.partition(".")[0] not in NOT_LOAD]
    because = f"; the scenarios differ in {', '.join(keys)}" if keys else ""
    return [
        f"{', '.join(differing)}: expected the same in all runs, or each equally often in base and in new, found others"
        f" in {first.name} and {other.name}{because}"
    ]


def warnings_of(runs: Sides) -> list[str]:
    """Return what makes a comparison doubtful besides `unequal_conditions`, a line for each."""
    warnings = []
    if any(run.figures.embedded for run in of_both(runs)):
        warnings.append("the embedded server shares the machine with the generator: this compares no mail servers")
    for run in of_both(runs):
        verdict = run.verdict
        if verdict.validity == "degraded":  # the defects of an invalid run forbid the comparison
            warnings.append(f"{run.entry.path}: degraded: {'; '.join(verdict.defects)}")
        warnings += missed_warning(run.entry.path, verdict)
    warnings += _differing_criteria(runs)
    warnings += _shared(runs)
    if any(run.header.get("start_state_digest") is None for run in of_both(runs)):
        warnings.append("not all runs say in which state the mailboxes were at their start (initialise: never)")
    should_agree: dict[str, Callable[[Run], Any]] = {
        "software": lambda run: run.header.get("software"),
        "engines": lambda run: run.figures.engines,
        "client machines": lambda run: run.figures.clients,
    }
    for what, of in should_agree.items():
        if len(found := {str(of(run)) for run in of_both(runs)}) > 1:
            warnings.append(f"{what}: not the same in all runs: {', '.join(sorted(found))}")
    return warnings


def _differing_criteria(runs: Sides) -> list[str]:
    """Return a line for each criterion of a run that differs from the one by which all runs are judged."""
    names = list(dict.fromkeys(name for run in of_both(runs) for name in run.criteria))
    first: dict[tuple[str, str, str], str] = {}
    for run, name in product(of_both(runs), names):
        stated, judged_by = run.header["criteria"], run.criteria
        own = _limit_words(name, stated) if name in stated else "not stated"
        common = _limit_words(name, judged_by) if name in judged_by else "nothing, as the figure is unknown"
        if own != common:
            first.setdefault((name, own, common), run.name)
    return [f"criteria.{name}: {own} in {run}, judged by: {common}" for (name, own, common), run in first.items()]


def _limit_words(name: str, criteria: Criteria) -> str:
    limits = criteria[name]
    return OFF if limits is None else Result(name, limits, None).wanted


def _shared(runs: Sides) -> list[str]:
    """Return the warnings of the single runs, each kind once, with the number of its runs on each side."""
    both = list(of_both(runs))
    lines = []
    for one in shared_warnings([run.verdict.warnings for run in both]):
        of_base = sum(at < len(runs[BASE]) for at in one.runs)
        counts = f"{of_base} of {len(runs[BASE])} runs of base, {len(one.runs) - of_base} of {len(runs[NEW])} of new"
        lines.append(f"{both[one.runs[0]].entry.path if len(one.runs) == 1 else counts}: {one.words}")
    return lines


def unequal_conditions(runs: Sides, stretch: float) -> list[str]:
    """Return a line for each condition, besides the server, that differs between the sides.

    Conditions are the machines, the time, and what the preparation of the mailboxes removed. `stretch`: that of
    `run_order`.
    """
    warnings = unequal_machines({side: [run.figures for run in of_side] for side, of_side in runs.items()})
    if stretch > 1:
        warnings.append(
            "the runs of base and new did not take turns: what changed on the machines in between looks like a"
            f" difference of the servers; intervals are {stretch:.2g} times as wide"
        )
    return warnings


def missed_warning(path: str, verdict: Verdict) -> list[str]:
    """Return the warning of a run that misses criteria, if it does; `path` is that of its entry."""
    return [f"{path}: criteria missed: {'; '.join(verdict.missed)}"] if verdict.missed else []
