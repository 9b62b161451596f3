"""The report on several runs: their table, and score and READ by the number of users."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median_low

from loadsim.analysis.json_values import finite
from loadsim.analysis.recorded_run import RecordedRun
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
from loadsim.report.one_run import score_limit_ms, verdict_tone, verdict_words
from loadsim.report.test_environment import disclosure_tables

Figures = Sequence[float | None]


def describe_runs(runs: Sequence[RecordedRun], notes: Mapping[str, str]) -> Document:
    """Return the report, with the runs in the order of their users."""
    runs = sorted(runs, key=lambda run: (run.figures.users, run.figures.run or "", run.place))
    names = names_of(runs)
    tones = [verdict_tone(run.summary) for run in runs]
    bad = tones.count("bad")
    scenarios = ", ".join(sorted({str(run.figures.name or "unnamed") for run in runs}))
    return Document(
        title=f"{len(runs)} runs: {scenarios}",
        subtitle="; ".join(sorted({str(run.figures.server) for run in runs if run.figures.server})),
        verdict=f"{len(runs) - bad} of {len(runs)} runs are not invalid and met their criteria",
        tone="bad" if bad == len(runs) else "good" if set(tones) == {"good"} else "doubtful",
        sections=(
            Section("Runs", (_table(runs, names), *_bounds(runs))),
            Section("Users and response times", _curve(runs)),
            Section("Disclosure", tuple(disclosure_tables(runs, names, notes))),
        ),
    )


def names_of(runs: Sequence[RecordedRun]) -> list[str]:
    """Return the last part of each run's path, or the whole path where runs share the last part."""
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
        Column("Offered tasks/s", 1),
        Column("Achieved tasks/s", 1),
        Column("Failed (%)", 2),
        Column("Undelivered", 0),
        Column("Delivery, 95th (ms)", 1),
        Column("Engine CPU (%)", 0),
    )
    rows: list[tuple[Cell, ...]] = []
    for run, name in zip(runs, names, strict=True):
        figures = run.figures
        cpu_share = figures.generator.cpu_share
        modules = list(run.modules.values())
        rows.append(
            (
                name,
                figures.users,
                verdict_words(run.summary),
                _only(module.score_ms for module in modules),
                _only(module.read_p95_ms for module in modules),
                figures.offered_per_s,
                figures.achieved_per_s,
                100 * figures.totals.failed / figures.totals.done if figures.totals.done else None,
                figures.delivery.undelivered_at_end,
                finite(figures.delivery.took.p95_ms),
                None if cpu_share is None else 100 * cpu_share,
            )
        )
    return Table("The runs, by their users", columns, tuple(rows))


def _only(each: Iterable[float | None]) -> Cell:
    """Return the figure of the only client module; of several, a list: they must not be mixed."""
    found = list(each)
    if len(found) == 1:
        return found[0]
    return ", ".join("-" if one is None else f"{one:.1f}" for one in found) or None


def _bounds(runs: Sequence[RecordedRun]) -> tuple[str, ...]:
    """Return the numbers of users between which the limit lies, by the runs that are not invalid."""
    valid = [run for run in runs if run.summary.verdict.validity != "invalid"]
    passed: dict[float, list[bool]] = defaultdict(list)
    for run in valid:
        if run.summary.verdict.passed is not None:  # a slice is not judged
            passed[run.figures.users].append(run.summary.verdict.passed)
    most = max((users for users, each in passed.items() if all(each)), default=None)
    fewest = min((users for users, each in passed.items() if not all(each)), default=None)
    texts = []
    if most is not None:
        texts.append(f"The most users with whom every run met its criteria: {most}.")
    if fewest is not None:
        texts.append(f"The fewest users with whom a run did not: {fewest}.")
    if len(valid) < len(runs):
        texts.append(f"{len(runs) - len(valid)} invalid run{'' if len(runs) - len(valid) == 1 else 's'} not counted.")
    return (" ".join(texts),) if texts else ()


def _curve(runs: Sequence[RecordedRun]) -> tuple[Block, ...]:
    users = [run.figures.users for run in runs]
    modules = sorted({name for run in runs for name in run.modules})
    believed = [run.summary.verdict.validity != "invalid" for run in runs]
    times: dict[str, Figures] = {}
    for name in modules:
        of = f" ({name})" if len(modules) > 1 else ""
        times[f"score{of}"] = [run.modules[name].score_ms if name in run.modules else None for run in runs]
        times[f"READ, 95th{of}"] = [run.modules[name].read_p95_ms if name in run.modules else None for run in runs]
    rates: dict[str, Figures] = {
        "offered": [run.figures.offered_per_s for run in runs],
        "achieved": [run.figures.achieved_per_s for run in runs],
    }
    limits_ms = sorted({limit_ms for run in runs if (limit_ms := score_limit_ms(run)) is not None})
    limits = tuple(Limit(f"score below {limit_ms:g} ms", limit_ms) for limit_ms in limits_ms)
    axis = Axis("users", "count", tuple(map(float, users)), Column("Users", 0), tuple(users))
    panels = (
        Panel("Response time", "ms", _lines(times, users, believed), "log", limits=limits),
        Panel("Throughput", "tasks per second", _lines(rates, users, believed)),
    )
    chart = drawable(Chart("Response time and throughput by number of users", axis, panels))
    texts = []
    if _repeated(users, believed):
        texts.append("Each point is a run; lines join the medians of runs with the same number of users.")
    if not all(believed):
        texts.append("Invalid runs are points without a line.")
    return tuple(block for block in (" ".join(texts), chart) if block)


def _lines(series: Mapping[str, Figures], users: Sequence[float], believed: Sequence[bool]) -> tuple[Line, ...]:
    """Return a line through the runs that are not invalid, and points for the others.

    If several of the former have the same number of users, they are points, too, and the line joins their medians.
    """
    repeated = _repeated(users, believed)
    lines = []
    for name, values in series.items():
        valid = [value if sure else None for value, sure in zip(values, believed, strict=True)]
        invalid = [None if sure else value for value, sure in zip(values, believed, strict=True)]
        if repeated:
            lines += [Line(name, tuple(valid), joined=False), Line(f"{name}, median", _medians(valid, users))]
        else:
            lines.append(Line(name, tuple(valid)))
        lines.append(Line(f"{name}, invalid run", tuple(invalid), joined=False))
    return tuple(line for line in lines if line)


def _repeated(users: Sequence[float], believed: Sequence[bool]) -> bool:
    """Return True if several runs that are not invalid have the same number of users."""
    known = [number for number, valid in zip(users, believed, strict=True) if valid]
    return len(set(known)) < len(known)


def _medians(values: Figures, users: Sequence[float]) -> tuple[float | None, ...]:
    """Return the (lower) median at the first run of each number of users; None at the others."""
    alike: defaultdict[float, list[float]] = defaultdict(list)
    for value, number in zip(values, users, strict=True):
        if value is not None:
            alike[number].append(value)
    found: list[float | None] = []
    for value, number in zip(values, users, strict=True):
        found.append(median_low(alike.pop(number)) if value is not None and number in alike else None)
    return tuple(found)
