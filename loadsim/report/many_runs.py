"""The report on several runs: their table, and score and READ by the number of users."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from loadsim.analysis.comparability import separate_loads
from loadsim.analysis.figures import DriverFigures, Figures
from loadsim.analysis.json_values import finite
from loadsim.analysis.recorded_run import RecordedRun, names_of
from loadsim.analysis.repeats import medians_by
from loadsim.analysis.run_warnings import number_range, shared_warnings
from loadsim.analysis.verdict import Totals, server_failed
from loadsim.report.answer import NO_MEASUREMENT
from loadsim.report.answer_facts import AS_USUAL, load_of_a_user
from loadsim.report.banner import verdict_words
from loadsim.report.criterion_words import upper_limits_ms
from loadsim.report.differences import Facts, differing, differing_in_words, differing_table, facts_of, same_table
from loadsim.report.document import (
    Axis,
    Block,
    Cell,
    Chart,
    Column,
    Document,
    Limit,
    Line,
    Listing,
    Panel,
    Section,
    Table,
    drawable,
    table_of,
)
from loadsim.report.glossary import SCORE_IS, WORDS_OF_RUNS, glossary
from loadsim.report.many_runs_advice import meets, misses, next_step
from loadsim.report.repeats_words import spreads

Series = Sequence[float | None]

_MOMENT = re.compile(r"; above it in [^;]*")
"""Matches the times of a run in a reason."""


def describe_runs(runs: Sequence[RecordedRun], notes: Mapping[str, str]) -> Document:
    """Return the report, with the runs in the order of their users."""
    runs = sorted(runs, key=lambda run: (run.figures.users, run.figures.run or "", run.place))
    names = names_of(runs)
    tones = [run.summary.tone for run in runs]
    bad = tones.count("bad")
    facts = facts_of(runs, notes)
    loads, different_loads = separate_loads(runs)
    scenarios = ", ".join(sorted({str(run.figures.name or "unnamed") for run in runs}))
    return Document(
        title=f"{len(runs)} runs: {scenarios}",
        subtitle="; ".join(sorted({str(run.figures.server) for run in runs if run.figures.server})),
        verdict=_verdict(runs, len(runs) - bad) + _no_measurement(runs),
        tone="bad" if bad == len(runs) else "good" if set(tones) == {"good"} else "doubtful",
        sections=(
            Section(
                "Runs",
                (
                    _table(runs, names),
                    *filter(None, (different_loads,)),
                    *_answers(runs, loads),
                    *filter(None, (_equivalent(runs),)),
                    *_reasons(runs, names),
                    *_warnings(runs, names),
                    _differing_names(facts),
                    f"What to do next: {next_step(runs, loads)}",
                ),
            ),
            Section("Users and response times", _curve(runs, names, loads)),
            *_what_differs(facts, names),
            Section("How to read this", tuple(_how_to_read(runs))),
            Section("Disclosure", (same_table(facts),)),
            glossary(_all_stress(runs), WORDS_OF_RUNS),
        ),
    )


def _answers(runs: Sequence[RecordedRun], loads: Sequence[str]) -> Iterator[str]:
    """Yield how many users the server takes, and how far repeats differ; the latter first if all runs are repeats."""
    answers = [_capacity(runs, loads), spreads(runs, loads)]
    for answer in reversed(answers) if len({run.figures.users for run in runs}) == 1 else answers:
        yield from answer


def _all_stress(runs: Sequence[RecordedRun]) -> bool:
    return all(run.figures.stress for run in runs)


def _how_to_read(runs: Sequence[RecordedRun]) -> Iterable[str]:
    score = "" if _all_stress(runs) else f" Its score is {SCORE_IS}."
    yield f"Each row and each point is a run.{score} Times of an invalid run are not shown."
    yield (
        "The server is the limit where response times rise, or achieved tasks fall behind those that came due, while"
        " the engines have processor time left. If an engine has none, the generator may be the limit."
    )
    if not _all_stress(runs):
        yield (
            "Load made below 95 % is a sign of an overloaded server, too, if the engines were neither busy nor late:"
            " users who wait for mail and answers have less to do. So few tasks come due that the other figures"
            " flatter the server."
        )
    yield (
        "A run is one observation: even runs with equal users vary. Repeat a number of users at least three times"
        " before you quote it."
    )


def _table(runs: Sequence[RecordedRun], names: Sequence[str]) -> Table:
    return table_of(
        "The runs, by their users",
        list(zip(runs, names, strict=True)),
        ("Run", None, lambda one: one[1]),
        ("Users", 0, lambda one: one[0].figures.users),
        ("Verdict", None, lambda one: verdict_words(one[0].summary)),
        ("Load made (%)", 1, lambda one: _load_percent(one[0].figures)),
        ("Score (ms)", 1, lambda one: _of_drivers(one[0], lambda module: module.score_ms)),
        ("READ, 95th (ms)", 1, lambda one: _of_drivers(one[0], lambda module: module.read_p95_ms)),
        ("Came due (tasks/s)", 1, lambda one: one[0].figures.offered_per_s),
        ("Achieved (tasks/s)", 1, lambda one: one[0].figures.achieved_per_s),
        ("Failed (%)", 2, lambda one: _failed_percent(one[0].figures.totals)),
        ("Undelivered", 0, lambda one: one[0].figures.delivery.undelivered_at_end),
        ("Delivery, 95th (ms)", 1, lambda one: _time(one[0], finite(one[0].figures.delivery.took.p95_ms))),
        ("Engine CPU (%)", 0, lambda one: _cpu_percent(one[0].figures)),
    )


def _equivalent(runs: Sequence[RecordedRun]) -> str:
    """Return how many users with a day of 8 h have the task rate of each user; "" for one, or if none is known."""
    each = [ratio for run in runs if (ratio := load_of_a_user(run.figures)) is not None]
    if all(abs(ratio - 1) < AS_USUAL for ratio in each):
        return ""
    shown = number_range([f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}" for ratio in each])
    return f"Each user has the task rate of {shown} users with a day of 8 h."


def _verdict(runs: Sequence[RecordedRun], met: int) -> str:
    refused = [run.figures.users for run in runs if server_failed(run.summary.verdict.causes)]
    invalid = sum(run.summary.verdict.validity == "invalid" for run in runs) - len(refused)
    judged = len(runs) - invalid
    if not judged:
        return f"no run can be judged: all {invalid} are invalid"
    words = f"{met} of {judged} runs met their criteria"
    if refused:
        words += f"; {_refused(refused, judged - met, judged)}"
    if degraded := sum(run.summary.verdict.validity == "degraded" for run in runs):
        words += f"; {degraded} of the {judged} {'is' if degraded == 1 else 'are'} degraded"
    return f"{words}; {invalid} more {'is' if invalid == 1 else 'are'} invalid and not counted" if invalid else words


def _refused(users: Sequence[float], missed: int, judged: int) -> str:
    """Return that the server did not take the load in the runs with these users, of those that missed criteria."""
    if missed < judged:
        which = "the other" if missed == 1 else f"the other {missed}"
        which = f"{len(users)} of {which}" if len(users) < missed else which
    elif len(users) < missed:
        which = f"{len(users)} of the {missed}"
    else:
        which = {1: "it", 2: "both"}.get(judged, f"all {judged}")
    ends = " to ".join(dict.fromkeys(f"{end:,}" for end in (min(users), max(users))))
    return f"in {which} ({ends} users), the server did not take the load"


def _no_measurement(runs: Sequence[RecordedRun]) -> str:
    embedded = sum(run.figures.embedded for run in runs)
    if embedded in (0, len(runs)):
        return NO_MEASUREMENT if embedded else ""
    return f"; {embedded} {'run' if embedded == 1 else 'runs'}{NO_MEASUREMENT.removeprefix(';')}"


def _of_drivers(run: RecordedRun, time_ms: Callable[[DriverFigures], float | None]) -> Cell:
    return _time(run, _only(map(time_ms, run.figures.by_protocol.values())))


def _time(run: RecordedRun, found: Cell) -> Cell:
    """Return a time; an invalid run has none to quote."""
    return "not shown" if run.summary.verdict.validity == "invalid" else found


SAME = "The runs have the same server, settings, machines and versions, as far as loadsim knows."


def _differing_names(facts: Facts) -> str:
    if not (different := differing(facts)):
        return SAME
    return f"The runs differ in: {differing_in_words(different)}. The values are below the charts."


def _what_differs(facts: Facts, names: Sequence[str]) -> Iterator[Section]:
    if different := differing(facts):
        yield Section("What differs between the runs", (differing_table(different, names),))


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


def _capacity(runs: Sequence[RecordedRun], loads: Sequence[str]) -> tuple[str, ...]:
    """Return a line for each load: the most users whose runs all met their criteria, and the fewest whose did not."""
    texts = []
    for load in dict.fromkeys(loads):
        of_load = [run for run, of_run in zip(runs, loads, strict=True) if of_run == load]
        missed = {run.figures.users for run in of_load if misses(run)}
        met = {run.figures.users for run in of_load if meets(run)} - missed
        invalid = sum(run.summary.verdict.validity == "invalid" and not misses(run) for run in of_load)
        degraded = sum(run.summary.verdict.validity == "degraded" and not misses(run) for run in of_load)
        words = [f"The most users with whom every run met its criteria: {max(met):,}."] if met else []
        if len({run.figures.users for run in of_load}) == 1:
            tried = f"Only {of_load[0].figures.users:,} users were tried"
            words = [f"{tried}, with whom every run met its criteria: the limit is not known."] if met else []
        words += ["With no number of users did every run meet its criteria."] if missed and not met else []
        words += [f"The fewest users with whom a run missed its criteria: {min(missed):,}."] if missed else []
        for validity, number in (("invalid", invalid), ("degraded", degraded)):
            which = f"{number} {validity} run{' is' if number == 1 else 's are'}"
            words += [f"{which} no evidence of how many users the server takes."] if number else []
        if words:
            texts.append(" ".join([f"{load[:1].upper()}{load[1:]}:" if load else "", *words]).strip())
    return tuple(texts)


def _reasons(runs: Sequence[RecordedRun], names: Sequence[str]) -> Iterator[Listing]:
    """Yield why runs are invalid or degraded, without the times of each run at which a limit was exceeded."""
    verdicts = [run.summary.verdict for run in runs]
    invalid = any(verdict.validity == "invalid" for verdict in verdicts)
    reasons = [[_MOMENT.sub("", reason) for reason in verdict.defects] for verdict in verdicts]
    yield from _listing(f"Why runs are {'not valid' if invalid else 'degraded'}", reasons, names)


def _warnings(runs: Sequence[RecordedRun], names: Sequence[str]) -> Iterator[Listing]:
    yield from _listing("Warnings", [run.summary.verdict.warnings for run in runs], names)


def _listing(caption: str, of_runs: Sequence[Sequence[str]], names: Sequence[str]) -> Iterator[Listing]:
    """Yield the texts of all runs, each kind once, with the run or the number of runs that have it."""
    lines = []
    for one in shared_warnings(of_runs):
        which = names[one.runs[0]] if len(one.runs) == 1 else f"{len(one.runs)} of {len(names)} runs"
        lines.append(f"{which}: {one.words}")
    if lines:
        yield Listing(caption, tuple(lines))


def _curve(runs: Sequence[RecordedRun], names: Sequence[str], loads: Sequence[str]) -> tuple[Block, ...]:
    """Return the chart, with a line for each load, after a paragraph on its points and lines.

    It is drawn over the users, or for runs with equal users over their order, which shows if they became slower.
    """
    users = [run.figures.users for run in runs]
    repeats = len({*users}) == 1 and len(runs) > 1
    along = range(1, len(runs) + 1) if repeats else users
    modules = sorted({name for run in runs for name in run.figures.by_protocol})
    valid = [run.summary.verdict.validity != "invalid" for run in runs]
    times: dict[str, Series] = {}
    for name in modules:
        of = f" ({name})" if len(modules) > 1 else ""
        of_module = [
            run.figures.by_protocol.get(name) if is_valid else None for run, is_valid in zip(runs, valid, strict=True)
        ]
        times[f"score{of}"] = [None if one is None else one.score_ms for one in of_module]
        times[f"READ, 95th{of}"] = [None if one is None else one.read_p95_ms for one in of_module]
    rates: dict[str, Series] = {
        "came due": [run.figures.offered_per_s for run in runs],
        "achieved": [run.figures.achieved_per_s for run in runs],
    }
    limits_ms = {
        words: limit_ms
        for run in runs
        for name, figure in (("score", "score_ms"), ("READ, 95th,", "tasks.READ.p95_ms"))
        for words, limit_ms in upper_limits_ms(run.summary.criteria, figure, name).items()
    }
    limits = tuple(Limit(words, limit_ms) for words, limit_ms in sorted(limits_ms.items(), key=lambda one: one[1]))
    positions = tuple(map(float, along))
    if repeats:
        over, axis = "in the order of the runs", Axis("order of the runs", "order", positions, Column("Run"), (*names,))
    else:
        over, axis = "by number of users", Axis("users", "count", positions, Column("Users", 0), (*users,))
    panels = (
        Panel("Response time", "ms", _lines_by_load(times, along, valid, loads), "log", limits=limits),
        Panel("Throughput", "tasks per second", _lines_by_load(rates, along, valid, loads)),
    )
    chart = drawable(Chart(f"Response time and throughput {over}", axis, panels))
    texts = []
    if any(loads):
        texts.append("No line joins runs whose scores are not comparable.")
    if repeats:
        texts.append("Each point is a run, in the order of the table above.")
    elif any(_repeated(users, _and_of(load, loads, valid)) for load in loads):
        texts.append("Each point is a run; lines join the medians of runs with the same number of users.")
    if not all(valid):
        texts.append("Invalid runs have no times here; their throughput is points without a line.")
    return tuple(block for block in (" ".join(texts), chart) if block)


def _and_of(load: str, loads: Sequence[str], valid: Sequence[bool]) -> list[bool]:
    """Return True for each valid or degraded run of a load."""
    return [is_valid and of_run == load for is_valid, of_run in zip(valid, loads, strict=True)]


def _lines_by_load(
    series: Mapping[str, Series], users: Sequence[float], valid: Sequence[bool], loads: Sequence[str]
) -> tuple[Line, ...]:
    """Return the lines of each load, with its name."""
    lines: list[Line] = []
    for load in dict.fromkeys(loads):
        named = {f"{name}, {load}" if load else name: values for name, values in series.items()}
        lines += _lines(named, users, [of_run == load for of_run in loads], _and_of(load, loads, valid))
    return tuple(lines)


def _lines(
    series: Mapping[str, Series], users: Sequence[float], chosen: Sequence[bool], valid: Sequence[bool]
) -> tuple[Line, ...]:
    """Return a line through the valid and degraded runs of those chosen, and points for the others.

    If several of the former have the same number of users, they are points, too, and the line joins their medians.
    """
    repeated = _repeated(users, valid)
    invalid = [is_chosen and not is_valid for is_chosen, is_valid in zip(chosen, valid, strict=True)]
    lines = []
    for name, values in series.items():
        of_valid, of_invalid = (
            [value if counts else None for value, counts in zip(values, which, strict=True)]
            for which in (valid, invalid)
        )
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
