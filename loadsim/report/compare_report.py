"""The report on a comparison: the verdict in a sentence, what differs, and each task and run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from loadsim.analysis.compare import FIRST_LOOK, LOOKS_WITH_REPEATS, level
from loadsim.analysis.compare_runs import ComparedFigure, Comparison, ComparisonFigures
from loadsim.analysis.compared_run import BASE, NEW
from loadsim.analysis.recorded_run import RecordedRun, names_of
from loadsim.report.banner import verdict_words
from loadsim.report.compare_words import (
    FORCED,
    criteria_missed,
    delivery_words,
    equivalent_words,
    finding,
    has_infinite,
    interval_words,
    is_embedded,
    limit_text,
    name_words,
    other_warnings,
    p_words,
    ratio_words,
    repeats_words,
    tone,
    users_words,
    verdict_line,
    window_words,
)
from loadsim.report.criterion_words import NOT_SHOWN
from loadsim.report.differences import OF_LISTS, between, differing, differing_table, facts_of, same_table
from loadsim.report.digits import count, duration, percent
from loadsim.report.document import Block, Cell, Column, Document, Listing, Section, Table, table_of
from loadsim.report.first_screen import EMBEDDED, YOUR_OWN
from loadsim.report.glossary import DETECTABLE_IS, LOAD_MADE_IS, P_IS, SCORE_IS
from loadsim.report.interval_chart import interval_chart
from loadsim.report.one_run import begun

NOT_ANSWERED = "Failure rate: tasks that failed, never began or did not end, of all that were due."


def describe_comparison(comparison: Comparison) -> Document:
    """Return the report on a comparison."""
    figures = comparison.figures
    runs = [*comparison.runs[BASE], *comparison.runs[NEW]]
    sides = ["Base"] * len(comparison.runs[BASE]) + ["New"] * len(comparison.runs[NEW])
    names = names_of(runs)
    verdict = verdict_line(figures)
    return Document(
        title=f"{name_words(comparison) or 'Runs'}, {users_words(comparison)}: new against base",
        subtitle="; ".join(
            f"{side}: {count(len(of_side), 'run')} on {_servers(of_side)}"
            for side, of_side in (("Base", comparison.runs[BASE]), ("New", comparison.runs[NEW]))
        ),
        verdict=f"{verdict[:1].upper()}{verdict[1:]}",
        tone=tone(comparison),
        sections=(
            Section("Summary", tuple(_first_screen(comparison, names))),
            Section("Tasks", tuple(task_blocks(figures))),
            Section("Runs", (_runs(runs, names, sides),)),
            Section("How to read this", _how_to_read(figures)),
            Section("Disclosure", tuple(_disclosure(runs, names))),
        ),
    )


def _servers(runs: Sequence[RecordedRun]) -> str:
    return ", ".join(sorted({str(run.figures.server) for run in runs if run.figures.server})) or "an unknown server"


# --- the first screen ---


def _first_screen(comparison: Comparison, names: Sequence[str]) -> Iterable[Block]:
    """Yield what a reader needs who reads nothing else."""
    figures = comparison.figures
    base, new = comparison.runs[BASE], comparison.runs[NEW]
    runs = [run.figures for run in (*base, *new)]
    with_all = (
        ", each with"
        if len({(run.users, run.window_s.length_s) for run in runs}) == 1
        else (". Depending on the run, they have")
    )
    same_rate = equivalent_words(comparison)
    same_rate = f" Their task rate is that of {same_rate}." if same_rate else ""
    yield (
        f"{count(len(base), 'run')} of the base and {len(new)} of the new{with_all}"
        f" {users_words(comparison, 'simulated user')} and a {window_words(comparison)}.{same_rate} Slower and"
        f" faster refer to the score: {SCORE_IS}."
    )
    if is_embedded(comparison):
        yield EMBEDDED
    if figures.max_regression is not None:
        yield f"At most {figures.max_regression * 100:g} % more time is allowed. The result: {limit_text(figures)}."
    if figures.ignored:
        yield Listing(FORCED, tuple(figures.ignored))
    both = figures.all_figures
    if shown := tuple(f"{one.difference.name}: {finding(one)}" for one in both if one.change or one.answered_less):
        yield Listing("Findings", shown)
    if missed := tuple(criteria_missed(comparison, with_names=False)):
        yield Listing("Criteria missed", missed)
    if warnings := tuple(other_warnings(comparison)):
        yield Listing("Warnings", warnings)
    yield _sides(figures, base, new)
    yield from _what_differs(base, new)
    yield f"What to do next: {_next(comparison)}"


def _sides(figures: ComparisonFigures, base: Sequence[RecordedRun], new: Sequence[RecordedRun]) -> Table:
    """Return the key figures of both sets of runs."""

    def row(title: str, words: Callable[[Sequence[RecordedRun]], str]) -> tuple[Cell, ...]:
        return title, words(base), words(new)

    invalid = [any(run.validity == "invalid" for run in of_side) for of_side in (figures.base, figures.new)]

    def score(one: ComparedFigure) -> tuple[Cell, ...]:
        times_ms = (one.difference.base_ms, one.difference.new_ms)
        shown = zip(times_ms, invalid, strict=True)
        return one.difference.name, *(NOT_SHOWN if is_invalid else duration(time_ms) for time_ms, is_invalid in shown)

    scores = [score(one) for one in figures.all_scores]
    rows = [
        *scores,
        row("Runs and their verdicts", _verdicts),
        row("Load made, of the load planned", lambda runs: _range([_load_share(run) for run in runs], percent)),
        row(
            "Tasks per second", lambda runs: _range([run.figures.achieved_per_s for run in runs], lambda x: f"{x:,.1f}")
        ),
        row("Failed tasks", lambda runs: _range([run.figures.failed_share for run in runs], percent)),
    ]
    if any(machine.cpu_share is not None for run in (*base, *new) for machine in run.figures.machines):
        rows.append(
            row("Cores busy on the machines, by all programs", lambda runs: _range(_busy(runs), _whole_percent))
        )
    return Table("Base and new", (Column("Figure"), Column("Base"), Column("New")), tuple(rows))


def _verdicts(runs: Sequence[RecordedRun]) -> str:
    words = [verdict_words(run.summary).lower() for run in runs]
    return "; ".join(f"{words.count(each)} {each}" for each in dict.fromkeys(words))


def _load_share(run: RecordedRun) -> float | None:
    return None if run.figures.load is None else run.figures.load.share


def _busy(runs: Sequence[RecordedRun]) -> list[float | None]:
    return [machine.cpu_share for run in runs for machine in run.figures.machines]


def _whole_percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def _range(found: Sequence[float | None], words: Callable[[float], str]) -> str:
    """Return the least and the largest figure of some runs in words."""
    known = [one for one in found if one is not None]
    if not known:
        return "unknown"
    ends = list(dict.fromkeys(words(end) for end in (min(known), max(known))))
    return " to ".join(ends) + ("" if len(known) == len(found) else "; unknown of some runs")


def _what_differs(base: Sequence[RecordedRun], new: Sequence[RecordedRun]) -> Iterable[Block]:
    rows = between(facts_of([*base, *new], {}), len(base))
    if not rows:
        yield (
            "Base and new have the same server, settings, machines and versions, as far as loadsim knows. It does not"
            " see what was changed within the server, or which other programs ran."
        )
        return
    columns = (Column("Fact"), Column("Base"), Column("New"))
    yield Table(f"What differs between base and new, as far as loadsim knows{OF_LISTS}", columns, tuple(rows))
    yield "All else that the disclosure below lists is the same on both sides."


def _next(comparison: Comparison) -> str:
    figures = comparison.figures
    changes = {one.change for one in figures.scores}
    waits = {one.change for one in (*figures.response_scores, *figures.further)}
    if figures.ignored:
        return "remove the reasons in the first list, and run again. These runs prove nothing about a difference."
    if any(one.answered_less for one in figures.scores):
        return "find out in the reports of single runs why tasks failed. Times can be compared once as many succeed."
    if is_embedded(comparison):
        return YOUR_OWN
    if figures.missed_more:
        return "find out in the reports of single runs why new missed criteria. Such runs are no base of a comparison."
    if "slower" in waits and "slower" not in changes:
        return (
            "find out in the reports of single runs when tasks began late or failed, or mail was late: users wait"
            " longer, although the server is no slower at what it does."
        )
    if min(len(figures.base), len(figures.new)) < 2:
        return f"{repeats_words(figures)}: even runs of the same server vary."
    if figures.decision == "undecided":
        more = figures.more_repeats
        repeats = "many more runs" if more is None else f"{more} more {'run' if more == 1 else 'runs'}"
        looks = max(figures.looks, LOOKS_WITH_REPEATS)
        return f"make {repeats} of each, taking turns, and compare all of them with --looks {looks}."
    if "slower" in changes or figures.decision == "failed":
        return "look for the slowest tasks in the table below, and for their commands in the reports of single runs."
    if "faster" in changes or figures.decision == "passed":
        return "keep the runs: they are the base of the next comparison."
    if (runs := min(len(figures.base), len(figures.new))) < FIRST_LOOK:
        return f"{repeats_words(figures)}: {runs} runs hardly show how much runs vary."
    return "accept that no difference was shown, or make more runs of each: the table below has the detectable ratio."


# --- the sections ---


def task_blocks(figures: ComparisonFigures) -> Iterable[Block]:
    """Yield the chart of the ratios, and the table of the tasks."""
    if figures.tasks:
        yield interval_chart(figures)
    yield table_of(
        "95th percentiles of the tasks, and the scores",
        figures.all_figures,
        ("Task", None, lambda one: one.difference.name),
        ("Base (ms)", 1, lambda one: one.difference.base_ms),
        ("New (ms)", 1, lambda one: one.difference.new_ms),
        ("New / Base", 3, lambda one: None if has_infinite(one) else one.difference.ratio),
        (f"{level(figures.looks) * 100:.4g} % CI", 3, _interval),
        ("Result", None, _result),
        ("Failure rate, base (%)", 2, lambda one: _rate(one, BASE)),
        ("Failure rate, new (%)", 2, lambda one: _rate(one, NEW)),
        ("p", 4, lambda one: None if one.difference.p is None else p_words(one.difference.p)),
        ("Detectable", 3, _detectable),
    )
    if figures.not_compared:
        yield f"Without hits in some run, and not compared: {', '.join(figures.not_compared)}."


def _interval(one: ComparedFigure) -> Cell:
    return None if one.difference.low is None else interval_words(one)


def _result(one: ComparedFigure) -> Cell:
    if one.answered_less:
        return f"higher failure rate in {one.answered_less}"
    if one.difference.p is None:
        return "infinite in some runs" if has_infinite(one) else "inconclusive"
    return one.change or ("by itself" if one.by_itself else "none shown")


def _rate(one: ComparedFigure, side: str) -> Cell:
    return None if one.unanswered is None else 100 * one.unanswered[side]


def _detectable(one: ComparedFigure) -> Cell:
    return None if one.difference.low is None else ratio_words(one.difference.detectable)


def _runs(runs: Sequence[RecordedRun], names: Sequence[str], sides: Sequence[str]) -> Table:
    return table_of(
        "The runs, in the order in which they were given",
        list(zip(runs, names, sides, strict=True)),
        ("Run", None, lambda one: one[1]),
        ("Set", None, lambda one: one[2]),
        ("Begun", None, lambda one: begun(one[0])),
        ("Verdict", None, lambda one: verdict_words(one[0].summary)),
        ("Score (ms)", 1, lambda one: _scores(one[0], "score_ms")),
        ("Response score (ms)", 1, lambda one: _scores(one[0], "response_score_ms")),
        ("Load made (%)", 1, lambda one: _hundredfold(_load_share(one[0]))),
        ("Tasks/s", 1, lambda one: one[0].figures.achieved_per_s),
        ("Failed (%)", 2, lambda one: _hundredfold(one[0].figures.failed_share)),
    )


def _scores(run: RecordedRun, name: str) -> Cell:
    if run.summary.verdict.validity == "invalid":
        return "not shown"
    found = [getattr(module, name) for module in run.figures.by_protocol.values()]
    return found[0] if len(found) == 1 else ", ".join("-" if one is None else f"{one:.1f}" for one in found) or None


def _hundredfold(share: float | None) -> float | None:
    return None if share is None or not math.isfinite(share) else 100 * share


def _how_to_read(figures: ComparisonFigures) -> tuple[Block, ...]:
    sure = f"{level(figures.looks) * 100:.4g} %"
    looks = f" All are corrected for {figures.looks} looks at growing sets (Bonferroni)." if figures.looks > 1 else ""
    return (
        Listing(
            "The columns",
            (
                "Base and New: the 95th percentile, in milliseconds: the geometric mean of the runs. The score is the"
                " weighted average of the tasks; the response score is that of response times, which count from when a"
                " task was due.",
                *delivery_words(figures),
                "New / Base: 1.200 means that new takes 20 % longer. It is the ratio of unrounded figures.",
                f"{sure} CI: the confidence interval of New / Base. If it contains 1, no difference is shown.",
                "Result: the difference that is shown after correction for the number of tasks, if any.",
                NOT_ANSWERED,
                f"p: {P_IS.format(tasks=f'{len(figures.tasks)} tasks')}; those of the scores stand alone.{looks}",
                f"Detectable: {DETECTABLE_IS}",
                f"Load made: {LOAD_MADE_IS[:1].lower()}{LOAD_MADE_IS[1:]}",
            ),
        ),
        "A run is one observation, however many tasks it has: even runs of the same server vary, and only repeated runs"
        " show by how much.",
    )


def _disclosure(runs: Sequence[RecordedRun], names: Sequence[str]) -> Iterable[Table]:
    facts = facts_of(runs, {})
    yield same_table(facts)
    if different := differing(facts):
        yield differing_table(different, names)
