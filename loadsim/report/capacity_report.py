"""The report on a capacity search: the answer in a sentence, the response-time curve over users, and all steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote

from loadsim.analysis.capacity import Capacity
from loadsim.analysis.capacity_search import EVIDENCE, FAILED, PASSED
from loadsim.analysis.capacity_step import MeasuredStep
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.report import capacity_words as words
from loadsim.report.capacity_averages import averages_by_number
from loadsim.report.capacity_criteria import criteria_of
from loadsim.report.capacity_curves import scores_of, throughput_of, utilisation_of
from loadsim.report.capacity_doubts import doubts, what_next
from loadsim.report.differences import BY_NUMBER, differing, differing_table, facts_of, same_table
from loadsim.report.digits import duration
from loadsim.report.document import FAILED as FAILED_CELL
from loadsim.report.document import PASSED as PASSED_CELL
from loadsim.report.document import Block, Column, Document, Link, Listing, Section, Table, table_of
from loadsim.report.many_runs import SAME
from loadsim.report.resources import NO_PROOF, resource_table
from loadsim.timinglog.header_words import length

RATED = {PASSED: PASSED_CELL, FAILED: FAILED_CELL}

Place = Callable[[str], str]
"""Returns the place of a run directory of the search, relative to the report."""


def describe_capacity(
    capacity: Capacity, runs: Sequence[RecordedRun], notes: Mapping[str, str], place: Place = str
) -> Document:
    """Return the report on a search that has ended. `runs` are those of the steps that can be read."""
    terms = capacity.terms
    steps = sorted(capacity.steps, key=lambda step: step.users)
    return Document(
        title=f"Capacity: {terms.name}",
        subtitle=f"{len(steps)} runs, each with a day of {length(terms.day_s)}; searched by {terms.software}",
        verdict=words.sentence(capacity),
        tone=words.tone(capacity),
        sections=(
            Section("Summary", tuple(_summary(capacity))),
            Section("Users and response times", tuple(_curves(capacity, steps))),
            *averages_by_number(capacity, steps),
            Section("Steps", (_steps("The steps, by their users", steps, place), *_reasons(steps))),
            Section("What differs between the runs", tuple(_what_differs(runs, len(steps)))),
            Section("How to read this", tuple(_how_to_read(capacity))),
            Section("Disclosure", (same_table(facts_of(runs, notes)),)),
        ),
    )


def _summary(capacity: Capacity) -> Iterable[Block]:
    """Yield what a reader needs who reads nothing else."""
    if doubted := doubts(capacity):
        yield Listing("Doubts", tuple(doubted))
    yield Table("The answer", (Column("Fact"), Column("Value")), tuple(words.facts(capacity)))
    yield words.limits(capacity)
    if step := capacity.nearest_to_full:
        yield replace(
            resource_table(step.resources, with_figures=False),
            caption=f"Resources with {step.users:,} users ({step.run}), the nearest to saturation first",
        )
        yield NO_PROOF
    yield f"What to do next: {what_next(capacity)}"


def _curves(capacity: Capacity, steps: Sequence[MeasuredStep]) -> Iterable[Block]:
    """Yield the charts over users, all on one axis."""
    yield from scores_of(capacity, steps)
    yield from criteria_of(capacity, steps)
    yield from throughput_of(capacity, steps)
    yield from utilisation_of(capacity, steps)


def _steps(caption: str, steps: Sequence[MeasuredStep], place: Place) -> Table:
    return table_of(
        caption,
        steps,
        ("Run", None, lambda step: Link(step.run, f"{quote(place(step.run))}/")),
        ("Users", 0, lambda step: step.users),
        ("Result", None, lambda step: RATED.get(step.result, words.RESULTS[step.result])),
        ("Score", "time", lambda step: words.time_of(step, step.score_ms)),
        ("95 % interval of the score", None, _interval),
        ("Response score", "time", lambda step: words.time_of(step, step.response_score_ms)),
        ("Tasks/s", 1, lambda step: step.tasks_per_s),
        ("8-hour equivalent, in users", 0, lambda step: step.load_equivalent_users),
    )


def _interval(step: MeasuredStep) -> str | None:
    if step.score_interval_ms is None or step.validity == "invalid":
        return None
    return " to ".join(map(duration, step.score_interval_ms))


def _reasons(steps: Sequence[MeasuredStep]) -> Iterable[Block]:
    """Yield the reasons of the steps that did not pass."""
    reasons = [
        f"{step.users:,} users ({step.run}): {'; '.join(words.reasons_in_words(step))}"
        for step in steps
        if step.reasons
    ]
    if reasons:
        yield Listing("Why steps did not pass", tuple(reasons))


def _what_differs(runs: Sequence[RecordedRun], steps: int) -> Iterable[Block]:
    facts = facts_of(runs, {})
    different = differing({name: values for name, values in facts.items() if not BY_NUMBER.fullmatch(name)})
    names = ["/".join(run.place.split("/")[-2:]) for run in runs]
    if runs:
        yield differing_table(different, names) if different else f"{SAME} They differ in the number of users."
    if len(runs) < steps:
        yield f"The logs of {steps - len(runs)} of {steps} runs cannot be read."


def _how_to_read(capacity: Capacity) -> Iterable[Block]:
    yield (
        "The capacity is the largest number of users with which runs pass: they are valid and meet all criteria. The"
        f" interval is stated if {EVIDENCE} equal results at each end support it, or nearly all of more. It then has a"
        " confidence of at least 90 %, for the plan of this seed, if the number of users from which criteria are missed"
        " varies by at most 10 % (standard deviation) from run to run. If it varies more, intervals may be short by"
        " chance: longer windows make runs more alike."
    )
    yield (
        f"Users are those of this scenario's day of {length(capacity.terms.day_s)}. The 8-hour equivalent is the"
        " number of users with a day of 8 h who make the same load. Quote one of the two, with its day."
    )
