"""`loadsim check`: try out a server for a scenario, and leave nothing there."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from loadsim.cli.options import add_scenario, given_scenario, whole
from loadsim.cli.progress import shown_share
from loadsim.dryrun.forecast import NOT_VALID
from loadsim.errors import printable
from loadsim.provisioning.findings import Finding, ServerReport, Severity, TaskFinding
from loadsim.provisioning.server_check import WAIT_S
from loadsim.runs.check import check_scenario
from loadsim.runs.quick_forecast import quick_forecast

LACKS = 1
"""The exit status if the scenario cannot run on the server."""

READY = "The server is ready for this scenario, but a run of it cannot become valid"

WIDTH = 80


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
        reasons, notes = quick_forecast(scenario, planning)
    not_valid = [reason.removeprefix(NOT_VALID) for reason in reasons]
    verdict = report.verdict
    if report.can_run and not_valid:
        verdict = f"{READY}: {'; '.join(not_valid)}."
    if args.json:
        ends = {"can_run": report.can_run, "verdict": verdict, "not_valid": not_valid, "notes": notes}
        print(json.dumps({"server": name, **greetings, **asdict(report), **ends}, indent=2))
    else:
        print("\n".join(map(printable, described(name, greetings, report, verdict, notes))))
    return 0 if report.can_run else LACKS


def described(
    name: str, greetings: Mapping[str, Any], report: ServerReport, verdict: str, notes: Sequence[str]
) -> Iterator[str]:
    """Yield the verdict, what to change, what was found, and notes, as lines of at most `WIDTH` columns."""
    yield from textwrap.wrap(verdict, WIDTH, break_on_hyphens=False)
    yield ""
    advice = dict.fromkeys(each.advice for each in report.lacks)
    if len(advice) > 1:
        yield "Also to change"
        for each in [*advice][1:]:  # the verdict has the first
            yield from textwrap.wrap(each, WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)
        yield ""
    yield from _row("server", name)
    yield from _row("accounts", ", ".join(report.accounts))
    for fact, label in (
        ("imap_greeting", "IMAP banner"),
        ("imap_identity", "IMAP ID"),
        ("smtp_greeting", "SMTP banner"),
    ):
        if greetings.get(fact):
            yield from _row(label, _shortened(str(greetings[fact])))
    yield from _findings(report.server)
    yield ""
    for driver in dict.fromkeys(task.driver for task in report.tasks):
        yield f"Tasks, driver {driver}"
        for task in report.tasks:
            if task.driver == driver:
                yield from _task(task)
        yield ""
    yield "Mail"
    yield from _findings(report.mail)
    yield ""
    if report.monitors:
        yield "Monitors"
        yield from _findings(report.monitors)
        yield ""
    if report.leftovers:
        yield "May remain (loadsim clean removes it)"
        for line in report.leftovers:
            yield from _row("", line)
        yield ""
    for note in notes if report.can_run else ():
        yield from textwrap.wrap(f"Note: {note}.", WIDTH)
    yield f"Checked in {report.seconds:.1f} s."


def _findings(findings: Iterable[Finding]) -> Iterator[str]:
    for each in findings:
        yield from _row(each.subject, _marked(each))


def _marked(finding: Finding) -> str:
    if finding.severity is Severity.LACKS:
        return f"LACKS: {finding.found}"
    return f"{finding.found}; {finding.advice}" if finding.advice else finding.found


def _task(task: TaskFinding) -> Iterator[str]:
    if task.failure is not None:
        yield from _row(task.task, f"LACKS: {task.failure.subject.partition(', ')[2]}: {task.failure.found}")
    else:
        yield from _row(task.task, f"{task.seconds:6.3f} s  {', '.join(task.commands) or 'nothing to send'}")


def _shortened(text: str) -> str:
    """Return a text that takes at most two rows: some servers list their libraries."""
    most = 2 * (WIDTH - 22)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _row(label: str, text: str) -> Iterator[str]:
    """Yield a row of a label and a text, which may take several lines."""
    wrapped = textwrap.wrap(text, WIDTH - 18, break_on_hyphens=False) or [""]
    for at, line in enumerate(wrapped):
        yield f"  {'' if at else label:15} {line}".rstrip()
