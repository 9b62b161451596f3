"""A suite as a value: its runs so far, the figures of its cells over their repeats, and its comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from loadsim.analysis.compare_runs import UNDECIDED, Comparison
from loadsim.analysis.json_values import INFINITE, to_json
from loadsim.analysis.repeats import Spread, spread
from loadsim.timinglog.json_checks import each_of, harmless, having, number, or_none, switch, text, whole, word

Result = Literal["measured", "overloaded", "invalid", "failed"]
MEASURED: Result = "measured"
OVERLOADED: Result = "overloaded"
INVALID: Result = "invalid"
FAILED: Result = "failed"
RESULTS = (MEASURED, OVERLOADED, INVALID, FAILED)
"""The results of a run. `measured`: its figures may be quoted. `overloaded`: it is invalid because the server did not
take the load, which is the answer. `invalid`: for another reason. `failed`: it has no figures."""

ANSWERED = (MEASURED, OVERLOADED)
"""The results that are not repeated: repeating them would choose the good ones."""

CRITERIA_MISSED, NOT_ALL_MEASURED = 1, 3
"""Exit statuses of a suite, next to that of an undecided comparison."""

Verdict = Literal["met", "missed", "incomplete"]

Outcome = Literal["failed", "undecided", "refused", "passed"]
"""The outcomes of a comparison with a limit, the worst first. Without a limit, `refused` is the only one."""


@dataclass(frozen=True, slots=True)
class HookResult:
    """The end of a command around a run. `output` is its file in `hooks`; `failure` is None if it succeeded."""

    output: str
    took_s: float
    failure: str | None


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """A run of a suite, as in `suite.json`. `run` is its directory, relative to that of the suite.

    `number` is the place in the order, and `attempt` counts its runs. A failed run has no figures; an infinite time is
    "inf". `scored` are the tasks in the score. `began` (ISO 8601) and `took_s` are None for a run that a crash kept
    from being recorded until the suite was resumed.
    """

    run: str
    number: int
    cell: str
    repeat: int
    attempt: int
    result: Result
    began: str | None
    took_s: float | None
    validity: str | None
    passed: bool | None
    score_ms: float | str | None
    tasks_per_s: float | None
    scored: tuple[str, ...]
    reasons: tuple[str, ...]
    before: tuple[HookResult, ...]
    after: tuple[HookResult, ...]

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> SuiteRun:
        """Return the run with this document, made printable. Raises `LogError` or `ValueError` for any other."""
        document = harmless("runs", document)
        if wrong := _RUN(document):
            raise ValueError(wrong)
        values = {one.name: document[one.name] for one in fields(cls)}
        for name in ("before", "after"):
            values[name] = tuple(HookResult(hook["output"], hook["took_s"], hook["failure"]) for hook in values[name])
        for name in ("scored", "reasons"):
            values[name] = tuple(values[name])
        if values["began"] is not None:
            datetime.fromisoformat(values["began"])
        if (values["result"] == FAILED) != (values["validity"] is None):
            raise ValueError("validity: none for a failed run only")
        return cls(**values)

    @property
    def failed_after(self) -> tuple[str, ...]:
        """The failures of commands after the run, which do not change its figures."""
        return tuple(hook.failure for hook in self.after if hook.failure is not None)


_FIGURE = number(0, 1e15)
_HOOKS = each_of(having({"output": text, "took_s": _FIGURE, "failure": or_none(text)}))
_RUN = having(
    {
        "run": text,
        **dict.fromkeys(("number", "repeat", "attempt"), whole(1, 2**31)),
        "cell": text,
        "result": word(*RESULTS),
        "began": or_none(text),
        "took_s": or_none(_FIGURE),
        "validity": or_none(word("valid", "degraded", "invalid")),
        "passed": or_none(switch),
        "score_ms": lambda value: None if value in (None, INFINITE) else _FIGURE(value),
        "tasks_per_s": or_none(_FIGURE),
        "scored": each_of(text),
        "reasons": each_of(text),
        "before": _HOOKS,
        "after": _HOOKS,
    }
)
"""The check of a run in `suite.json`."""


@dataclass(frozen=True, slots=True)
class CellFigures:
    """The figures of a cell over its repeats. `score` is None unless all measured runs have a finite score, over the
    same tasks, and none is overloaded; `no_score` is the reason.

    `verdict` is `missed` if a measured run misses criteria or one is overloaded, `met` if all repeats are measured and
    meet them, and else `incomplete`.
    """

    name: str
    levels: Mapping[str, str | int | None]
    planned: int
    measured: int
    overloaded: int
    invalid: int
    failed: int
    degraded: int
    passed: int
    verdict: Verdict
    score: Spread | None
    no_score: str | None
    tasks_per_s: float | None
    runs: tuple[str, ...]

    @classmethod
    def of(
        cls, name: str, levels: Mapping[str, str | int | None], planned: int, runs: Sequence[SuiteRun]
    ) -> CellFigures:
        """Return the figures of a cell from all its runs, in their order."""
        measured = [run for run in runs if run.result == MEASURED]
        passed = sum(run.passed is True for run in measured)
        overloaded = sum(run.result == OVERLOADED for run in runs)
        no_score = _no_score(measured, overloaded)
        missed = overloaded > 0 or passed < len(measured)
        rates = [run.tasks_per_s for run in measured if run.tasks_per_s is not None]
        return cls(
            name=name,
            levels=levels,
            planned=planned,
            measured=len(measured),
            overloaded=overloaded,
            invalid=sum(run.result == INVALID for run in runs),
            failed=sum(run.result == FAILED for run in runs),
            degraded=sum(run.validity == "degraded" for run in measured),
            passed=passed,
            verdict="missed" if missed else "met" if passed == planned else "incomplete",
            score=None if no_score else spread([float(run.score_ms or 0) for run in measured]),
            no_score=no_score,
            tasks_per_s=sum(rates) / len(rates) if rates else None,
            runs=tuple(run.run for run in measured),
        )

    @property
    def answered(self) -> int:
        """The number of repeats that have an answer on the server."""
        return self.measured + self.overloaded

    @property
    def document(self) -> dict[str, Any]:
        """The entry of the cell in `suite.json`."""
        found = {each.name: to_json(getattr(self, each.name)) for each in fields(self) if each.name != "score"}
        interval = None if self.score is None or self.score.low is None else [self.score.low, self.score.high]
        return {
            **found,
            "score_ms": None if self.score is None else self.score.mean,
            "score_interval_ms": interval,
            "score_stddev_ms": None if self.score is None else self.score.stddev,
        }


def _no_score(measured: Sequence[SuiteRun], overloaded: int) -> str | None:
    """Return why measured runs, next to overloaded ones, have no mean score; None if they have one."""
    if overloaded:
        return f"the server did not take the load in {overloaded} of {len(measured) + overloaded} runs"
    if not measured:
        return "no run was measured"
    if any(run.score_ms in (None, INFINITE) for run in measured):
        return "not every run has a finite score"
    if len({frozenset(run.scored) for run in measured}) > 1:
        return "the runs' scores are over different tasks"
    return None


@dataclass(frozen=True, slots=True)
class ComparedCells:
    """The comparison of two cells; None if there is none, for which `refused` is the reason."""

    base: str
    new: str
    comparison: Comparison | None
    refused: str | None = None

    @property
    def outcome(self) -> Outcome | None:
        """The decision on the limit, or `refused`; None for a comparison without a limit."""
        return "refused" if self.comparison is None else self.comparison.figures.decision

    @property
    def document(self) -> dict[str, Any]:
        """The entry of the comparison in `suite.json`: scores, missed criteria, and the decision."""
        figures = self.comparison.figures if self.comparison else None
        return {
            "base": self.base,
            "new": self.new,
            "refused": self.refused,
            "decision": figures and figures.decision,
            "max_regression": figures and figures.max_regression,
            "scores": [to_json(one) for one in figures.scores] if figures else [],
            "response_scores": [to_json(one) for one in figures.response_scores] if figures else [],
            "further": [to_json(one) for one in figures.further] if figures else [],
            "decisions": [to_json(one) for one in figures.decisions] if figures else [],
            "missed_more": list(figures.missed_more) if figures else [],
            "warnings": list(figures.warnings) if figures else [],
        }


@dataclass(frozen=True, slots=True)
class SuiteFigures:
    """A suite with its runs so far. `total` is the number of places in the order; each needs a run with an answer.

    `ended_why` is the reason of an early end, such as failures in a row. `comparisons` are None until they are made, at
    the end.
    """

    directory: Path
    name: str
    terms: Mapping[str, Any]
    total: int
    retries: int
    runs: tuple[SuiteRun, ...]
    cells: tuple[CellFigures, ...]
    comparisons: tuple[ComparedCells, ...] | None = None
    ended_why: str | None = None

    @property
    def done(self) -> set[int]:
        """The places in the order that have an answer, or have used all their attempts."""
        attempts = Counter(run.number for run in self.runs)
        answered = {run.number for run in self.runs if run.result in ANSWERED}
        return answered | {number for number, count in attempts.items() if count > self.retries}

    @property
    def left(self) -> int:
        """The number of places in the order that need a further run."""
        return self.total - len(self.done)

    @property
    def late(self) -> tuple[SuiteRun, ...]:
        """The runs that were made after one of a later place, as after a rise of `retries`: out of their block."""
        return tuple(
            run for at, run in enumerate(self.runs) if any(earlier.number > run.number for earlier in self.runs[:at])
        )

    @property
    def embedded(self) -> bool:
        """True if cells have the embedded server, which is no measurement."""
        return bool(self.terms.get("embedded"))

    @property
    def compared(self) -> int:
        """The number of comparisons that were made."""
        return sum(one.comparison is not None for one in self.comparisons or ())

    @property
    def outcomes(self) -> Counter[Outcome]:
        """The number of comparisons with each outcome."""
        return Counter(one.outcome for one in self.comparisons or () if one.outcome)

    @property
    def complete(self) -> bool:
        return self.left == 0

    @property
    def exit_status(self) -> int:
        """3 if a repeat has no answer, 1 if criteria or a limit were missed, 4 if undecided or refused, or 0."""
        if not self.complete or any(cell.answered < cell.planned for cell in self.cells):
            return NOT_ALL_MEASURED
        if any(cell.verdict == "missed" for cell in self.cells) or self.outcomes["failed"]:
            return CRITERIA_MISSED
        return UNDECIDED if self.outcomes["undecided"] or self.outcomes["refused"] else 0

    @property
    def document(self) -> dict[str, Any]:
        """The content of `suite.json`."""
        return {
            "name": self.name,
            "complete": self.complete,
            "ended_why": self.ended_why,
            "exit_status": None if self.comparisons is None or not self.complete else self.exit_status,
            "left": self.left,
            "cells": [cell.document for cell in self.cells],
            "comparisons": [one.document for one in self.comparisons or ()],
            "terms": dict(self.terms),
            "runs": [to_json(run) for run in self.runs],
        }
