"""A step of a capacity search: its result and figures, from the summary of its run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from loadsim.analysis.averages import counted, delivered_per_min
from loadsim.analysis.capacity_search import FAILED, GENERATOR, PASSED, UNDECIDED, VOID, Result
from loadsim.analysis.criteria import Result as CriterionResult
from loadsim.analysis.criteria import missed_texts
from loadsim.analysis.generator_limits import STOLEN_SHARE
from loadsim.analysis.resources import HOST, Resource, kind_of
from loadsim.analysis.verdict import GENERATOR as OF_GENERATOR
from loadsim.analysis.verdict import server_failed
from loadsim.errors import printable
from loadsim.model.lazy_pydantic import TypeAdapter

RUN = re.compile(r"steps/[0-9]{5,9}-[0-9]{1,3}")
"""Matches the run directories of steps, within the directory of a search."""

CONTENDED_SHARE = 0.25
"""A run measures the work of others, too, if they took a larger part of the server's cores."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The result of a step, and the reasons for any other than a pass; missed criteria come first if they decided."""

    result: Result
    reasons: tuple[str, ...] = ()


def judge_step(score: Mapping[str, Any]) -> Judged:
    """Judge a run by the content of its `score.json`.

    1. An invalid run is void, with two exceptions. A generator beyond its limits says nothing about the server, but
       ends the search. Load that the server did not take is a failure, as is a run that was aborted as hopeless.
    2. A missed criterion is a failure if it has a figure. If all that are missed have none, the run is void: it does
       not show if the server meets them.
    3. A run passes if it is valid and meets all criteria. A degraded run lacks load, so it might meet them only for
       that: it is undecided.
    """
    verdict = score["verdict"]
    causes, reasons = set(verdict["causes"]), tuple(verdict["reasons"])
    if verdict["validity"] == "invalid":
        if OF_GENERATOR in causes:
            return Judged(GENERATOR, reasons)
        return Judged(FAILED if server_failed(causes) else VOID, reasons)
    missed = [one for one in verdict["criteria"] if not one["passed"]]
    if any(one["figure"] is not None for one in missed):
        return Judged(FAILED, _missed_first(verdict))
    if missed:
        return Judged(VOID, reasons)
    if not verdict["passed"]:
        return Judged(FAILED, reasons)
    if verdict["validity"] != "valid":
        return Judged(UNDECIDED, reasons)
    return Judged(PASSED)


def _missed_first(verdict: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the reasons of a verdict, which has the missed criteria last, with these first."""
    missed = [replace(StepCriterion.of(one), figure=None).result for one in verdict["criteria"] if not one["passed"]]
    first = len(verdict["reasons"]) - len(missed_texts(missed))
    return (*verdict["reasons"][first:], *verdict["reasons"][:first])


Time = float | Literal["inf"]
"""A time in milliseconds as in JSON."""

Validity = Literal["valid", "degraded", "invalid"]


@dataclass(frozen=True, slots=True)
class StepCriterion:
    """A criterion with its limits and the figure of a run, in the figure's unit; None if it was not measured."""

    name: str
    min: float | None
    max: float | None
    below: float | None
    figure: Time | None
    each: bool

    @classmethod
    def of(cls, criterion: Mapping[str, Any]) -> StepCriterion:
        """Return a criterion of the verdict in `score.json`."""
        return cls(**{one.name: criterion[one.name] for one in fields(cls)})

    @property
    def result(self) -> CriterionResult:
        figure = None if self.figure is None else float(self.figure)
        each = {"min": self.min, "max": self.max, "below": self.below}
        limits = {name: limit for name, limit in each.items() if limit is not None}
        return CriterionResult(self.name, limits, figure, self.each)


@dataclass(frozen=True, slots=True)
class Average:
    """The mean of a probe's figure over the window, in the figure's unit; None if not measured over all of it."""

    probe: str
    figure: str
    mean: float | None


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A step as in `capacity.json`. `run` is its run directory, relative to that of the search.

    An infinite time is "inf". `load_equivalent_users` have a day of 8 h. `resources` are those of the server's machine,
    the nearest to saturation first; none without the probe `host`. `averages` are those of the counters of `COUNTERS`,
    and `criteria` all that are on.

    `warnings` are those of the run. `load_share` is the load made, of the plan's. `received_share` is the mail that
    users receive, of the published mail. `taken_share` is the part of the server's cores that others than the server
    took, other virtual machines included, by the probe `host`. `on_generators_cores`: the generator used the server's
    cores, too. `stolen`: other virtual machines took much of the server's machine.
    """

    users: int
    result: Result
    score_ms: Time | None
    run: str
    score_interval_ms: tuple[float, float] | None
    response_score_ms: Time | None
    tasks_per_s: float
    load_equivalent_users: int | None
    reasons: tuple[str, ...]
    resources: tuple[Resource, ...]
    validity: Validity
    delivered_per_min: float
    averages: tuple[Average, ...] = ()
    criteria: tuple[StepCriterion, ...] = ()
    warnings: tuple[str, ...] = ()
    load_share: float | None = None
    received_share: float | None = None
    taken_share: float | None = None
    on_generators_cores: bool = False
    stolen: bool = False

    @property
    def nearest(self) -> float | None:
        """The largest finite figure of a criterion, by its upper limit; None if it contradicts the result."""
        shares = [
            float(one.figure) / limit
            for one in self.criteria
            if one.figure not in (None, "inf")
            if (limit := min((most for most in (one.max, one.below) if most), default=None))
        ]
        largest = max(shares, default=None)
        return largest if largest is None or (largest >= 1) == (self.result == FAILED) else None

    @property
    def contended(self) -> bool:
        """True if other work than the server's had so much of its cores that the run measures both."""
        by_others = self.taken_share is not None and self.taken_share > CONTENDED_SHARE
        return self.on_generators_cores or self.stolen or by_others

    @classmethod
    def of(cls, users: int, run: str, score: Mapping[str, Any]) -> MeasuredStep:
        """Return the step of a run with this `score.json`."""
        judged = judge_step(score)
        return cls(
            users=users,
            result=judged.result,
            score_ms=score["score_ms"],
            run=run,
            score_interval_ms=_interval_ms(score),
            response_score_ms=score["response_score_ms"],
            tasks_per_s=score["tasks_per_s"],
            load_equivalent_users=score["load_equivalent_users"],
            reasons=judged.reasons,
            resources=_RESOURCES.validate_python(score.get("resources") or ()),
            validity=score["verdict"]["validity"],
            delivered_per_min=_delivered_per_min(score),
            averages=_averages(score.get("probes") or {}),
            criteria=tuple(map(StepCriterion.of, score["verdict"]["criteria"])),
            warnings=tuple(score.get("warnings") or ()),
            load_share=(score.get("load") or {}).get("share"),
            received_share=score.get("received_share"),
            taken_share=_taken_share(score.get("probes") or {}),
            **_sharing(score),
        )

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> MeasuredStep:
        """Return the step with this document. Raises `KeyError`, `TypeError` or `ValueError` for any other."""
        step = _STEP.validate_python({one.name: document[one.name] for one in fields(cls)})
        if not RUN.fullmatch(step.run):
            raise ValueError(step.run)
        return replace(
            step,
            reasons=tuple(map(printable, step.reasons)),
            resources=tuple(
                replace(
                    each,
                    name=printable(each.name),
                    machine=each.machine and printable(each.machine),
                    probe=printable(each.probe),
                    figure=printable(each.figure),
                )
                for each in step.resources
            ),
            averages=tuple(
                replace(each, probe=printable(each.probe), figure=printable(each.figure)) for each in step.averages
            ),
            criteria=tuple(replace(each, name=printable(each.name)) for each in step.criteria),
            warnings=tuple(map(printable, step.warnings)),
        )


_STEP = TypeAdapter(MeasuredStep)
_RESOURCES = TypeAdapter(tuple[Resource, ...])


def _interval_ms(score: Mapping[str, Any]) -> tuple[float, float] | None:
    interval = score.get("score_interval_ms")
    return None if interval is None else (float(interval[0]), float(interval[1]))


def _delivered_per_min(score: Mapping[str, Any]) -> float:
    begin_s, end_s = score["window_s"]
    return delivered_per_min(score["delivery"]["delivered"], end_s - begin_s)


def _averages(probes: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> tuple[Average, ...]:
    names = {probe: [*figures] for probe, figures in probes.items()}
    return tuple(Average(one.probe, one.figure, probes[one.probe][one.figure]["mean"]) for one in counted(names))


def _taken_share(probes: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> float | None:
    """Return the largest part of the server's cores that others took on a machine; None if no probe measured it."""
    found = []
    for figures in (figures for probe, figures in probes.items() if kind_of(probe) == HOST):
        cores, others, stolen = (
            figures.get(name, {}).get("mean")
            for name in ("server_cores", "server_cores_taken_by_others", "server_cores_steal_share")
        )
        if cores and others is not None:
            found.append(others / cores + (stolen or 0.0))
    return max(found, default=None)


def _sharing(score: Mapping[str, Any]) -> dict[str, bool]:
    """Return whether the generator used the server's cores, and whether other virtual machines took its machine's."""
    machines = () if score.get("embedded") else score.get("machines") or ()
    return {
        "on_generators_cores": any(bool(one.get("shares_cpus")) for one in machines),
        "stolen": any(one.get("server_here") and (one.get("stolen_share") or 0.0) > STOLEN_SHARE for one in machines),
    }
