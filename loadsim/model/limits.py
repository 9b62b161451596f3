"""The section `limits` of a scenario file, by which logs are judged, too."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from loadsim.model.schema import Amount, Count, Duration, PositiveDuration, Share, strict


@strict
@dataclass(frozen=True, slots=True)
class GeneratorLimits:
    """Limits of the generator, beyond which a run is invalid; None switches a limit off.

    `lag_p99_ms` limits the 99th percentile of an event loop's lag. `lag_share` limits it to a share of the 95th
    percentile of the fastest scored task. `cpu` is a share of one core, for each engine. `lateness_p95_ms` limits the
    95th percentile of the tasks' lateness.
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
    command_s: PositiveDuration = 60.0
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
