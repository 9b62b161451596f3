"""A suite as a value: its runs so far, its cells' figures over all repeats, and its comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isinf
from pathlib import Path
from typing import Any, ClassVar, Literal

from loadsim.campaign.runs import CampaignRun, Findings
from loadsim.comparison.comparison import UNDECIDED, Comparison
from loadsim.documents.json_values import to_json
from loadsim.documents.typed import value_of
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.next_step import next_step
from loadsim.statistics.repeats import Spread, spread

Outcome = Literal["failed", "undecided", "refused", "passed"]
"""The outcomes of a comparison with a limit, worst first. Without a limit, only `refused` is possible."""


@dataclass(frozen=True, slots=True)
class CellFigures:
    """A cell's figures over its repeats. `score_ms` is None, for the reason `no_score`, unless all measured runs have
    finite scores over the same tasks and no run is overloaded.

    `verdict` is `missed` if a measured run misses criteria or one is overloaded, `met` if all repeats are measured and
    meet the criteria, and otherwise `incomplete`.
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
    verdict: Literal["met", "missed", "incomplete"]
    score_ms: Spread | None
    no_score: Finding | None
    tasks_per_s: float | None
    runs: tuple[str, ...]

    @classmethod
    def of(
        cls, name: str, levels: Mapping[str, str | int | None], planned: int, runs: Sequence[CampaignRun]
    ) -> CellFigures:
        measured = [run for run in runs if run.measured]
        passed = sum(run.passed is True for run in measured)
        overloaded = sum(run.overloaded for run in runs)
        no_score = _no_score(name, measured, overloaded)
        missed = overloaded > 0 or passed < len(measured)
        rates = [run.tasks_per_s for run in measured if run.tasks_per_s is not None]
        return cls(
            name=name,
            levels=levels,
            planned=planned,
            measured=len(measured),
            overloaded=overloaded,
            invalid=sum(run.validity == "invalid" for run in runs) - overloaded,
            failed=sum(run.validity is None for run in runs),
            degraded=sum(run.validity == "degraded" for run in measured),
            passed=passed,
            verdict="missed" if missed else "met" if passed == planned else "incomplete",
            score_ms=None if no_score else spread([run.score_ms or 0.0 for run in measured]),
            no_score=no_score,
            tasks_per_s=sum(rates) / len(rates) if rates else None,
            runs=tuple(run.run for run in measured),
        )

    @property
    def answered(self) -> int:
        """The number of repeats with a result about the server."""
        return self.measured + self.overloaded


def _no_score(cell: str, measured: Sequence[CampaignRun], overloaded: int) -> Finding | None:
    """Return why a cell with these `measured` and `overloaded` runs has no mean score; None if it has one."""
    if overloaded:
        return finding(Code.CELL_OVERLOADED, cell, overloaded=overloaded, answered=len(measured) + overloaded)
    if not measured:
        return finding(Code.CELL_NOT_MEASURED, cell)
    if any(run.score_ms is None or isinf(run.score_ms) for run in measured):
        return finding(Code.CELL_NOT_FINITE, cell)
    if len({frozenset(run.scored) for run in measured}) > 1:
        return finding(Code.CELL_TASKS_DIFFER, cell)
    return None


@dataclass(frozen=True, slots=True)
class ComparedCells:
    """Two compared cells. Without a `comparison`, `refused` has the reasons."""

    base: str
    new: str
    comparison: Comparison | None
    refused: tuple[Finding, ...] = ()

    @property
    def outcome(self) -> Outcome | None:
        """The decision on the limit, or `refused`; None if the comparison has no limit."""
        return "refused" if self.comparison is None else self.comparison.figures.decision

    @property
    def document(self) -> dict[str, Any]:
        comparison = self.comparison.document if self.comparison else None
        return {"base": self.base, "new": self.new, "refused": to_json(self.refused), "comparison": comparison}


@dataclass(frozen=True, slots=True)
class CellTerms:
    """A cell: its levels, and a digest of its scenario (without passwords) and commands."""

    levels: Mapping[str, str | int | None]
    digest: str


@dataclass(frozen=True, slots=True)
class SuiteTerms:
    """The terms of a suite, which must not change when it is resumed: the order of runs, and what each measures.

    `embedded`: cells use the embedded server. `compare` has the base, the new cell and `max_regression` of each
    comparison; choosing them once the results are known would always turn up a difference. `retries` may change.
    """

    software: str
    name: str
    repeats: int
    seed: int
    pause_s: float
    engines: int | None
    pin: bool
    embedded: bool
    compare: tuple[tuple[str, str, float | None], ...]
    cells: Mapping[str, CellTerms]
    retries: int


@dataclass(frozen=True, slots=True)
class SuiteFigures:
    """A suite with its runs so far. Each position in the order needs a run with a result.

    `ended` is the reason for an early end. `comparisons` are None until they are made, at the end.
    """

    KIND: ClassVar[str] = "suite"
    directory: Path
    terms: SuiteTerms
    runs: tuple[CampaignRun, ...] = ()
    comparisons: tuple[ComparedCells, ...] | None = None
    ended: Finding | None = None

    @classmethod
    def read(cls, directory: Path, document: Mapping[str, Any], runs: tuple[CampaignRun, ...]) -> SuiteFigures:
        """Read a suite, without comparisons, from its document. Raises one of `DAMAGED` for a malformed one."""
        terms: SuiteTerms = value_of(SuiteTerms, document["terms"])
        if unknown := {run.cell for run in runs} - terms.cells.keys():
            raise ValueError(unknown)
        findings = value_of(Findings, document["findings"])
        ended = next((finding for finding in findings if finding.code is Code.SUITE_ENDED), None)
        return cls(directory, terms, runs, ended=ended)

    @property
    def total(self) -> int:
        return self.terms.repeats * len(self.terms.cells)

    @property
    def cells(self) -> tuple[CellFigures, ...]:
        of_cell: dict[str, list[CampaignRun]] = {name: [] for name in self.terms.cells}
        for run in self.runs:
            of_cell[run.cell].append(run)
        cells = self.terms.cells.items()
        return tuple(CellFigures.of(name, cell.levels, self.terms.repeats, of_cell[name]) for name, cell in cells)

    @property
    def done(self) -> set[int]:
        """The positions in the order that have a result or have used up their attempts."""
        attempts = Counter(run.number for run in self.runs)
        answered = {run.number for run in self.runs if run.answered}
        return answered | {number for number, count in attempts.items() if count > self.terms.retries}

    @property
    def left(self) -> int:
        """The number of positions in the order that need another run."""
        return self.total - len(self.done)

    @property
    def outcomes(self) -> Counter[Outcome]:
        return Counter(pair.outcome for pair in self.comparisons or () if pair.outcome)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The reason for an early end, and the limits of the cells' figures."""
        findings = [self.ended] if self.ended else []
        if self.terms.embedded:
            findings.append(finding(Code.EMBEDDED))
        for cell in self.cells:
            if cell.answered and cell.no_score:
                findings.append(cell.no_score)
            if cell.invalid or cell.failed:
                findings.append(finding(Code.RUNS_NOT_COUNTED, cell.name, invalid=cell.invalid, failed=cell.failed))
        if failures := sum(len(run.failed_after) for run in self.runs):
            findings.append(finding(Code.COMMANDS_FAILED, commands=failures))
        return tuple(findings)

    @property
    def next_step(self) -> str:
        return next_step(self.findings)

    @property
    def complete(self) -> bool:
        return self.left == 0

    @property
    def exit_status(self) -> int:
        """3 if a repeat has no result, 1 if criteria or a limit were missed, 4 if undecided or refused, else 0."""
        cells = self.cells
        if not self.complete or any(cell.answered < cell.planned for cell in cells):
            return 3
        if any(cell.verdict == "missed" for cell in cells) or self.outcomes["failed"]:
            return 1
        return UNDECIDED if self.outcomes["undecided"] or self.outcomes["refused"] else 0

    @property
    def document(self) -> dict[str, Any]:
        return {
            "kind": self.KIND,
            "exit_status": None if self.comparisons is None or not self.complete else self.exit_status,
            "complete": self.complete,
            "findings": to_json(self.findings),
            "next_step": self.next_step,
            "left": self.left,
            "cells": to_json(self.cells),
            "comparisons": [pair.document for pair in self.comparisons or ()],
            "terms": to_json(self.terms),
            "runs": to_json(self.runs),
        }
