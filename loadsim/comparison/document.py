"""The report on a comparison, and its JUnit XML: the verdict, each task's interval, and the differences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from loadsim.analysis.recorded_run import RecordedRun, names_of
from loadsim.comparison.compared_run import BASE, DELIVERY, NEW, RESPONSE_SCORE, SCORE
from loadsim.comparison.comparison import ComparedFigure, Comparison, ComparisonFigures
from loadsim.comparison.decision import Decided
from loadsim.comparison.differences import facts_of, same_table, what_differs
from loadsim.comparison.many_runs import runs_table
from loadsim.findings.formats import count
from loadsim.findings.verdict import Tone
from loadsim.report.answer import findings
from loadsim.report.document import Bar, Block, Cell, Document, Item, Section, Table, table_of
from loadsim.report.junit import Case, Outcome, junit
from loadsim.statistics.comparison import MOST_DETECTABLE, Decision, level

INCONCLUSIVE = "inconclusive: "

RESERVATION = "but read the warnings: more than the server may differ"
"""The end of the verdict if the machines were busier in one side's runs, or if the runs did not take turns."""

LEAST_AXIS, MOST_AXIS = math.log(1.1), math.log(4)
"""The bounds of the ratio at which the axis of intervals ends, as logarithms."""

MOST_CRITERIA = 3
"""The most criteria that the verdict names; the list of missed criteria names all."""

_OUTCOMES: Mapping[Decision, Outcome] = {"passed": "passed", "failed": "failure", "undecided": "error"}


def compare_junit(comparison: Comparison) -> str:
    """Return a comparison as JUnit XML: a case for each task and time, and for each other decision.

    A case fails if its figure does, and is an error if the figure is undecided. Tasks' cases always pass: they only
    report.
    """
    figures = comparison.figures
    cases = {}
    for row in figures.all_figures:
        difference = row.difference
        change = row.change or "no difference shown"
        text = (
            f"base {difference.base_ms:.3f} ms, new {difference.new_ms:.3f} ms, ratio {difference.ratio:.4f}: {change}"
        )
        cases[difference.name] = Case("loadsim.compare", difference.name, output=text)
    for decided in figures.decisions:
        case = cases.get(decided.name, Case("loadsim.compare", decided.name))
        why = "; ".join(missed_more(figures)) if decided.kind == "criteria" else change_words(decided)
        message = "" if decided.decision == "passed" else f"{decided.decision}: {why or 'no interval'}"
        cases[decided.name] = replace(case, outcome=_OUTCOMES[decided.decision], message=message)
    return junit("loadsim compare", [*cases.values()])


def describe_comparison(comparison: Comparison) -> Document:
    figures = comparison.figures
    runs = [*comparison.runs[BASE], *comparison.runs[NEW]]
    side = dict(zip(names := names_of(runs), _sides(comparison), strict=True))
    differs = what_differs(facts_of(runs), _sides(comparison), "Set")
    return Document(
        title=f"{', '.join(_load(comparison)[:2])}: new against base",
        subtitle="; ".join(
            f"{which}: {count(len(of_side), 'run')} on {_servers(of_side)}"
            for which, of_side in (("Base", comparison.runs[BASE]), ("New", comparison.runs[NEW]))
        ),
        verdict=verdict_line(figures),
        tone=tone(comparison),
        sections=(
            Section("Tasks", tuple(task_blocks(figures, ", ".join(_load(comparison)))), brief=True),
            Section("Findings", tuple(findings_of(comparison)), brief=True),
            Section("What differs", (differs,), brief=isinstance(differs, Table)),
            Section("Runs", (runs_table(runs, names, ("Set", None, lambda one: side[one[1]])),), brief=True),
            Section("Disclosure", (same_table(facts_of(runs)),)),
        ),
    )


def _sides(comparison: Comparison) -> list[str]:
    return ["Base"] * len(comparison.runs[BASE]) + ["New"] * len(comparison.runs[NEW])


def _servers(runs: Sequence[RecordedRun]) -> str:
    return ", ".join(sorted({str(run.figures.server) for run in runs if run.figures.server})) or "an unknown server"


def _load(comparison: Comparison) -> list[str]:
    """Return the names, users and window of the runs."""
    names = (run.figures.name or "unnamed" for of_side in comparison.runs.values() for run in of_side)
    figures = comparison.figures
    users, window = count(round(figures.users), "user"), f"window of {figures.window_s.length_s:g} s"
    return [" or ".join(dict.fromkeys(names)), users, window]


def findings_of(comparison: Comparison) -> Iterable[Block]:
    """Yield the findings of the comparison and of its runs, and the next step."""
    return findings(comparison.figures.findings, _of_runs(comparison))


def _of_runs(comparison: Comparison) -> list[Item]:
    """Return the single runs' warnings: each kind once, with its number of runs on each side."""
    runs = [*comparison.runs[BASE], *comparison.runs[NEW]]
    base, new = len(comparison.runs[BASE]), len(comparison.runs[NEW])
    items = []
    for warning in comparison.figures.of_runs:
        of_base = sum(number < base for number in warning.runs)
        counts = f"{of_base} of {base} runs of base, {len(warning.runs) - of_base} of {new} of new"
        place = runs[warning.runs[0]].place if len(warning.runs) == 1 else counts
        items.append(Item(f"{place}: {warning.words}", warning.code))
    return items


def task_blocks(figures: ComparisonFigures, load: str = "") -> Iterable[Block]:
    """Yield the table of tasks (pages draw its intervals), and the decisions if there is a limit on regressions."""
    means = f"geometric means of {count(len(figures.base), 'run')} of base and {len(figures.new)} of new"
    end = _widest(figures.all_figures)
    yield table_of(
        f"95th percentiles{f' of {load}' if load else ''}: {means}",
        figures.all_figures,
        ("Task", None, lambda one: one.difference.name),
        ("New / Base", 3, lambda one: None if has_infinite(one) else one.difference.ratio),
        (_sure(figures), 3, lambda one: _bar(one, end)),
        ("Result", None, _result),
        ("Detectable", 3, lambda one: None if one.difference.low is None else ratio_words(one.difference.detectable)),
        ("Base", "time", lambda one: one.difference.base_ms),
        ("New", "time", lambda one: one.difference.new_ms),
        ("p", 4, lambda one: "< 0.0001" if (p := one.difference.p) is not None and p < 0.0001 else p),
        ("Failure rate, base (%)", 2, lambda one: _rate(one, BASE)),
        ("Failure rate, new (%)", 2, lambda one: _rate(one, NEW)),
    )
    if figures.max_regression is not None:
        yield decisions_table(figures, figures.max_regression)
    if figures.not_compared:
        yield f"Without hits in some run, and not compared: {', '.join(figures.not_compared)}."
    if figures.looks > 1:
        yield f"p and intervals are corrected for {figures.looks} looks at growing sets (Bonferroni)."


def _widest(figures: Sequence[ComparedFigure]) -> float:
    """Return the ratio, as a logarithm, at which the axis of intervals ends."""
    ends = [end for one in figures for end in one.interval or () if end]
    return min(max(LEAST_AXIS, *(abs(math.log(end)) for end in ends)), MOST_AXIS) if ends else LEAST_AXIS


def _bar(one: ComparedFigure, end: float) -> Bar | None:
    """Return the interval on a logarithmic axis, with equal times in the middle."""
    if one.interval is None:
        return None
    low, middle, high = (
        0.5 + 0.5 * min(max(math.log(ratio) / end, -1), 1) if ratio else 0.0
        for ratio in (one.interval[0], one.difference.ratio, one.interval[1])
    )
    return Bar(
        interval_words(one) or "",
        low,
        middle,
        high,
        look={"slower": "worse", "faster": "better"}.get(one.change or "", ""),
    )


def _result(one: ComparedFigure) -> Cell:
    if one.answered_less:
        return f"higher failure rate in {one.answered_less}"
    if one.difference.p is None:
        return "infinite in some runs" if has_infinite(one) else "inconclusive"
    includes_1 = one.interval is None or one.interval[0] <= 1 <= one.interval[1]
    return one.change or ("no difference" if includes_1 else "by itself")  # not significant after the correction of p


def _rate(one: ComparedFigure, side: str) -> Cell:
    return None if one.unanswered is None else 100 * one.unanswered[side]


def verdict_line(figures: ComparisonFigures) -> str:
    """Return the verdict as one sentence: the decision, the changes that users notice, and each score's change.

    It ends with a reservation if conditions other than the server differ.
    """
    changes = [_score_change(one, figures) for one in figures.scores]
    changes = changes or [f"{INCONCLUSIVE}there is no score that all runs have"]
    before = [*missed_more(figures), *_longer_waits(figures)]
    if before or figures.decision is not None:
        changes = [change.removeprefix(INCONCLUSIVE) for change in changes]
    sentence = "; ".join([*before, *changes])
    if figures.decision is not None:
        sentence = f"{figures.decision}: {sentence}; at most {1 + (figures.max_regression or 0):g} allowed"
    if figures.decision == "passed":  # an event in this share of runs goes unseen in one comparison in 20
        unseen = 1 - 0.05 ** (1 / len(figures.new))
        sentence += f", as far as {len(figures.new)} runs show: not what happens in fewer than {unseen:.0%} of runs"
    if figures.unequal_conditions:
        sentence += f"; {RESERVATION}"
    return sentence


def missed_more(figures: ComparisonFigures) -> list[str]:
    """Return clauses on criteria that a larger share of new than of base missed, and on degraded runs."""
    names = sorted({*figures.missed_more} - {"validity"}, key=lambda name: (name.startswith("tasks."), name))
    more = len(names) - MOST_CRITERIA
    words = ", ".join(names[:MOST_CRITERIA]) + (f" and {more} more" if more > 0 else "")
    clauses = [f"new missed criteria more often than base: {words}"] if names else []
    return [*clauses, *(["new is degraded more often than base"] if "validity" in figures.missed_more else [])]


def _longer_waits(figures: ComparisonFigures) -> list[str]:
    """Return a clause for each other time that is worse in new, unless the clause on the score explains it."""
    scores = {one.difference.name: one for one in figures.scores}
    clauses = []
    for one in (*figures.response_scores, *figures.further):
        score = scores.get(one.difference.name.replace(RESPONSE_SCORE, SCORE))
        name, driver = _time(one.difference.name)
        if one.change == "slower" and not (score and _explained(one, score, figures.max_regression)):
            clauses.append(_change(one, f"the {name} of new{driver}", _sure(figures)))
    return clauses


def _explained(response: ComparedFigure, score: ComparedFigure, max_regression: float | None) -> bool:
    """Return True if the score is about as much slower, unless only the response score is surely above the limit."""
    if response.interval is None or score.interval is None or score.change != "slower":
        return False
    (low, high), (score_low, score_high) = response.interval, score.interval
    if max_regression is not None and score_low <= 1 + max_regression < low:
        return False
    return low <= score_high and score_low <= high


def has_infinite(one: ComparedFigure) -> bool:
    """Return True if a run of either side has an infinite response score."""
    return math.isinf(one.difference.base_ms) or math.isinf(one.difference.new_ms)


def _time(name: str) -> tuple[str, str]:
    """Return the words for a time, and its driver in parentheses if there are several."""
    driver, _, own = name.rpartition(": ")
    return own.lower() if own in (SCORE, RESPONSE_SCORE, DELIVERY) else own, f" ({driver})" if driver else ""


def tone(comparison: Comparison) -> Tone:
    """Return the rating of the verdict. It is never good if runs are doubtful, or used the embedded server."""
    figures = comparison.figures
    changes = {one.change for one in figures.scores}
    less = {one.answered_less for one in figures.scores}
    worse = "slower" in {one.change for one in figures.all_scores} or (
        figures.missed_more and all(run.passed for run in figures.base)
    )
    if figures.decision == "failed" or (figures.decision is None and worse):
        return "bad"
    runs = (*figures.base, *figures.new)
    doubtful = (
        any(run.figures.embedded for of_side in comparison.runs.values() for run in of_side)
        or less != {None}
        or bool(figures.unequal_conditions)
        or any(run.validity != "valid" or not run.passed for run in runs)
    )
    shown = figures.decision == "passed" or (figures.decision is None and changes == {"faster"})
    return "good" if shown and not doubtful else "doubtful"


def _score_change(one: ComparedFigure, figures: ComparisonFigures) -> str:
    """Return a clause on the change of a score, with its driver if there are several."""
    driver = _time(one.difference.name)[1]
    change = _change(one, f"new{driver}", _sure(figures))
    if not (less := one.answered_less):
        return change
    if one.change:
        return f"{change}, and {less} has a higher failure rate"
    other = "base" if less == "new" else "new"
    of_which = "its times are of the tasks that succeeded"
    return f"{INCONCLUSIVE}{less}{driver} has a higher failure rate than {other}, so {of_which}"


def _sure(figures: ComparisonFigures) -> str:
    return f"{level(figures.looks) * 100:.4g} % CI"


def _change(one: ComparedFigure, new: str, sure: str) -> str:
    ratio = ratio_words(one.difference.ratio)
    if one.difference.low is None:
        return f"{INCONCLUSIVE}{new} took {ratio} times as long, with a single run on a side"
    if one.change is None:
        return f"{INCONCLUSIVE}{new} takes {interval_words(one)} times as long ({sure})"
    return f"{new} is {one.change}: {ratio} times as long ({sure} {interval_words(one)})"


def decisions_table(figures: ComparisonFigures, max_regression: float) -> Table:
    """Return the decisions by `--max-regression` on the scores, and all others that did not pass."""
    scores = {one.difference.name for one in figures.scores}
    return table_of(
        f"What decides: at most {100 * max_regression:g} % more time is allowed",
        [one for one in figures.decisions if one.decision != "passed" or one.name in scores],
        ("Figure", None, lambda one: one.name),
        ("New against base", None, change_words),
        ("At most", None, _limit),
        ("Decision", None, lambda one: one.decision),
    )


def change_words(one: Decided) -> str | None:
    """Return the interval of a ratio, or of a difference between shares; None if it is unknown."""
    if one.low is None or one.high is None:
        return None
    if one.kind == "time":
        return f"{ratio_words(one.low)} to {ratio_words(one.high)} times"
    return f"{100 * one.low:+.2g} to {100 * one.high:+.2g} %"


def _limit(one: Decided) -> Cell:
    if one.limit is None:
        words = {"criteria": "-", "unmeasured": "not measured in every run"}
        return words.get(one.kind, "not judged: base has a higher failure rate")
    return f"{one.limit:g}" if one.kind == "time" else f"{one.limit * 100:.3g} %"


def interval_words(one: ComparedFigure) -> str | None:
    if one.difference.low is None:
        return None
    return f"{ratio_words(one.difference.low)} to {ratio_words(one.difference.high)}"


def ratio_words(ratio: float | None) -> str:
    """Format with three decimals, or as `> 100` if the ratio is above 100 or unknown."""
    if ratio is None or ratio > MOST_DETECTABLE:
        return f"> {MOST_DETECTABLE:g}"
    return f"{ratio:.3f}" if ratio >= 1 / MOST_DETECTABLE else f"< {1 / MOST_DETECTABLE:g}"
