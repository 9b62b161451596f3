"""The first screen of a report on one run: what was tested, the verdict in sentences, and each criterion in words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from loadsim.analysis.generator_limits import PIN_APART
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.analysis.stationarity import LONGER_WARM_UP
from loadsim.analysis.summary import Summary
from loadsim.analysis.verdict import ENDED_EARLY
from loadsim.report.answer import NOT_JUDGED, missed_and_unjudged
from loadsim.report.answer_facts import night_words
from loadsim.report.criterion_words import CriterionInWords, criteria_in_words, missed_in_words
from loadsim.report.digits import count, percent
from loadsim.report.document import MET, MISSED, UNJUDGED, Block, Listing, Table, table_of
from loadsim.report.glossary import SCORE_IS
from loadsim.report.resources import NOT_MONITORED, NOT_SAMPLED, resource_lines
from loadsim.timinglog.header_words import length
from loadsim.timinglog.planned_load import received_of_published

EMBEDDED = "The embedded server shares the machine with the generator: this is no measurement of a server."

YOUR_OWN = "run it on a mail server of your own (loadsim new)."
"""The next step after runs on the embedded server."""

NEARLY_A_DAY = 0.995
"""A run of this many days is called a day."""

_SHIPPED = re.compile(r"loadsim-(\d\.\d)/(\w+)")


def first_screen(run: RecordedRun) -> tuple[Block, ...]:
    """Return what a reader needs who reads nothing else."""
    summary, verdict = run.summary, run.summary.verdict
    judged, unjudged = missed_and_unjudged(summary)
    missed = tuple(missed_in_words(judged, with_names=False))
    blocks: list[Block] = [what_was_tested(run), _load(run)]
    if verdict.defects:
        wrong = "not valid" if verdict.validity == "invalid" else verdict.validity
        blocks.append(Listing(f"Why the run is {wrong}", verdict.defects))
    if missed:
        blocks.append(Listing("Criteria missed", missed))
    if unjudged:
        blocks.append(Listing(NOT_JUDGED, tuple(missed_in_words(unjudged, with_names=False))))
    if verdict.warnings:
        blocks.append(Listing("Warnings", verdict.warnings))
    invalid = verdict.validity == "invalid"
    details: list[Block] = []
    if summary.criteria:
        details.append(_criteria(criteria_in_words(summary.criteria, verdict.ended_early, valid=not invalid)))
    if limits := _limits(run):
        details.append(limits)
    several = len(verdict.advice) > 1
    step: Block = Listing("What to do next", verdict.advice) if several else f"What to do next: {next_step(summary)}"
    # The criteria of an invalid run are not judged: a reader looks for the way to a valid one.
    return (*blocks, step, *details) if invalid else (*blocks, *details, step)


def what_was_tested(run: RecordedRun) -> str:
    """Return users, server and day in a sentence, and what a score is."""
    figures = run.figures
    server = f" on {figures.server}" if figures.server else ""
    users = f"{count(figures.users, 'simulated user')}{_profiles(run)}"
    if figures.throughput is not None:
        return f"{users} worked{server} without pauses, in a closed loop."
    pace = figures.compression
    day = length(figures.profile_day_s) if pace != 1 else length(figures.day_s)
    faster = ""
    if pace != 1:
        changed = "compressed" if pace > 1 else "stretched"
        faster = f", {changed} to {length(figures.day_s)} ({pace:g} times as fast)"
    if figures.load_equivalent_users not in (None, figures.users):
        faster += f", the task rate of {figures.load_equivalent_users:,} users with a day of 8 h"
    begin_s, end_s = figures.window_s
    received = received_of_published(figures.received_share)
    less_mail = f", with {received}" if received else ""
    did = "were to do" if run.summary.verdict.ended_early else "did"
    return (
        f"{users} {did} {_days(run)}{server}{less_mail}: a day of {day}{faster}{night_words(figures)}. The figures are"
        f" of the window, which is {length(end_s - begin_s)} of it. The score is {SCORE_IS}."
    )


def _days(run: RecordedRun) -> str:
    """Return how much of a day, or how many days with their nights, the run planned."""
    figures, lasted_s = run.figures, float(run.log.header.get("duration_s") or 0.0)
    days = lasted_s / (figures.day_s + figures.night_s) if lasted_s else 1.0
    if days < 1:
        days = min(1.0, lasted_s / figures.day_s)
    if days < NEARLY_A_DAY:
        return f"the mail of {100 * days:.2g} % of a day"
    return "a day's mail" if days < 2 - NEARLY_A_DAY else f"{days:.3g} days' mail"


def _profiles(run: RecordedRun) -> str:
    """Return the users' profiles in brackets, with their numbers; "" if the log does not state them."""
    groups = run.log.header.get("groups")
    numbers: dict[str, int] = {}
    for group in groups if isinstance(groups, list) else ():
        name = _profile_name(str(group["profile"]))
        numbers[name] = numbers.get(name, 0) + int(group["users"])
    return f" ({', '.join(f'{users:,} {name}' for name, users in numbers.items())})" if numbers else ""


def _profile_name(profile: str) -> str:
    shipped = _SHIPPED.fullmatch(profile)
    return f"{shipped[2].capitalize()} of LoadSim {shipped[1]}" if shipped else profile


def _load(run: RecordedRun) -> str:
    """Return the load that was made, of the load that the plan expects, in a sentence."""
    figures = run.figures
    failed = f"{count(figures.totals.failed, 'task')} failed"
    rate = f"{figures.achieved_per_s:,.1f}"
    if figures.offered_per_s is None:
        return f"{rate} tasks per second succeeded; {failed}."
    rates = f"{rate} of {figures.offered_per_s:,.1f} due tasks per second succeeded; {failed}."
    load = figures.load
    if load is None or load.share is None:
        return rates
    return f"Users began {load.made:,} of {load.planned:,} tasks that the plan expects ({percent(load.share)}). {rates}"


def _criteria(found: Sequence[CriterionInWords]) -> Table:
    return table_of(
        "Criteria",
        found,
        ("Criterion", None, lambda one: f"{one.words[:1].upper()}{one.words[1:]}"),
        ("Found", None, lambda one: one.found),
        ("Wanted", None, lambda one: one.wanted),
        ("Result", None, lambda one: MET if one.passed else MISSED if one.judged else UNJUDGED),
    )


def _limits(run: RecordedRun) -> str:
    """Return what came nearest to saturation on the server's machine, or on machines that may be it.

    "" if no probe measured the embedded server, of which nothing is learnt.
    """
    candidates = [one for one in run.figures.resources or () if one.server_here is not False]
    lines = resource_lines(candidates)
    if lines or run.figures.embedded:
        return f"{'. '.join(lines)}." if lines else ""
    machines = run.figures.machines
    return NOT_SAMPLED if machines and all(machine.server_here for machine in machines) else NOT_MONITORED


def next_step(summary: Summary) -> str:
    """Return the advice of the report, and of the terminal after a run that met its criteria."""
    verdict = summary.verdict
    if verdict.advice:
        return f"{' '.join(verdict.advice)}."
    if ENDED_EARLY in verdict.defects:
        return "run again, up to the end."
    if verdict.validity == "invalid":
        return "mend what the list names, and run again."
    if verdict.passed is None:
        return "merge this log with those of the other slices."
    if not verdict.passed:
        return "look for the tasks, commands or mail that the criteria name in the sections below."
    if summary.figures.embedded:
        return YOUR_OWN
    changes = ", ".join(_changes(summary))
    more = f"take {changes}, and " if changes else ""
    return f"{more}make three such runs or more before you quote a score."


def _changes(summary: Summary) -> list[str]:
    """Return what to change before a run is repeated, so that its repeats lack its warnings; more hits come first."""
    figures, warnings, changes = summary.figures, summary.verdict.warnings, []
    if any(module.provisional for module in figures.by_protocol.values()):
        # Days with nights are of a fixed number.
        changes.append(f"{'' if figures.night_s else 'more days (run.days) or '}more users")
    if any(warning.endswith(LONGER_WARM_UP) for warning in warnings):
        changes.append("a longer warm-up (run.warm_up)")
    if any(PIN_APART in warning for warning in warnings):
        changes.append("--pin (as root)")
    return changes
