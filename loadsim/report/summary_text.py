"""The summary as plain text: the context, LsLog's table, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence

from loadsim.analysis.breakdown import Breakdown, OutcomeRow, OutcomeTable, TaskRow
from loadsim.analysis.criteria import Result
from loadsim.analysis.figures import (
    Coverage,
    DriverFigures,
    Figures,
    GeneratorFigures,
    TaskFigures,
)
from loadsim.analysis.generator import MachineHealth
from loadsim.analysis.json_values import INFINITE
from loadsim.analysis.per_client import ClientFigures
from loadsim.analysis.per_run import in_tenths
from loadsim.analysis.score import FEW_HITS, MERGED, CommandFigures
from loadsim.analysis.summary import Summary
from loadsim.analysis.throughput import Throughput
from loadsim.analysis.verdict import Verdict
from loadsim.model.terms import WITHOUT_WINDOW, Window
from loadsim.report.digits import MOST_DECIMALS, known_decimals, rounded
from loadsim.report.document import Table, table_of
from loadsim.report.table import table, text_table

COLUMNS = ("Category", "Weight", "Hits", "50th", "95th", "Mean", "Std. Dev.", "Due 95th", "Failed")

MUCH_LESS, FEW_PLANNED = 0.95, 50
"""A task is named if less than `MUCH_LESS` of its plan was made, unless fewer than `FEW_PLANNED` were planned."""

MOST_FAILURES = 5
"""At most this number of kinds of failure is named."""


def answer_text(summary: Summary) -> str:
    """Return the text of a summary, with a final line break. Times are in milliseconds."""
    figures = in_tenths(summary.figures) if summary.figures.runs > 1 else summary.figures
    lines = [*_head(figures), ""]
    percentile = ordinal(figures.percentile)
    for name, module in figures.by_protocol.items():
        if len(figures.by_protocol) > 1:
            lines.append(f"Driver {name}, {_count(module.users, 'user')} (not to be mixed with another's score)")
        if figures.throughput:
            lines += [*text_table(_stress_table(module, figures.window_s, percentile)), ""]
        else:
            lines += [*table(_score_rows(module, percentile)), *_covers(module.covers), *_certainty(module), ""]
            lines += [*text_table(_beyond_table(module, percentile)), *_beyond_legend(percentile), ""]
    lines += breakdown_text(figures.by, percentile) if figures.by else []
    if figures.commands:
        lines += [*text_table(_command_table(figures.commands)), ""]
    lines += [*_facts(figures), *_warnings(summary), *_clients(figures.per_client)]
    return "\n".join([*lines, *_criteria(summary.criteria), *_verdict(summary)]) + "\n"


def _head(figures: Figures) -> list[str]:
    begin_s, end_s = figures.window_s
    users, engines, clients = figures.users, figures.engines, figures.clients
    named = ", ".join(filter(None, (figures.name, figures.run)))
    lines = [f"Run: {named or 'unnamed'}"]
    if figures.server:
        lines.append(f"Server: {figures.server}")
    if figures.embedded:
        lines.append("The embedded server shares the machine with the generator: this is no measurement of a server.")
    if figures.slice:
        lines.append(
            f"Slice {figures.slice}: a part of the run. The other slices are in their own logs: use loadsim log merge,"
            " or loadsim log answer of all of them."
        )
    if figures.start_at and clients > 1:
        lines.append(
            f"Clients: started by hand for {figures.start_at}; delivery times between them are as exact as their"
            " clocks agree"
        )
    if figures.throughput:
        lines.append("Mode: stress: throughput, no LoadSim score")
    lines.append(
        f"Load: {_count(users, 'user')} ({_count(users, 'session')}), from {_count(clients, 'client')} with"
        f" {_count(engines, 'engine')}; {tasks_per_s(figures)}"
    )
    if figures.runs > 1:
        lines.append(
            f"Logs of {figures.runs} runs: users, engines, rates and counts are means per run; percentiles and shares"
            " are of all records"
        )
    modules = figures.by_protocol
    lines.append(
        f"Driver{'' if len(modules) == 1 else 's'}: {', '.join(modules)}"
        + (f"; submission by {figures.submission}" if figures.submission else "")
    )
    if figures.throughput:
        lines += _throughput(figures.throughput)
    else:
        lines.append(_day(figures))
    if figures.method != MERGED:
        lines.append("Percentiles: the mean of each client machine's, which is no percentile of all records")
    lines.append(f"Window: {clock(begin_s)} to {clock(end_s)} from the common start ({length(end_s - begin_s)})")
    lines.append(f"Plan: {figures.plan_digest or 'unknown'}")
    return lines


def tasks_per_s(figures: Figures) -> str:
    achieved, offered = figures.achieved_per_s, figures.offered_per_s
    return f"{achieved:.1f} tasks/s achieved" + ("" if offered is None else f" of {offered:.1f} offered")


def _day(figures: Figures) -> str:
    day, pace = length(figures.day_s) + night_words(figures), figures.compression
    if pace == 1:
        words = f"Day: {day}, not compressed"
    else:
        changed = "compressed" if pace > 1 else "stretched"
        words = f"Day: {changed}, {length(figures.profile_day_s)} in {day} ({pace:g} x)"
    if figures.load_equivalent_users == figures.users:
        return words
    return f"{words}; same task rate as {figures.load_equivalent_users} users with a day of 8 h"


def night_words(figures: Figures) -> str:
    """Return words to follow the length of a day; "" for a run without nights."""
    return f" with a night of {length(figures.night_s)}" if figures.night_s else ""


def _throughput(found: Throughput) -> list[str]:
    commands = ", ".join(f"{per_s:.1f} {service} commands/s" for service, per_s in found.commands.items())
    return [
        "Closed loop: each user starts the next activity as soon as the last is done, without pauses",
        f"Throughput: {found.tasks_per_s:.1f} successful tasks/s, {found.messages_per_s:.1f} messages/s,"
        f" {found.deliveries_per_s:.1f} deliveries/s, {commands}",
    ]


def _stress_table(module: DriverFigures, window_s: Window, percentile: str) -> Table:
    """Return a table without weights and score; LOGON and LOGOFF have no window, and hence no rate."""
    length_s = window_s.length_s
    return table_of(
        "",
        module.tasks,
        ("Category", None, lambda task: task.task),
        ("Hits", None, lambda task: task.hits),
        ("Per s", 1, lambda task: None if task.task in WITHOUT_WINDOW else task.hits / length_s),
        ("50th", 1, lambda task: task.service.p50_ms),
        (percentile, 1, lambda task: task.percentile_ms),
        ("Mean", 1, lambda task: task.service.mean_ms),
        ("Std. Dev.", 1, lambda task: task.service.stddev_ms),
        ("Failed", None, lambda task: task.failed),
    )


def _rows(
    tasks: Sequence[TaskFigures | TaskRow],
    score_ms: float | None,
    response_score_ms: float | None,
    percentile: str,
    decimals: int = MOST_DECIMALS,
) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [columns(percentile)]
    rows += [
        (
            task.task,
            f"{task.weight:g}" if task.weight else "-",
            str(task.hits),
            *map(_ms, (task.service.p50_ms, task.percentile_ms, task.service.mean_ms, task.service.stddev_ms)),
            _ms(task.response_percentile_ms),
            str(task.failed),
        )
        for task in tasks
    ]
    scored = [task for task in tasks if task.weight and task.hits]
    rows.append(
        (
            "Weighted Avg",
            f"{sum(task.weight for task in scored):g}",
            str(sum(task.hits for task in scored)),
            "",
            _ms(score_ms, decimals),
            "",
            "",
            _ms(response_score_ms),
            str(sum(task.failed for task in tasks if task.weight)),
        )
    )
    return rows


def _score_rows(module: DriverFigures, percentile: str) -> list[Sequence[str]]:
    return _rows(module.tasks, module.score_ms, module.response_score_ms, percentile, _decimals(module))


def columns(percentile: str) -> tuple[str, ...]:
    return tuple(column.replace("95th", percentile) for column in COLUMNS)


def ordinal(percent: float) -> str:
    """Return an ordinal number: 95th, 99.9th, 1st."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    whole = percent == int(percent) and int(percent) % 100 not in (11, 12, 13)
    return f"{percent:.12g}{ends.get(int(percent) % 10, 'th') if whole else 'th'}"


def _beyond_table(module: DriverFigures, percentile: str) -> Table:
    return table_of(
        "",
        module.tasks,
        ("Category", None, lambda task: task.task),
        ("Planned", None, lambda task: task.planned),
        ("Done", None, lambda task: task.done),
        ("Per s", 1, lambda task: task.done_per_s),
        ("90th", 1, lambda task: task.service.p90_ms),
        ("99th", 1, lambda task: task.service.p99_ms),
        ("99.9th", 1, lambda task: task.service.p99_9_ms),
        ("Max", 1, lambda task: task.service.max_ms),
        (f"{percentile} from", 1, lambda task: task.interval_ms and task.interval_ms[0]),
        ("to", 1, lambda task: task.interval_ms and task.interval_ms[1]),
        ("Due 50th", 1, lambda task: task.response.p50_ms),
        ("99th", 1, lambda task: task.response.p99_ms),
        ("Max", 1, lambda task: task.response.max_ms),
    )


def _beyond_legend(percentile: str) -> list[str]:
    return [
        f"From, to: 95 % confidence interval of the {percentile} percentile. Due: counted from the due time; tasks that"
        " failed or were never done count as infinite (inf)."
    ]


def _certainty(module: DriverFigures) -> list[str]:
    lines = []
    if module.provisional:
        few = [f"{task.task} {task.hits}" for task in module.tasks if task.task in module.covers.few_hits]
        lines.append(f"The score is provisional, with fewer than {FEW_HITS} hits: {', '.join(few)}.")
    if module.score_interval_ms:
        low, high = (_ms(end_ms, _decimals(module)) for end_ms in module.score_interval_ms)
        lines.append(
            f"95 % confidence interval of the score within this run: {low} to {high} ms"
            f" (valid for slow spells of up to {module.spell_s:.3g} s that occur ten times or more)."
        )
    elif module.score_ms is not None:
        lines.append(f"No confidence interval of the score: {module.no_score_interval}.")
    repeats = module.repeats
    if repeats and repeats.no_score:
        lines.append(f"No spread of the score between {len(repeats.runs)} runs: {repeats.no_score}.")
    if repeats and (between := repeats.score):
        each = ", ".join(_ms(score_ms) for score_ms in between.each)
        lines.append(
            f"Between {len(between.each)} runs: score {each}; mean {_ms(between.mean)}, std. dev."
            f" {_ms(between.stddev)}, 95 % interval {_ms(between.low)} to {_ms(between.high)} ms."
        )
    return lines


def breakdown_text(found: Breakdown, percentile: str) -> list[str]:
    lines = []
    modules = {one.module for one in found.tables}
    for one in found.tables:
        module = f", driver {one.module}" if len(modules) > 1 and found.what != "module" else ""
        lines.append(f"{found.what.capitalize()} {one.value}{module}")
        if isinstance(one, OutcomeTable):
            lines += [*text_table(_outcome_table(one.tasks, percentile)), ""]
        else:
            lines += [*table(_rows(one.tasks, one.score_ms, one.response_score_ms, percentile)), ""]
    return lines


def _outcome_table(tasks: Sequence[OutcomeRow], percentile: str) -> Table:
    return table_of(
        "",
        tasks,
        ("Category", None, lambda task: task.task),
        ("Count", None, lambda task: task.count),
        ("50th", 1, lambda task: task.took.p50_ms),
        (percentile, 1, lambda task: task.percentile_ms),
        ("Mean", 1, lambda task: task.took.mean_ms),
        ("Std. Dev.", 1, lambda task: task.took.stddev_ms),
    )


def _command_table(commands: Sequence[CommandFigures]) -> Table:
    return table_of(
        "",
        commands,
        ("Command", None, lambda one: one.command),
        ("Hits", None, lambda one: one.hits),
        ("50th", 1, lambda one: one.took.p50_ms),
        ("95th", 1, lambda one: one.took.p95_ms),
        ("Max", 1, lambda one: one.took.max_ms),
        ("Mean", 1, lambda one: one.took.mean_ms),
        ("Std. Dev.", 1, lambda one: one.took.stddev_ms),
        ("Failed", None, lambda one: one.failed),
    )


def _covers(covers: Coverage) -> list[str]:
    if not covers.scored:
        return ["There is no score: no task with a weight has a hit."]
    line = f"The score covers {', '.join(covers.scored)}"
    if covers.without_hits:
        line += f"; without hits: {', '.join(covers.without_hits)}"
    if covers.not_planned:
        line += f"; never due in the window: {', '.join(covers.not_planned)}"
    return [line + "."]


def _facts(figures: Figures) -> list[str]:
    mail = figures.delivery
    beyond = mail.undelivered_at_end - mail.undelivered
    inside_by_list, at_end_by_list = mail.undelivered_by_list, mail.undelivered_at_end_by_list
    beyond_by_list = None if inside_by_list is None or at_end_by_list is None else at_end_by_list - inside_by_list
    return [
        _tasks(figures),
        *_load_made(figures),
        *_failures(figures),
        *_sessions(figures),
        *_companions(figures),
        *_inbox(figures),
        f"Delivery: {mail.accepted} accepted, {mail.delivered} delivered, {mail.undelivered} undelivered"
        f"{how_addressed(mail.undelivered, inside_by_list)};"
        f" 50th {_ms(mail.took.p50_ms)} ms, 95th {_ms(mail.took.p95_ms)} ms,"
        f" {mail.timed} of {mail.accepted - mail.unwatched} timed"
        + (f", {mail.found} found by polling" if mail.found else "")
        + (f"; also undelivered at the end: {beyond} accepted outside the window" if beyond else "")
        + how_addressed(beyond, beyond_by_list)
        + (f"; {mail.unwatched} to users of {who_is_unwatched(figures)}" if mail.unwatched else "")
        + (f"; {_count(mail.duplicates, 'duplicate')}" if mail.duplicates else ""),
        *_clocks(figures),
        *_lateness(figures),
        *_generator(figures.generator, figures.engines),
        *(_machine(machine) for machine in figures.machines),
    ]


def how_addressed(messages: float, by_list: float | None) -> str:
    """Return the parts of a number of undelivered messages in brackets; "" for none, or if they are unknown."""
    if not messages or by_list is None:
        return ""
    individuals = round(messages - by_list, 1)  # means of several runs are rounded to tenths
    return f" ({individuals:g} to individuals, {by_list:g} through lists)"


def _warnings(summary: Summary) -> list[str]:
    return [f"Warning: {warning}" for warning in summary.verdict.warnings]


def _clients(clients: Sequence[ClientFigures]) -> list[str]:
    """Return a table of the client machines after a blank line; nothing for a single machine."""
    if not clients:
        return []
    found = table_of(
        "",
        clients,
        ("Client", None, lambda one: one.client),
        ("Users", None, lambda one: one.users),
        ("Lost", None, lambda one: one.lost_users),
        ("Engines", None, lambda one: one.engines),
        ("Start", None, lambda one: None if one.start_late_ms is None else f"{one.start_late_ms:+.2f}"),
        ("give or take", 2, lambda one: one.start_error_ms),
        ("Lag 99th", 1, lambda one: one.lag_p99_ms),
        ("CPU", None, lambda one: None if one.cpu_share is None else f"{one.cpu_share:.0%}"),
        ("Late 95th", 1, lambda one: one.lateness_p95_ms),
        ("By itself", None, lambda one: one.validity),
    )
    return [
        "",
        *text_table(found),
        "Start: delay relative to the scheduled start, in ms. Lag and CPU: of the client's worst engine.",
    ]


def who_is_unwatched(figures: Figures) -> str:
    return "other slices" if figures.slice else "engines that were lost, or had ended"


def _clocks(figures: Figures) -> list[str]:
    """Return the accuracy of delivery times between machines, and the messages seen before their acceptance."""
    mail = figures.delivery
    if figures.clients == 1 or mail.clock_error_ms == 0:
        return []
    early = f"{_count(mail.early, 'message')} seen before being accepted, by up to {_ms(mail.earliest_ms)} ms"
    if mail.clock_error_ms is None:
        doubt = "their delivery counts as 0 ms; the clients' clocks may differ by as much, or more"
        return [f"Clocks: {early}: {doubt}"] if mail.early else []
    exact = f"Clocks: compared; a delivery time between machines is wrong by {_ms(mail.clock_error_ms)} ms at most"
    return [exact + (f"; {early}, count as 0 ms" if mail.early else "")]


def _tasks(figures: Figures) -> str:
    tasks = figures.totals
    if figures.throughput:  # nothing was planned
        return (
            f"Tasks: {tasks.done} done, {tasks.failed} of them failed; {tasks.unfinished} unfinished;"
            f" {figures.throughput.silent_activities} times there was nothing to do{_by_generator(figures)}"
        )
    return (
        f"Tasks: {tasks.planned} planned, {tasks.done} done, {tasks.failed} of them failed;"
        f" {tasks.unfinished} unfinished, {tasks.skipped} skipped{_by_generator(figures)}"
    )


def _by_generator(figures: Figures) -> str:
    return f"; the generator itself failed {figures.totals.generator_failed}" if figures.totals.generator_failed else ""


def _load_made(figures: Figures) -> list[str]:
    load = figures.load
    if figures.throughput or figures.slice:
        return []
    if load is None:
        return ["Load made: not known: no plan was made, or the window is shorter than a twentieth of the run"]
    short = [
        f"{name} {task.made} of {task.planned}"
        for name, task in load.tasks.items()
        if task.planned >= FEW_PLANNED and task.made < task.planned * MUCH_LESS
    ]
    share = "" if load.share is None else f" ({load.share:.1%})".replace("%", " %")
    much_less = f"; below {MUCH_LESS * 100:g} %: {', '.join(short)}" if short else ""
    return [f"Load made: {load.made} of {load.planned} tasks of the plan{share}{much_less}"]


def _failures(figures: Figures) -> list[str]:
    found = [
        (failure.times, task.task, failure.outcome, failure.kind)
        for module in figures.by_protocol.values()
        for task in module.tasks
        for failure in task.failures
    ]
    found.sort(key=lambda failure: (-failure[0], failure[1:]))
    shown = [
        f"{times} {task} {outcome}" + (f" ({kind})" if kind else "")
        for times, task, outcome, kind in found[:MOST_FAILURES]
    ]
    more = [f"{_count(len(found) - len(shown), 'more kind')}"] if len(found) > len(shown) else []
    return [f"Failures: {', '.join([*shown, *more])}"] if found else []


def _lateness(figures: Figures) -> list[str]:
    if figures.throughput:
        return []
    late_ms = figures.lateness_p95_ms
    return [
        f"Lateness (95th): user busy {_ms(late_ms.busy)} ms, session down {_ms(late_ms.down)} ms,"
        f" generator {_ms(late_ms.generator)} ms"
    ]


def _sessions(figures: Figures) -> list[str]:
    """Return the lost sessions, if any: users who log on again in time are in no other figure."""
    lost, restored = figures.sessions_lost, figures.sessions_restored
    return [f"Sessions: {lost} lost, {restored} restored"] if lost else []


def _companions(figures: Figures) -> list[str]:
    """Return the counts of companions, which are in no other line but that of sessions."""
    found = figures.companions
    if found is None:
        return []
    down = "" if found.down_share is None else f", not served for {found.down_share * 100:.3g} % of the run"
    return [
        f"Companions: {found.count}, {found.log_ons} log-ons ({found.log_ons_failed} failed), {found.looks} looks,"
        f" {found.listed} messages listed, {found.sessions_lost} sessions lost, {found.failures} failures{down}"
    ]


def _inbox(figures: Figures) -> list[str]:
    several = len(figures.by_protocol) > 1
    return [
        f"Inbox{f' ({name})' if several else ''}: {inbox.done} of {inbox.processings} times worked through;"
        f" from when they were due 50th {_ms(inbox.took.p50_ms)} ms, 95th {_ms(inbox.took.p95_ms)} ms"
        for name, module in figures.by_protocol.items()
        if (inbox := module.inbox) is not None and not figures.throughput
    ]


def _generator(generator: GeneratorFigures, engines: float) -> list[str]:
    if generator.lag_p99_ms is None:
        return []
    who = "Generator" if engines == 1 else f"Generator (the worst of {engines} engines)"
    parts = [
        f"event loop {_ms(generator.lag_p50_ms)} ms late (50th), {_ms(generator.lag_p99_ms)} ms (99th),"
        f" {_ms(generator.lag_max_ms)} ms at most"
    ]
    if generator.cpu_share is not None:
        parts.append(f"{generator.cpu_share:.0%} of a core")
    if generator.rss_bytes is not None:
        parts.append(f"{generator.rss_bytes / 2**20:.0f} MiB")
    return [f"{who}: {', '.join(parts)}"]


def _machine(machine: MachineHealth) -> str:
    parts = []
    if machine.cpu_share is not None:
        parts.append(f"{machine.cpu_share:.0%} of {_count(machine.cores or 0, 'core')} busy")
    if machine.server_here:
        shares = {None: "", False: ", on other cores", True: ", on the generator's cores"}[machine.shares_cpus]
        parts.append("the server runs on this machine" + shares)
    return f"Machine {machine.name}: " + "; ".join(parts or ["nothing is known"])


def _criteria(results: Sequence[Result]) -> list[str]:
    """Return the criteria, met or missed, between blank lines. Those of single tasks are listed only if missed."""
    if not results:
        return []
    listed = [one for one in results if not (one.each and one.passed)]
    rows = [(one.name, one.found, one.wanted, "met" if one.passed else "missed") for one in listed]
    each = sum(one.each for one in results)
    met = len(results) - len(listed)
    of_tasks = f"Criteria of single tasks: {'all' if met == each else f'{met} of'} {each} met."
    found = table([("Criterion", "Found", "Wanted", ""), *rows]) if rows else []
    return ["", *found, *([of_tasks] if each else []), ""]


def _verdict(summary: Summary) -> list[str]:
    verdict, figures = summary.verdict, summary.figures
    advice = [f"  What may help: {verdict.advice}"] if verdict.advice else []
    words = f"Verdict: {verdict.validity}, {passed_words(verdict)}"
    standard = (figures.percentile, figures.method) == (95, MERGED) or verdict.passed is None
    note = [] if standard else ["Criteria and verdict: by the 95th percentiles of all records, not by those shown"]
    return [*note, words, *(f"  {reason}" for reason in verdict.reasons), *advice]


def passed_words(verdict: Verdict) -> str:
    passed = verdict.passed
    return "criteria not judged by a slice" if passed is None else "criteria met" if passed else "criteria missed"


def _count(number: float, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _ms(time_ms: float | None, decimals: int = MOST_DECIMALS) -> str:
    if time_ms is None:
        return "-"
    return INFINITE if time_ms == math.inf else rounded(time_ms, decimals)


def _decimals(module: DriverFigures) -> int:
    """Return the number of decimals of the score that its interval supports."""
    interval_ms = module.score_interval_ms
    return known_decimals(module.score_ms, interval_ms) if module.score_ms and interval_ms else MOST_DECIMALS


def clock(at_s: float) -> str:
    """Return h:mm:ss, with a fraction of a second if there is one."""
    minutes, seconds = divmod(round(at_s, 6), 60)
    hours, minutes = divmod(int(minutes), 60)
    whole, _, fraction = f"{seconds:.6f}".rstrip("0").partition(".")
    return f"{hours}:{minutes:02d}:{whole:>02}" + (f".{fraction}" if fraction else "")


def length(length_s: float) -> str:
    for unit, unit_s in (("h", 3600), ("min", 60)):
        if length_s >= unit_s and length_s % unit_s == 0:
            return f"{length_s / unit_s:g} {unit}"
    return f"{length_s:g} s"
