"""The runs of a campaign as lines and as a table, for searches and suites, terminals and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import quote

from loadsim.campaign.runs import FAILED, PASSED, CampaignRun, Result
from loadsim.errors import printable
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding, shared
from loadsim.findings.formats import length
from loadsim.report.answer_tables import interval_words
from loadsim.report.document import FAILED as FAILED_CELL
from loadsim.report.document import PASSED as PASSED_CELL
from loadsim.report.document import Cell, Column, Item, Link, Listing, Section, Table, table_of
from loadsim.report.text import LEAST_WIDTH, wrapped

RATED: Mapping[Result, Cell] = {PASSED: PASSED_CELL, FAILED: FAILED_CELL}
"""The results that are shown with a sign."""

MOST_REASONS = 3
"""The most reasons to show for a run; its run directory has all of them."""

NOTED_BY_OTHERS = 0.1
"""If others take a larger share of the server's cores, their work makes a result doubtful."""

Place = Callable[[str], str]
"""Returns the path of a campaign's run directory, relative to the report."""


def run_text(run: CampaignRun, width: int) -> str:
    """Return a line about a run that has ended; further lines give the reasons why it did not pass."""
    interval = run.score_interval_ms
    known = f" ({interval[0]:,.1f} to {interval[1]:,.1f} ms)" if run.measured and interval else ""
    facts = [
        run.result,
        *([f"score {Column('', 'time').shown(time_of(run, run.score_ms))}{known}"] if run.validity else []),
        *([] if run.took_s is None else [length_words(run.took_s)]),
        run.run,
    ]
    shown = [*map(printable, run.reasons[:MOST_REASONS])]
    shown += [f"{len(run.reasons) - MOST_REASONS} more"] if run.reasons[MOST_REASONS:] else []
    shown += [f"after it, {printable(failure)}" for failure in run.failed_after]
    lines = [f"{run_name(run)}: {', '.join(facts)}", *(f"  - {reason}" for reason in shown)]
    return "\n".join(wrapped(lines, max(width, LEAST_WIDTH)))


def run_name(run: CampaignRun) -> str:
    retry = f", retry {run.attempt - 1}" if run.attempt > 1 else ""
    return f"{run.cell}, repeat {run.repeat}{retry}"


def length_words(time_s: float) -> str:
    """Format a length of time, rounded to seconds, or to minutes from one hour."""
    rounded = round(time_s)
    if rounded >= 3600:
        hours, minutes = divmod(round(rounded / 60), 60)
        return f"{hours} h {minutes} min"
    minutes, seconds = divmod(rounded, 60)
    return f"{minutes} min {seconds} s" if minutes else length(seconds)


def time_of(run: CampaignRun, time_ms: float | None) -> float | str | None:
    """Return a run's time for a table; times of invalid runs must not be quoted."""
    return "not shown" if time_ms is not None and run.validity == "invalid" else time_ms


def runs_table(caption: str, runs: Sequence[CampaignRun], place: Place) -> Table:
    """Return the table of runs; a terminal shows only its first columns."""
    return table_of(
        caption,
        runs,
        ("Cell", None, lambda run: run.cell),
        ("Result", None, lambda run: RATED.get(run.result, run.result)),
        ("Tasks/s", 1, lambda run: run.tasks_per_s),
        ("Score", "time", lambda run: time_of(run, run.score_ms)),
        ("Response score", "time", lambda run: time_of(run, run.response_score_ms)),
        ("Run", None, lambda run: Link(run.run, f"{quote(place(run.run))}/")),
        ("Begun", None, lambda run: None if run.began is None else run.began[:19].replace("T", " ")),
        ("Took", None, lambda run: None if run.took_s is None else length_words(run.took_s)),
        (
            "95 % interval of the score",
            None,
            lambda run: interval_words(run.score_interval_ms) if run.measured else None,
        ),
        ("8-hour equivalent, in users", 0, lambda run: run.load_equivalent_users),
        ("Delivered per minute", 1, lambda run: run.delivered_per_min),
    )


def results_of(runs: Sequence[CampaignRun]) -> Iterator[Section]:
    """Yield the reasons why runs did not pass, and the commands that failed after runs."""
    reasons = tuple(f"{run_name(run)} ({run.run}): {'; '.join(run.reasons)}" for run in runs if run.reasons)
    failures = tuple(f"{run_name(run)}: {failure}" for run in runs for failure in run.failed_after)
    captions = {"Why runs did not pass": reasons, "Commands that failed after a run": failures}
    if listings := tuple(Listing(caption, items) for caption, items in captions.items() if items):
        yield Section("Results", listings)


def of_runs(runs: Sequence[CampaignRun]) -> Iterator[Item]:
    """Yield an item for each kind of warning, and for others' work on the server's cores."""
    for warning in shared([(*_cores_taken(run), *run.warnings) for run in runs]):
        yield Item(f"In {len(warning.runs)} of {len(runs)} runs: {warning.words}", warning.code)


def _cores_taken(run: CampaignRun) -> Sequence[Finding]:
    share = run.taken_share
    return [finding(Code.CORES_TAKEN, taken_share=share)] if share and share > NOTED_BY_OTHERS else []
