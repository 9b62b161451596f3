"""Reasons against a comparison of two sets of runs, and warnings about one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from loadsim.analysis.comparability import SAME, difference
from loadsim.analysis.compared_run import BASE, NEW, Criteria, Run, Sides, of_both
from loadsim.analysis.criteria import Result
from loadsim.analysis.run_warnings import shared_warnings
from loadsim.analysis.unequal_machines import unequal_machines
from loadsim.analysis.verdict import Verdict
from loadsim.errors import ConfigError, ConfigErrors
from loadsim.timinglog.header_words import OFF, differences

LOAD = {"scenario_digest": "load of the scenario", "plan_digest": "plan", "start_state_digest": "start state"}
"""Header keys that depend on the seed, in words: they must agree, or occur equally often on both sides."""

NOT_LOAD = ("name", "server", "accounts", "weights", "criteria", "limits", "probes")
"""Keys of a scenario that do not change its load, but for `OF_SERVER`."""

OF_SERVER = ("server.imap.ignore_capabilities", "server.smtp.connection")
"""Keys of the server that change the commands of users."""

OF_WINDOW = ("run.warm_up", "run.window")
"""Keys of a scenario that state the window."""

OF_DURATION = ("run.duration", "run.days")
"""Keys of a scenario that state the duration."""

FOLLOW_FROM_DAY = {"window_s": "window", "duration_s": "duration", "scenario_digest": "load", "plan_digest": "plan"}
"""Header keys that may follow from the length of the day, in words."""

BOTH_SHOWN = "loadsim report RUN RUN shows both on one page"
"""Advice on runs that are not comparable."""


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


def refusal(complaints: Sequence[str], valid: bool) -> ConfigError:
    """Return an error with a line for each complaint; a single one has the advice in its line."""
    advice = [BOTH_SHOWN] if valid else []
    if len(complaints) == 1:
        return ConfigError("; ".join([f"compare: {complaints[0]}", *advice]))
    lines = [f"compare: {len(complaints)} reasons against it:"]
    lines += [f"({number}) {complaint}" for number, complaint in enumerate(complaints, 1)]
    return ConfigErrors(
        "; ".join([*lines, *advice]).replace(":; ", ": ", 1), tuple(map(ConfigError, [*lines, *advice]))
    )


def complaints(runs: Sides) -> list[str]:
    """Return the reasons against a comparison; those that follow from the length of the day are one with it."""
    follow = _following(runs)
    differing = {key: found for key in SAME if key not in follow and (found := _difference(runs, key))}
    if follow and "day_s" in differing:
        *others, last = (FOLLOW_FROM_DAY[key] for key in follow)
        named = f"{', '.join(others)} and {last} follow" if others else f"the {last} follows"
        differing["day_s"] += f" ({named} from it)"
    return [
        *(
            f"{run.entry.path}: expected a valid run, found an invalid one: {'; '.join(run.verdict.defects)}"
            for run in of_both(runs)
            if run.verdict.validity == "invalid"
        ),
        *differing.values(),
        *_differing(runs, "drivers", lambda run: ", ".join(run.figures.by_protocol)),
        *_differing(runs, "tasks in the score", _scored),
        *_differing_loads(runs, follow),
    ]


def _following(runs: Sides) -> list[str]:
    """Return the header keys that differ, as far as is known, only because `run.day_length` does.

    A window follows that is the same part of the day or has no key of its own that differs; a duration likewise. Load
    and plan follow if no other key of the scenarios differs that changes the load.
    """
    scenarios = [run.recorded.scenario for run in of_both(runs)]
    if not all(scenarios):
        return []
    keys = {name for other in scenarios for name in _keys_of_load(scenarios[0], other)}
    if "run.day_length" not in keys:
        return []
    parts = {tuple(round(end_s / run.figures.day_s, 9) for end_s in run.figures.window_s) for run in of_both(runs)}
    window = len(parts) == 1 or keys.isdisjoint((*OF_WINDOW, *OF_DURATION))
    load = keys <= {"run.day_length", *OF_WINDOW} and window
    follows = {
        "window_s": window,
        "duration_s": keys.isdisjoint(OF_DURATION),
        "scenario_digest": load,
        "plan_digest": load,
    }
    headers = [run.header for run in of_both(runs)]
    return [
        key
        for key in FOLLOW_FROM_DAY
        if follows[key] and any(header.get(key) != headers[0].get(key) for header in headers)
    ]


def _keys_of_load(one: Mapping[str, Any], another: Mapping[str, Any]) -> list[str]:
    """Return the keys that change the load and differ between two scenarios."""
    first, second = ({**scenario, "run": scenario.get("run") or {}} for scenario in (one, another))
    names = [name for name, *_ in differences(first, second, sorted({*one, *another, "run"}, key=str))]
    return [name for name in names if name in OF_SERVER or name.partition(".")[0] not in NOT_LOAD]


def _header(key: str) -> Callable[[Run], Any]:
    return lambda run: run.header.get(key)


def _scored(run: Run) -> str:
    return "; ".join(", ".join(found.covers.scored) for found in run.figures.by_protocol.values())


def _difference(runs: Sides, key: str) -> str | None:
    """Return the difference between the first run and one that has another value of a header key, in words."""
    first = runs[BASE][0]
    found = (difference(key, first.header, run.header, (first.name, run.name)) for run in of_both(runs))
    return next(filter(None, found), None)


def _differing(runs: Sides, key: str, of: Callable[[Run], Any]) -> list[str]:
    first = runs[BASE][0]
    other = next((run for run in of_both(runs) if of(run) != of(first)), None)
    if other is None:
        return []
    found = f"{of(first)} in {first.name} and {of(other)} in {other.name}"
    return [f"{key}: expected the same in all runs, found {found}"]


def _differing_loads(runs: Sides, follow: Collection[str]) -> list[str]:
    """Return the differing keys without those that `follow`, unless each load occurs equally often on both sides."""
    loads = {
        side: Counter(tuple(run.header.get(key) for key in LOAD) for run in of_side) for side, of_side in runs.items()
    }
    if loads[BASE] == loads[NEW]:
        return []
    first = runs[BASE][0]
    differing: dict[tuple[str, str], list[str]] = {}
    for key in LOAD:
        other = next((run for run in of_both(runs) if run.header.get(key) != first.header.get(key)), None)
        if key not in follow and other is not None:
            differing.setdefault(_between(first, other), []).append(key)
    return [
        f"{' and '.join(f'the {LOAD[key]}' for key in keys)} {'differ' if len(keys) > 1 else 'differs'} between"
        f" {between[0]} ({', '.join(keys)}): expected the same in all runs, or each equally often in base and in"
        f" new{between[1]}"
        for between, keys in differing.items()
    ]


def _between(first: Run, other: Run) -> tuple[str, str]:
    """Return the places of two runs, and the keys in which their scenarios differ, "" if unknown."""
    one, another = (run.recorded.scenario for run in (first, other))
    keys = _keys_of_load(one, another) if one and another else []
    because = f"; the scenarios differ in {', '.join(keys)}" if keys else ""
    return f"{first.name} and {other.name}", because


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
        "software": _header("software"),
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
    missed = (*verdict.missed, *verdict.missed_runs)
    return [f"{path}: criteria missed: {'; '.join(missed)}"] if missed else []
