"""The typed figures of a run. Field names, in their order, are the keys of `score.json`.

Times are in milliseconds, `math.inf` where an awaited event never came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from loadsim.analysis.companions import Companions
from loadsim.analysis.delivery import Delivery
from loadsim.analysis.generator.health import EngineHealth, MachineHealth
from loadsim.analysis.generator.per_client import ClientFigures
from loadsim.analysis.load import Load
from loadsim.analysis.probes.resources import Resource
from loadsim.analysis.probes.statistics import ProbeStatistics
from loadsim.analysis.score import CommandFigures, Coverage, DriverFigures, InboxFigures, TaskFigures
from loadsim.analysis.throughput import Throughput
from loadsim.documents.json_values import INLINE, OPTIONAL
from loadsim.model.terms import Window
from loadsim.statistics.intervals import Bounds


@dataclass(frozen=True, slots=True)
class Lateness:
    busy: float | None
    down: float | None
    generator: float | None
    """The 95th percentile of the time by which the window's tasks started late, because of the user, the session,
    loadsim; `null` in stress mode."""


@dataclass(frozen=True, slots=True)
class GeneratorFigures:
    """The figures of the worst engine."""

    lag_p50_ms: float | None
    lag_p99_ms: float | None
    lag_max_ms: float | None
    """The event loop's lag in the window, by a timer of 100 Hz, of the worst engine."""
    lag_limit_ms: float | None
    lateness_limit_ms: float | None
    """The limits of `lag_p99_ms` and `lateness_p95_ms.generator`, or `null`."""
    cpu_share: float | None
    """The busiest engine's share of a core: the mean of its samples over time."""
    rss_bytes: float | None
    open_files: float | None
    gc_max_ms: float | None
    clock_steps: float | None
    """The most memory, files, and longest garbage collection of an engine; how often the wall clock was set."""

    @classmethod
    def of(
        cls, engines: Sequence[EngineHealth], lag_limit_ms: float | None, lateness_limit_ms: float | None
    ) -> GeneratorFigures:
        names = ("lag_p50_ms", "lag_p99_ms", "lag_max_ms", "cpu_share", "rss_bytes", "open_files", "gc_max_ms")
        found = {name: [getattr(engine, name) for engine in engines] for name in names}
        worst = {name: max((one for one in each if one is not None), default=None) for name, each in found.items()}
        steps = None if worst["lag_p99_ms"] is None else sum(len(engine.clock_steps) for engine in engines)
        return cls(**worst, lag_limit_ms=lag_limit_ms, lateness_limit_ms=lateness_limit_ms, clock_steps=steps)


@dataclass(frozen=True, slots=True)
class Totals:
    """Tasks of all drivers together. Shares are of planned tasks, None without any."""

    planned: int
    """Tasks due in the window, without LOGON and LOGOFF."""
    attempted: int
    done: int
    failed: int
    """Those that started; ended in success or failure; were refused, lost or timed out."""
    generator_failed: int
    """Those in which the generator itself failed: attempted, neither done nor failed. A single one makes the run
    invalid."""
    unfinished: int
    skipped: int
    """Those still running at the end; those that had not started."""

    @classmethod
    def of(cls, drivers: Mapping[str, DriverFigures], name: str | None = None) -> Totals:
        """Return the totals of the tasks that have a window, or of those with a name."""
        tasks = [task for driver in drivers.values() for task in driver.tasks]
        tasks = [task for task in tasks if (task.windowed if name is None else task.task == name)]
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


def fastest_p95_ms(drivers: Mapping[str, DriverFigures]) -> float | None:
    scored = [task.service.p95_ms for driver in drivers.values() for task in driver.tasks if task.weight > 0]
    return min((found for found in scored if found is not None), default=None)


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of a run, without the verdict; docstrings of fields are their meanings in the reference."""

    run: str | None
    name: str | None
    mode: str
    """The run's ID; the scenario; `canonical` or `stress`."""
    score_ms: float | None
    response_score_ms: float | None
    """Score and response score; `null` with several drivers, in stress mode, and if no scored task has a hit, for the
    latter if none was due."""
    score_interval_ms: Bounds | None
    """The score's 95 % interval within this run, `[from, to]`, if all scored tasks have one; it holds for slow spells
    with a correlation time of at most a 300th of the window."""
    provisional: bool
    """True if a scored task has fewer than 300 hits."""
    users: float
    clients: int
    engines: float
    window_s: Window
    """Simulated users, machines, load-generating processes; begin and end of the window."""
    plan_digest: str | None
    """SHA-256 of what the users were to do."""
    server: str | None
    embedded: bool
    submission: str | None
    """The server, true for the embedded one, and `client.submission` (null if no user submits by SMTP)."""
    profile_day_s: float
    day_s: float
    night_s: float
    """Lengths of the profiles' day, and of the day and night in the run."""
    day_shape: tuple[float, ...]
    window_factor: float
    """Weights of a day's parts, empty if flat; the plan's rate of activities in the window divided by its mean over a
    day."""
    compression: float
    """`profile_day_s` divided by `day_s`."""
    load_equivalent_users: float | None
    """Users times 8 h divided by `day_s`, times `window_factor`, times `load.share` if below 1, as a whole number. In
    tasks only: sessions and mailboxes do not scale. `null` in stress mode."""
    received_share: float | None
    """Mail that users receive in the plan divided by that of the published load; `null` if unknown."""
    offered_per_s: float | None
    """Tasks due in the window, per second; `null` in stress mode."""
    tasks_per_s: float
    """Those that succeeded, per second."""
    totals: Totals = field(metadata=INLINE)
    attempted_share: float | None
    done_share: float | None
    failed_share: float | None
    """Those that started, succeeded and failed, divided by `planned`; the first two are `null` in stress mode."""
    sessions_lost: float | None
    """Sessions that broke in the whole run, also those of companions, except those that loadsim ended; `null` if an
    engine died."""
    sessions_restored: float | None
    """Those after which the user was logged on again."""
    lost_users: float
    """Users of engines that died, were given up or have no log, and users whom an engine gave up."""
    users_without_session: float
    """Users of the other engines without a session at the end of the last day."""
    down_share: float | None
    """Share of the window's user-seconds without a session."""
    companions: Companions | None
    """Counts of [companions](programs.md#several-programs-at-once) in the whole run, or `null`."""
    log_ons: float
    logon_failed_share: float | None
    """`LOGON` tasks of the whole run; the share that was refused, lost or timed out."""
    unserved_users: float | None
    unserved_share: float | None
    """[Users without usable service](../explanation/verdicts.md#users-without-usable-service), and their larger share
    of those with scored tasks, or with mail, in three sixtieths of the window or more; `null` in stress mode."""
    inbox: InboxFigures | None
    """Processing of Inboxes; `null` with several drivers, in stress mode, and if no Inbox had unread mail."""
    covers: Coverage | None
    """Tasks in the score; `null` with several drivers."""
    tasks: Sequence[TaskFigures]
    """The score table; empty with several drivers."""
    by_protocol: Mapping[str, DriverFigures]
    load: Load | None
    """[The plan's load](../explanation/measurement.md#the-load-that-was-asked-for) and that made; `null` in
    stress mode, without the plan's load, and for a window below 20 of its parts, 1,440 a day, that cuts some."""
    delivery: Delivery
    lateness_p95_ms: Lateness
    throughput: Throughput | None
    """In stress mode, else `null`."""
    generator: GeneratorFigures
    machines: Sequence[MachineHealth]
    """Each watched machine."""
    per_client: Sequence[ClientFigures]
    """Each client machine of several."""
    probes: Mapping[str, Mapping[str, ProbeStatistics]] | None = field(default=None, metadata=OPTIONAL)
    resources: Sequence[Resource] | None = field(default=None, metadata=OPTIONAL)
    """With the probe [`host`](probes.md#host): [resources](probes.md#resources), the nearest to saturation first."""
    commands: Sequence[CommandFigures] | None = field(default=None, metadata=OPTIONAL)
    """With `--commands`: commands that started in the window."""

    @property
    def stress(self) -> bool:
        """True for a closed loop, which has neither a plan nor a score."""
        return self.throughput is not None

    @property
    def generator_counts(self) -> bool:
        """True if the generator's limits make a run invalid; with the embedded server or a closed loop, they warn."""
        return not (self.embedded or self.stress)

    @property
    def fastest_p95_ms(self) -> float | None:
        """The 95th percentile of the fastest scored task, or None without a score."""
        return fastest_p95_ms(self.by_protocol)
