"""The report on several runs: their table, and score and READ by the number of users."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from loadsim.analysis.comparability import separate_loads
from loadsim.analysis.compare import FIRST_LOOK
from loadsim.analysis.figures import DriverFigures
from loadsim.analysis.json_values import finite
from loadsim.analysis.recorded_run import RecordedRun, names_of
from loadsim.analysis.repeats import medians_by
from loadsim.analysis.run_warnings import number_range, shared_warnings
from loadsim.analysis.verdict import server_failed
from loadsim.report.answer import NO_MEASUREMENT
from loadsim.report.answer_facts import AS_USUAL, load_of_a_user
from loadsim.report.banner import verdict_words
from loadsim.report.criterion_words import upper_limits_ms
from loadsim.report.differences import Facts, differing, differing_in_words, differing_table, facts_of, same_table
from loadsim.report.digits import count
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
from loadsim.report.first_screen import YOUR_OWN
from loadsim.report.glossary import WORDS_OF_RUNS, glossary
from loadsim.report.repeats_words import are_repeats, only_one_way, spreads

Series = Sequence[float | None]


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
        verdict=_verdict(runs, len(runs) - bad),
        tone="bad" if bad == len(runs) else "good" if set(tones) == {"good"} else "doubtful",
        sections=(
            Section(
                "Runs",
                (
                    _table(runs, names),
                    *filter(None, (different_loads,)),
                    *_capacity(runs, loads),
                    *spreads(runs, loads),
                    *filter(None, (_equivalent(runs),)),
                    *_reasons(runs, names),
                    *_warnings(runs, names),
                    _differing_names(facts),
                    f"What to do next: {_next(runs, loads)}",
                ),
            ),
            Section("Users and response times", tuple(_curve(runs, names, loads))),
            *_what_differs(facts, names),
            Section("Disclosure", (same_table(facts),)),
            glossary(all(run.figures.stress for run in runs), WORDS_OF_RUNS),
        ),
    )


def _table(runs: Sequence[RecordedRun], names: Sequence[str]) -> Table:
    return table_of(
        "The runs, by their users",
        list(zip(runs, names, strict=True)),
        ("Run", None, lambda one: one[1]),
        ("Users", 0, lambda one: one[0].figures.users),
        ("Verdict", None, lambda one: verdict_words(one[0].summary)),
        ("Load made (%)", 1, lambda one: _percent(load.share) if (load := one[0].figures.load) else None),
        ("Score (ms)", 1, lambda one: _of_drivers(one[0], lambda module: module.score_ms)),
        ("READ, 95th (ms)", 1, lambda one: _of_drivers(one[0], lambda module: module.read_p95_ms)),
        ("Came due (tasks/s)", 1, lambda one: one[0].figures.offered_per_s),
        ("Achieved (tasks/s)", 1, lambda one: one[0].figures.achieved_per_s),
        (
            "Failed (%)",
            2,
            lambda one: 100 * tasks.failed / tasks.done if (tasks := one[0].figures.totals).done else None,
        ),
        ("Undelivered", 0, lambda one: one[0].figures.delivery.undelivered_at_end),
        ("Delivery, 95th (ms)", 1, lambda one: _time(one[0], finite(one[0].figures.delivery.took.p95_ms))),
        ("Engine CPU (%)", 0, lambda one: _percent(one[0].figures.generator.cpu_share)),
    )


def _equivalent(runs: Sequence[RecordedRun]) -> str:
    """Return how many users with a day of 8 h have the task rate of each user; "" for one, or if none is known."""
    each = [ratio for run in runs if (ratio := load_of_a_user(run.figures)) is not None]
    if all(abs(ratio - 1) < AS_USUAL for ratio in each):
        return ""
    shown = number_range([f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}" for ratio in each])
    return f"Each user has the task rate of {shown} users with a day of 8 h."


def _verdict(runs: Sequence[RecordedRun], met: int) -> str:
    verdicts = [run.summary.verdict for run in runs]
    refused = sum(server_failed(verdict.causes) for verdict in verdicts)
    invalid = sum(verdict.validity == "invalid" for verdict in verdicts) - refused
    degraded = sum(verdict.validity == "degraded" for verdict in verdicts)
    embedded = sum(run.figures.embedded for run in runs)
    judged = len(runs) - invalid
    words = [
        f"{met} of {judged} runs met their criteria" if judged else f"no run can be judged: all {invalid} are invalid"
    ]
    words += [f"in {refused} of them, the server did not take the load"] if refused else []
    words += [f"{degraded} of them degraded"] if degraded else []
    words += [f"{invalid} more invalid and not counted"] if invalid and judged else []
    words += [f"{embedded} {NO_MEASUREMENT.removeprefix('; ')}"] if embedded else []
    return "; ".join(words)


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


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _only(each: Iterable[float | None]) -> Cell:
    """Return the figure of the only driver. Of several drivers, list the figures: they must not be mixed."""
    found = list(each)
    if len(found) == 1:
        return found[0]
    return ", ".join("-" if one is None else f"{one:.1f}" for one in found) or None


def _capacity(runs: Sequence[RecordedRun], loads: Sequence[str]) -> Iterator[str]:
    """Yield a line for each load: the most users whose runs all met their criteria, and the fewest whose did not."""
    for load in dict.fromkeys(loads):
        of_load = [run for run, of_run in zip(runs, loads, strict=True) if of_run == load]
        missed = {run.figures.users for run in of_load if misses(run)}
        met = {run.figures.users for run in of_load if meets(run)} - missed
        unknown = sum(not misses(run) and not meets(run) for run in of_load)
        words = [f"{load[:1].upper()}{load[1:]}:"] if load else []
        words += [f"The most users with whom every run met its criteria: {max(met):,}."] if met else []
        words += ["With no number of users did every run meet its criteria."] if missed and not met else []
        words += [f"The fewest users with whom a run missed its criteria: {min(missed):,}."] if missed else []
        words += [f"{count(unknown, 'run')} decided nothing: invalid or degraded."] if unknown else []
        yield " ".join(words)


def misses(run: RecordedRun) -> bool:
    """Return whether a run shows too many users: also an invalid one, if the server did not take the load."""
    verdict = run.summary.verdict
    return server_failed(verdict.causes) or (verdict.validity != "invalid" and verdict.passed is False)


def meets(run: RecordedRun) -> bool:
    """Return whether a run shows that the server takes its users: a degraded one decides nothing."""
    return run.summary.verdict.validity == "valid" and bool(run.summary.verdict.passed)


MEND = "mend what the reports on the single runs name, and run again."
"""The advice for runs that cannot be judged, for different reasons."""

SHOW_A_DRIFT = 5
"""The scores of this number of equal runs only rise or only fall by chance in 1 of 60 cases."""


def _next(runs: Sequence[RecordedRun], loads: Sequence[str]) -> str:
    """Return the advice to a reader who asks how many users the server takes, or how far repeats differ."""
    judged = [run for run in runs if run.summary.verdict.validity != "invalid" or misses(run)]
    if not judged:
        advice = [run.summary.verdict.advice for run in runs]
        one_cause = len({run.summary.verdict.causes for run in runs}) == 1
        longest = max(advice, key=lambda one: len(str(one)))  # of one cause, it has the measures of the others
        return f"{'; '.join(longest)}." if one_cause and all(advice) else MEND
    if any(loads):
        return "compare only runs whose scores are comparable, or run again with one scenario."
    if any(run.summary.verdict.passed is None and not misses(run) for run in judged):
        return "merge the logs of the other slices with these."
    if any(run.figures.embedded for run in judged):
        return YOUR_OWN
    missed = {run.figures.users for run in judged if misses(run)}
    met = {run.figures.users for run in judged if meets(run)} - missed
    if not missed and met and len({run.figures.users for run in runs}) == 1 < len(runs):
        return _next_of_repeats([run for run in runs if meets(run)])
    if not missed and not met:
        return MEND
    between = [f"more than {max(met):,}"] if met else []
    between += [f"fewer than {min(missed):,}"] if missed else []
    return (
        f"measure {' and '.join(between)} users, each number at least three times (loadsim capacity does so by itself)."
    )


def _next_of_repeats(runs: Sequence[RecordedRun]) -> str:
    """Return the advice on valid runs with one number of users, which all met their criteria."""
    if len(runs) < FIRST_LOOK:
        return f"repeat the run until at least {FIRST_LOOK} are valid: two may be alike by chance."
    if not are_repeats(runs):
        return "compare the runs with what differs between them: loadsim compare --base RUN... --new RUN..."
    of_drivers = zip(*(run.figures.by_protocol.values() for run in runs), strict=True)
    if any(only_one_way([driver.score_ms or 0.0 for driver in each]) for each in of_drivers):
        drifts = len(runs) >= SHOW_A_DRIFT
        return f"{'find out what changes from run to run' if drifts else 'make more runs: this may be noise'}."
    return "compare this server with another by runs that take turns, or find its limit (loadsim compare, capacity)."


def _reasons(runs: Sequence[RecordedRun], names: Sequence[str]) -> Iterator[Listing]:
    """Yield why runs are invalid or degraded."""
    verdicts = [run.summary.verdict for run in runs]
    invalid = any(verdict.validity == "invalid" for verdict in verdicts)
    reasons = [verdict.defects for verdict in verdicts]
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


def _curve(runs: Sequence[RecordedRun], names: Sequence[str], loads: Sequence[str]) -> Iterator[Block]:
    """Yield the chart of valid and degraded runs, with a line for each load, after a sentence on its lines.

    It is drawn over the users, or for runs with equal users over their order, which shows if they became slower.
    """
    # 1. Figures: response times by driver, and rates.
    users = [run.figures.users for run in runs]
    drivers = sorted({name for run in runs for name in run.figures.by_protocol})
    times: dict[str, Series] = {}
    for name in drivers:
        of = f" ({name})" if len(drivers) > 1 else ""
        found = [run.figures.by_protocol.get(name) for run in runs]
        times[f"score{of}"] = [None if one is None else one.score_ms for one in found]
        times[f"READ, 95th{of}"] = [None if one is None else one.read_p95_ms for one in found]
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

    # 2. The axis.
    if len({*users}) == 1 < len(runs):
        along: Sequence[float] = range(1, len(runs) + 1)
        over, axis = "in the order of the runs", Axis("order of the runs", "order", (*along,), Column("Run"), (*names,))
    else:
        along = users
        over, axis = "by number of users", Axis("users", "count", (*users,), Column("Users", 0), (*users,))

    # 3. The lines.
    of_run = [
        "" if run.summary.verdict.validity == "invalid" else load or "-" for run, load in zip(runs, loads, strict=True)
    ]
    panels = (
        Panel("Response time", "ms", _lines(times, along, of_run), "log", limits=limits),
        Panel("Throughput", "tasks per second", _lines(rates, along, of_run)),
    )
    if chart := drawable(Chart(f"Response time and throughput {over}", axis, panels)):
        yield "Lines join runs with comparable scores, or their medians. Invalid runs are not drawn."
        yield chart


def _lines(series: Mapping[str, Series], along: Sequence[float], loads: Sequence[str]) -> tuple[Line, ...]:
    """Return the lines of each load: through its runs, or if some are at one place, points and the medians' line.

    A run without a load is not drawn; `-` is a load without a name.
    """
    lines = []
    for load in dict.fromkeys(filter(None, loads)):
        places = [place for place, of_run in zip(along, loads, strict=True) if of_run == load]
        repeated = len({*places}) < len(places)
        for name, values in series.items():
            title = name if load == "-" else f"{name}, {load}"
            own = tuple(value if of_run == load else None for value, of_run in zip(values, loads, strict=True))
            lines.append(Line(title, own, joined=not repeated))
            if repeated:
                lines.append(Line(f"{title}, median", medians_by(along, own)))
    return tuple(line for line in lines if line)
