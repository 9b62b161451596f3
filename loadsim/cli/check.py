"""`loadsim check`: try out a server for a scenario, and leave nothing there."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from loadsim.analysis.json_values import to_json
from loadsim.analysis.summary import Tone
from loadsim.cli.live.progress import shown_share
from loadsim.cli.options import add_scenario, given_scenario, whole
from loadsim.cli.shown_answer import width_and_colours
from loadsim.dryrun.forecast import forecast, little_mail, refusal
from loadsim.findings.finding import Finding as Forecast
from loadsim.provisioning.findings import Finding, ServerReport, Severity, TaskFinding
from loadsim.provisioning.server_check import WAIT_S
from loadsim.report.document import Listing
from loadsim.report.text import to_text
from loadsim.runs.check import check_scenario
from loadsim.runs.quick_load import quick_load

LACKS = 1
"""The exit status if the scenario cannot run on the server."""

READY = "The server is ready for this scenario"

LONGEST_GREETING = 120
"""Longer ones are cut: some servers list their libraries."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario(parser)
    parser.add_argument(
        "--wait",
        type=whole(1, 3600),
        default=int(WAIT_S),
        metavar="SECONDS",
        help="longest wait for an answer or a message (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.set_defaults(run=run_check)


def run_check(args: argparse.Namespace) -> int:
    """Check the server, and print what was found. Return `LACKS` if the scenario cannot run."""
    scenario = given_scenario(args)

    def progress(step: str) -> None:
        if sys.stderr.isatty():
            print(f"loadsim: check: {step}", file=sys.stderr, flush=True)

    name, greetings, report = check_scenario(scenario, progress, float(args.wait))
    with shown_share("Planning a run, to warn beforehand") as planning:
        load = quick_load(scenario, planning)
    found = (*forecast(scenario, load), *little_mail(scenario, load))
    why = refusal(found)
    verdict = f"{READY}; but {why}." if report.can_run and why else report.verdict
    if args.json:
        ends = {"can_run": report.can_run, "verdict": verdict, "findings": to_json(found)}
        print(json.dumps({"server": name, **greetings, **asdict(report), **ends}, indent=2))
    else:
        tone: Tone = "bad" if not report.can_run else "doubtful" if why else "good"
        print(to_text(verdict, tone, described(name, greetings, report, found), *width_and_colours()), end="")
    return 0 if report.can_run else LACKS


def described(
    name: str, greetings: Mapping[str, Any], report: ServerReport, found: Sequence[Forecast]
) -> Iterator[Listing | str]:
    """Yield what to change, what was found, and notes."""
    advice = dict.fromkeys(each.advice for each in report.lacks)
    labels = {"imap_greeting": "IMAP banner", "imap_identity": "IMAP ID", "smtp_greeting": "SMTP banner"}
    greeted = (f"{labels[fact]}: {_shortened(str(greetings[fact]))}" for fact in labels if greetings.get(fact))
    server = [f"name: {name}", f"accounts: {', '.join(report.accounts)}", *greeted, *_findings(report.server)]
    tasks: dict[str, list[str]] = {}
    for task in report.tasks:
        tasks.setdefault(f"Tasks, driver {task.driver}", []).append(_task(task))
    for caption, lines in {
        "Also to change": [*advice][1:],  # the verdict has the first
        "Server": server,
        **tasks,
        "Mail": _findings(report.mail),
        "Monitors": _findings(report.monitors),
        "May remain (loadsim clean removes it)": report.leftovers,
        "Notes": [one.text for one in found if one.cause is None and report.can_run],
    }.items():
        if lines:
            yield Listing(caption, tuple(lines))
    yield f"Checked in {report.seconds:.1f} s."


def _findings(findings: Iterable[Finding]) -> list[str]:
    return [f"{each.subject}: {_marked(each)}" for each in findings]


def _marked(finding: Finding) -> str:
    if finding.severity is Severity.LACKS:
        return f"LACKS: {finding.found}"
    return f"{finding.found}; {finding.advice}" if finding.advice else finding.found


def _task(task: TaskFinding) -> str:
    if task.failure is not None:
        return f"{task.task}: LACKS: {task.failure.subject.partition(', ')[2]}: {task.failure.found}"
    return f"{task.task}: {task.seconds:.3f} s, {', '.join(task.commands) or 'nothing to send'}"


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_GREETING else f"{text[: LONGEST_GREETING - 3]}..."
