"""The report on one run: the verdict first, then what speaks for it, at last under which circumstances it was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from loadsim.analysis.failures import failures
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.report import run_charts
from loadsim.report.command_table import command_blocks
from loadsim.report.document import (
    Block,
    Cell,
    Chart,
    Column,
    Document,
    Listing,
    Section,
    Table,
    Tone,
    drawable,
)
from loadsim.report.key_figures import interval_words, key_figures, of_module
from loadsim.report.mail_flow import mail_blocks
from loadsim.report.summary_text import passed_words
from loadsim.report.test_environment import disclosure_table, scenario_table
from loadsim.report.time_series import Bins, bins_of

TIMES = (
    ("p50_ms", "50th"),
    ("p95_ms", "95th"),
    ("p99_ms", "99th"),
    ("max_ms", "Max"),
    ("mean_ms", "Mean"),
    ("stddev_ms", "Std. Dev."),
    ("response_p95_ms", "Due 95th"),
)
"""The times of a task that stand in its row, and what their columns are called; curves show all percentiles."""

FEW_IN_A_STRETCH = "of fewer than 20 hits in it, the 95th percentile is the longest."

NO_MEASUREMENT = "; on the embedded server: no measurement"

EMBEDDED = "The embedded server shares the machine with the generator: this is no measurement of a server."

FROM_BEGIN = "Times are milliseconds, of the tasks that succeeded, from when they began."
FROM_DUE = "Due 95th is from when a task was due; what failed or did not end counts as infinite (inf)."


def describe_run(run: RecordedRun, notes: Mapping[str, str]) -> Document:
    """The report; `notes` are for what a person knows, such as the server's storage."""
    score, bins = run.score, bins_of(run.log)
    return Document(
        title=f"{score['name'] or 'A run'}: {headline(score)}",
        subtitle=subtitle(run),
        verdict=verdict_words(score) + (NO_MEASUREMENT if score["embedded"] else ""),
        tone=verdict_tone(score),
        sections=(
            Section("Verdict", _verdict(run)),
            Section("Tasks" if run.stress else "Score", _score(run)),
            *_over_time(run, bins),
            Section("Delivery of mail", mail_blocks(run, bins)),
            Section("Errors", _errors(run)),
            Section("Disclosure", _disclosure(run, notes)),
        ),
    )


def headline(score: Mapping[str, Any]) -> str:
    """What a run came to, in some words."""
    users = f"{score['users']} user{'' if score['users'] == 1 else 's'}"
    if score["throughput"] is not None:
        return f"{users}, {score['throughput']['tasks_per_s']:.1f} tasks/s"
    scores = [
        f"score {module['score_ms']:.1f} ms" + (f" ({name})" if len(score["by_protocol"]) > 1 else "")
        for name, module in score["by_protocol"].items()
        if module["score_ms"] is not None
    ]
    return ", ".join([users, *(scores or ["no score"])])


def subtitle(run: RecordedRun) -> str:
    """Which run it was, when, and on what."""
    begun = min((source.wall_clock_start for source in run.log.sources if source.wall_clock_start), default="")
    with suppress(ValueError):  # what somebody else wrote is shown as it is
        at = datetime.fromisoformat(begun)
        begun = f"{at.astimezone(UTC) if at.tzinfo else at:%Y-%m-%d %H:%M:%S} UTC"
    part = run.score["slice"] and f"slice {run.score['slice']} only"
    parts = (run.score["run"] and f"Run {run.score['run']}", part, begun and f"begun {begun}", run.score.get("server"))
    return "; ".join(filter(None, parts))


def verdict_words(score: Mapping[str, Any]) -> str:
    """The verdict, as the answer says it."""
    return f"{score['verdict']['validity'].capitalize()}, {passed_words(score)}"


def verdict_tone(score: Mapping[str, Any]) -> Tone:
    """Good, or not."""
    validity, passed = score["verdict"]["validity"], score["verdict"]["passed"]
    if validity == "invalid" or passed is False:
        return "bad"
    return "good" if validity == "valid" and passed and not score["embedded"] else "doubtful"


def _verdict(run: RecordedRun) -> tuple[Block, ...]:
    score, verdict = run.score, run.score["verdict"]
    blocks: list[Block] = []
    if score["embedded"]:
        blocks.append(EMBEDDED)
    if verdict["reasons"]:
        blocks.append(Listing("Reasons", tuple(verdict["reasons"])))
    if score["advice"]:
        blocks.append(f"What may help: {score['advice']}")
    if score["warnings"]:
        blocks.append(Listing("Warnings", tuple(score["warnings"])))
    if verdict["criteria"]:
        blocks.append(_criteria(verdict["criteria"]))
    blocks.append(key_figures(run))
    return tuple(blocks)


def score_limit_ms(run: RecordedRun) -> float | None:
    """What the score has to stay below, the lowest of several client modules; None where there is no such criterion."""
    bounds_ms = [
        one[limit]
        for one in run.score["verdict"]["criteria"]
        for limit in ("max", "below")
        if one["name"].rpartition(".")[2] == "score_ms" and one[limit] is not None
    ]
    return float(min(bounds_ms)) if bounds_ms else None


def _criteria(results: Sequence[Mapping[str, Any]]) -> Table:
    """Every criterion with its figure, met or missed."""
    columns = (Column("Criterion"), Column("Found"), Column("Wanted"), Column("Result"))
    rows = ((one["name"], one["found"], one["wanted"], "met" if one["passed"] else "missed") for one in results)
    return Table("Criteria", columns, tuple(rows))


def _score(run: RecordedRun) -> tuple[Block, ...]:
    blocks: list[Block] = []
    if run.stress:
        blocks.append(_throughput_table(run.score["throughput"]))
    for name, module in run.modules.items():
        blocks.append(_task_table(run, name, module))
        if not run.stress:
            blocks.append(_covers(module["covers"]))
    blocks.append(
        " ".join([FROM_BEGIN, *([] if run.stress else [FROM_DUE])]) if run.modules else "The logs hold no task."
    )
    return tuple(blocks)


def _throughput_table(found: Mapping[str, Any]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        ("Tasks that succeeded", found["tasks_per_s"]),
        ("Messages", found["messages_per_s"]),
        ("Deliveries", found["deliveries_per_s"]),
        *((f"{service} commands", per_s) for service, per_s in found["commands"].items()),
    ]
    return Table("Throughput of a closed loop", (Column("What"), Column("Per second", 1)), tuple(rows))


def _task_table(run: RecordedRun, name: str, module: Mapping[str, Any]) -> Table:
    """LsLog's table, with what else is known of each task."""
    tasks = module["tasks"]
    times = [(key, title) for key, title in TIMES if any(key in task for task in tasks)]
    if run.stress:  # nothing is due in a closed loop
        times = [(key, title) for key, title in times if not key.startswith("response")]
    weights = () if run.stress else (Column("Weight", 0),)
    certain = any(task.get("interval_ms") for task in tasks)
    interval = (Column("95th, 95 % sure", 1),) if certain else ()
    counted = (Column("Hits", 0), *(Column(title, 1) for _, title in times), Column("Failed", 0), *interval)
    rows: list[tuple[Cell, ...]] = []
    for task in tasks:
        weight = () if run.stress else (f"{task['weight']:g}" if task["weight"] else None,)
        lies_in = (interval_words(task.get("interval_ms")),) if certain else ()
        rows.append(
            (task["task"], *weight, task["hits"], *(task.get(key) for key, _ in times), task["failed"], *lies_in)
        )
    if not run.stress:
        lies_in = (interval_words(module.get("score_interval_ms")),) if certain else ()
        rows.append((*_weighted(module, [key for key, _ in times]), *lies_in))
    users = f"{module['users']} user{'' if module['users'] == 1 else 's'}"
    caption = f"Service times of {users} through the client module {name}"
    return Table(caption, (Column("Task"), *weights, *counted), tuple(rows))


def _weighted(module: Mapping[str, Any], keys: Sequence[str]) -> tuple[Cell, ...]:
    scored = [task for task in module["tasks"] if task["weight"] and task["hits"]]
    averages = {"p95_ms": module["score_ms"], "response_p95_ms": module["response_score_ms"]}
    times = (averages.get(key, "") for key in keys)
    weight = f"{sum(task['weight'] for task in scored):g}"
    failed = sum(task["failed"] for task in module["tasks"] if task["weight"])
    return ("Weighted average", weight, sum(task["hits"] for task in scored), *times, failed)


def _covers(covers: Mapping[str, Sequence[str]]) -> str:
    if not covers["scored"]:
        return "There is no score: no task with a weight has a hit."
    parts = [f"The score is the weighted average of the 95th percentiles of {', '.join(covers['scored'])}"]
    if covers["without_hits"]:
        parts.append(f"without hits: {', '.join(covers['without_hits'])}")
    if covers["not_planned"]:
        parts.append(f"never due: {', '.join(covers['not_planned'])}")
    return "; ".join(parts) + "."


def _over_time(run: RecordedRun, bins: Bins) -> tuple[Section, ...]:
    tasks = run_charts.tasks_of(run, bins)
    shaded = "The window, what the tables above are made of, is shaded." if run_charts.window_is_part(run, bins) else ""
    return (
        Section(
            "Response times over time",
            _charts(
                [run_charts.times_over_time(run, bins, tasks)],
                f"Each point is a stretch of {bins.width_s:g} s; {FEW_IN_A_STRETCH} {shaded}".strip(),
                "No task has a hit: there is no time to show.",
            ),
        ),
        Section(
            "Percentiles",
            _charts(
                run_charts.percentile_curves(run, tasks),
                "How long the slower hits took: at 95 %, one of twenty took longer. The scale stretches the tail, and"
                " ends where a share would be less than one hit.",
                "No task has a hit in the window: there are no percentiles.",
            ),
        ),
        Section(
            "Throughput",
            (
                *_charts([run_charts.throughput(run, bins)], _planned(run), "The logs hold no task."),
                *(() if run.stress else _planned_tables(run)),
            ),
        ),
        Section("Protocol commands", command_blocks(run)),
        Section("The generator", _generator(run, run_charts.generator(run, bins))),
    )


def _charts(charts: Sequence[Chart], text: str, instead: str) -> tuple[Block, ...]:
    """The charts that show anything, with a text above them; another text where none does."""
    shown = [chart for chart in map(drawable, charts) if chart is not None]
    return (text, *shown) if shown else (instead,)


def _planned(run: RecordedRun) -> str:
    score = run.score
    if run.stress:
        return f"{score['done']} tasks were done in the window, {score['failed']} of them failed.{_by_ourselves(score)}"
    return (
        f"Of {score['planned']} tasks that were due in the window, {score['attempted']} were begun: {score['failed']}"
        f" failed, {score['unfinished']} still ran at the end. {score['skipped']} had not begun.{_by_ourselves(score)}"
    )


def _by_ourselves(score: Mapping[str, Any]) -> str:
    many = score["generator_failed"]
    return f" The generator itself failed {many}: that is no fault of the server's." if many else ""


def _planned_tables(run: RecordedRun) -> tuple[Table, ...]:
    """For each client module, what came of everything that was due, task by task."""
    own = any(task["generator_failed"] for module in run.modules.values() for task in module["tasks"])
    columns = (
        Column("Task"),
        Column("Planned", 0),
        Column("Begun", 0),
        Column("Succeeded", 0),
        Column("Succeeded (%)", 1),
        Column("Failed", 0),
        Column("Failed (%)", 1),
        *([Column("Failed by the generator", 0)] if own else ()),
        Column("Still running", 0),
        Column("Not begun", 0),
        Column("Hits per second", 2),
    )
    return tuple(
        Table(
            f"Planned against done, by task{of_module(run, name)}",
            columns,
            tuple(
                (
                    task["task"],
                    task["planned"],
                    task["attempted"],
                    task["hits"],
                    100 * task["done_share"],
                    task["failed"],
                    100 * task["failed_share"],
                    *([task["generator_failed"]] if own else ()),
                    task["unfinished"],
                    task["skipped"],
                    task["done_per_s"],
                )
                for task in module["tasks"]
                if task["done_per_s"] is not None
            ),
        )
        for name, module in run.modules.items()
    )


def _clients(clients: Sequence[Mapping[str, Any]]) -> tuple[Table, ...]:
    """A row for each client machine, where there were several."""
    columns = (
        Column("Client"),
        Column("Users", 0),
        Column("Lost users", 0),
        Column("Engines", 0),
        Column("Started late (ms)", 2),
        Column("Give or take (ms)", 2),
        Column("Clock ahead (s)", 3),
        Column("Clock fast (ppm)", 1),
        Column("Lag, 99th (ms)", 1),
        Column("CPU (% of a core)", 0),
        Column("Late, 95th (ms)", 1),
        Column("By itself"),
    )
    rows = tuple(
        (
            one["client"],
            one["users"],
            one["lost_users"],
            one["engines"],
            one["start_late_ms"],
            one["start_error_ms"],
            one["clock_ahead_s"],
            one["clock_fast_ppm"],
            one["lag_p99_ms"],
            None if one["cpu_share"] is None else 100 * one["cpu_share"],
            one["lateness_p95_ms"],
            one["validity"],
        )
        for one in clients
    )
    return (Table("Client machines, each with its worst engine", columns, rows),) if rows else ()


def _generator(run: RecordedRun, charts: Sequence[Chart]) -> tuple[Block, ...]:
    score, worst = run.score, run.score["generator"]
    blocks: list[Block] = [*_clients(score["per_client"])]
    if not run.stress:
        late = score["lateness_p95_ms"]
        rows = (
            ("The user was still busy", late["busy"], "the server's"),
            ("The session was down", late["down"], "the server's"),
            ("The generator was late", late["generator"], "ours"),
        )
        columns = (Column("Cause"), Column("95th percentile (ms)", 1), Column("Whose"))
        blocks.append(Table("How late tasks began in the window", columns, rows))
    rss_bytes = worst["rss_bytes"]
    own: tuple[tuple[Cell, ...], ...] = (
        ("Event loop's lag, 50th percentile (ms)", worst["lag_p50_ms"]),
        ("Event loop's lag, 99th percentile (ms)", worst["lag_p99_ms"]),
        ("... which may be (ms)", worst["lag_limit_ms"]),
        ("Event loop's lag, maximum (ms)", worst["lag_max_ms"]),
        ("Share of a core (%)", None if worst["cpu_share"] is None else worst["cpu_share"] * 100),
        ("Memory (MiB)", None if rss_bytes is None else rss_bytes / 2**20),
        ("Longest pause of the garbage collector (ms)", worst["gc_max_ms"]),
    )
    blocks.append(Table("The worst of any engine in the window", (Column("Figure"), Column("Found", 1)), own))
    blocks += [chart for chart in map(drawable, charts) if chart is not None]
    return tuple(blocks)


def _errors(run: RecordedRun) -> tuple[Block, ...]:
    found = failures(run)
    if not found:
        return ("Nothing failed.",)
    columns = (
        Column("Kind"),
        Column("Task"),
        Column("Outcome"),
        Column("Times", 0),
        Column("In the window", 0),
        Column("First at (s)", 1),
        Column("What the server said first"),
    )
    rows = tuple(
        (one.kind or None, one.task, one.outcome, one.times, one.in_window, one.first_s, one.line or None)
        for one in found
    )
    return (Table("Failures over the whole run, the most frequent first", columns, rows),)


def _disclosure(run: RecordedRun, notes: Mapping[str, str]) -> tuple[Block, ...]:
    table = disclosure_table(run, notes)
    return (table, scenario_table(run.scenario)) if run.scenario else (table,)
