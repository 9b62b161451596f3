"""The report on a comparison, its text and its JUnit XML: the verdict, what differs, and each task and run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from loadsim.analysis.recorded_run import RecordedRun, names_of
from loadsim.analysis.statistics.comparison import MOST_DETECTABLE, Decision, level
from loadsim.analysis.summary import Tone
from loadsim.comparison.compared_run import BASE, DELIVERY, LEAST_DELIVERY_MS, NEW, RESPONSE_SCORE, SCORE
from loadsim.comparison.comparison import ComparedFigure, Comparison, ComparisonFigures
from loadsim.comparison.decision import Decided
from loadsim.comparison.differences import facts_of, same_table, what_differs
from loadsim.comparison.many_runs import runs_table
from loadsim.findings.catalogue import Severity
from loadsim.findings.formats import count
from loadsim.findings.next_step import next_step
from loadsim.report.criteria import NOT_SHOWN
from loadsim.report.document import Block, Cell, Document, Listing, Section, Table, table_of
from loadsim.report.glossary import GLOSSARY
from loadsim.report.junit import Case, Outcome, junit
from loadsim.report.text import to_text

FORCED = "Warning (--force): these runs should not be compared"
"""The heading of the reasons that `--force` overruled."""

INCONCLUSIVE = "inconclusive: "

RESERVATION = "but read the warnings: more than the server may differ"
"""Ends the verdict if the machines were busier in the runs of a side, or the runs did not take turns."""

MOST_CRITERIA = 3
"""The most criteria that the verdict names; the list of missed criteria has all."""

_OUTCOMES: Mapping[Decision, Outcome] = {"passed": "passed", "failed": "failure", "undecided": "error"}


def compare_junit(comparison: Comparison) -> str:
    """Return the document of a comparison: a case for each task and time, and one for each other decision.

    A case fails if its figure does, and is in error if that is undecided. Those of tasks pass and only report.
    """
    figures = comparison.figures
    cases = {}
    for row in figures.all_figures:
        found = row.difference
        change = row.change or "no difference shown"
        text = f"base {found.base_ms:.3f} ms, new {found.new_ms:.3f} ms, ratio {found.ratio:.4f}: {change}"
        cases[found.name] = Case("loadsim.compare", found.name, output=text)
    for one in figures.decisions:
        case = cases.get(one.name, Case("loadsim.compare", one.name))
        why = "; ".join(missed_more(figures)) if one.kind == "criteria" else change_words(one)
        message = "" if one.decision == "passed" else f"{one.decision}: {why or 'no interval'}"
        cases[one.name] = replace(case, outcome=_OUTCOMES[one.decision], message=message)
    return junit("loadsim compare", [*cases.values()])


def compare_text(comparison: Comparison, width: int | None = None, colours: bool = False) -> str:
    """Return the text that `loadsim compare` prints; see `to_text`. Times are in milliseconds."""
    summary, tasks, runs, *_ = describe_comparison(comparison).sections
    blocks = (*summary.blocks, *tasks.blocks, *runs.blocks)
    return to_text(f"Verdict: {verdict_line(comparison.figures)}", tone(comparison), blocks, width, colours)


def describe_comparison(comparison: Comparison) -> Document:
    """Return the report on a comparison."""
    figures = comparison.figures
    runs = [*comparison.runs[BASE], *comparison.runs[NEW]]
    side = dict(zip(names := names_of(runs), _sides(comparison), strict=True))
    verdict = verdict_line(figures)
    return Document(
        title=f"{', '.join(_load(comparison)[:2])}: new against base",
        subtitle="; ".join(
            f"{which}: {count(len(of_side), 'run')} on {_servers(of_side)}"
            for which, of_side in (("Base", comparison.runs[BASE]), ("New", comparison.runs[NEW]))
        ),
        verdict=f"{verdict[:1].upper()}{verdict[1:]}",
        tone=tone(comparison),
        sections=(
            Section("Summary", tuple(_summary(comparison))),
            Section("Tasks", tuple(task_blocks(figures))),
            Section("Runs", (runs_table(runs, names, ("Set", None, lambda one: side[one[1]])),)),
            Section("Disclosure", (same_table(facts_of(runs, {})),)),
            GLOSSARY,
        ),
    )


def _sides(comparison: Comparison) -> list[str]:
    return ["Base"] * len(comparison.runs[BASE]) + ["New"] * len(comparison.runs[NEW])


def _servers(runs: Sequence[RecordedRun]) -> str:
    return ", ".join(sorted({str(run.figures.server) for run in runs if run.figures.server})) or "an unknown server"


def _load(comparison: Comparison) -> list[str]:
    """Return the name, the users and the window of the runs; each of these, if runs differ (`--force`)."""
    runs = [run.figures for of_side in comparison.runs.values() for run in of_side]
    words = (
        [one.name or "unnamed" for one in runs],
        [count(one.users, "user") for one in runs],
        [f"window of {one.window_s.length_s:g} s" for one in runs],
    )
    return [" or ".join(dict.fromkeys(each)) for each in words]


def _summary(comparison: Comparison) -> Iterable[Block]:
    """Yield what a reader needs who reads nothing else."""
    figures = comparison.figures
    base, new = comparison.runs[BASE], comparison.runs[NEW]
    yield f"{count(len(base), 'run')} of the base and {len(new)} of the new: {', '.join(_load(comparison))}."
    for caption, items in ((FORCED, [one.text for one in figures.ignored]), ("Warnings", warnings_of(comparison))):
        if items:
            yield Listing(caption, tuple(items))
    if step := next_step([*figures.ignored, *figures.findings]):
        yield f"Next: {step}."
    yield what_differs(facts_of([*base, *new], {}), _sides(comparison), "Set")


def warnings_of(comparison: Comparison) -> list[str]:
    """Return the warnings, and those of the single runs: each kind once, with the number of its runs on each side."""
    texts = [one.text for one in comparison.figures.findings if one.severity is Severity.WARNING]
    runs = [*comparison.runs[BASE], *comparison.runs[NEW]]
    base, new = len(comparison.runs[BASE]), len(comparison.runs[NEW])
    for one in comparison.figures.of_runs:
        of_base = sum(at < base for at in one.runs)
        counts = f"{of_base} of {base} runs of base, {len(one.runs) - of_base} of {new} of new"
        texts.append(f"{runs[one.runs[0]].place if len(one.runs) == 1 else counts}: {one.text}")
    return texts


def task_blocks(figures: ComparisonFigures) -> Iterable[Block]:
    """Yield the table of the tasks, and the decisions if a regression is limited."""
    base_invalid, new_invalid = (
        any(run.validity == "invalid" for run in of_side) for of_side in (figures.base, figures.new)
    )
    yield table_of(
        "95th percentiles of the tasks, and the scores: geometric means of the runs",
        figures.all_figures,
        ("Task", None, lambda one: one.difference.name),
        ("New / Base", 3, lambda one: None if has_infinite(one) else one.difference.ratio),
        (f"{level(figures.looks) * 100:.4g} % CI", 3, interval_words),
        ("Result", None, _result),
        ("Detectable", 3, lambda one: None if one.difference.low is None else ratio_words(one.difference.detectable)),
        ("Base", "time", lambda one: NOT_SHOWN if base_invalid else one.difference.base_ms),
        ("New", "time", lambda one: NOT_SHOWN if new_invalid else one.difference.new_ms),
        ("p", 4, lambda one: "< 0.0001" if (p := one.difference.p) is not None and p < 0.0001 else p),
        ("Failure rate, base (%)", 2, lambda one: _rate(one, BASE)),
        ("Failure rate, new (%)", 2, lambda one: _rate(one, NEW)),
        ("Medians, new / base", 3, lambda one: one.p50_ratio),
    )
    if figures.max_regression is not None:
        yield decisions_table(figures, figures.max_regression)
    if figures.not_compared:
        yield f"Without hits in some run, and not compared: {', '.join(figures.not_compared)}."
    yield from delivery_words(figures)
    if figures.looks > 1:
        yield f"p and intervals are corrected for {figures.looks} looks at growing sets (Bonferroni)."


def _result(one: ComparedFigure) -> Cell:
    if one.answered_less:
        return f"higher failure rate in {one.answered_less}"
    if one.difference.p is None:
        return "infinite in some runs" if has_infinite(one) else "inconclusive"
    return one.change or ("by itself" if one.by_itself else "none shown")


def _rate(one: ComparedFigure, side: str) -> Cell:
    return None if one.unanswered is None else 100 * one.unanswered[side]


# --- the verdict in a sentence ---


def verdict_line(figures: ComparisonFigures) -> str:
    """Return the verdict in a sentence: what users would notice first, the change of each score, and the decision.

    It ends with a reservation if conditions besides the server differ.
    """
    if invalid := invalid_runs(figures):
        return f"not comparable: {invalid}"
    changes = [_score_change(one, figures) for one in figures.scores]
    changes = changes or [f"{INCONCLUSIVE}there is no score that all runs have"]
    before = [*missed_more(figures), *_longer_waits(figures)]
    if before or figures.decision is not None:
        changes = [change.removeprefix(INCONCLUSIVE) for change in changes]
    sentence = "; ".join([*before, *changes])
    if figures.decision is not None:
        sentence = f"{figures.decision}: {sentence}; at most {1 + (figures.max_regression or 0):g} allowed"
    if figures.unequal_conditions:
        sentence += f"; {RESERVATION}"
    return f"not comparable; {sentence}" if figures.ignored else sentence


def missed_more(figures: ComparisonFigures) -> list[str]:
    """Return a clause on the criteria that a larger share of new than of base missed, if there are any."""
    names = sorted(figures.missed_more, key=lambda name: name.startswith("tasks."))
    if not names:
        return []
    more = len(names) - MOST_CRITERIA
    words = ", ".join(names[:MOST_CRITERIA]) + (f" and {more} more" if more > 0 else "")
    return [f"new missed criteria more often than base: {words}"]


def _longer_waits(figures: ComparisonFigures) -> list[str]:
    """Return a clause for each other time that is worse in new, unless what is said of the score explains it."""
    sure = f"{level(figures.looks) * 100:.4g} % CI"
    scores = {one.difference.name: one for one in figures.scores}
    clauses = []
    for one in (*figures.response_scores, *figures.further):
        score = scores.get(one.difference.name.replace(RESPONSE_SCORE, SCORE))
        name, driver = _time(one.difference.name)
        if one.change == "slower" and not (score and _explained(one, score, figures.max_regression)):
            clauses.append(_change(one, f"the {name} of new{driver}", sure))
    return clauses


def _explained(response: ComparedFigure, score: ComparedFigure, max_regression: float | None) -> bool:
    """Return True if the score is slower by about as much, and the response score alone does not exceed the limit."""
    one, other = response.difference, score.difference
    if one.low is None or one.high is None or other.low is None or other.high is None or score.change != "slower":
        return False
    if max_regression is not None and other.low <= 1 + max_regression < one.low:
        return False
    return one.low <= other.high and other.low <= one.high


def has_infinite(one: ComparedFigure) -> bool:
    """Return True if a run of either side has an infinite response score."""
    return math.isinf(one.difference.base_ms) or math.isinf(one.difference.new_ms)


def _time(name: str) -> tuple[str, str]:
    """Return the words for a time that decides, and its driver in brackets if there are several."""
    driver, _, own = name.rpartition(": ")
    return own.lower() if own in (SCORE, RESPONSE_SCORE, DELIVERY) else own, f" ({driver})" if driver else ""


def invalid_runs(figures: ComparisonFigures) -> str:
    """Return how many of the runs are invalid; "" if none is."""
    runs = (*figures.base, *figures.new)
    invalid = sum(run.validity == "invalid" for run in runs)
    return f"{invalid} of {len(runs)} runs {'is' if invalid == 1 else 'are'} invalid" if invalid else ""


def tone(comparison: Comparison) -> Tone:
    """Return the rating of the verdict. What is no measurement, or rests on doubtful runs, is never good."""
    figures = comparison.figures
    changes = {one.change for one in figures.scores}
    less = {one.answered_less for one in figures.scores}
    worse = "slower" in {one.change for one in figures.all_scores} or (figures.missed_more and figures.base_passed)
    if figures.ignored or figures.decision == "failed" or (figures.decision is None and worse):
        return "bad"
    runs = (*figures.base, *figures.new)
    doubtful = (
        is_embedded(comparison)
        or less != {None}
        or bool(figures.unequal_conditions)
        or any(run.validity != "valid" or not run.passed for run in runs)
    )
    shown = figures.decision == "passed" or (figures.decision is None and changes == {"faster"})
    return "good" if shown and not doubtful else "doubtful"


def _score_change(one: ComparedFigure, figures: ComparisonFigures) -> str:
    """Return a clause on the change of a score, with its driver if there are several."""
    driver = _time(one.difference.name)[1]
    change = _change(one, f"new{driver}", f"{level(figures.looks) * 100:.4g} % CI")
    if not (less := one.answered_less):
        return change
    if one.change:
        return f"{change}, and {less} has a higher failure rate"
    other = "base" if less == "new" else "new"
    of_which = "its times are of the tasks that succeeded"
    return f"{INCONCLUSIVE}{less}{driver} has a higher failure rate than {other}, so {of_which}"


def _change(one: ComparedFigure, new: str, sure: str) -> str:
    found = one.difference
    if found.low is None:
        return f"{INCONCLUSIVE}{new} took {ratio_words(found.ratio)} times as long, with a single run on a side"
    if one.change is None:
        return f"{INCONCLUSIVE}{new} takes {interval_words(one)} times as long ({sure})"
    return f"{new} is {one.change}: {ratio_words(found.ratio)} times as long ({sure} {interval_words(one)})"


def is_embedded(comparison: Comparison) -> bool:
    """Return True if a run was made on the embedded server: then nothing is measured."""
    return any(run.figures.embedded for side in comparison.runs.values() for run in side)


def decisions_table(figures: ComparisonFigures, max_regression: float) -> Table:
    """Return the decisions of `--max-regression` on the scores, and all others that are not passed."""
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
    """Return the interval of a ratio, or of a difference of shares; None if it is unknown."""
    if one.low is None or one.high is None:
        return None
    if one.kind == "time":
        return f"{ratio_words(one.low)} to {ratio_words(one.high)} times"
    return f"{100 * one.low:+.2g} to {100 * one.high:+.2g} %"


def _limit(one: Decided) -> Cell:
    if one.limit is None:
        return "-" if one.kind == "criteria" else "not judged: base has a higher failure rate"
    return f"{one.limit:g}" if one.kind == "time" else f"{one.limit * 100:.3g} %"


def delivery_words(figures: ComparisonFigures) -> list[str]:
    """Return the meaning of the delivery times, if those of a run are below the least that counts."""
    least = f"{LEAST_DELIVERY_MS:g} ms"
    shown = f"{DELIVERY}: 95th percentiles below {least} count as {least}, as users do not notice less."
    runs = (*figures.base, *figures.new)
    return [shown] if any(run.further_ms.get(DELIVERY) == LEAST_DELIVERY_MS for run in runs) else []


def interval_words(one: ComparedFigure) -> str | None:
    if one.difference.low is None:
        return None
    return f"{ratio_words(one.difference.low)} to {ratio_words(one.difference.high)}"


def ratio_words(ratio: float | None) -> str:
    """Format with three decimals; a ratio above a hundredfold, or unknown, as `> 100`."""
    if ratio is None or ratio > MOST_DETECTABLE:
        return f"> {MOST_DETECTABLE:g}"
    return f"{ratio:.3f}" if ratio >= 1 / MOST_DETECTABLE else f"< {1 / MOST_DETECTABLE:g}"
