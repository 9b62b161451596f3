"""The report on a capacity search, and its text: the answer in a sentence, its curve over users, and all runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from loadsim.analysis.capacity import Capacity
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.report import capacity_words as words
from loadsim.report.answer import facts_table
from loadsim.report.campaign_runs import Place, runs_blocks, scores_table
from loadsim.report.capacity_averages import averages_by_number
from loadsim.report.capacity_curves import curves_of
from loadsim.report.differences import facts_of, same_table, what_differs
from loadsim.report.document import Block, Document, Listing, Section
from loadsim.report.resources import NO_PROOF, resource_table
from loadsim.report.text import to_text
from loadsim.timinglog.header_words import length

BY_NUMBER = re.compile(r"Users|Profiles|(Scenario|Plan|Start state) digest|Scenario key topology\b.*\busers")
"""Matches facts that differ because the number of users does."""


def capacity_text(capacity: Capacity, width: int, colours: bool = False) -> str:
    """Return the answer of a search that has ended; see `to_text`."""
    runs = sorted(capacity.runs, key=lambda run: run.users)
    blocks = (*_summary(capacity), scores_table(runs))
    return to_text(f"Capacity: {words.verdict(capacity)}", words.tone(capacity), blocks, width, colours)


def describe_capacity(
    capacity: Capacity, runs: Sequence[RecordedRun], notes: Mapping[str, str], place: Place = str
) -> Document:
    """Return the report on a search that has ended. `runs` are those that can be read."""
    terms = capacity.terms
    of_search = sorted(capacity.runs, key=lambda run: run.users)
    verdict = words.verdict(capacity)
    return Document(
        title=f"Capacity: {terms.name}",
        subtitle=f"{len(of_search)} runs, each with a day of {length(terms.day_s)}; searched by {terms.software}",
        verdict=f"{verdict[:1].upper()}{verdict[1:]}",
        tone=words.tone(capacity),
        sections=(
            Section("Summary", tuple(_summary(capacity))),
            Section("Users and response times", tuple(curves_of(capacity, of_search))),
            *averages_by_number(of_search),
            Section("Runs", tuple(runs_blocks("The runs, by their users", of_search, place))),
            Section("What differs between the runs", tuple(_what_differs(runs, len(of_search)))),
            Section("Disclosure", (same_table(facts_of(runs, notes)),)),
        ),
    )


def _summary(capacity: Capacity) -> Iterable[Block]:
    """Yield what a reader needs who reads nothing else."""
    if doubted := words.doubts(capacity):
        yield Listing("Doubts", tuple(doubted))
    yield facts_table("The answer", words.facts(capacity))
    if limits := words.limits(capacity):
        yield limits
    if run := capacity.nearest_to_full:
        yield replace(
            resource_table(run.resources, with_figures=False),
            caption=f"Resources with {run.users:,} users ({run.run}), the nearest to saturation first",
        )
        yield NO_PROOF
    if step := words.what_next(capacity):
        yield f"What to do next: {step}"


def _what_differs(runs: Sequence[RecordedRun], all_runs: int) -> Iterable[Block]:
    facts = {name: values for name, values in facts_of(runs, {}).items() if not BY_NUMBER.fullmatch(name)}
    yield what_differs(facts, ["/".join(run.place.split("/")[-2:]) for run in runs])
    if len(runs) < all_runs:
        yield f"The logs of {all_runs - len(runs)} of {all_runs} runs cannot be read."
