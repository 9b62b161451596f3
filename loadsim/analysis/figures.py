"""The typed figures of a run. Field names, in their order, are the keys of `score.json`.

Times are in milliseconds, `math.inf` where an awaited event never came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from loadsim.analysis.breakdown import Breakdown
from loadsim.analysis.companions import Companions
from loadsim.analysis.delivery import Delivery
from loadsim.analysis.generator.health import EngineHealth, MachineHealth
from loadsim.analysis.generator.per_client import ClientFigures
from loadsim.analysis.json_values import INLINE, OPTIONAL
from loadsim.analysis.load import Load
from loadsim.analysis.preparation import PreparationFigures
from loadsim.analysis.probes.resources import Resource
from loadsim.analysis.probes.statistics import ProbeStatistics
from loadsim.analysis.score import Bounds, CommandFigures, InboxFigures, ProtocolStatistics, TaskFigures
from loadsim.analysis.throughput import Throughput
from loadsim.model.terms import Window


@dataclass(frozen=True, slots=True)
class Coverage:
    """The scored tasks, and the weighted ones without hits or never planned. `few_hits` make a score provisional."""

    scored: Sequence[str]
    without_hits: Sequence[str]
    not_planned: Sequence[str]
    few_hits: Sequence[str]


@dataclass(frozen=True, slots=True)
class DriverFigures:
    """One driver. `spell_s` is the correlation time of slow spells up to which the intervals hold."""

    score_ms: float | None
    response_score_ms: float | None
    score_interval_ms: Bounds | None
    no_score_interval: str | None
    spell_s: float | None
    provisional: bool
    inbox: InboxFigures | None
    users: float
    covers: Coverage
    tasks: Sequence[TaskFigures]

    @property
    def read_p95_ms(self) -> float | None:
        """The 95th percentile of READ; None without a hit."""
        return next((task.service.p95_ms for task in self.tasks if task.task == "READ"), None)


@dataclass(frozen=True, slots=True)
class Lateness:
    """The 95th percentile of the lateness of tasks, by cause; None where it was not measured."""

    busy: float | None
    down: float | None
    generator: float | None


@dataclass(frozen=True, slots=True)
class GeneratorFigures:
    """The figures of the worst engine; None if not measured.

    `lag_limit_ms` limits `lag_p99_ms`, and `lateness_limit_ms` limits `lateness_p95_ms.generator`; None is no limit.
    """

    lag_p50_ms: float | None
    lag_p99_ms: float | None
    lag_max_ms: float | None
    lag_limit_ms: float | None
    lateness_limit_ms: float | None
    cpu_share: float | None
    rss_bytes: float | None
    open_files: float | None
    gc_max_ms: float | None
    clock_steps: float | None

    @classmethod
    def of(
        cls, engines: Sequence[EngineHealth], lag_limit_ms: float | None, lateness_limit_ms: float | None
    ) -> GeneratorFigures:

        def most(name: str) -> Any:
            return max((found for engine in engines if (found := getattr(engine, name)) is not None), default=None)

        lag_p99_ms = most("lag_p99_ms")
        return cls(
            lag_p99_ms=lag_p99_ms,
            lag_limit_ms=lag_limit_ms,
            lateness_limit_ms=lateness_limit_ms,
            **{name: most(name) for name in ("lag_p50_ms", "lag_max_ms", "cpu_share", "rss_bytes", "open_files")},
            gc_max_ms=most("gc_max_ms"),
            clock_steps=sum(len(engine.clock_steps) for engine in engines) if lag_p99_ms is not None else None,
        )


@dataclass(frozen=True, slots=True)
class Totals:
    """The tasks that have a window, of all drivers together.

    `attempted` tasks began, `done` ones ended, failed or not. `generator_failed` counts tasks in which the generator
    itself failed: they are attempted, but neither done nor failed. Shares are of planned tasks, None without any.
    """

    planned: int
    attempted: int
    done: int
    failed: int
    generator_failed: int
    unfinished: int
    skipped: int

    @classmethod
    def of(cls, protocols: Iterable[ProtocolStatistics]) -> Totals:
        tasks = [task for protocol in protocols for task in protocol.tasks if task.windowed]
        return cls(**{one.name: sum(getattr(task, one.name) for task in tasks) for one in fields(cls)})

    @property
    def hits(self) -> int:
        return self.done - self.failed

    @property
    def attempted_share(self) -> float | None:
        return self.attempted / self.planned if self.planned else None

    @property
    def done_share(self) -> float | None:
        return (self.done - self.failed) / self.planned if self.planned else None

    @property
    def failed_share(self) -> float | None:
        return self.failed / self.planned if self.planned else None


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of a run, without the verdict.

    A single driver's score, Inbox, coverage and tasks are also those of the run. Only stress runs have `throughput`.
    `by` and `commands` are computed only on request.
    """

    run: str | None
    name: str | None
    mode: str
    score_ms: float | None
    response_score_ms: float | None
    score_interval_ms: Bounds | None
    no_score_interval: str | None
    provisional: bool
    users: float
    clients: int
    engines: float
    window_s: Window
    plan_digest: str | None
    server: str | None
    embedded: bool
    submission: str | None
    profile_day_s: float
    day_s: float
    night_s: float
    day_shape: tuple[float, ...]
    window_factor: float
    compression: float
    load_equivalent_users: float | None
    received_share: float | None
    offered_per_s: float | None
    achieved_per_s: float
    tasks_per_s: float
    totals: Totals = field(metadata=INLINE)
    attempted_share: float | None
    done_share: float | None
    failed_share: float | None
    sessions_lost: float | None
    sessions_restored: float | None
    lost_users: float
    users_without_session: float
    down_share: float | None
    companions: Companions | None
    log_ons: float
    logon_failed_share: float | None
    unserved_users: float | None
    unserved_share: float | None
    inbox: InboxFigures | None
    covers: Coverage | None
    tasks: Sequence[TaskFigures]
    by_protocol: Mapping[str, DriverFigures]
    load: Load | None
    delivery: Delivery
    lateness_p95_ms: Lateness
    throughput: Throughput | None
    generator: GeneratorFigures
    machines: Sequence[MachineHealth]
    per_client: Sequence[ClientFigures]
    preparation: PreparationFigures | None = field(default=None, metadata=OPTIONAL)
    probes: Mapping[str, Mapping[str, ProbeStatistics]] | None = field(default=None, metadata=OPTIONAL)
    resources: Sequence[Resource] | None = field(default=None, metadata=OPTIONAL)
    commands: Sequence[CommandFigures] | None = field(default=None, metadata=OPTIONAL)
    by: Breakdown | None = field(default=None, metadata=OPTIONAL)

    @property
    def stress(self) -> bool:
        """True for a closed loop, which has neither a plan nor a score."""
        return self.throughput is not None
