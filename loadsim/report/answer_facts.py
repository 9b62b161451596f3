"""The facts of an answer and a report: what was run, and what happened."""

from __future__ import annotations

from loadsim.analysis.figures import Figures, GeneratorFigures
from loadsim.analysis.generator.health import MachineHealth
from loadsim.analysis.throughput import Throughput
from loadsim.analysis.verdict import FULL_LOAD
from loadsim.findings.formats import count, duration, percent
from loadsim.report.resources import NOT_SAMPLED, resource_facts
from loadsim.timinglog.header_words import length, shape_words
from loadsim.timinglog.planned_load import received_of_published

MUCH_LESS, FEW_PLANNED = 0.95, 50
"""A task is named if less than `MUCH_LESS` of its plan was made, unless fewer than `FEW_PLANNED` were planned."""

AS_USUAL = 0.05
"""The load of a user that differs by less from that of one with a day of 8 h is not stated."""

MOST_FAILURES = 5
"""At most this number of kinds of failure is named."""


Fact = tuple[str, str]
"""A name, and the words for it."""


def head(figures: Figures) -> list[Fact]:
    """Return what was run: the server, the load, the day and the window."""
    users, engines, clients = figures.users, figures.engines, figures.clients
    facts = [("Run", ", ".join(filter(None, (figures.name, figures.run))) or "unnamed")]
    if figures.server:
        facts.append(("Server", figures.server))
    if figures.throughput:
        facts.append(("Mode", "stress: throughput, no LoadSim score"))
    facts.append(
        (
            "Load",
            f"{count(users, 'user')} ({count(users, 'session')}), from {count(clients, 'client')} with"
            f" {count(engines, 'engine')}; {_tasks_per_s(figures)}",
        )
    )
    modules = figures.by_protocol
    submission = f"; submission by {figures.submission}" if figures.submission else ""
    facts.append((f"Driver{'' if len(modules) == 1 else 's'}", f"{', '.join(modules)}{submission}"))
    if figures.throughput:
        facts += _throughput(figures.throughput)
    else:
        facts.append(("Day", _day(figures)))
    return [*facts, ("Window", window_words(figures))]


def window_words(figures: Figures) -> str:
    begin_s, end_s = figures.window_s
    return f"{clock(begin_s)} to {clock(end_s)} from the common start ({length(end_s - begin_s)})"


def _tasks_per_s(figures: Figures) -> str:
    """Return the rates of tasks that succeeded and came due; if load is missing, the share of the plan's load."""
    achieved, due = figures.achieved_per_s, figures.offered_per_s
    if due is None:
        return f"{achieved:,.1f} tasks/s achieved"
    share = None if figures.load is None else figures.load.share
    of_plan = "" if share is None or share >= FULL_LOAD else f", at {percent(share)} of the plan's load"
    return f"{achieved:,.1f} tasks/s achieved of {due:,.1f} due{of_plan}"


def _day(figures: Figures) -> str:
    words = day_words(figures)
    if figures.day_shape:
        words += f"; {figures.window_factor:.3g} times in the window"
    if figures.load_equivalent_users == figures.users:
        return words
    return f"{words}; same task rate as {with_mailboxes_of(figures)}"


def day_words(figures: Figures) -> str:
    """Return the length of the day, its night and its shape."""
    night = f" with a night of {length(figures.night_s)}" if figures.night_s else ""
    day, pace = length(figures.day_s) + night, figures.compression
    shape = f"; {shape_words(figures.day_shape)}" if figures.day_shape else ""
    if pace == 1:
        return f"{day}, not compressed{shape}"
    changed = "compressed" if pace > 1 else "stretched"
    return f"{changed}, {length(figures.profile_day_s)} in {day} ({pace:g} x){shape}"


def with_mailboxes_of(figures: Figures) -> str:
    """Return the load-equivalent of a run, and how many users it really had: it is no number that the server takes.

    It has the share of the published mail, if that is small: the users make less load.
    """
    received = received_of_published(figures.received_share)
    less = f", who receive {received}" if received else ""
    return (
        f"{figures.load_equivalent_users:,} users with a day of 8 h{less}; mailboxes and sessions of {figures.users:,}"
    )


def load_of_a_user(figures: Figures) -> float | None:
    """Return how many users with a day of 8 h have the task rate of each user; None if it is unknown."""
    if figures.load_equivalent_users is None or not figures.users:
        return None
    return figures.load_equivalent_users / figures.users


def _throughput(found: Throughput) -> list[Fact]:
    commands = ", ".join(f"{per_s:,.1f} {service} commands/s" for service, per_s in found.commands.items())
    return [
        ("Closed loop", "each user starts the next activity as soon as the last is done, without pauses"),
        (
            "Throughput",
            f"{found.tasks_per_s:,.1f} successful tasks/s, {found.messages_per_s:,.1f} messages/s,"
            f" {found.deliveries_per_s:,.1f} deliveries/s, {commands}",
        ),
    ]


def facts(figures: Figures, ended_early: bool) -> list[Fact]:
    """Return what happened: tasks, failures, mail, lateness, and the generator."""
    return [
        ("Tasks in the window", _tasks(figures)),
        *_load_made(figures),
        *_failures(figures),
        *_sessions(figures),
        *_companions(figures),
        *_inbox(figures),
        ("Delivery", _delivery(figures, ended_early)),
        *_clocks(figures),
        *_lateness(figures),
        *_generator(figures.generator, figures.engines),
        *(_machine(machine) for machine in figures.machines),
        *_nearest_to_full(figures),
    ]


def _delivery(figures: Figures, ended_early: bool) -> str:
    mail = figures.delivery
    beyond = mail.undelivered_at_end - mail.undelivered
    inside_by_list, at_end_by_list = mail.undelivered_by_list, mail.undelivered_at_end_by_list
    beyond_by_list = at_end_by_list - inside_by_list
    parts = [
        f"{mail.accepted:,} {'copy' if mail.accepted == 1 else 'copies'} accepted, {mail.delivered:,} delivered,"
        f" {mail.undelivered:,} undelivered{_how_addressed(mail.undelivered, inside_by_list)}",
        f"50th {duration(mail.took.p50_ms)}, 95th {duration(mail.took.p95_ms)},"
        f" {mail.timed:,} of {mail.accepted - mail.unwatched:,} timed"
        + (f", {mail.found:,} found by polling" if mail.found else ""),
    ]
    if beyond:
        outside = f"{beyond:,} accepted outside the window{_how_addressed(beyond, beyond_by_list)}"
        parts.append(f"also undelivered at the end: {outside}")
    if ended_early and mail.undelivered_at_end:
        parts.append("the run ended early and did not wait for its last mail")
    if mail.unwatched:
        parts.append(f"{mail.unwatched:,} to users of engines that were lost, or had ended")
    if mail.duplicates:
        parts.append(count(mail.duplicates, "duplicate"))
    if mail.missing:
        parts.append(f"{count(mail.missing, 'stored message')} missing or incomplete")
    return "; ".join(parts)


def _how_addressed(messages: float, by_list: float) -> str:
    """Return the parts of a number of undelivered messages in brackets; "" for none, or if they are unknown."""
    if not messages:
        return ""
    return f" ({messages - by_list:,.10g} to individuals, {by_list:,.10g} through lists)"


def _clocks(figures: Figures) -> list[Fact]:
    """Return the accuracy of delivery times between machines, and the messages seen before their acceptance."""
    mail = figures.delivery
    if figures.clients == 1 or mail.clock_error_ms == 0:
        return []
    early = f"{count(mail.early, 'message')} seen before being accepted, by up to {duration(mail.earliest_ms)}"
    if mail.clock_error_ms is None:
        doubt = "their delivery counts as 0 ms; the clients' clocks may differ by as much, or more"
        return [("Clocks", f"{early}: {doubt}")] if mail.early else []
    exact = f"compared; a delivery time between machines is wrong by {duration(mail.clock_error_ms)} at most"
    return [("Clocks", exact + (f"; {early}, count as 0 ms" if mail.early else ""))]


def _tasks(figures: Figures) -> str:
    tasks = figures.totals
    own = f"; the generator itself failed {tasks.generator_failed:,}" if tasks.generator_failed else ""
    if figures.throughput:  # nothing was planned
        silent = f"{figures.throughput.silent_activities:,} times there was nothing to do"
        return f"{tasks.done:,} ended ({tasks.failed:,} failed), {tasks.unfinished:,} unfinished; {silent}{own}"
    return (
        f"{tasks.planned:,} due, {tasks.done:,} ended ({tasks.failed:,} failed), {tasks.unfinished:,} unfinished,"
        f" {tasks.skipped:,} skipped{own}"
    )


def _load_made(figures: Figures) -> list[Fact]:
    load = figures.load
    if figures.throughput:
        return []
    if load is None:
        return [("Load made", "not known: no plan was made, or the window is shorter than a twentieth of the run")]
    short = [
        f"{name} {task.made:,} of {task.planned:,}"
        for name, task in load.tasks.items()
        if task.planned >= FEW_PLANNED and task.made < task.planned * MUCH_LESS
    ]
    share = "" if load.share is None else f" ({percent(load.share)})"
    much_less = f"; below {MUCH_LESS * 100:g} %: {', '.join(short)}" if short else ""
    return [("Load made", f"{load.made:,} of {load.planned:,} tasks that the plan expects{share}{much_less}")]


def _failures(figures: Figures) -> list[Fact]:
    found = [
        (failure.times, task.task, failure.outcome, failure.kind)
        for module in figures.by_protocol.values()
        for task in module.tasks
        for failure in task.failures
    ]
    found.sort(key=lambda failure: (-failure[0], failure[1:]))
    shown = [
        f"{times:,} {task} {outcome}" + (f" ({kind})" if kind else "")
        for times, task, outcome, kind in found[:MOST_FAILURES]
    ]
    more = [f"{count(len(found) - len(shown), 'more kind')}"] if len(found) > len(shown) else []
    return [("Failures", ", ".join([*shown, *more]))] if found else []


def _lateness(figures: Figures) -> list[Fact]:
    if figures.throughput:
        return []
    late_ms, limit_ms = figures.lateness_p95_ms, figures.generator.lateness_limit_ms
    limit = "" if limit_ms is None else f" (limit {limit_ms:g} ms)"
    causes = f"user busy {duration(late_ms.busy)}, session down {duration(late_ms.down)}"
    return [("Lateness (95th)", f"{causes}, generator {duration(late_ms.generator)}{limit}")]


def _sessions(figures: Figures) -> list[Fact]:
    """Return the lost sessions, if any: users who log on again in time are in no other figure."""
    lost, restored = figures.sessions_lost, figures.sessions_restored
    return [("Sessions", f"{lost:,} lost, {restored or 0:,} restored")] if lost else []


def _companions(figures: Figures) -> list[Fact]:
    """Return the counts of companions, which are in no other line but that of sessions."""
    found = figures.companions
    if found is None:
        return []
    down = "" if found.down_share is None else f", not served for {found.down_share * 100:.3g} % of the run"
    return [
        (
            "Companions",
            f"{found.count:,}, {found.log_ons:,} log-ons ({found.log_ons_failed:,} failed),"
            f" {found.looks:,} looks, {found.listed:,} messages listed, {found.sessions_lost:,} sessions lost,"
            f" {found.failures:,} failures{down}",
        )
    ]


def _inbox(figures: Figures) -> list[Fact]:
    several = len(figures.by_protocol) > 1
    return [
        (
            f"Inbox{f' ({name})' if several else ''}",
            f"{found.done:,} of {found.processings:,} times worked through;"
            f" from when they were due 50th {duration(found.took.p50_ms)}, 95th {duration(found.took.p95_ms)}",
        )
        for name, module in figures.by_protocol.items()
        if (found := module.inbox) is not None and not figures.throughput
    ]


def _generator(generator: GeneratorFigures, engines: float) -> list[Fact]:
    if generator.lag_p99_ms is None:
        return []
    limit = "" if generator.lag_limit_ms is None else f", limit {duration(generator.lag_limit_ms)}"
    parts = [
        f"event loop {duration(generator.lag_p50_ms)} late (50th), {duration(generator.lag_p99_ms)} (99th{limit}),"
        f" {duration(generator.lag_max_ms)} (worst)"
    ]
    if generator.cpu_share is not None:
        parts.append(f"{generator.cpu_share:.0%} of a core")
    if generator.rss_bytes is not None:
        parts.append(f"{generator.rss_bytes / 2**20:.0f} MiB")
    return [("Generator" if engines == 1 else f"Generator (the worst of {engines} engines)", ", ".join(parts))]


def _machine(machine: MachineHealth) -> Fact:
    parts = []
    if machine.cpu_share is not None:
        engines = "" if machine.engines_share is None else f", {machine.engines_share:.0%} by loadsim's engines"
        parts.append(f"{machine.cpu_share:.0%} of {count(machine.cores or 0, 'core')} busy{engines}")
    if machine.server_here:
        shares = {None: "", False: ", on other cores", True: ", on the generator's cores"}[machine.shares_cpus]
        parts.append("the server runs on this machine" + shares)
    return f"Machine {machine.name}", "; ".join(parts or ["nothing is known"])


def _nearest_to_full(figures: Figures) -> list[Fact]:
    """Return the resources nearest to saturation; without any, how to sample them if the server is on this machine."""
    here = figures.machines and all(machine.server_here for machine in figures.machines)
    if figures.resources or not here or figures.embedded:
        return resource_facts(figures.resources)
    return [("Nearest to full", NOT_SAMPLED)]


def clock(at_s: float) -> str:
    """Return h:mm:ss, with a fraction of a second if there is one."""
    minutes, seconds = divmod(round(at_s, 6), 60)
    hours, minutes = divmod(int(minutes), 60)
    whole, _, fraction = f"{seconds:.6f}".rstrip("0").partition(".")
    return f"{hours}:{minutes:02d}:{whole:>02}" + (f".{fraction}" if fraction else "")
