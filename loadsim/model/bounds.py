"""What a run must reach to pass, and what it must keep to be valid."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from loadsim.model.fields import Amount, Count, Duration, Share, SomeDuration, Via, strict


@strict
@dataclass(frozen=True, slots=True)
class _MaxAmount:
    max: Amount | None


@strict
@dataclass(frozen=True, slots=True)
class _MaxShare:
    max: Share | None


@strict
@dataclass(frozen=True, slots=True)
class _MaxCount:
    max: Count | None


@strict
@dataclass(frozen=True, slots=True)
class _Criteria:
    score_ms: _MaxAmount | None = field(default_factory=lambda: _MaxAmount(1000.0))
    failed: _MaxShare | None = field(default_factory=lambda: _MaxShare(0.01))
    undelivered: _MaxCount | None = field(default_factory=lambda: _MaxCount(0))


@dataclass(frozen=True, slots=True)
class Criteria:
    """What a run must reach to pass; None switches a criterion off. `failed_max` is a share of the tasks.

    The score of 1000 ms is the published limit of what is acceptable; the others are this project's own.
    """

    score_ms_max: float | None = 1000.0
    failed_max: float | None = 0.01
    undelivered_max: int | None = 0


def _criteria(shape: _Criteria) -> Criteria:
    return Criteria(
        shape.score_ms.max if shape.score_ms else None,
        shape.failed.max if shape.failed else None,
        shape.undelivered.max if shape.undelivered else None,
    )


@strict
@dataclass(frozen=True, slots=True)
class GeneratorLimits:
    """How the generator itself may be before the run is invalid; None switches a limit off.

    The 99th percentile of an event loop's lag: at most `lag_p99_ms`, and at most the share `lag_share` of the 95th
    percentile of the fastest scored task. `cpu` is a share of one core, for each engine; `lateness_p95_ms` is how late
    tasks may begin.
    """

    lag_p99_ms: Amount | None = 5.0
    lag_share: Share | None = 0.1
    cpu: Share | None = 0.6
    lateness_p95_ms: Amount | None = 50.0


@strict
@dataclass(frozen=True, slots=True)
class Limits:
    """When a run's score must not be quoted, and how long what is under way is waited for.

    `lost_users` and `done` are shares of the users and of the planned tasks, `hits` the fewest of a scored task,
    `window_s` the shortest window; `command_s` bounds one protocol command, `grace_s` the tasks that still run at
    the end, `drain_s` the mail that is still under way.
    """

    lost_users: Share = 0.01
    done: Share = 0.98
    hits: Count = 20
    window_s: Duration = 30.0
    command_s: SomeDuration = 60.0
    grace_s: Duration = 10.0
    drain_s: Duration = 30.0
    generator: GeneratorLimits = field(default_factory=GeneratorLimits)


CriteriaField = Annotated[Criteria, Via(_Criteria, _criteria)]
"""`criteria: {score_ms: {max: 1000}, failed: {max: 1%}, undelivered: {max: 0}}`; null for one that is off."""
