"""The section `limits` of a scenario file, which also applies to logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from loadsim.documents.schema import Amount, Count, Duration, PositiveDuration, Share
from loadsim.documents.typed import strict

_GENERATOR = "generator_"
"""The prefix of the generator's limits in a log's header."""


@strict
@dataclass(frozen=True, slots=True)
class GeneratorLimits:
    """Limits on the generator, beyond which a run is invalid; None switches a limit off."""

    lag_p99_ms: Amount | None = 5.0
    """Largest 99th percentile of an engine's event-loop lag if the loop, not the kernel, timed more than 1 % of a
    task; `null` switches this off, but not the next three."""
    lag_share: Share | None = 0.1
    """Largest such lag as a share of the fastest scored task's 95th percentile; 2 ms are always allowed."""
    cpu: Share | None = 0.9
    """Largest share of a core that an engine may use."""
    lateness_p95_ms: Amount | None = 50.0
    """Largest 95th percentile of the generator's lateness, of an engine's late start, and the largest 99th of its lag
    if the kernel timed the tasks."""


@strict
@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for a valid run, and time limits for commands and for unfinished work at the end.

    With fewer than 20 hits, the 95th percentile is the slowest hit.
    """

    lost_users: Share = 0.01
    """Invalid if the generator loses a larger share of the users."""
    done: Share = 0.98
    """Invalid if a smaller share of the due tasks started."""
    load: Share = 0.95
    """Invalid if a smaller share of the plan's tasks started, or if companions had sessions for less of the time."""
    hits: Count = 20
    """Invalid if a scored task has fewer hits."""
    window_s: Duration = 30.0
    """Invalid if the window is shorter."""
    command_s: PositiveDuration = 60.0
    """Time limit for a protocol command; a visit to a mailbox by `init` or `clean` may take 20 times this."""
    grace_s: Duration = 10.0
    """Longest wait at the end for running tasks."""
    drain_s: Duration = 30.0
    """Longest wait after that for mail in transit."""
    generator: GeneratorLimits = field(default_factory=GeneratorLimits)
    """Limits on the load generator; with the embedded server and in stress mode, they only warn."""

    def in_header(self) -> dict[str, float | None]:
        """Return the limits for a valid run by their names in a log's header; None means off."""
        own = {name: getattr(self, name) for name in ("lost_users", "done", "load", "hits", "window_s")}
        return own | {f"{_GENERATOR}{name}": limit for name, limit in asdict(self.generator).items()}

    @classmethod
    def of_header(cls, stated: Mapping[str, Any]) -> Limits:
        """Return the limits that a log's header states, with defaults for the rest."""
        generator = {name: stated[name] for name in stated if name.startswith(_GENERATOR)}
        own = {name: stated[name] for name in stated.keys() - generator.keys()}
        named = {name.removeprefix(_GENERATOR): limit for name, limit in generator.items()}
        return cls(**own, generator=GeneratorLimits(**named))
