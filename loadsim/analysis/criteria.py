"""Criteria: what the figures of `score.json` are held against, and what came of each.

A criterion is named by its figure, as that is found in `score.json`: its keys with dots between them, those of a task
below `tasks.NAME`. Where there are several client modules, the score and tasks are those of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadsim.model.criteria import DEFAULT, OF_THE_PLAN, SCORED, SCORES, documents, read_criteria
from loadsim.model.profile import load_weights
from loadsim.model.terms import UNSCORED
from loadsim.model.yaml_reader import Origin, read_file
from loadsim.timinglog.log_schema import OLDER_CRITERIA

Limits = Mapping[str, float]
"""By `min` and `max`, which may be reached, and `below`, which may not. Times in ms, shares as fractions of 1."""

_DEFAULT: Mapping[str, Limits] = {
    name: {limit: int(value) if value == int(value) else value for limit, value in (limits or {}).items()}
    for name, limits in documents(DEFAULT).items()
}
"""The criteria of logs that state none. Whole limits are whole numbers in their `score.json`."""

_OLDER_DEFAULT = ("score_ms", "failed_share", "delivery.undelivered_at_end")
"""The criteria that the first logs had by default."""


@dataclass(frozen=True, slots=True)
class Result:
    """One criterion and its figure: None when it was not measured, infinite when what was waited for never came.

    `each`: it is that of one task, by a criterion that holds for each scored task.
    """

    name: str
    limits: Limits
    figure: float | None
    each: bool = False

    @property
    def passed(self) -> bool:
        """True if the figure keeps all limits; an unmeasured figure keeps none."""
        return self.figure is not None and _keeps(self.figure, self.limits)

    @property
    def found(self) -> str:
        """The figure in words; never rounded to where it would seem to have come out the other way."""
        if self.figure is None:
            return "not measured"
        if math.isinf(self.figure):
            return "inf"
        rounded = _rounded(self.name, self.figure)
        if _keeps(rounded, self.limits) != self.passed:
            return _in_words(self.name, self.figure)
        return _in_words(self.name, rounded, decimals=1)

    @property
    def wanted(self) -> str:
        words = {"min": "at least", "max": "at most", "below": "below"}
        return " and ".join(f"{words[limit]} {_in_words(self.name, value)}" for limit, value in self.limits.items())

    @property
    def text(self) -> str:
        return f"{self.name} {'was ' if self.figure is None else ''}{self.found}, {self.wanted} wanted"


def missed_texts(results: Sequence[Result]) -> list[str]:
    """Return a line for each criterion that was missed, and one for all tasks that miss what holds for each of them."""
    missed = [result for result in results if not result.passed]
    lines = [result.text for result in missed if not result.each]
    of_each: dict[tuple[str, str], list[Result]] = {}
    for result in missed:
        if result.each:
            of_each.setdefault((result.name.rpartition(".")[2], result.wanted), []).append(result)
    for (last, wanted), of_tasks in of_each.items():
        each = [f"{one.name.rpartition('.')[0].removeprefix('tasks.')} {one.found}" for one in of_tasks]
        lines.append(of_tasks[0].text if len(of_tasks) == 1 else f"{last} of {', '.join(each)}; {wanted} wanted")
    return lines


def score_limit_ms(results: Iterable[Result]) -> float | None:
    """Return the limit of the score, the lowest of several client modules; None without such a criterion."""
    limits = [one.limits for one in results if one.name.rpartition(".")[2] == "score_ms"]
    return min((float(each[limit]) for each in limits for limit in ("max", "below") if limit in each), default=None)


def header_criteria(header: Mapping[str, Any]) -> dict[str, Limits | None]:
    """The criteria in a log's header by their names; None is one that is off."""
    found: Mapping[str, Any] = header.get("criteria") or {}
    if found.keys() - OLDER_CRITERIA.keys():
        return dict(found)
    if not found:
        return {**_DEFAULT}
    older: dict[str, Limits | None] = {name: _DEFAULT[name] for name in _OLDER_DEFAULT}
    for key, most in found.items():
        name, limit = OLDER_CRITERIA[key]
        older[name] = None if most is None else {limit: most}
    return older


def criteria_of(path: Path, figures: Mapping[str, Any]) -> Mapping[str, Limits | None]:
    """The section `criteria` of a scenario's file, with the defaults, as far as `score.json` can have such `figures`.

    Of a task that only one client module has done, nothing is asked of the others; of one that none has done, it is
    asked, and not measured. Raises `ConfigError`, one line.
    """
    done = {module: {task["task"] for task in found["tasks"]} for module, found in figures["by_protocol"].items()} or {
        "imap": set()
    }
    undone = {*load_weights(), *UNSCORED}.difference(*done.values())
    planned = {module: tasks | undone for module, tasks in done.items()}
    document = read_file(path, str(path)).get("criteria", {})
    return documents(read_criteria(document, planned, figures["throughput"] is not None, Origin(str(path))))


def hold(criteria: Mapping[str, Limits | None], score: Mapping[str, Any]) -> tuple[Result, ...]:
    """The result of each criterion that is on; `score` has the figures of `score.json`.

    One of a task or of a score that names no client module holds for each of several. A closed loop has no score and
    no plan, and no criterion of them.
    """
    results = []
    for name, limits in criteria.items():
        if limits is None or (score["throughput"] and name.rpartition(".")[2] in OF_THE_PLAN):
            continue
        if name.startswith(SCORED):
            each_task = _of_scored_tasks(name.removeprefix(SCORED), score)
            names = [own for own, common in each_task.items() if not criteria.keys() & {own, common}]
            results += [Result(own, limits, figure(score, own), each=True) for own in names]
        else:
            results += [Result(each, limits, figure(score, each)) for each in _names(name, score)]
    return tuple(results)


def _of_scored_tasks(last: str, score: Mapping[str, Any]) -> dict[str, str]:
    """Names of a figure of every scored task that was due, with and without its client module.

    With one client module, the two are the same. A closed loop scores nothing: there it holds for the tasks that have
    a weight by default.
    """
    modules = score["by_protocol"]
    weighing = load_weights() if score["throughput"] else ()
    return {
        (f"by_protocol.{module}.{name}" if len(modules) > 1 else name): name
        for module, found in modules.items()
        for task in found["tasks"]
        if (task["weight"] > 0 or task["task"] in weighing) and task["planned"]
        for name in [f"tasks.{task['task']}.{last}"]
    }


def figure(score: Mapping[str, Any], name: str) -> float | None:
    """The figure of this name in `score.json`; None where there is none."""
    found: Any = score
    for key in name.split("."):
        if isinstance(found, list):
            found = next((row for row in found if row["task"] == key), None)
        else:
            found = found.get(key) if isinstance(found, Mapping) else None
    measured = isinstance(found, int | float) and not isinstance(found, bool)
    return float(found) if measured or found == "inf" else None


def _names(name: str, score: Mapping[str, Any]) -> list[str]:
    of_module = name in SCORES or name.startswith(("tasks.", "inbox."))
    modules = score["by_protocol"]
    return [f"by_protocol.{module}.{name}" for module in modules] if of_module and len(modules) > 1 else [name]


def _keeps(figure: float, limits: Limits) -> bool:
    return (
        figure >= limits.get("min", -math.inf)
        and figure <= limits.get("max", math.inf)
        and figure < limits.get("below", math.inf)
    )


_SCALES = {"%": 100, "MiB": 2**-20}
"""The factors from figures of score.json to their display units."""


def _rounded(name: str, figure: float) -> float:
    """To what people want to read: a tenth of a millisecond, four digits of a share."""
    scale = _SCALES.get(_unit(name), 1)
    return float(f"{figure:.4g}") if scale > 1 else round(figure * scale, 1) / scale


def _in_words(name: str, figure: float, decimals: int | None = None) -> str:
    """With its unit; of a count or a share as many decimals as it has."""
    unit = _unit(name)
    figure *= _SCALES.get(unit, 1)
    return (
        f"{figure:.15g} {unit}".rstrip() if decimals is None or unit in ("", "%") else f"{figure:.{decimals}f} {unit}"
    )


def _unit(name: str) -> str:
    """Return the unit of a figure by its name; "" for a count."""
    *_, group, last = ("", *name.split("."))
    if last.endswith("_share") or last == "share":
        return "%"
    if last.endswith("_ms") or group.endswith("_ms"):
        return "ms"
    if last.endswith("_per_s") or group in ("by_task", "commands"):
        return "per s"
    return "MiB" if last.endswith("_bytes") else ""
