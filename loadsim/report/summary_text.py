"""The answer as plain text: LsLog's table, with what it means above it and what it is worth below."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loadsim.analysis.per_run import in_tenths
from loadsim.analysis.score import FEW_HITS, MERGED
from loadsim.analysis.summary import Summary
from loadsim.model.terms import WITHOUT_WINDOW
from loadsim.report.digits import MOST_DECIMALS, known_decimals, rounded
from loadsim.report.table import table

COLUMNS = ("Category", "Weight", "Hits", "50th", "95th", "Mean", "Std. Dev.", "Due 95th", "Failed")
TIMES = ("p50_ms", "percentile_ms", "mean_ms", "stddev_ms")
"""What stands in the columns from 50th on; the second is the 95th percentile, unless another one was asked for."""

BEYOND_COLUMNS = ("Planned", "Done", "Per s", "90th", "99th", "99.9th", "Max")
COMMAND_COLUMNS = ("Command", "Hits", "50th", "95th", "Max", "Mean", "Std. Dev.", "Failed")
COMMAND_TIMES = ("p50_ms", "p95_ms", "max_ms", "mean_ms", "stddev_ms")
BEYOND = ("p90_ms", "p99_ms", "p99_9_ms", "max_ms")
RESPONSE = ("response_p50_ms", "response_p99_ms", "response_max_ms")

MUCH_LESS, FEW_PLANNED = 0.95, 50
"""Tasks of which a smaller share of the plan was asked for are named, unless few were planned."""

MOST_FAILURES = 5
"""So many kinds of failure are named."""


def answer_text(summary: Summary) -> str:
    """Return the text of a summary, with a final line break. Times are in milliseconds."""
    score = in_tenths(summary.score) if summary.score["runs"] > 1 else summary.score
    lines = [*_head(score), ""]
    percentile = ordinal(score["percentile"])
    for name, protocol in score["by_protocol"].items():
        if len(score["by_protocol"]) > 1:
            lines.append(
                f"Client module {name}, {_count(protocol['users'], 'user')} (not to be mixed with another's score)"
            )
        if score["throughput"]:
            lines += [*table(_stress_rows(protocol, score["window_s"], percentile)), ""]
        else:
            lines += [*table(_rows(protocol, percentile)), *_covers(protocol["covers"]), *_certainty(protocol), ""]
            lines += [*table(_beyond_rows(protocol, percentile)), *_beyond_legend(percentile), ""]
    lines += breakdown_text(score["by"], percentile) if score.get("by") else []
    if score.get("commands"):
        lines += [*table(_command_rows(score["commands"])), ""]
    return "\n".join([*lines, *_beside(score), *_criteria(score["verdict"]["criteria"]), *_verdict(score)]) + "\n"


def _head(score: Mapping[str, Any]) -> list[str]:
    begin_s, end_s = score["window_s"]
    users, engines, clients = score["users"], score["engines"], score["clients"]
    named = ", ".join(str(score[key]) for key in ("name", "run") if score.get(key))
    lines = [f"Run: {named or 'unnamed'}"]
    if score.get("server"):
        lines.append(f"Server: {score['server']}")
    if score["embedded"]:
        lines.append("The embedded server shares the machine with the generator: this is no measurement of a server.")
    if score["slice"]:
        lines.append(
            f"Slice {score['slice']}: a part of the run. What the others did is in their logs: loadsim log merge, or"
            " loadsim log answer of all of them."
        )
    if score["start_at"] and clients > 1:
        lines.append(
            f"Clients: started by hand for {score['start_at']}; delivery times between them are as exact as their"
            " clocks agree"
        )
    if score["throughput"]:
        lines.append("Mode: stress: throughput, no LoadSim score")
    lines.append(
        f"Load: {_count(users, 'user')} and as many sessions, from {_count(clients, 'client')} with"
        f" {_count(engines, 'engine')}; {tasks_per_s(score)}"
    )
    if score["runs"] > 1:
        lines.append(
            f"Logs of {score['runs']} runs: users, engines, rates and counts are means per run; percentiles and shares"
            " are of all records"
        )
    modules = score["by_protocol"]
    lines.append(
        f"Client module{'' if len(modules) == 1 else 's'}: {', '.join(modules)}"
        + (f"; submission by {score['submission']}" if score["submission"] else "")
    )
    if score["throughput"]:
        lines += _throughput(score["throughput"])
    else:
        lines.append(_day(score))
    if score["method"] != MERGED:
        lines.append("Percentiles: the mean of each client machine's, which is no percentile of all records")
    lines.append(f"Window: {clock(begin_s)} to {clock(end_s)} from the common start ({length(end_s - begin_s)})")
    lines.append(f"Plan: {score.get('plan_digest') or 'unknown'}")
    return lines


def tasks_per_s(score: Mapping[str, Any]) -> str:
    """The tasks that succeeded each second, of those that were due; in a closed loop, nothing is due."""
    achieved, offered = score["achieved_per_s"], score["offered_per_s"]
    return f"{achieved:.1f} tasks/s achieved" + ("" if offered is None else f" of {offered:.1f} offered")


def _day(score: Mapping[str, Any]) -> str:
    day, pace = length(score["day_s"]) + night_words(score), score["compression"]
    if pace == 1:
        words = f"Day: {day}, not compressed"
    else:
        changed = "compressed" if pace > 1 else "stretched"
        words = f"Day: {changed}, {length(score['profile_day_s'])} in {day} ({pace:g} x)"
    if score["load_equivalent_users"] == score["users"]:
        return words
    return f"{words}; load-equivalent, in tasks only, of {score['load_equivalent_users']} users with a day of 8 h"


def night_words(score: Mapping[str, Any]) -> str:
    """Return the words for the nights of a run, to stand after the length of its day; none where it has no nights."""
    return f" with a night of {length(score['night_s'])}" if score["night_s"] else ""


def _throughput(found: Mapping[str, Any]) -> list[str]:
    commands = ", ".join(f"{per_s:.1f} {service} commands/s" for service, per_s in found["commands"].items())
    return [
        "Closed loop: each user does the next activity as soon as the last is done, without pauses",
        f"Throughput: {found['tasks_per_s']:.1f} successful tasks/s, {found['messages_per_s']:.1f} messages/s,"
        f" {found['deliveries_per_s']:.1f} deliveries/s, {commands}",
    ]


def _stress_rows(protocol: Mapping[str, Any], window_s: Sequence[float], percentile: str) -> list[Sequence[str]]:
    """No weights and no score; LOGON and LOGOFF, which have no window, have no rate."""
    length_s = window_s[1] - window_s[0]
    rows: list[Sequence[str]] = [("Category", "Hits", "Per s", *columns(percentile)[3:-2], "Failed")]
    rows += [
        (
            task["task"],
            str(task["hits"]),
            "-" if task["task"] in WITHOUT_WINDOW else f"{task['hits'] / length_s:.1f}",
            *(_ms(task[time]) for time in TIMES),
            str(task["failed"]),
        )
        for task in protocol["tasks"]
    ]
    return rows


def _rows(protocol: Mapping[str, Any], percentile: str) -> list[Sequence[str]]:
    tasks = protocol["tasks"]
    rows: list[Sequence[str]] = [columns(percentile)]
    rows += [
        (
            task["task"],
            f"{task['weight']:g}" if task["weight"] else "-",
            str(task["hits"]),
            *(_ms(task[time]) for time in TIMES),
            _ms(task["response_percentile_ms"]),
            str(task["failed"]),
        )
        for task in tasks
    ]
    scored = [task for task in tasks if task["weight"] and task["hits"]]
    rows.append(
        (
            "Weighted Avg",
            f"{sum(task['weight'] for task in scored):g}",
            str(sum(task["hits"] for task in scored)),
            "",
            _ms(protocol["score_ms"], _decimals(protocol)),
            "",
            "",
            _ms(protocol["response_score_ms"]),
            str(sum(task["failed"] for task in tasks if task["weight"])),
        )
    )
    return rows


def columns(percentile: str) -> tuple[str, ...]:
    """The heads of the score table with another percentile in the place of the 95th."""
    return tuple(column.replace("95th", percentile) for column in COLUMNS)


def ordinal(percent: float) -> str:
    """95th, 99.9th, 1st."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    whole = percent == int(percent) and int(percent) % 100 not in (11, 12, 13)
    return f"{percent:.12g}{ends.get(int(percent) % 10, 'th') if whole else 'th'}"


def _beyond_rows(protocol: Mapping[str, Any], percentile: str) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [("Category", *BEYOND_COLUMNS, f"{percentile} from", "to", "Due 50th", "99th", "Max")]
    for task in protocol["tasks"]:
        low_ms, high_ms = task["interval_ms"] or (None, None)
        rows.append(
            (
                task["task"],
                str(task["planned"]),
                str(task["done"]),
                "-" if task["done_per_s"] is None else f"{task['done_per_s']:.1f}",
                *(_ms(task[time]) for time in BEYOND),
                _ms(low_ms),
                _ms(high_ms),
                *(_ms(task[time]) for time in RESPONSE),
            )
        )
    return rows


def _beyond_legend(percentile: str) -> list[str]:
    return [
        f"From, to: 95 % interval of the {percentile}. Due: from when a task was due; what failed or was never done"
        " counts as infinite (inf)."
    ]


def _certainty(protocol: Mapping[str, Any]) -> list[str]:
    """What the score is worth: of how many hits it is made, how far it is chance, and what other runs came to."""
    lines = []
    if protocol["provisional"]:
        few = [f"{task['task']} {task['hits']}" for task in protocol["tasks"] if task["task"] in _few(protocol)]
        lines.append(f"The score is provisional, with fewer than {FEW_HITS} hits: {', '.join(few)}.")
    if protocol["score_interval_ms"]:
        low, high = (_ms(end_ms, _decimals(protocol)) for end_ms in protocol["score_interval_ms"])
        lines.append(
            f"95 % interval of the score within this run: {low} to {high} ms"
            f" (for slow spells of up to {protocol['spell_s']:.3g} s that come ten times or more)."
        )
    elif protocol["score_ms"] is not None:
        lines.append(f"No interval of the score: {protocol['no_score_interval']}.")
    repeats = protocol["repeats"] or {}
    if repeats.get("no_score"):
        lines.append(f"No spread of the score between {len(repeats['runs'])} runs: {repeats['no_score']}.")
    if between := repeats.get("score"):
        each = ", ".join(_ms(score_ms) for score_ms in between["each"])
        lines.append(
            f"Between {len(between['each'])} runs: score {each}; mean {_ms(between['mean'])}, std. dev."
            f" {_ms(between['stddev'])}, 95 % interval {_ms(between['low'])} to {_ms(between['high'])} ms."
        )
    return lines


def _few(protocol: Mapping[str, Any]) -> Sequence[str]:
    few: Sequence[str] = protocol["covers"]["few_hits"]
    return few


def breakdown_text(found: Mapping[str, Any], percentile: str) -> list[str]:
    """A table for each value that the log was parted by, each with a blank line below it."""
    lines = []
    modules = {one["module"] for one in found["tables"]}
    for one in found["tables"]:
        module = f", client module {one['module']}" if len(modules) > 1 and found["what"] != "module" else ""
        lines.append(f"{found['what'].capitalize()} {one['value']}{module}")
        rows = _outcome_rows(one, percentile) if found["what"] == "outcome" else _rows(one, percentile)
        lines += [*table(rows), ""]
    return lines


def _outcome_rows(found: Mapping[str, Any], percentile: str) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [("Category", "Count", *columns(percentile)[3:-2])]
    rows += [(task["task"], str(task["count"]), *(_ms(task[time]) for time in TIMES)) for task in found["tasks"]]
    return rows


def _command_rows(commands: Iterable[Mapping[str, Any]]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [COMMAND_COLUMNS]
    rows += [
        (one["command"], str(one["hits"]), *(_ms(one[time]) for time in COMMAND_TIMES), str(one["failed"]))
        for one in commands
    ]
    return rows


def _covers(covers: Mapping[str, Sequence[str]]) -> list[str]:
    if not covers["scored"]:
        return ["There is no score: no task with a weight has a hit."]
    line = f"The score covers {', '.join(covers['scored'])}"
    if covers["without_hits"]:
        line += f"; without hits: {', '.join(covers['without_hits'])}"
    if covers["not_planned"]:
        line += f"; never due: {', '.join(covers['not_planned'])}"
    return [line + "."]


def _beside(score: Mapping[str, Any]) -> list[str]:
    mail = score["delivery"]
    beyond = mail["undelivered_at_end"] - mail["undelivered"]
    return [
        _tasks(score),
        *_load_made(score),
        *_failures(score),
        *_sessions(score),
        *_inbox(score),
        f"Delivery: {mail['accepted']} accepted, {mail['delivered']} delivered, {mail['undelivered']} undelivered;"
        f" 50th {_ms(mail['p50_ms'])} ms, 95th {_ms(mail['p95_ms'])} ms,"
        f" {mail['timed']} of {mail['accepted'] - mail['unwatched']} timed"
        + (f", {mail['found']} found by looking" if mail["found"] else "")
        + (f"; {beyond} more undelivered at the end of the run" if beyond else "")
        + (f"; {mail['unwatched']} to users of {who_is_unwatched(score)}" if mail["unwatched"] else "")
        + (f"; {_count(mail['duplicates'], 'duplicate')}" if mail["duplicates"] else ""),
        *_clocks(score),
        *_lateness(score),
        *_generator(score["generator"], score["engines"]),
        *(_machine(machine) for machine in score["machines"]),
        *(f"Warning: {warning}" for warning in score["warnings"]),
        *_clients(score["per_client"]),
    ]


CLIENT_COLUMNS = (
    "Client",
    "Users",
    "Lost",
    "Engines",
    "Start",
    "give or take",
    "Lag 99th",
    "CPU",
    "Late 95th",
    "By itself",
)


def _clients(clients: Sequence[Mapping[str, Any]]) -> list[str]:
    """A row for each client machine of several, after a blank line."""
    if not clients:
        return []
    rows: list[Sequence[str]] = [CLIENT_COLUMNS]
    rows += [
        (
            one["client"],
            str(one["users"]),
            str(one["lost_users"]),
            str(one["engines"]),
            "-" if one["start_late_ms"] is None else f"{one['start_late_ms']:+.2f}",
            "-" if one["start_error_ms"] is None else f"{one['start_error_ms']:.2f}",
            _ms(one["lag_p99_ms"]),
            "-" if one["cpu_share"] is None else f"{one['cpu_share']:.0%}",
            _ms(one["lateness_p95_ms"]),
            one["validity"],
        )
        for one in clients
    ]
    return [
        "",
        *table(rows),
        "Start: later than the control station meant it. Lag and CPU: of the client's worst engine.",
    ]


def who_is_unwatched(score: Mapping[str, Any]) -> str:
    """Whose users' mail nobody can tell of."""
    return "other slices" if score["slice"] else "engines that were lost, or had ended"


def _clocks(score: Mapping[str, Any]) -> list[str]:
    """Of several machines: how exact the times between them are, and what was seen before it was accepted."""
    mail = score["delivery"]
    if score["clients"] == 1 or mail["clock_error_ms"] == 0:
        return []
    early = f"{_count(mail['early'], 'message')} seen before being accepted, by up to {_ms(mail['earliest_ms'])} ms"
    if mail["clock_error_ms"] is None:
        doubt = "their delivery counts as 0 ms; the clients' clocks may differ by as much, or more"
        return [f"Clocks: {early}: {doubt}"] if mail["early"] else []
    exact = f"Clocks: compared; a delivery time between machines is wrong by {_ms(mail['clock_error_ms'])} ms at most"
    return [exact + (f"; {early}, count as 0 ms" if mail["early"] else "")]


def _tasks(score: Mapping[str, Any]) -> str:
    if score["throughput"]:  # nothing was planned
        return (
            f"Tasks: {score['done']} done, {score['failed']} of them failed; {score['unfinished']} unfinished;"
            f" {score['throughput']['silent_activities']} times there was nothing to do{_by_ourselves(score)}"
        )
    return (
        f"Tasks: {score['planned']} planned, {score['done']} done, {score['failed']} of them failed;"
        f" {score['unfinished']} unfinished, {score['skipped']} skipped{_by_ourselves(score)}"
    )


def _by_ourselves(score: Mapping[str, Any]) -> str:
    """Return the count of tasks in which the generator itself failed; "" if there are none."""
    return f"; the generator itself failed {score['generator_failed']}" if score["generator_failed"] else ""


def _load_made(score: Mapping[str, Any]) -> list[str]:
    """Return how much of the plan's load was made, and which tasks were asked for much less often."""
    load = score["load"]
    if score["throughput"] or score["slice"]:
        return []
    if load is None:
        return ["Load made: not known: no plan was made, or the window is shorter than a twentieth of the run"]
    short = [
        f"{name} {made} of {planned}"
        for name, (planned, made) in ((name, task.values()) for name, task in load["tasks"].items())
        if planned >= FEW_PLANNED and made < planned * MUCH_LESS
    ]
    share = "" if load["share"] is None else f" ({load['share']:.1%})".replace("%", " %")
    much_less = f"; below {MUCH_LESS * 100:g} %: {', '.join(short)}" if short else ""
    return [f"Load made: {load['made']} of {load['planned']} tasks of the plan{share}{much_less}"]


def _failures(score: Mapping[str, Any]) -> list[str]:
    """The most frequent kinds of failure, over all client modules."""
    found = [
        (failure["times"], task["task"], failure["outcome"], failure["kind"])
        for protocol in score["by_protocol"].values()
        for task in protocol["tasks"]
        for failure in task["failures"]
    ]
    found.sort(key=lambda failure: (-failure[0], failure[1:]))
    said = [
        f"{times} {task} {outcome}" + (f" ({kind})" if kind else "")
        for times, task, outcome, kind in found[:MOST_FAILURES]
    ]
    more = [f"{_count(len(found) - len(said), 'more kind')}"] if len(found) > len(said) else []
    return [f"Failures: {', '.join([*said, *more])}"] if found else []


def _lateness(score: Mapping[str, Any]) -> list[str]:
    if score["throughput"]:
        return []
    late_ms = score["lateness_p95_ms"]
    return [
        f"Lateness (95th): user busy {_ms(late_ms['busy'])} ms, session down {_ms(late_ms['down'])} ms,"
        f" generator {_ms(late_ms['generator'])} ms"
    ]


def _sessions(score: Mapping[str, Any]) -> list[str]:
    """How often sessions broke, when they did: users who came back in time are in no other figure."""
    lost, restored = score["sessions_lost"], score["sessions_restored"]
    return [f"Sessions: {lost} lost, {restored} restored"] if lost else []


def _inbox(score: Mapping[str, Any]) -> list[str]:
    """Return how long users took to work through their Inboxes."""
    several = len(score["by_protocol"]) > 1
    return [
        f"Inbox{f' ({name})' if several else ''}: {inbox['done']} of {inbox['processings']} times worked through;"
        f" from when they were due 50th {_ms(inbox['p50_ms'])} ms, 95th {_ms(inbox['p95_ms'])} ms"
        for name, protocol in score["by_protocol"].items()
        if (inbox := protocol["inbox"]) is not None and not score["throughput"]
    ]


def _generator(generator: Mapping[str, Any], engines: int) -> list[str]:
    """How we were ourselves, where that was looked at."""
    if generator["lag_p99_ms"] is None:
        return []
    who = "Generator" if engines == 1 else f"Generator (the worst of {engines} engines)"
    parts = [
        f"event loop {_ms(generator['lag_p50_ms'])} ms late (50th), {_ms(generator['lag_p99_ms'])} ms (99th),"
        f" {_ms(generator['lag_max_ms'])} ms at most"
    ]
    if generator["cpu_share"] is not None:
        parts.append(f"{generator['cpu_share']:.0%} of a core")
    if generator["rss_bytes"] is not None:
        parts.append(f"{generator['rss_bytes'] / 2**20:.0f} MiB")
    return [f"{who}: {', '.join(parts)}"]


def _machine(machine: Mapping[str, Any]) -> str:
    parts = []
    if machine["cpu_share"] is not None:
        parts.append(f"{machine['cpu_share']:.0%} of {_count(machine['cores'], 'core')} taken")
    if machine["server_here"]:
        shares = {None: "", False: ", on other cores", True: ", on the generator's cores"}[machine["shares_cpus"]]
        parts.append("the server is on it" + shares)
    return f"Machine {machine['name']}: " + "; ".join(parts or ["nothing is known"])


def _criteria(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each criterion that is on, met or missed, between blank lines; those of each task only where missed."""
    if not results:
        return []
    told = [one for one in results if not (one["each"] and one["passed"])]
    rows = [(one["name"], one["found"], one["wanted"], "met" if one["passed"] else "missed") for one in told]
    each = sum(one["each"] for one in results)
    met = len(results) - len(told)
    of_tasks = f"Criteria of single tasks: {'all' if met == each else f'{met} of'} {each} met."
    found = table([("Criterion", "Found", "Wanted", ""), *rows]) if rows else []
    return ["", *found, *([of_tasks] if each else []), ""]


def _verdict(score: Mapping[str, Any]) -> list[str]:
    verdict = score["verdict"]
    advice = [f"  What may help: {score['advice']}"] if score["advice"] else []
    words = f"Verdict: {verdict['validity']}, {passed_words(score)}"
    standard = (score["percentile"], score["method"]) == (95, MERGED) or score["verdict"]["passed"] is None
    note = [] if standard else ["Criteria and verdict: by the 95th percentiles of all records, whichever are shown"]
    return [*note, words, *(f"  {reason}" for reason in verdict["reasons"]), *advice]


def passed_words(score: Mapping[str, Any]) -> str:
    """Whether the criteria were met."""
    passed = score["verdict"]["passed"]
    return "criteria not judged by a slice" if passed is None else "criteria met" if passed else "criteria missed"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _ms(time_ms: float | str | None, decimals: int = MOST_DECIMALS) -> str:
    """In milliseconds; what is infinite is so already."""
    if time_ms is None:
        return "-"
    return time_ms if isinstance(time_ms, str) else rounded(time_ms, decimals)


def _decimals(protocol: Mapping[str, Any]) -> int:
    """The decimals of the score that its interval supports."""
    interval_ms = protocol.get("score_interval_ms")
    return known_decimals(protocol["score_ms"], interval_ms) if interval_ms else MOST_DECIMALS


def clock(at_s: float) -> str:
    """h:mm:ss, with the fraction of a second only where there is one."""
    minutes, seconds = divmod(round(at_s, 6), 60)
    hours, minutes = divmod(int(minutes), 60)
    whole, _, fraction = f"{seconds:.6f}".rstrip("0").partition(".")
    return f"{hours}:{minutes:02d}:{whole:>02}" + (f".{fraction}" if fraction else "")


def length(length_s: float) -> str:
    for unit, unit_s in (("h", 3600), ("min", 60)):
        if length_s >= unit_s and length_s % unit_s == 0:
            return f"{length_s / unit_s:g} {unit}"
    return f"{length_s:g} s"
