"""What a run must keep to be valid."""

from __future__ import annotations

from dataclasses import dataclass, field

from loadsim.model.schema import Amount, Count, Duration, Share, SomeDuration, strict


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

    `lost_users` and `done` are shares of the users and of the planned tasks, `load` of the tasks of the plan. `hits`
    are the fewest of a scored task, `window_s` is the shortest window; `command_s` bounds one protocol command,
    `grace_s` the tasks that still run at the end, `drain_s` the mail that is still under way.
    """

    lost_users: Share = 0.01
    done: Share = 0.98
    load: Share = 0.95
    hits: Count = 20
    window_s: Duration = 30.0
    command_s: SomeDuration = 60.0
    grace_s: Duration = 10.0
    drain_s: Duration = 30.0
    generator: GeneratorLimits = field(default_factory=GeneratorLimits)
