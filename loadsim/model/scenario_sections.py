"""What a run must keep to be valid."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

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
    """Limits of a valid run, and the time limits of the work that the end of a run finds unfinished.

    `lost_users` is a share of the users, `done` a share of the planned tasks, `load` a share of the plan's tasks.
    `hits` is the least number for each scored task: with fewer than 20, the 95th percentile is the slowest hit.
    `window_s` is the shortest window. `command_s` limits one protocol command, `grace_s` the tasks that still run at
    the end, `drain_s` the mail that is not delivered yet.
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

    def in_header(self) -> dict[str, float | None]:
        """Return the limits of a valid run by the names that a log's header has for them; None is off."""
        return {
            "lost_users": self.lost_users,
            "done": self.done,
            "load": self.load,
            "hits": self.hits,
            "window_s": self.window_s,
            **{f"generator_{name}": limit for name, limit in asdict(self.generator).items()},
        }
