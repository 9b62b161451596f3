"""The report on several runs: their table, and score and READ by the number of users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from loadsim.analysis.criteria import score_limit_ms
from loadsim.analysis.figures import Figures
from loadsim.analysis.json_values import finite
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.analysis.repeats import medians_by
from loadsim.analysis.verdict import Totals
from loadsim.report.differences import Facts, differing, differing_table, facts_of, same_table
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
    table_of,
)
from loadsim.report.one_run import verdict_words

Series = Sequence[float | None]


def describe_runs(runs: Sequence[RecordedRun], notes: Mapping[str, str]) -> Document:
    """Return the report, with the runs in the order of their users."""
    runs = sorted(runs, key=lambda run: (run.figures.users, run.figures.run or "", run.place))
    names = names_of(runs)
    tones = [run.summary.tone for run in runs]
    bad = tones.count("bad")
    facts = facts_of(runs, notes)
    scenarios = ", ".join(sorted({str(run.figures.name or "unnamed") for run in runs}))
    return Document(
        title=f"{len(runs)} runs: {scenarios}",
        subtitle="; ".join(sorted({str(run.figures.server) for run in runs if run.figures.server})),
        verdict=_verdict(runs, len(runs) - bad),
        tone="bad" if bad == len(runs) else "good" if set(tones) == {"good"} else "doubtful",
        sections=(
            Section("Runs", (_table(runs, names), *_capacity(runs), _differing_names(facts))),
            Section("Users and response times", _curve(runs)),
            Section("What differs between the runs", (_what_differs(facts, names),)),
            Section("Disclosure", (same_table(facts),)),
        ),
    )


def names_of(runs: Sequence[RecordedRun]) -> list[str]:
    """Return the last part of each run's path, or the whole path where runs share the last part."""
    short = [Path(run.place).name or run.place for run in runs]
    seen = Counter(short)
    return [name if seen[name] == 1 else run.place for name, run in zip(short, runs, strict=True)]


def _table(runs: Sequence[RecordedRun], names: Sequence[str]) -> Table:
    return table_of(
        "The runs, by their users",
        list(zip(runs, names, strict=True)),
        ("Run", None, lambda one: one[1]),
        ("Users", 0, lambda one: one[0].figures.users),
        ("Verdict", None, lambda one: verdict_words(one[0].summary)),
        ("Score (ms)", 1, lambda one: _only(module.score_ms for module in one[0].figures.by_protocol.values())),
        ("READ, 95th (ms)", 1, lambda one: _only(module.read_p95_ms for module in one[0].figures.by_protocol.values())),
        ("Offered tasks/s", 1, lambda one: one[0].figures.offered_per_s),
        ("Achieved tasks/s", 1, lambda one: one[0].figures.achieved_per_s),
        ("Load made (%)", 1, lambda one: _load_percent(one[0].figures)),
        ("Failed (%)", 2, lambda one: _failed_percent(one[0].figures.totals)),
        ("Undelivered", 0, lambda one: one[0].figures.delivery.undelivered_at_end),
        ("Delivery, 95th (ms)", 1, lambda one: finite(one[0].figures.delivery.took.p95_ms)),
        ("Engine CPU (%)", 0, lambda one: _cpu_percent(one[0].figures)),
    )


def _verdict(runs: Sequence[RecordedRun], met: int) -> str:
    invalid = sum(run.summary.verdict.validity == "invalid" for run in runs)
    words = f"{met} of {len(runs)} runs met their criteria"
    return f"{words}; {invalid} {'is' if invalid == 1 else 'are'} invalid and not counted" if invalid else words


SAME = "The runs do not differ in anything that loadsim knows: not in server, settings, machine or versions."


def _differing_names(facts: Facts) -> str:
    different = differing(facts)
    return f"The runs differ in: {', '.join(different)}. Their values are below the charts." if different else SAME


def _what_differs(facts: Facts, names: Sequence[str]) -> Block:
    different = differing(facts)
    return differing_table(different, names) if different else SAME


def _failed_percent(tasks: Totals) -> float | None:
    return 100 * tasks.failed / tasks.done if tasks.done else None


def _load_percent(figures: Figures) -> float | None:
    """Return the load that was made, of the load of the plan."""
    return None if figures.load is None or figures.load.share is None else 100 * figures.load.share


def _cpu_percent(figures: Figures) -> float | None:
    return None if figures.generator.cpu_share is None else 100 * figures.generator.cpu_share


def _only(each: Iterable[float | None]) -> Cell:
    """Return the figure of the only driver. Of several drivers, list the figures: they must not be mixed."""
    found = list(each)
    if len(found) == 1:
        return found[0]
    return ", ".join("-" if one is None else f"{one:.1f}" for one in found) or None


def _capacity(runs: Sequence[RecordedRun]) -> tuple[str, ...]:
    """Return a line with the most users whose runs all met their criteria, and the fewest whose did not."""
    verdicts = [(run.figures.users, run.summary.verdict) for run in runs]
    judged = [(users, verdict.passed) for users, verdict in verdicts if verdict.validity != "invalid"]
    missed = {users for users, passed in judged if passed is False}
    met = {users for users, passed in judged if passed} - missed
    invalid = len(verdicts) - len(judged)
    texts = [f"The most users with whom every run met its criteria: {max(met)}."] if met else []
    texts += [f"The fewest users with whom a run did not: {min(missed)}."] if missed else []
    texts += [f"{invalid} invalid run{'' if invalid == 1 else 's'} not counted."] if invalid else []
    return (" ".join(texts),) if texts else ()


def _curve(runs: Sequence[RecordedRun]) -> tuple[Block, ...]:
    users = [run.figures.users for run in runs]
    modules = sorted({name for run in runs for name in run.figures.by_protocol})
    valid = [run.summary.verdict.validity != "invalid" for run in runs]
    times: dict[str, Series] = {}
    for name in modules:
        of = f" ({name})" if len(modules) > 1 else ""
        times[f"score{of}"] = [
            run.figures.by_protocol[name].score_ms if name in run.figures.by_protocol else None for run in runs
        ]
        times[f"READ, 95th{of}"] = [
            run.figures.by_protocol[name].read_p95_ms if name in run.figures.by_protocol else None for run in runs
        ]
    rates: dict[str, Series] = {
        "offered": [run.figures.offered_per_s for run in runs],
        "achieved": [run.figures.achieved_per_s for run in runs],
    }
    found_ms = {score_limit_ms(run.summary.criteria) for run in runs}
    limits_ms = sorted(limit_ms for limit_ms in found_ms if limit_ms is not None)
    limits = tuple(Limit(f"score below {limit_ms:g} ms", limit_ms) for limit_ms in limits_ms)
    axis = Axis("users", "count", tuple(map(float, users)), Column("Users", 0), tuple(users))
    panels = (
        Panel("Response time", "ms", _lines(times, users, valid), "log", limits=limits),
        Panel("Throughput", "tasks per second", _lines(rates, users, valid)),
    )
    chart = drawable(Chart("Response time and throughput by number of users", axis, panels))
    texts = []
    if _repeated(users, valid):
        texts.append("Each point is a run; lines join the medians of runs with the same number of users.")
    if not all(valid):
        texts.append("Invalid runs are points without a line.")
    return tuple(block for block in (" ".join(texts), chart) if block)


def _lines(series: Mapping[str, Series], users: Sequence[float], valid: Sequence[bool]) -> tuple[Line, ...]:
    """Return a line through the valid and degraded runs, and points for the others.

    If several of the former have the same number of users, they are points, too, and the line joins their medians.
    """
    repeated = _repeated(users, valid)
    lines = []
    for name, values in series.items():
        of_valid = [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]
        of_invalid = [None if is_valid else value for value, is_valid in zip(values, valid, strict=True)]
        if repeated:
            lines += [Line(name, tuple(of_valid), joined=False), Line(f"{name}, median", medians_by(users, of_valid))]
        else:
            lines.append(Line(name, tuple(of_valid)))
        lines.append(Line(f"{name}, invalid run", tuple(of_invalid), joined=False))
    return tuple(line for line in lines if line)


def _repeated(users: Sequence[float], valid: Sequence[bool]) -> bool:
    """Return True if several valid or degraded runs have the same number of users."""
    counts = [number for number, is_valid in zip(users, valid, strict=True) if is_valid]
    return len(set(counts)) < len(counts)
