"""Facts about a run: a few for its answer, and all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loadsim.analysis.verdict import FULL_LOAD
from loadsim.findings.formats import count, duration, length, percent, shown
from loadsim.model.figures import DriverFigures, FailureCount, Figures, MachineHealth, Outside, Recovery, Throughput
from loadsim.model.terms import LOGON, POP3
from loadsim.report.answer_tables import interval_words
from loadsim.report.resources import NOT_SAMPLED, resource_facts
from loadsim.timinglog.header_words import shape_words
from loadsim.timinglog.planned_load import received_of_published

MOST_FAILURES = 5
"""The most kinds of failure to name."""


Fact = tuple[str, str]
"""A name and its value in words."""


def brief_facts(figures: Figures, ended_early: bool, *, invalid: bool, all_well: bool) -> list[Fact]:
    """Return facts about the run and its results, in a few lines."""
    facts = [("Run", ", ".join(filter(None, (figures.name, figures.run))) or "unnamed")]
    if figures.server:
        facts.append(("Server", figures.server))
    if figures.throughput:
        facts.append(("Mode", "stress: throughput, no LoadSim score"))
    facts.append(("Load", f"{count(figures.users, 'user')}; {_tasks_per_s(figures)}"))
    facts.append(("Throughput", _throughput(figures.throughput)) if figures.throughput else ("Day", day_words(figures)))
    facts += [("Tasks in the window", _tasks(figures)), *_failures(figures)]
    facts += [("Recovery", _recovery(figures.recovery))] if figures.recovery else []
    facts.append(("Delivery", _delivery(figures, ended_early)))
    facts += [("Audit", "all mail is where it must be, as it was sent")] if all_well else []
    facts += resource_facts(figures.resources)
    return facts if invalid else [*facts, *_of_drivers(figures, "Score", _score_interval)]


def further_facts(figures: Figures) -> list[Fact]:
    """Return further facts: details of the load, of lateness, and of the generator."""
    drivers = figures.by_protocol
    submission = f"; submission by {figures.submission}" if figures.submission else ""
    clients = f"{count(figures.clients, 'client')} with {count(figures.engines, 'engine')}"
    stress, load, made = figures.throughput is not None, figures.load, None
    if load is not None and load.share is not None:
        made = f"{load.made:,} of {load.planned:,} planned tasks ({percent(load.share)})"
    return [
        (f"Driver{'' if len(drivers) == 1 else 's'}", f"{', '.join(drivers)}{submission}"),
        ("Load from", f"{clients}; {count(figures.users, 'session')}"),
        *([("Mail from outside", _outside(figures.outside))] if figures.outside else []),
        ("Window", window_words(figures)),
        *_same_task_rate(figures),
        ("Plan", figures.plan_digest or "unknown"),
        *([] if stress else _of_drivers(figures, "Score covers", _covers)),
        *([] if made is None else [("Load made", made)]),
        *([("Companions", _parts(figures.sessions.companions, *COMPANIONS))] if figures.sessions.companions else []),
        *([] if stress else _of_drivers(figures, "Inbox", _inbox)),
        *_of_drivers(figures, "Delivery receipts", _receipts),
        *_lateness(figures),
        *([("Worst engine", _parts(figures.generator, *ENGINE))] if figures.generator.lag_p99_ms is not None else []),
        *(_machine(machine) for machine in figures.machines),
        *_not_sampled(figures),
    ]


def _of_drivers(figures: Figures, label: str, words: Callable[[DriverFigures], str | None]) -> list[Fact]:
    several = len(figures.by_protocol) > 1
    facts = ((f"{label} ({name})" if several else label, words(driver)) for name, driver in figures.by_protocol.items())
    return [(name, text) for name, text in facts if text]


def _covers(driver: DriverFigures) -> str:
    covers = driver.covers
    lists = (", ".join(one) for one in (covers.scored, covers.without_hits, covers.not_planned))
    heads = ("", "without hits: ", "never due: ")
    return "; ".join(head + tasks for head, tasks in zip(heads, lists, strict=True) if tasks)


def _score_interval(driver: DriverFigures) -> str | None:
    if not driver.score_interval_ms:
        return None
    return f"{duration(driver.score_ms)}, {interval_words(driver.score_interval_ms)} within this run (95 %)"


def _same_task_rate(figures: Figures) -> list[Fact]:
    """Return the load-equivalent if it differs from the users, and the share of the published mail if it is small."""
    equivalent, received = figures.load_equivalent_users, received_of_published(figures.received_share)
    if equivalent in (None, figures.users):
        return []
    less = f", who receive {received}" if received else ""
    words = f"{equivalent:,} users with a day of 8 h{less}; mailboxes and sessions of {figures.users:,}"
    return [("Same task rate", words)]


def window_words(figures: Figures) -> str:
    begin_s, end_s = figures.window_s
    return f"{length(begin_s)} to {length(end_s)} from the common start ({length(end_s - begin_s)})"


def _tasks_per_s(figures: Figures) -> str:
    """Return the rates of successful and of due tasks, and the share of the planned load if some is missing."""
    achieved, due = figures.tasks_per_s, figures.offered_per_s
    if due is None:
        return f"{achieved:,.1f} tasks/s achieved"
    share = None if figures.load is None else figures.load.share
    of_plan = "" if share is None or share >= FULL_LOAD else f", at {percent(share)} of the plan's load"
    window = length(figures.window_s.length_s)
    return f"{achieved:,.1f} tasks/s achieved of {due:,.1f} due{of_plan}, in a window of {window}"


def day_words(figures: Figures) -> str:
    """Return the length of the day, its night and its shape."""
    night = f" with a night of {length(figures.day.night_s)}" if figures.day.night_s else ""
    day, pace = length(figures.day.day_s) + night, figures.day.compression
    times = f"{figures.day.window_factor:.3g} times in the window"
    shape = f"; {shape_words(figures.day.day_shape)}; {times}" if figures.day.day_shape else ""
    if pace == 1:
        return f"{day}, not compressed{shape}"
    changed = "compressed" if pace > 1 else "stretched"
    return f"{changed}, {length(figures.day.profile_day_s)} in {day} ({pace:g} x){shape}"


def _parts(thing: object, *parts: tuple[str, str]) -> str:
    """Return known figures in words; each of `parts` names a figure, and has words with `{}` for its value."""
    known = [(name, words, getattr(thing, name)) for name, words in parts]
    return ", ".join(words.format(shown(name, value)) for name, words, value in known if value is not None)


def _throughput(found: Throughput) -> str:
    rates = (("tasks", "successful tasks"), ("messages", "messages"), ("deliveries", "deliveries"))
    words = _parts(found, *((f"{name}_per_s", f"{{}} {what}/s") for name, what in rates))
    return ", ".join([words, *(f"{per_s:,.1f} {service} commands/s" for service, per_s in found.commands.items())])


def _delivery(figures: Figures, ended_early: bool) -> str:
    mail = figures.delivery
    beyond = mail.undelivered_at_end - mail.undelivered
    parts = [
        f"{mail.accepted:,} {'copy' if mail.accepted == 1 else 'copies'} accepted, {mail.delivered:,} delivered,"
        f" {mail.undelivered:,} undelivered",
        f"50th {duration(mail.took.p50_ms)}, 95th {duration(mail.took.p95_ms)}"
        + (f", {mail.found:,} found by polling" if mail.found else ""),
    ]
    if any(name.partition("/")[0] == POP3 for name in figures.by_protocol):
        parts.append("over POP3, seen at the next log-on only")
    if beyond:
        parts.append(f"also undelivered at the end: {beyond:,} accepted outside the window")
    if ended_early and mail.undelivered_at_end:
        parts.append("the run ended early and did not wait for its last mail")
    if mail.unwatched:
        parts.append(f"{mail.unwatched:,} to users of engines that were lost, or had ended")
    if mail.duplicates:
        parts.append(count(mail.duplicates, "duplicate"))
    if mail.missing:
        parts.append(f"{count(mail.missing, 'stored message')} missing or incomplete")
    return "; ".join(parts)


def _tasks(figures: Figures) -> str:
    tasks = figures.totals
    own = f"; {tasks.interrupted:,} interrupted by the outage" if tasks.interrupted else ""
    own += f"; the generator itself failed {tasks.generator_failed:,}" if tasks.generator_failed else ""
    if figures.throughput:  # nothing was planned
        silent = f"{figures.throughput.silent_activities:,} times there was nothing to do"
        return f"{tasks.done:,} ended ({tasks.failed:,} failed), {tasks.unfinished:,} unfinished; {silent}{own}"
    return (
        f"{tasks.planned:,} due, {tasks.done:,} ended ({tasks.failed:,} failed), {tasks.unfinished:,} unfinished,"
        f" {tasks.skipped:,} skipped{own}"
    )


def _failures(figures: Figures) -> list[Fact]:
    kinds = [
        (task.task, failure)
        for driver in figures.by_protocol.values()
        for task in driver.tasks
        for failure in task.failures
    ]
    return [("Failures (see events.jsonl)", _kinds(kinds))] if kinds else []


def _kinds(failures: Sequence[tuple[str, FailureCount]]) -> str:
    """Return the most frequent kinds of failure, each with its task."""
    kinds = sorted((-failure.times, task, failure.outcome, failure.kind) for task, failure in failures)
    shown = [
        f"{-times:,} {task} {outcome}" + (f" ({kind})" if kind else "")
        for times, task, outcome, kind in kinds[:MOST_FAILURES]
    ]
    more = [f"{count(len(kinds) - len(shown), 'more kind')}"] if len(kinds) > len(shown) else []
    return ", ".join([*shown, *more])


def _recovery(found: Recovery) -> str:
    if found.p95_s is None:
        return "not measured: no session was lost"
    shares = (("50 %", found.p50_s), ("95 %", found.p95_s), ("all", found.max_s))
    times = ", ".join(f"{share} {shown('recovery_s', time_s)}" for share, time_s in shares)
    parts = [f"{count(found.users, 'user')} interrupted at {shown('at_s', found.at_s)}; service again after {times}"]
    if found.unrecovered:
        parts.append(f"{found.unrecovered:,} never had service again")
    if found.log_ons_per_s is not None:
        peak = shown("log_ons_peak_per_s", found.log_ons_peak_per_s)
        parts.append(f"{shown('log_ons_per_s', found.log_ons_per_s)} log-ons/s, at most {peak}")
    if found.failures:
        parts.append(f"failed log-ons: {_kinds([(LOGON, one) for one in found.failures])}")
    return "; ".join(parts)


def _lateness(figures: Figures) -> list[Fact]:
    if figures.throughput:
        return []
    late_ms, limit_ms = figures.lateness_p95_ms, figures.generator.lateness_limit_ms
    limit = "" if limit_ms is None else f" (limit {limit_ms:g} ms)"
    causes = f"user busy {duration(late_ms.busy)}, session down {duration(late_ms.down)}"
    timed = _parts(figures.generator, *TIMING)
    lateness = ("Lateness (95th)", f"{causes}, generator {duration(late_ms.generator)}{limit}")
    return [lateness, ("Timed by", timed)] if timed else [lateness]


COMPANIONS = (
    *(("count", "{}"), ("log_ons", "{} log-ons"), ("log_ons_failed", "{} of them failed"), ("looks", "{} looks")),
    *(("listed", "{} messages listed"), ("sessions_lost", "{} sessions lost"), ("failures", "{} failures")),
    ("down_share", "not served for {} of the run"),
)
TIMING = (
    *(("kernel_share", "kernel {}"), ("bound_share", "bounds {}"), ("loop_share", "event loop at most {}")),
    ("between_share", "{} of the time between commands, left out"),
)
ENGINE = (
    *(("lag_p50_ms", "event loop {} late (50th)"), ("lag_p99_ms", "{} (99th)"), ("lag_limit_ms", "limit {}")),
    *(("lag_max_ms", "{} (worst)"), ("cpu_share", "{} of a core"), ("rss_bytes", "{}")),
)
MACHINE = (("cores", "{} cores"), ("cpu_share", "{} busy"), ("engines_share", "{} by loadsim's engines"))
"""Figures of companions, the clocks, the worst engine and a machine, each with its words."""


def _outside(outside: Outside) -> str:
    refused, accepted = outside.unknown_refused, outside.unknown_accepted
    unknown = f"; to unknown recipients: {refused:,} refused, {accepted:,} accepted" if refused or accepted else ""
    return f"{count(outside.senders, 'sender')}{unknown}"


def _inbox(driver: DriverFigures) -> str | None:
    inbox = driver.inbox
    if inbox is None:
        return None
    took = f"50th {duration(inbox.took.p50_ms)}, 95th {duration(inbox.took.p95_ms)}"
    return f"{inbox.done:,} of {inbox.processings:,} times worked through; from when they were due {took}"


def _receipts(driver: DriverFigures) -> str | None:
    receipts = driver.receipts
    if receipts is None:
        return None
    took = f"50th {duration(receipts.took.p50_ms)}, 95th {duration(receipts.took.p95_ms)}"
    return f"{receipts.requested:,} of {receipts.planned:,} requested, {receipts.arrived:,} arrived; {took}"


def _machine(machine: MachineHealth) -> Fact:
    shares = {None: "", False: " on other cores", True: " on the generator's cores"}[machine.shares_cpus]
    server = [f"the server runs here{shares}"] if machine.server_here else []
    return f"Machine {machine.name}", ", ".join([_parts(machine, *MACHINE), *server])


def _not_sampled(figures: Figures) -> list[Fact]:
    """Return a hint on how to sample the server's resources, if the server is on this machine."""
    here = figures.machines and all(machine.server_here for machine in figures.machines)
    return [] if figures.resources or not here or figures.embedded else [("Nearest to full", NOT_SAMPLED)]
