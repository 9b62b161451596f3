"""The report on several runs: a table of them, and score and READ against the number of users."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median_low

from loadsim.report.disclosure import disclosure_tables
from loadsim.report.document import (
    Axis,
    Block,
    Cell,
    Chart,
    Column,
    Document,
    Limit,
    Line,
    Panel,
    Section,
    Table,
    drawable,
)
from loadsim.report.one_run import read_p95_ms, score_limit_ms, verdict_tone, verdict_words
from loadsim.report.recorded import RecordedRun

Figures = Sequence[float | None]


def describe_runs(runs: Sequence[RecordedRun], notes: Mapping[str, str]) -> Document:
    """The report, the runs in the order of their users."""
    runs = sorted(runs, key=lambda run: (run.score["users"], run.score["run"] or "", run.place))
    names = names_of(runs)
    tones = [verdict_tone(run.score) for run in runs]
    bad = tones.count("bad")
    scenarios = ", ".join(sorted({str(run.score["name"] or "unnamed") for run in runs}))
    return Document(
        title=f"{len(runs)} runs: {scenarios}",
        subtitle="; ".join(sorted({str(run.score["server"]) for run in runs if run.score.get("server")})),
        verdict=f"{len(runs) - bad} of {len(runs)} runs are not invalid and met their criteria",
        tone="bad" if bad == len(runs) else "good" if set(tones) == {"good"} else "doubtful",
        sections=(
            Section("Runs", (_table(runs, names), *_bounds(runs))),
            Section("Users and response times", _curve(runs)),
            Section("Disclosure", tuple(disclosure_tables(runs, names, notes))),
        ),
    )


def names_of(runs: Sequence[RecordedRun]) -> list[str]:
    """The last part of each run's place; the whole place, where that is not its own."""
    short = [Path(run.place).name or run.place for run in runs]
    seen = Counter(short)
    return [name if seen[name] == 1 else run.place for name, run in zip(short, runs, strict=True)]


def _table(runs: Sequence[RecordedRun], names: Sequence[str]) -> Table:
    columns = (
        Column("Run"),
        Column("Users", 0),
        Column("Verdict"),
        Column("Score (ms)", 1),
        Column("READ, 95th (ms)", 1),
        Column("Tasks/s", 1),
        Column("Failed (%)", 2),
        Column("Undelivered", 0),
        Column("Delivery, 95th (ms)", 1),
        Column("Engine CPU (%)", 0),
    )
    rows: list[tuple[Cell, ...]] = []
    for run, name in zip(runs, names, strict=True):
        score = run.score
        cpu_share = score["generator"]["cpu_share"]
        modules = list(run.modules.values())
        rows.append(
            (
                name,
                score["users"],
                verdict_words(score),
                _only(module["score_ms"] for module in modules),
                _only(map(read_p95_ms, modules)),
                score["tasks_per_s"],
                100 * score["failed"] / score["done"] if score["done"] else None,
                score["delivery"]["undelivered_at_end"],
                score["delivery"]["p95_ms"],
                None if cpu_share is None else 100 * cpu_share,
            )
        )
    return Table("The runs, by their users", columns, tuple(rows))


def _only(each: Iterable[float | None]) -> Cell:
    """A figure of the only client module; of several, each by itself: they are not to be mixed."""
    found = list(each)
    if len(found) == 1:
        return found[0]
    return ", ".join("-" if one is None else f"{one:.1f}" for one in found) or None


def _bounds(runs: Sequence[RecordedRun]) -> tuple[str, ...]:
    """Between which numbers of users the limit lies, as far as runs that are not invalid tell."""
    valid = [run for run in runs if run.score["verdict"]["validity"] != "invalid"]
    passed: dict[int, list[bool]] = defaultdict(list)
    for run in valid:
        passed[run.score["users"]].append(run.score["verdict"]["passed"])
    most = max((users for users, each in passed.items() if all(each)), default=None)
    fewest = min((users for users, each in passed.items() if not all(each)), default=None)
    texts = []
    if most is not None:
        texts.append(f"The most users with whom every run met its criteria: {most}.")
    if fewest is not None:
        texts.append(f"The fewest with whom one did not: {fewest}.")
    if len(valid) < len(runs):
        texts.append(f"Invalid runs, which tell nothing of the kind: {len(runs) - len(valid)}.")
    return (" ".join(texts),) if texts else ()


def _curve(runs: Sequence[RecordedRun]) -> tuple[Block, ...]:
    users = [run.score["users"] for run in runs]
    modules = sorted({name for run in runs for name in run.modules})
    times: dict[str, Figures] = {}
    for name in modules:
        of = f" ({name})" if len(modules) > 1 else ""
        times[f"score{of}"] = [run.modules[name]["score_ms"] if name in run.modules else None for run in runs]
        times[f"READ, 95th{of}"] = [read_p95_ms(run.modules[name]) if name in run.modules else None for run in runs]
    limits_ms = sorted({limit_ms for run in runs if (limit_ms := score_limit_ms(run)) is not None})
    limits = tuple(Limit(f"score below {limit_ms:g} ms", limit_ms) for limit_ms in limits_ms)
    axis = Axis("users", "count", tuple(map(float, users)), Column("Users", 0), tuple(users))
    panels = (
        Panel("Response time", "ms", _lines(times, users), "log", limits=limits),
        Panel("Throughput", "tasks per second", _lines({"done": [run.score["tasks_per_s"] for run in runs]}, users)),
    )
    chart = drawable(Chart("What the server did with so many users", axis, panels))
    repeated = len(set(users)) < len(users)
    text = "Each point is a run; lines join the medians of runs with as many users." if repeated else ""
    return tuple(block for block in (text, chart) if block)


def _lines(series: Mapping[str, Figures], users: Sequence[int]) -> tuple[Line, ...]:
    """A line through the runs; where some have as many users, their points and a line through the medians."""
    if len(set(users)) == len(users):
        return tuple(Line(name, tuple(values)) for name, values in series.items())
    lines = []
    for name, values in series.items():
        lines += [Line(name, tuple(values), joined=False), Line(f"{name}, median", _medians(values, users))]
    return tuple(lines)


def _medians(values: Figures, users: Sequence[int]) -> tuple[float | None, ...]:
    """At the first run of each number of users, the (lower) median of all of them; None at the others."""
    found: list[float | None] = []
    for index, number in enumerate(users):
        alike = [value for value, one in zip(values, users, strict=True) if one == number and value is not None]
        found.append(median_low(alike) if alike and number not in users[:index] else None)
    return tuple(found)
