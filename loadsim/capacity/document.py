"""The report on a capacity search: the result in one sentence, its curve over users, and all runs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.campaign.runs import FAILED, GENERATOR, PASSED, UNDECIDED, VOID, CampaignRun, Result
from loadsim.campaign.tables import MOST_REASONS, Place, of_runs, results_of, runs_table
from loadsim.capacity.capacity import Capacity
from loadsim.capacity.search import EVIDENCE, EVIDENCE_OF_MIXED
from loadsim.comparison.differences import facts_of, same_table, what_differs
from loadsim.findings.formats import length
from loadsim.findings.verdict import Tone
from loadsim.report.answer_tables import facts_table
from loadsim.report.document import (
    Axis,
    Block,
    Chart,
    Column,
    ColumnOf,
    Document,
    Limit,
    Line,
    Listing,
    Panel,
    Section,
    drawable,
    item_of,
    table_of,
)
from loadsim.report.resources import NO_PROOF, resource_facts, resource_table
from loadsim.statistics.repeats import medians_by
from loadsim.timinglog.planned_load import received_of_published

BY_NUMBER = re.compile(r"Users|Profiles|(Scenario|Plan|Start state) digest|Scenario key topology\b.*\busers")
"""Matches facts that differ because the number of users does."""

DRAWN: tuple[Result, ...] = (FAILED, PASSED, UNDECIDED, GENERATOR, VOID)
"""The results in the order of their colours, which all reports share: failures are orange, passes green."""

EXPLAINED = (
    "Each point is a run; its colour and shape show the result. Times of hollow points must not be quoted. The line"
    " joins the medians, for times only up to the first number with an invalid run. All criteria decide, not only the"
    " limits drawn here. A triangle at the upper edge stands for an infinite time."
)


def describe_capacity(capacity: Capacity, runs: Sequence[RecordedRun], place: Place = str) -> Document:
    """Return the report on a search that has ended. `runs` are those whose logs can be read."""
    terms = capacity.terms
    of_search = sorted(capacity.runs, key=lambda run: run.users)
    curves = tuple(_curves(capacity, of_search))
    return Document(
        title=f"Capacity: {terms.name}",
        subtitle=f"{len(of_search)} runs, each with a day of {length(terms.day_s)}; searched by {terms.software}",
        verdict="; ".join(finding.words for finding in capacity.answer),
        tone=tone(capacity),
        sections=(
            Section("", curves[:1]),
            Section("Summary", tuple(_summary(capacity)), brief=True),
            Section("Resources", tuple(_resources(capacity, of_search))),
            Section("Users and throughput", (*curves[1:], EXPLAINED) if curves else ("No run has a figure to draw.",)),
            Section("Runs", (runs_table("The runs, by number of users", of_search, place),), brief=True),
            *results_of(of_search),
            Section("What differs between the runs", tuple(_what_differs(runs, len(of_search)))),
            Section("Disclosure", (same_table(facts_of(runs)),)),
        ),
        label="Capacity",
    )


def _summary(capacity: Capacity) -> Iterable[Block]:
    """Yield the essentials, for readers who read nothing else."""
    if doubted := (*map(item_of, capacity.doubts), *of_runs(capacity.judged)):
        yield Listing("Doubts", doubted)
    yield facts_table("The answer", facts(capacity))
    if step := capacity.next_step:
        yield f"Next: {step}."


def _resources(capacity: Capacity, runs: Sequence[CampaignRun]) -> Iterable[Block]:
    """Yield the resources of the run that came closest to saturation, and the server's resources in each run."""
    if run := capacity.nearest_to_full:
        yield replace(
            resource_table(run.resources, with_figures=False),
            caption=f"Resources with {run.users:,} users ({run.run}), the nearest to saturation first",
        )
        yield NO_PROOF
    if columns := list(_shares(runs)):
        run_name: ColumnOf[CampaignRun] = ("Run", None, lambda run: run.run)
        yield table_of("The server's resources in each run, by number of users", runs, run_name, *columns)


def _shares(runs: Sequence[CampaignRun]) -> Iterator[ColumnOf[CampaignRun]]:
    """Yield a column for each resource, with the probe's name if there are several."""
    measured = dict.fromkeys((resource.probe, resource.name) for run in runs for resource in run.resources)
    several = len({probe for probe, _ in measured}) > 1
    for probe, name in measured:
        yield f"{name} (% of full){f', {probe}' if several else ''}", 1, partial(_percent, (probe, name))


def _percent(resource: tuple[str, str], run: CampaignRun) -> float | None:
    shares = [own.mean for own in run.resources if (own.probe, own.name) == resource and own.mean is not None]
    return 100 * shares[0] if shares else None


def _what_differs(runs: Sequence[RecordedRun], all_runs: int) -> Iterable[Block]:
    if runs:
        known = {name: values for name, values in facts_of(runs).items() if not BY_NUMBER.fullmatch(name)}
        yield what_differs(known, ["/".join(run.place.split("/")[-2:]) for run in runs])
    if len(runs) < all_runs:
        yield f"The logs of {all_runs - len(runs)} of {all_runs} runs cannot be read."


def tone(capacity: Capacity) -> Tone:
    """Return the rating: a quotable result is good, a missing capacity bad."""
    if capacity.users is None:
        return "bad"
    doubtful = capacity.exit_status or capacity.terms.embedded or capacity.contended
    return "doubtful" if doubtful else "good"


def facts(capacity: Capacity) -> list[tuple[str, str]]:
    """Return labels and texts: the users, the interval, and the criteria that the next larger number missed."""
    found = capacity.found
    assert found is not None
    lines = []
    if found.low is not None:
        lines.append(("Users", _users(capacity)))
    if found.low is not None or found.high is not None or capacity.certain:
        lines.append(("Interval", interval(capacity)))
    if found.low is not None:
        if untested := capacity.not_measured:
            lines.append(("Not measured", f"{', '.join(_range(*ends) for ends in untested)} users"))
        lines.append(("Throughput", f"{capacity.tasks_per_s or 0:,.1f} tasks/s"))
        if capacity.load_equivalent_users != found.low:
            lines.append(("8-hour equivalent", _equivalent(capacity)))
    if found.high is not None:
        lines.append((f"Missed with {found.high:,} users", missed(capacity)))
    if run := capacity.nearest_to_full:
        for name, resources in resource_facts(run.resources):
            lines.append((f"{name}, with {run.users:,} users", f"{resources}; by {run.run}"))
    return lines


def _range(first: int, last: int) -> str:
    return f"{first:,} to {last:,}" if first < last else f"{first:,}"


def _users(capacity: Capacity) -> str:
    terms = capacity.terms
    pace = f", {terms.compression:g} times as fast as their profile's" if terms.compression != 1 else ""
    return f"each with a day of {length(terms.day_s)}{pace}, by the plan of run.seed {terms.seed}"


def _equivalent(capacity: Capacity) -> str:
    """Describe the load-equivalent, with the share of the published mail if users receive much less."""
    shares = [run.received_share for run in capacity.at_capacity if run.received_share is not None]
    received = received_of_published(min(shares, default=None))
    users = f"{capacity.load_equivalent_users or 0:,} users with a day of 8 h"
    return f"{users}, who receive {received}" if received else users


def interval(capacity: Capacity) -> str:
    """Describe the interval with the results at its ends, or say why it is not stated."""
    found = capacity.found
    assert found is not None
    ends = [
        f"{users:,} users {_times(capacity, users, result)}"
        for users, result in ((found.low, PASSED), (found.high, FAILED))
        if users is not None
    ]
    seen = ", ".join(ends)
    if found.stopped_by in ("broken", "order"):
        return f"not stated: {seen}; {capacity.answer[1].words}"
    if not capacity.certain:
        mixed = f"{EVIDENCE_OF_MIXED} of {EVIDENCE_OF_MIXED + 1}"
        stated = "not stated" if capacity.interval is None else "stated at one end only"
        needed = f"an end needs {EVIDENCE} equal results and no others, or {mixed} equal ones"
        return f"{stated}: {seen}; {needed}"
    if found.high is None:
        return f"{seen}; the upper end is unknown"
    if found.low is None:
        return f"{seen}; no number passed"
    low, high = (users or 0 for users in capacity.interval or ())
    half = (high - low) / (high + low)
    return f"{low:,} to {high:,} users with 90 % confidence, as runs vary (+-{half:.1%}): {seen}"


def _times(capacity: Capacity, users: int, result: Result) -> str:
    """Say how often a number had a result, such as "passed 8 of 9 times"."""
    judged = [run.result for run in capacity.runs if run.users == users and run.result != VOID]
    equal = judged.count(result)
    often = f"{equal} times" if equal == len(judged) else f"{equal} of {len(judged)} times"
    return f"{result} {often}"


def missed(capacity: Capacity) -> str:
    """Describe the criteria that the last failure at the smallest failed number missed, and name the run."""
    found = capacity.found
    failed = [run for run in capacity.runs if found and run.users == found.high and run.result == FAILED]
    if not failed:
        return ""
    reasons = failed[-1].reasons
    more = [f"{len(reasons) - MOST_REASONS} more"] if len(reasons) > MOST_REASONS else []
    which = f", the last of {len(failed)} that failed" if len(failed) > 1 else ""
    return f"{'; '.join([*reasons[:MOST_REASONS], *more])}; by {failed[-1].run}{which}"


def _curves(capacity: Capacity, runs: Sequence[CampaignRun]) -> Iterable[Chart]:
    """Yield the charts over users, all with one axis; `runs` are sorted by users."""
    terms = capacity.terms
    times = (
        _panel(
            runs,
            lambda run: run.score_ms,
            "Score: weighted 95th percentile",
            limits=_limit("score", terms.score_limit_ms),
            intervals=True,
        ),
        _panel(
            runs,
            lambda run: run.response_score_ms,
            "Response score: the same, measured from due times",
            limits=_limit("response score", terms.response_score_limit_ms),
        ),
    )
    rate = _panel(runs, lambda run: run.tasks_per_s, "", "tasks per second")
    yield from _chart(capacity, runs, "Response time by number of users", *times)
    yield from _chart(capacity, runs, "Throughput by number of users, in successful tasks per second", rate)


def _chart(capacity: Capacity, runs: Sequence[CampaignRun], caption: str, *panels: Panel) -> Iterable[Chart]:
    low, high = (capacity.certain and capacity.interval) or (None, None)
    shaded = (float(low), float(high)) if low is not None and high is not None else None
    users = tuple(run.users for run in runs)
    axis = Axis("users", "count", tuple(map(float, users)), Column("Users", 0), users)
    if drawn := drawable(Chart(caption, axis, panels, across=2, shaded=shaded, shaded_name="interval")):
        yield drawn


def _panel(
    runs: Sequence[CampaignRun],
    figure: Callable[[CampaignRun], float | None],
    title: str,
    unit: str = "ms",
    limits: tuple[Limit, ...] = (),
    *,
    intervals: bool = False,
) -> Panel:
    """Return a marker for each run, in the colour and shape of its result, and the line of medians.

    A marker is hollow if its run is invalid. Such a run made less load than planned, so its time is not even a lower
    bound, and medians of times end there. `intervals` adds the score's intervals.
    """
    is_time = unit == "ms"
    judged = [run.result not in (GENERATOR, VOID) for run in runs]
    invalid = [run.users for run, judges in zip(runs, judged, strict=True) if judges and run.validity == "invalid"]
    end = min(invalid, default=math.inf) if is_time else math.inf
    known = [figure(run) if judges and run.users < end else None for run, judges in zip(runs, judged, strict=True)]
    lines = [Line("median", medians_by([float(run.users) for run in runs], known))]
    for look, result in enumerate(DRAWN, start=1):
        for hollow in (False, True):
            own = [run if run.result == result and (run.validity == "invalid") == hollow else None for run in runs]
            lines.append(
                Line(
                    result + (", run invalid" if hollow else ""),
                    tuple(figure(run) if run else None for run in own),
                    joined=False,
                    intervals=tuple(run.score_interval_ms if run and intervals and not hollow else None for run in own),
                    look=look,
                    hollow=hollow,
                )
            )
    return Panel(title, unit, tuple(lines), "log" if is_time else "linear", limits=limits)


def _limit(name: str, limit_ms: float | None) -> tuple[Limit, ...]:
    """Return a limit, labelled with all digits that a scenario may state."""
    return () if limit_ms is None else (Limit(f"limit of the {name}: {limit_ms:,.10g} ms", limit_ms),)
