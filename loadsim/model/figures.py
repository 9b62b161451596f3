"""The record of a run's figures. A new figure is a field here, and what computes it, in `analysis`.

The field's name is its key in `score.json`, in this order, and its name in criteria; the name's end is its unit
(`findings.formats.unit_of`). Its docstring is its meaning in the reference, and may cover the fields above it. Any
number may be a criterion, unless its field is marked, or is in a list without names (`scenario.criteria.figures`).
A line in a report is added by hand (`report.answer_facts`, `report.answer_tables`, `report.one_run`); so is a new
unit (`findings.formats`, `scenario.criteria._LIMITS`).

Times are in milliseconds, `math.inf` where an awaited event never came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any

from loadsim.documents.json_values import INLINE, OPTIONAL
from loadsim.model.terms import WITHOUT_WINDOW, Acknowledgements, Window

NO_CRITERION = {"no_criterion": True}
"""Metadata of a field that no criterion may name: the scenario determines it, or it explains another figure."""

OF_PLAN = {"of_plan": True}
"""Metadata of a field that compares the run with its plan, so a closed loop does not have it."""

OF_CLOSED_LOOP = {"of_closed_loop": True}
"""Metadata of a field that only a closed loop has."""

OF_OUTAGE = {"of_outage": True}
"""Metadata of a field that only a run with `run.outage` has."""

INTERRUPTED = OPTIONAL | OF_OUTAGE
"""Metadata of a count that is None without `run.outage`."""

RESPONSE = {"inline": "response_"} | OF_PLAN
"""Metadata of an inline field; this prefix precedes the names of its fields."""

Bounds = tuple[float, float]
"""The lower and upper ends of an interval in ms."""


class NoInterval(StrEnum):
    """Why a percentile has no interval: the window is too short, there are too few hits or none, a block has none,
    times are correlated over more than a block, or an end lies beyond all hits."""

    SHORT_WINDOW = "short-window"
    FEW_HITS = "few-hits"
    EMPTY_BLOCK = "empty-block"
    CORRELATED = "correlated"
    BEYOND_HITS = "beyond-hits"
    NOT_IN_WINDOW = "not-in-window"


# --- times --------------------------------------------------------------------------------------------------------


def _percentile(percent: str) -> Any:
    return field(default=None, metadata={"percent": Fraction(percent)})


@dataclass(frozen=True, slots=True)
class Percentiles:
    """The percentiles of `Times` only."""

    p50_ms: float | None = _percentile("50")
    p90_ms: float | None = _percentile("90")
    p95_ms: float | None = _percentile("95")
    p99_ms: float | None = _percentile("99")
    p99_9_ms: float | None = _percentile("99.9")
    max_ms: float | None = _percentile("100")


@dataclass(frozen=True, slots=True)
class Times(Percentiles):
    """Statistics of times in milliseconds; all None without samples.

    If there are infinite samples, the mean is infinite, percentiles may be, and the deviation is None.
    """

    mean_ms: float | None = None
    stddev_ms: float | None = None


# --- tasks --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FailureCount:
    outcome: str
    kind: str
    times: int
    """Outcome, kind as in `events.jsonl`, count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFigures:
    """The figures for one of a driver's tasks in the window. Both scores are made of the 95th percentiles."""

    task: str
    weight: float = field(metadata=NO_CRITERION)
    """[The task](tasks.md); its weight, 0 if not scored."""
    hits: int
    failed: int
    """Tasks due in the window with the outcome `ok`; with `refused`, `lost` or `timeout`."""
    service: Times = field(metadata=INLINE)
    """Service times of the hits."""
    interval_ms: Bounds | None = None
    no_interval: NoInterval | None = None
    """The 95 % interval of `p95_ms` within this run, or else [why there is
    none](../explanation/measurement.md#intervals)."""
    response: Percentiles = field(metadata=RESPONSE)
    """Response times, from the due time, of all tasks that were due; infinite if a task failed or was not done."""
    planned: int = field(metadata=OF_PLAN)
    attempted: int = field(metadata=OF_PLAN)
    attempted_share: float | None = field(metadata=OF_PLAN)
    """Tasks that were due; tasks that started, which are all but `skipped`; their share."""
    done: int
    done_share: float | None = field(metadata=OF_PLAN)
    failed_share: float | None
    """`hits` plus `failed`; `hits` divided by `planned`; `failed` divided by `planned`."""
    done_per_s: float | None
    """`hits` per second of the window; `null` for LOGON, FIRST SYNC and LOGOFF."""
    refused: int
    lost: int
    timeout: int
    unfinished: int = field(metadata=OF_PLAN)
    skipped: int = field(metadata=OF_PLAN)
    generator_failed: int
    """Counts by [outcome](tasks.md#outcomes)."""
    failures: Sequence[FailureCount]
    """Kinds of failure, the most frequent first."""
    interrupted: int | None = field(default=None, metadata=INTERRUPTED)
    """With `run.outage`: failures between the outage and the user's recovery. They count in none of the above but
    `planned`, `attempted` and the response times."""

    @property
    def windowed(self) -> bool:
        return self.task not in WITHOUT_WINDOW


@dataclass(frozen=True, slots=True)
class InboxFigures:
    processings: int
    done: int
    unfinished: int
    """Processings of an Inbox with unread mail that were due in the window; those whose tasks all succeeded; the
    others."""
    took: Times = field(metadata=INLINE)
    """Times from the due time to the end of the last task; infinite for unfinished processings."""


@dataclass(frozen=True, slots=True)
class ReceiptFigures:
    planned: int
    requested: int
    arrived: int
    """Messages accepted in the window with a planned [delivery receipt](../explanation/workload.md#receipts); those
    with a request, as the server offers receipts; those whose receipt arrived by the end of the run."""
    took: Times = field(metadata=INLINE)
    """Times from the acceptance of a message until its receipt was announced; infinite for receipts that did not
    arrive."""


@dataclass(frozen=True, slots=True)
class Coverage:
    scored: Sequence[str]
    without_hits: Sequence[str]
    not_planned: Sequence[str]
    few_hits: Sequence[str]
    """Tasks with a weight that have hits; that were due, but have none; that were never due; that are scored with fewer
    than 300 hits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFigures:
    """One driver's figures: tasks by descending weight. Times from two drivers are never mixed."""

    score_ms: float | None = field(metadata=OF_PLAN)
    response_score_ms: float | None = field(metadata=OF_PLAN)
    score_interval_ms: Bounds | None
    provisional: bool
    inbox: InboxFigures | None = field(metadata=OF_PLAN)
    receipts: ReceiptFigures | None = field(default=None, metadata=OPTIONAL | NO_CRITERION)
    users: float = field(metadata=NO_CRITERION)
    covers: Coverage
    tasks: Sequence[TaskFigures]
    """For each driver, as for the run."""


@dataclass(frozen=True, slots=True)
class CommandFigures:
    command: str
    hits: float
    failed: float
    """Name; successes; others."""
    took: Times = field(metadata=INLINE)
    """Times of successful commands."""


_COUNTS = ("planned", "attempted", "done", "failed", "generator_failed", "unfinished", "skipped")


@dataclass(frozen=True, slots=True)
class Totals:
    """Tasks of all drivers together. Shares are of planned tasks, None if there are none."""

    planned: int = field(metadata=OF_PLAN)
    """Tasks due in the window, without LOGON, FIRST SYNC and LOGOFF."""
    attempted: int = field(metadata=OF_PLAN)
    done: int
    failed: int
    """Tasks that started; that ended, in success or failure; that were refused, lost or timed out."""
    generator_failed: int
    """Tasks in which the generator itself failed: attempted, but neither done nor failed. A single one makes the run
    invalid."""
    unfinished: int = field(metadata=OF_PLAN)
    skipped: int = field(metadata=OF_PLAN)
    """Tasks that were still running at the end; tasks that had not started."""
    attempted_share: float | None = field(metadata=OF_PLAN)
    done_share: float | None = field(metadata=OF_PLAN)
    failed_share: float | None
    """Tasks that started, succeeded and failed, divided by `planned`; the first two are `null` in stress mode."""
    interrupted: int | None = field(default=None, metadata=INTERRUPTED)
    """With `run.outage`: tasks that failed between the outage and the user's recovery, and are not in `failed`; those
    of users who never recovered are."""

    @classmethod
    def of(cls, drivers: Mapping[str, DriverFigures], name: str | None = None, *, stress: bool = False) -> Totals:
        """Return the totals for the tasks that have a window, or for those with a given name."""
        tasks = [task for driver in drivers.values() for task in driver.tasks]
        tasks = [task for task in tasks if (task.windowed if name is None else task.task == name)]
        counts = {name: sum(getattr(task, name) for task in tasks) for name in _COUNTS}
        planned = counts["planned"]
        interrupted = [task.interrupted for task in tasks if task.interrupted is not None]
        return cls(
            **counts,
            interrupted=sum(interrupted) if interrupted else None,
            attempted_share=counts["attempted"] / planned if planned and not stress else None,
            done_share=(counts["done"] - counts["failed"]) / planned if planned and not stress else None,
            failed_share=counts["failed"] / planned if planned else None,
        )

    @property
    def hits(self) -> int:
        return self.done - self.failed


# --- load and mail ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Day:
    profile_day_s: float = field(metadata=NO_CRITERION)
    day_s: float = field(metadata=NO_CRITERION)
    night_s: float = field(metadata=NO_CRITERION)
    """Lengths of the profiles' day, and of the day and night in the run."""
    day_shape: tuple[float, ...]
    window_factor: float = field(metadata=NO_CRITERION)
    """Weights of a day's parts, empty if flat; the plan's rate of activities in the window divided by its mean over a
    day."""
    compression: float = field(metadata=NO_CRITERION)
    """`profile_day_s` divided by `day_s`."""


@dataclass(frozen=True, slots=True)
class TaskLoad:
    planned: int
    made: int
    """Tasks with this name that the plan has in the window; tasks that users started."""


@dataclass(frozen=True, slots=True)
class Load:
    planned: int = field(metadata=NO_CRITERION)
    """Tasks that the plan has in the window, without LOGON, FIRST SYNC, SYNC and LOGOFF."""
    made: int = field(metadata=NO_CRITERION)
    """Tasks that users started in the window, without these three and without failures of the generator. Each task
    counts up to 105 % of its plan, rounded down."""
    share: float | None
    """`made` divided by `planned`; above 1 if the server delivered more mail than was sent, or if mailboxes were not as
    planned."""
    tasks: Mapping[str, TaskLoad] = field(metadata=NO_CRITERION)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Delivery of the messages accepted in a window, counted per recipient."""

    accepted: float
    """Messages that the server accepted in the window, counted per recipient."""
    delivered: float
    """Accepted messages that their recipients have seen."""
    found: float
    """Delivered messages that no waiting session was notified of."""
    undelivered: float
    """Accepted messages that were not delivered by the end of the run."""
    unwatched: float
    """Accepted messages whose recipient's engine or log is missing, no longer waited, or could not look at the end;
    neither delivered nor undelivered."""
    early: float
    earliest_ms: float | None
    """Messages that appeared before they were accepted, because of the server or clock differences: they count as 0 ms;
    the largest such difference, or `null`."""
    clock_error_ms: float | None
    """The largest error in a delivery time due to two machines' clocks; 0 with one machine; `null` if not compared."""
    undelivered_at_end: float
    """Accepted messages of the whole run that did not arrive by its end."""
    duplicates: float
    """In the whole run: copies beyond the first, including those of stored messages, and copies in another user's
    mailbox."""
    missing: float | None
    """In the whole run: stored messages found missing, or without a part or flag ([what must be
    there](tasks.md#what-must-be-there)); `null` if, without an audit, `unlisted` is above 1 % of what was stored."""
    unlisted: float
    """In the whole run: stored messages that their users did not list again before its end, and accepted ones whose
    recipients could not look; they may be there."""
    altered: float
    """In the whole run: messages of which users fetched a text or file with bytes other than those sent."""
    left_out: float
    """In the whole run: copies for senders who are on the lists they used, if none got one; they count nowhere else."""
    took: Times = field(metadata=INLINE)
    """Times from acceptance until the recipient first saw the message, for `accepted` without `unwatched`; infinite for
    undelivered messages."""


@dataclass(frozen=True, slots=True)
class Throughput:
    tasks_per_s: float
    messages_per_s: float
    deliveries_per_s: float
    """Successful tasks; accepted messages, each counted once; deliveries, counted per recipient."""
    by_task: Mapping[str, float]
    commands: Mapping[str, float]
    """Successful tasks by name; successful commands by protocol (`IMAP`, `SMTP` and so on), if there are any."""
    silent_activities: int
    """Activities, in the whole run, of users who had nothing to do."""


# --- sessions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Companions:
    """Counts for the whole run, from the engines that survived to report them."""

    count: float
    log_ons: float
    log_ons_failed: float
    sessions_lost: float
    failures: float
    looks: float
    listed: float
    """Companions; log-ons; failed log-ons; lost sessions; all failures, including these two; looks for mail; new
    messages listed."""
    down_share: float | None
    """The share of the run without service; `null` if no engine reached the common start."""


@dataclass(frozen=True, slots=True)
class Sessions:
    sessions_lost: float | None
    """Sessions that broke in the whole run, including companions', but not those that loadsim ended; `null` if an
    engine died."""
    sessions_restored: float | None
    """Lost sessions after which the user logged on again."""
    lost_users: float
    """Users of engines that died, were given up or have no log, and users that an engine gave up."""
    users_without_session: float
    """Users of the other engines without a session at the end of the last day."""
    down_share: float | None
    """Share of the window's user-seconds without a session; with `run.outage`, except for the recovery from it."""
    companions: Companions | None = field(metadata=NO_CRITERION)
    """Counts of [companions](programs.md#several-programs-at-once) in the whole run, or `null`."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """The recovery from `run.outage`: all but `users` is None if it interrupted no user.

    Times are in seconds since the outage.
    """

    at_s: float | None = field(metadata=NO_CRITERION)
    """With [`run.outage`](../how-to/log-on-storm.md): when the outage began, after the common start: at
    `run.outage.at`, or with the first session lost by hand after it."""
    users: int = field(metadata=NO_CRITERION)
    """[Interrupted users](../how-to/log-on-storm.md#terms)."""
    unrecovered: int | None
    """Interrupted users without service at the end of the run."""
    p50_s: float | None
    p95_s: float | None
    max_s: float | None
    """Time until 50 %, 95 % and 100 % of the interrupted users had service again; infinite if they never had."""
    log_ons_per_s: float | None
    log_ons_peak_per_s: float | None
    """Successful log-ons of interrupted users, from the outage until the last of them recovered: their mean rate, and
    the most in one second."""
    failures: Sequence[FailureCount]
    """Failed log-ons by kind, the most frequent first."""


@dataclass(frozen=True, slots=True)
class Outside:
    """The outside senders, and how the server answered their messages to unknown recipients in the whole run."""

    senders: int = field(metadata=NO_CRITERION)
    """With [outside senders](profiles.md#outside-senders): their number."""
    unknown_refused: int = field(metadata=NO_CRITERION)
    unknown_accepted: int = field(metadata=NO_CRITERION)
    """Their messages to unknown recipients in the whole run, which the server refused, as it must, or accepted."""


# --- the generator ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lateness:
    busy: float | None
    down: float | None
    generator: float | None
    """The 95th percentile of how late the window's tasks were because the user was busy, the session was down, or
    loadsim was late to start them or to send the next command; `null` in stress mode."""


@dataclass(frozen=True, slots=True)
class GeneratorFigures:
    """The figures of the worst engine, and how the window's planned tasks were timed."""

    kernel_share: float | None
    bound_share: float | None
    loop_share: float | None
    """Shares of the hits whose end the kernel noted; whose end came no later than noted; the largest share of any task
    whose end the event loop noted when it got to it, 0 for one hit of 20 or more
    ([clocks](../explanation/measurement.md#clocks))."""
    between_share: float | None
    """The generator's share of the hits' time, from their first byte to their last: its time between two commands."""
    lag_p50_ms: float | None
    lag_p99_ms: float | None
    lag_max_ms: float | None
    """The worst engine's event-loop lag in the window, by a 100 Hz timer."""
    lag_limit_ms: float | None = field(metadata=NO_CRITERION)
    lateness_limit_ms: float | None = field(metadata=NO_CRITERION)
    """The limits of `lag_p99_ms` and `lateness_p95_ms.generator`, or `null`."""
    cpu_share: float | None
    """The busiest engine's share of a core: the mean of its samples over time."""
    rss_bytes: float | None
    open_files: float | None
    gc_max_ms: float | None
    clock_steps: float | None
    """The most memory, open files, and longest garbage collection of an engine; how often the wall clock was set."""


@dataclass(frozen=True, slots=True)
class MachineHealth:
    name: str
    cores: int | None = None
    cpu_share: float | None = None
    stolen_share: float | None = None
    engines_share: float | None = None
    """The machine; its cores; the mean shares that were busy, stolen, and taken by loadsim's engines."""
    memory_available_bytes: int | None = None
    segments_sent: int = 0
    segments_sent_again: int = 0
    """The least available memory; totals of TCP segments."""
    server_here: bool | None = None
    shares_cpus: bool | None = None
    pinned: bool = False
    generator_cores: int | None = None
    """True if the server under test runs on it; if it runs on the generator's cores; if each has its own cores; the
    most cores that engines may use."""
    unobserved_s: tuple[tuple[float, float], ...] = ()
    """Start and end of each gap above 5 s between its samples while its engines were taking theirs."""


@dataclass(frozen=True, slots=True)
class ClientFigures:
    client: str
    users: int
    engines: int
    lost_users: int
    """Name; users; engines with a log; lost users."""
    start_late_ms: float | None = None
    start_error_ms: float | None = None
    """The last engine's start delay by the controller's clock, and its uncertainty; `null` if it was not read."""
    lag_p99_ms: float | None = None
    cpu_share: float | None = None
    lateness_p95_ms: float | None = None
    """As above, for this machine alone."""
    validity: str = "valid"
    """Judged only by its lost users, its internal failures and the generator's limits."""


# --- probes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProbeStatistics:
    """A probe's figure over the window, in the figure's unit.

    A probe that fails while the server is overloaded would show only its quiet times after a long gap.
    """

    samples: int = field(metadata=NO_CRITERION)
    longest_gap_s: float = field(metadata=NO_CRITERION)
    """With [probes](probes.md): samples in the window, and the longest time without one."""
    mean: float | None
    p50: float | None
    p95: float | None
    min: float | None
    max: float | None
    """Mean, percentiles and extremes over time; `null` if the gap is too long."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A machine's resource over the window: the probe figure that came nearest to full."""

    name: str
    machine: str | None
    server_here: bool | None
    probe: str
    figure: str
    """The resource, its machine, whether the server is there (`null`: unknown), probe and figure."""
    mean: float | None
    p95: float | None
    """Over the window, as shares of what counts as full."""
    others_share: float | None = None
    """The part of the server's cores that [others](probes.md#cores-of-the-server) took, or `null`."""


# --- the record ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of a run, without the verdict."""

    run: str | None
    name: str | None
    mode: str
    """The run's ID; the scenario; `canonical` or `stress`."""
    score_ms: float | None = field(metadata=OF_PLAN)
    response_score_ms: float | None = field(metadata=OF_PLAN)
    """Score and response score; `null` with several drivers, in stress mode, and if no scored task has a hit (for the
    response score, if none was due)."""
    score_interval_ms: Bounds | None
    """The score's 95 % interval within this run, `[from, to]`, if all scored tasks have one; it holds for slow spells
    with a correlation time of at most a 300th of the window."""
    provisional: bool
    """True if a scored task has fewer than 300 hits."""
    users: float = field(metadata=NO_CRITERION)
    clients: int = field(metadata=NO_CRITERION)
    engines: float = field(metadata=NO_CRITERION)
    window_s: Window
    """Simulated users, machines, load-generating processes; start and end of the window."""
    plan_digest: str | None
    """SHA-256 of what the users were to do."""
    server: str | None
    embedded: bool
    submission: str | None
    """The server; whether it is the embedded one; `client.submission` (null if no user submits by SMTP)."""
    acknowledgements: Acknowledgements
    """`at once`, or `delayed` as by the client's system ([why it
    counts](../explanation/measurement.md#acknowledgements))."""
    day: Day = field(metadata=INLINE)
    load_equivalent_users: float | None = field(metadata=NO_CRITERION)
    """Users times 8 h divided by `day_s`, times `window_factor`, times `load.share` if below 1, as a whole number. This
    applies to tasks only: sessions and mailboxes do not scale. `null` in stress mode."""
    received_share: float | None = field(metadata=NO_CRITERION)
    """Mail that users receive in the plan, divided by the mail in the published load; `null` if unknown."""
    offered_per_s: float | None = field(metadata=OF_PLAN)
    """Tasks due in the window, per second; `null` in stress mode."""
    tasks_per_s: float
    """Tasks that succeeded, per second."""
    totals: Totals = field(metadata=INLINE)
    sessions: Sessions = field(metadata=INLINE)
    log_ons: float
    logon_failed_share: float | None
    """`LOGON` tasks in the whole run; the share that was refused, lost or timed out."""
    unserved_users: float | None = field(metadata=OF_PLAN)
    unserved_share: float | None = field(metadata=OF_PLAN)
    """[Users without usable service](../explanation/verdicts.md#users-without-usable-service) in three sixtieths of the
    window or more, and the larger of their shares of users with scored tasks and of users with mail; `null` in stress
    mode."""
    inbox: InboxFigures | None = field(metadata=OF_PLAN)
    """Inbox processing; `null` with several drivers, in stress mode, and if no Inbox had unread mail."""
    receipts: ReceiptFigures | None = field(metadata=OPTIONAL | NO_CRITERION)
    """Delivery receipts, which no criterion judges; left out with several drivers, and if none was planned."""
    covers: Coverage | None
    """Tasks in the score; `null` with several drivers."""
    tasks: Sequence[TaskFigures]
    """The score table; empty with several drivers."""
    by_protocol: Mapping[str, DriverFigures]
    load: Load | None = field(metadata=OF_PLAN)
    """[The planned load](../explanation/measurement.md#the-load-that-was-asked-for) and the load actually made; `null`
    in stress mode, without a planned load, and if the window is shorter than 20 of its parts (1,440 a day) and cuts
    some."""
    delivery: Delivery
    lateness_p95_ms: Lateness = field(metadata=OF_PLAN)
    throughput: Throughput | None = field(metadata=OF_CLOSED_LOOP)
    """In stress mode, otherwise `null`."""
    generator: GeneratorFigures
    machines: Sequence[MachineHealth]
    """Each watched machine."""
    per_client: Sequence[ClientFigures]
    """Each client machine, if there are several."""
    probes: Mapping[str, Mapping[str, ProbeStatistics]] | None = field(default=None, metadata=OPTIONAL)
    resources: Sequence[Resource] | None = field(default=None, metadata=OPTIONAL)
    """With the probe [`host`](probes.md#host): [resources](probes.md#resources), the most saturated first."""
    recovery: Recovery | None = field(default=None, metadata={"inline": "recovery_"} | OPTIONAL | OF_OUTAGE)
    outside: Outside | None = field(default=None, metadata={"inline": "outside_"} | OPTIONAL | NO_CRITERION)
    commands: Sequence[CommandFigures] | None = field(default=None, metadata=OPTIONAL | NO_CRITERION)
    """With `--commands`: commands that started in the window."""

    @property
    def stress(self) -> bool:
        """True for a closed loop, which has neither a plan nor a score."""
        return self.throughput is not None

    @property
    def generator_counts(self) -> bool:
        """True if the generator's limits can make a run invalid; with an embedded server or closed loop, they warn."""
        return not (self.embedded or self.stress)
