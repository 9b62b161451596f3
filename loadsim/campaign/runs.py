"""The runs of a campaign (a capacity search or a suite): their results and figures, as in `campaign.json`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

from loadsim.analysis.criteria import Result as CriterionResult
from loadsim.analysis.criteria import may_judge
from loadsim.analysis.generator.limits import STOLEN_SHARE
from loadsim.analysis.probes.resources import HOST, kind_of
from loadsim.analysis.summary import Summary
from loadsim.documents.json_values import INFINITE
from loadsim.documents.typed import Reads, value_of
from loadsim.errors import LogError
from loadsim.findings.finding import Finding
from loadsim.findings.severity import Cause, Severity
from loadsim.findings.verdict import Verdict, server_failed
from loadsim.model.figures import ProbeStatistics, Resource
from loadsim.model.terms import MOST_USERS

Result = Literal["passed", "failed", "undecided", "generator", "void"]
"""The result of a run. `generator`: the load generator was the bottleneck. `void`: invalid for another reason, or
without figures."""

PASSED: Result = "passed"
FAILED: Result = "failed"
UNDECIDED: Result = "undecided"
GENERATOR: Result = "generator"
VOID: Result = "void"

RUN = re.compile(r"runs/[A-Za-z0-9][\w.-]*")
"""Matches a campaign's run directories, relative to its own directory."""

CONTENDED_SHARE = 0.25
"""If others took a larger share of the server's cores, a run also measures their work."""

LONGEST_FAILURE = 500
"""The most characters of a failure, which may quote a server or a command."""

DECIDING = (Severity.INVALID, Severity.DEGRADED, Severity.MISSED)
"""The findings that keep a run from passing."""

DAMAGED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, LogError)
"""The errors that a reader raises for an unexpected document."""


def judge_run(verdict: Verdict, criteria: Sequence[CriterionResult]) -> Result:
    """Judge a run by its verdict and the results of its criteria.

    1. An invalid run is void, with two exceptions. If the generator exceeded its limits, the run reveals nothing about
       the server, but ends a search. If the server did not take the load, or the run was aborted as hopeless, it
       failed.
    2. If none of the missed criteria has a figure, a valid run is void: it does not show whether the server meets them.
    3. Any other miss is a failure, and so is a fault (`Verdict.faults`).
    4. A run passes if it is valid and meets all criteria. A degraded run made less load or checked less mail, and may
    meet them only because of that: it is undecided.
    """
    if verdict.validity == "invalid":
        if Cause.GENERATOR in verdict.causes:
            return GENERATOR
        return FAILED if server_failed(verdict.causes) else VOID
    missed = [criterion for criterion in criteria if not criterion.passed]
    if missed and not verdict.faults and all(criterion.figure is None for criterion in missed):
        return VOID if verdict.validity == "valid" else UNDECIDED
    if missed or not verdict.passed:
        return FAILED
    return PASSED if verdict.validity == "valid" else UNDECIDED


def nearest_to_failure(criteria: Sequence[CriterionResult], result: Result) -> float | None:
    """Return the largest ratio of a figure to its upper limit; None if it is 0, or contradicts the result."""
    shares = [
        criterion.figure / limit
        for criterion in criteria
        if criterion.figure is not None and math.isfinite(criterion.figure)
        if (limit := min((most for name, most in criterion.limits.items() if name != "min" and most), default=None))
    ]
    largest = max(shares, default=0.0)
    return largest if largest > 0 and (largest >= 1) == (result == FAILED) else None


Validity = Literal["valid", "degraded", "invalid"]

Findings = tuple[Annotated[Finding, Reads(Finding.read)], ...]

Probes = Mapping[str, Mapping[str, ProbeStatistics]]
"""The statistics of figures by probe."""


@dataclass(frozen=True, slots=True)
class HookResult:
    """The result of a command around a run. `output` is its file in `hooks`; `failure` is None if it succeeded."""

    output: str
    took_s: float
    failure: str | None


@dataclass(frozen=True, slots=True)
class CampaignRun:
    """A run as in `campaign.json`. `run` is its directory, relative to the campaign's.

    `cell` is the name of a suite's cell, or a search's number of users. `number` is its position in the order, and
    `attempt` counts the attempts there. `began` (ISO 8601) and `took_s` are None if, after a crash, the run was only
    recorded when the campaign was resumed. A run that could not be made has a `failure`, but no validity and no
    figures.

    `load_equivalent_users` have a day of 8 h. `resources` are the server machine's, the nearest to saturation first;
    none without the probe `host`. `nearest` tells how close the run was to failing (`nearest_to_failure`). `broken`:
    something that must never happen did: a fault or, in a credible run, more than 0 for a criterion with `max: 0`.
    `received_share` is the share of the published mail that users receive. `taken_share` is the share of the server's
    cores that other programs and other virtual machines took, by the probe `host`. `shared_cores`: the generator also
    used the server's cores, or other virtual machines took much of its machine.
    """

    run: str
    cell: str
    users: int
    number: int = 1
    repeat: int = 1
    attempt: int = 1
    began: str | None = None
    took_s: float | None = None
    result: Result = VOID
    validity: Validity | None = None
    passed: bool | None = None
    failure: str | None = None
    findings: Findings = ()
    score_ms: float | None = None
    score_interval_ms: tuple[float, float] | None = None
    response_score_ms: float | None = None
    scored: tuple[str, ...] = ()
    tasks_per_s: float | None = None
    load_equivalent_users: int | None = None
    delivered_per_min: float | None = None
    resources: tuple[Resource, ...] = ()
    nearest: float | None = None
    broken: bool = False
    received_share: float | None = None
    taken_share: float | None = None
    shared_cores: bool = False
    before: tuple[HookResult, ...] = ()
    after: tuple[HookResult, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons why the run did not pass; missed criteria come first if they were decisive."""
        if self.failure is not None:
            return (self.failure,)
        if self.result == PASSED:
            return ()
        heaviest = list(Severity)
        if self.result == FAILED and self.measured:
            heaviest.insert(0, heaviest.pop(heaviest.index(Severity.MISSED)))
        deciding = [finding for finding in self.findings if finding.severity in DECIDING]
        deciding.sort(key=lambda finding: heaviest.index(finding.severity))
        return tuple(finding.text for finding in deciding)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is Severity.WARNING)

    @property
    def measured(self) -> bool:
        """True if the run's figures may be quoted."""
        return self.validity in ("valid", "degraded")

    @property
    def overloaded(self) -> bool:
        """True if the run is invalid because the server did not take the load, which is a result."""
        return self.validity == "invalid" and self.result == FAILED

    @property
    def answered(self) -> bool:
        """True if the run must not be repeated: repeating it would select good results."""
        return self.measured or self.overloaded

    @property
    def failed_after(self) -> tuple[str, ...]:
        """The failures of commands after the run, which do not affect its figures."""
        return tuple(hook.failure for hook in self.after if hook.failure is not None)

    @property
    def contended(self) -> bool:
        """True if other work took so much of the server's cores that the run measures both."""
        return self.shared_cores or (self.taken_share or 0.0) > CONTENDED_SHARE

    def with_summary(self, summary: Summary) -> CampaignRun:
        verdict, figures, probes = summary.verdict, summary.figures, summary.figures.probes or {}
        result, machines = judge_run(verdict, summary.criteria), () if figures.embedded else figures.machines
        drivers, equivalent = figures.by_protocol.items(), figures.load_equivalent_users
        return replace(
            self,
            result=result,
            validity=verdict.validity,
            passed=verdict.passed,
            findings=verdict.findings,
            score_ms=figures.score_ms,
            score_interval_ms=figures.score_interval_ms,
            response_score_ms=figures.response_score_ms,
            scored=tuple(f"{name}: {task}" for name, driver in drivers for task in driver.covers.scored),
            tasks_per_s=figures.tasks_per_s,
            load_equivalent_users=None if equivalent is None else round(equivalent),
            delivered_per_min=60 * figures.delivery.delivered / figures.window_s.length_s,
            resources=tuple(figures.resources or ()),
            nearest=nearest_to_failure(summary.criteria, result),
            broken=bool(verdict.faults)
            or any(
                criterion.limits.get("max") == 0
                and bool(criterion.figure)
                and may_judge(criterion, verdict.ended_early)
                for criterion in summary.criteria
                if result not in (GENERATOR, VOID)
            ),
            received_share=figures.received_share,
            taken_share=_taken_share(probes),
            shared_cores=any(
                bool(machine.shares_cpus)
                or (bool(machine.server_here) and (machine.stolen_share or 0.0) > STOLEN_SHARE)
                for machine in machines
            ),
        )

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> CampaignRun:
        """Read a run from its document. Raises one of `DAMAGED` for a malformed one."""
        own = {field.name: document[field.name] for field in fields(cls)}
        infinite: dict[str, Any] = {
            name: math.inf for name in ("score_ms", "response_score_ms") if own[name] == INFINITE
        }
        run: CampaignRun = replace(value_of(cls, own | dict.fromkeys(infinite)), **infinite)
        if not RUN.fullmatch(run.run) or not 1 <= run.users <= MOST_USERS:
            raise ValueError(run.run)
        if run.validity is None and run.result != VOID:
            raise ValueError(run.result)
        passed = run.result == PASSED
        if run.failure is None and passed == any(finding.severity in DECIDING for finding in run.findings):
            raise ValueError(run.findings)
        if passed and (run.validity != "valid" or run.broken):
            raise ValueError(run.result)
        if (run.nearest or 1.0) <= 0:
            raise ValueError(run.nearest)
        if run.began is not None:
            datetime.fromisoformat(run.began)
        return run


def _taken_share(probes: Probes) -> float | None:
    """Return the largest share of the server's cores that others took on a machine; None if no probe measured it."""
    shares = []
    for figures in (figures for probe, figures in probes.items() if kind_of(probe) == HOST):
        cores, others, stolen = (
            figures[name].mean if name in figures else None
            for name in ("server_cores", "server_cores_taken_by_others", "server_cores_steal_share")
        )
        if cores and others is not None:
            shares.append(others / cores + (stolen or 0.0))
    return max(shares, default=None)


class Campaign(Protocol):
    """A capacity search or suite with its runs so far: a dataclass with the fields `directory`, `runs` and `terms`."""

    KIND: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def directory(self) -> Path: ...

    @property
    def runs(self) -> tuple[CampaignRun, ...]: ...

    @property
    def terms(self) -> Any: ...

    @property
    def document(self) -> dict[str, Any]: ...

    @classmethod
    def read(cls, directory: Path, document: Mapping[str, Any], runs: tuple[CampaignRun, ...]) -> Self:
        """Read a campaign from its document. Raises one of `DAMAGED` for a malformed one."""
        ...
