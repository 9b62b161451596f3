"""Results of a run's criteria (`scenario.criteria`).

With several drivers, criteria on the score and on tasks apply to each.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

from loadsim.documents.json_values import keyed
from loadsim.documents.yaml_reader import read_document
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.formats import SCALES, shown, unit_of
from loadsim.model.figures import DriverFigures, Figures, TaskFigures
from loadsim.model.terms import INJECT, SENDING, UNSCORED
from loadsim.scenario.criteria import (
    DEFAULT,
    DEFAULTS_OF_PLAN,
    DELIVERY,
    SCORED,
    SCORES,
    Bound,
    documents,
    read_criteria,
)
from loadsim.timinglog.audited import MOST_UNKNOWN_SHARE, AuditRecord

Limits = Mapping[str, float]
"""Limits by `min` and `max` (inclusive) and `below` (exclusive). Times are in ms, and shares are fractions of 1."""


@dataclass(frozen=True, slots=True)
class Result:
    """One criterion and its figure, which is None if it was not measured, and infinite if an awaited event never came.

    `each`: the criterion applies to each scored task, and this is one task's figure. `reasons` explain why the figure
    was not measured, if that is known.
    """

    name: str
    limits: Limits
    figure: float | None
    each: bool = False
    reasons: tuple[Finding, ...] = ()

    @property
    def passed(self) -> bool:
        """True if the figure is within all limits; an unmeasured figure never is."""
        least, most, below = (self.limits.get(limit) for limit in ("min", "max", "below"))
        return (
            self.figure is not None
            and (least is None or self.figure >= least)
            and (most is None or self.figure <= most)
            and (below is None or self.figure < below)
        )

    @property
    def found(self) -> str:
        """The figure as text, with all digits if rounding would make it look like a limit."""
        if self.figure is None:
            return "not measured"
        words = shown(self.name, self.figure)
        like_a_limit = any(shown(self.name, limit) == words for limit in self.limits.values())
        return _exact(self.name, self.figure) if like_a_limit else words

    @property
    def wanted(self) -> str:
        words = {"min": "at least", "max": "at most", "below": "below"}
        return " and ".join(f"{words[limit]} {_exact(self.name, value)}" for limit, value in self.limits.items())


LEFT = ("undelivered", "unfinished", "skipped")
"""Name prefixes of figures that count what a run left over at its end."""


def may_judge(result: Result, ended_early: bool) -> bool:
    """Return False if an early end alone may explain a miss.

    Such a figure was not measured, is infinite, below its minimum, or counts what was left at the end.
    """
    figure = result.figure
    if not ended_early or result.passed:
        return True
    if figure is None or math.isinf(figure) or figure < result.limits.get("min", -math.inf):
        return False
    return not result.name.rpartition(".")[2].startswith(LEFT)


NO_LOAD_EXCUSES = ("delivery.missing", "delivery.duplicates")
"""No load excuses missing these criteria. It may excuse undelivered mail: an overloaded server is slow to deliver."""

AUDIT = "audit."
"""The prefix of an audit's criteria; all others judge what users saw."""


def audit_results(audit: AuditRecord | None) -> tuple[Result, ...]:
    """Return the results of an audit's criteria, which are always on."""
    if audit is None:
        return ()
    return (
        Result(f"{AUDIT}faults", {"max": 0}, float(sum(audit.missed.values()))),
        Result(f"{AUDIT}unknown_share", {"max": MOST_UNKNOWN_SHARE}, audit.unknown_share),
    )


def missed_criteria(results: Sequence[Result], ended_early: bool) -> list[Finding]:
    """Return a finding for each missed criterion; tasks that miss the same criterion share one.

    An audit has its own findings (`AuditRecord.run_findings`).
    """
    missed = [result for result in results if not (result.passed or result.name.startswith(AUDIT))]
    lines = [_missed(result, ended_early) for result in missed if not result.each]
    of_each: dict[tuple[str, str, bool], list[Result]] = {}
    for result in missed:
        if result.each:
            key = (result.name.rpartition(".")[2], result.wanted, may_judge(result, ended_early))
            of_each.setdefault(key, []).append(result)
    for (last, wanted, is_judged), of_tasks in of_each.items():
        if len(of_tasks) == 1:
            lines.append(_missed(of_tasks[0], ended_early))
            continue
        figures = [f"{task.name.rpartition('.')[0].removeprefix('tasks.')} {task.found}" for task in of_tasks]
        code = Code.CRITERION_MISSED if is_judged else Code.CRITERION_NOT_JUDGED
        lines.append(finding(code, last, found=", ".join(figures), limit=wanted))
    return lines


def _missed(result: Result, ended_early: bool) -> Finding:
    if not may_judge(result, ended_early):
        return finding(Code.CRITERION_NOT_JUDGED, result.name, found=result.found, limit=result.wanted)
    if result.figure is None:
        unseen = (finding(Code.MAIL_UNSEEN).words,) if result.name in NO_LOAD_EXCUSES else ()
        why = tuple(reason.words for reason in result.reasons) or unseen
        return finding(Code.CRITERION_NOT_MEASURED, result.name, why=why or None, limit=result.wanted)
    code = Code.MAIL_CRITERION_MISSED if result.name in NO_LOAD_EXCUSES else Code.CRITERION_MISSED
    return finding(code, result.name, found=result.found, limit=result.wanted)


def default_weights() -> Mapping[str, float]:
    from loadsim.scenario.weights import load_weights  # for old logs and stress runs only

    return load_weights()


def criteria_of(
    path: Path, drivers: Mapping[str, DriverFigures], probes: Collection[str], stress: bool, *, outage: bool = False
) -> Mapping[str, Limits | None]:
    """Return a scenario file's criteria and the defaults, for these drivers, their tasks, and these probes.

    A criterion on a task applies to the drivers that did it. If none did, it applies to all, and is not measured.
    Raises `ConfigError`.
    """
    done = {driver: {task.task for task in found.tasks} for driver, found in drivers.items()} or {"imap": set()}
    undone = {*default_weights(), *UNSCORED}.difference(*done.values())
    planned = {driver: tasks | undone for driver, tasks in done.items()}
    document, origin = read_document(path, str(path))
    if "criteria" not in document:  # with a misspelt key, a run would be judged by the defaults
        raise origin.error_saying(("criteria",), "limits of figures", "none")
    stated = document.get("probes")
    probes = {*probes, *(stated if isinstance(stated, dict) else ())}
    return documents(read_criteria(document["criteria"], planned, stress, origin, probes, outage=outage))


def judge_each(criteria: Mapping[str, Limits | None], figures: Figures) -> tuple[Result, ...]:
    """Judge each criterion that is on.

    If there are several drivers, a criterion on a task or a score that names none applies to each. A closed loop has no
    score and no plan, so criteria on them do not apply. Nor does the default criterion on delivery if neither the plan
    nor the run has mail in the window.
    """
    results = []
    sent = figures.load is None or any(figures.load.tasks[task].planned for task in SENDING & figures.load.tasks.keys())
    if not (sent or figures.delivery.accepted) and criteria.get(DELIVERY) == DEFAULT[DELIVERY].document():
        criteria = {**criteria, DELIVERY: None}
    for name, limits in criteria.items():
        if limits is None or (figures.stress and name.rpartition(".")[2] in DEFAULTS_OF_PLAN):
            continue
        if name.startswith(SCORED):
            each_task = _of_scored_tasks(name.removeprefix(SCORED), figures)
            names = [own for own, common in each_task.items() if not criteria.keys() & {own, common}]
            results += [Result(own, limits, figure(figures, own), each=True) for own in names]
        else:
            results += [Result(each, limits, figure(figures, each)) for each in _names(name, figures)]
    return tuple(results)


def switched_off(criteria: Mapping[str, Limits | None], figures: Figures) -> tuple[str, ...]:
    """Return the names of criteria that are off, except those that need a plan or mail where there is none."""
    off = [name for name, limits in criteria.items() if limits is None]
    if figures.stress:
        off = [name for name in off if name.rpartition(".")[2] not in DEFAULTS_OF_PLAN]
    return tuple(name for name in off if name != DELIVERY or figures.delivery.accepted)


def less_strict(criteria: Mapping[str, Limits | None], figures: Figures) -> tuple[str, ...]:
    """Return the criteria that are less strict than the defaults that they replace, with their limits.

    Return none for the embedded server: its criteria are wide, to suit slow machines.
    """
    if figures.embedded:
        return ()
    weighted = default_weights() if figures.stress else {}
    scored = {task.task for found in figures.by_protocol.values() for task in found.tasks if _counts(task, ())}

    def default(name: str) -> Bound | None:
        own = name.split(".", 2)[2] if name.startswith("by_protocol.") else name
        group, _, last = own.rpartition(".")
        return DEFAULT.get(f"{SCORED}{last}" if group.removeprefix("tasks.") in {*scored, *weighted} else own)

    return tuple(
        f"{name} {Result(name, limits, None).wanted}"
        for name, limits in criteria.items()
        if limits is not None and (of := default(name)) and Bound(**limits).is_less_strict_than(of)
        if not (of.max == 0 and limits == {"below": 1})  # the same for whole numbers
    )


def _of_scored_tasks(last: str, figures: Figures) -> dict[str, str]:
    """Return the names of a figure for each scored task and INJECT, if due, mapped to the names without the driver.

    With one driver, the two are the same. A closed loop has no score: tasks with a default weight count.
    """
    drivers = figures.by_protocol
    weighted = default_weights() if figures.stress else ()
    return {
        (f"by_protocol.{driver}.{name}" if len(drivers) > 1 else name): name
        for driver, found in drivers.items()
        for task in found.tasks
        if _counts(task, weighted) and task.planned
        for name in [f"tasks.{task.task}.{last}"]
    }


def _counts(task: TaskFigures, weighted: Collection[str]) -> bool:
    """Return whether criteria of each scored task hold for this one.

    They hold for INJECT: users' tasks would hide that the server refuses all mail from outside.
    """
    return task.weight > 0 or task.task in weighted or task.task == INJECT


def figure(figures: Figures, name: str) -> float | None:
    """Return the figure with this name; None if it is absent or not a number."""
    value: Any = figures
    for key in name.split("."):
        if is_dataclass(value):
            value = keyed(value)
        elif isinstance(value, list | tuple):  # rows of tasks
            value = {getattr(row, "task", None): row for row in value}
        value = value.get(key) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _names(name: str, figures: Figures) -> list[str]:
    of_driver = name in SCORES or name.startswith(("tasks.", "inbox."))
    drivers = figures.by_protocol
    return [f"by_protocol.{driver}.{name}" for driver in drivers] if of_driver and len(drivers) > 1 else [name]


def _exact(name: str, figure: float) -> str:
    unit = unit_of(name)
    return f"{figure * SCALES.get(unit, 1):,.15g} {unit}".rstrip()
