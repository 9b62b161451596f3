"""`loadsim check`: try out a server for a scenario, and leave nothing on it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadsim.cli.junit import junit_file
from loadsim.cli.live.progress import shown_share
from loadsim.cli.options import add_scenario, given_scenario, whole
from loadsim.cli.shown_answer import shown
from loadsim.documents.json_values import to_json
from loadsim.dryrun.forecast import forecast, refusal
from loadsim.dryrun.plan_cache import quick_load
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding
from loadsim.findings.next_step import next_step
from loadsim.findings.verdict import Tone
from loadsim.provisioning.server_check import WAIT_S
from loadsim.provisioning.server_report import Observation, ServerReport, TriedTask
from loadsim.report.document import Document, Listing, Section
from loadsim.runs.check import check_scenario
from loadsim.scenario.scenario import Scenario

LACKS = 1
"""The exit status if the scenario cannot run on the server, or if the server contradicts itself or alters mail."""

ENDED = "This check ended early, and judges no mail."
CAN_RUN, CANNOT_RUN = "This scenario can run on this server", "This scenario cannot run on this server"

LONGEST_GREETING = 120
"""Longer greetings are cut: some servers list their libraries."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario(parser)
    parser.add_argument(
        "--wait",
        type=whole(1, 3600),
        default=int(WAIT_S),
        metavar="SECONDS",
        help="longest wait for a response or a message (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write JUnit XML")
    parser.set_defaults(run=run_check)


def run_check(args: argparse.Namespace) -> int:
    """Check the server, and print the findings. Return `LACKS` if something is missing or broken."""
    scenario = given_scenario(args)
    with junit_file(args.junit, "check") as write_junit:
        return _check(args, scenario, write_junit)


def _check(args: argparse.Namespace, scenario: Scenario, write_junit: Callable[[str], None]) -> int:

    def progress(step: str) -> None:
        if sys.stderr.isatty():
            print(f"loadsim: check: {step}", file=sys.stderr, flush=True)

    def show(
        name: str, report: ServerReport, greetings: Mapping[str, Any] = {}, findings: Sequence[Finding] = ()
    ) -> None:
        why = refusal(findings)
        verdict = _verdict(report, why)
        if args.json:
            own = (*report.lacks, *report.wrong, *findings)
            ends = {"can_run": report.can_run, "verdict": verdict, "findings": to_json(own)}
            facts = {"server": name, **greetings, **to_json(report), **ends, "next_step": next_step(own)}
            print(json.dumps(facts, indent=2))
        else:
            tone: Tone = "bad" if not report.can_run or report.wrong else "doubtful" if why else "good"
            blocks = tuple(described(name, greetings, report, findings))
            print(shown(Document(name, "", verdict, tone, (Section("Findings", blocks, brief=True),), label="")))

    name, greetings, report = check_scenario(scenario, progress, float(args.wait), show)
    with shown_share("Planning a run to forecast problems") as planning:
        load = quick_load(scenario, planning)
    no_lists = (finding for finding in scenario.findings if finding.code is Code.NO_LISTS)
    findings = (*forecast(scenario, load), *no_lists)
    show(name, report, greetings, findings)
    if args.junit:
        write_junit(_junit(report))
    return 0 if report.can_run and not report.wrong else LACKS


def _junit(report: ServerReport) -> str:
    """Return one test case per task and per other observation."""
    from loadsim.report.junit import Case, junit  # only with the option

    seen = [
        *((task.task, task.failure) for task in report.tasks),
        *((observed.subject, observed) for observed in report.observed),
    ]
    return junit(
        "loadsim check",
        [
            Case("loadsim.check", name, "failure", observed.finding.text, observed.seen)
            if observed is not None and observed.finding is not None and observed.is_fault
            else Case("loadsim.check", name, output="" if observed is None else observed.seen)
            for name, observed in seen
        ],
    )


def described(
    name: str, greetings: Mapping[str, Any], report: ServerReport, findings: Sequence[Finding]
) -> Iterator[Listing | str]:
    labels = {"imap_greeting": "IMAP banner", "smtp_greeting": "SMTP banner"}
    greeted = (f"{labels[fact]}: {_shortened(str(greetings[fact]))}" for fact in labels if greetings.get(fact))
    server = [f"name: {name}", f"accounts: {', '.join(report.accounts)}", *greeted, *_rows(report.server)]
    tasks: dict[str, list[str]] = {}
    for task in report.tasks:
        tasks.setdefault(f"Tasks, driver {task.driver}", []).append(_task(task))
    for caption, lines in {
        "To change": [_with_remedy(finding) for finding in (*report.lacks, *report.wrong)],
        "Server": server,
        **tasks,
        "Mail": _rows(report.mail),
        "Monitors": _rows(report.monitors),
        "May remain (loadsim clean removes messages with its tag)": report.leftovers,
        "Notes": [finding.text for finding in findings if finding.cause is None and report.can_run],
    }.items():
        if lines:
            yield Listing(caption, tuple(lines))
    yield f"Checked in {report.seconds:.1f} s."


def _verdict(report: ServerReport, why: str) -> str:
    """Return the verdict as a sentence; `why` says why the run cannot become valid ("" if it can)."""
    if report.ended:
        return ENDED
    if not report.can_run:
        return f"{CANNOT_RUN}."
    why = "the server contradicts itself, or alters mail" if report.wrong else why
    return f"{CAN_RUN}; but {why}." if why else f"{CAN_RUN}."


def _with_remedy(finding: Finding) -> str:
    return f"{finding.text}: {finding.code.remedy}".removesuffix(": ")


def _rows(observations: Iterable[Observation]) -> list[str]:
    rows = []
    for observation in observations:
        text = observation.seen
        if observation.is_fault:
            text = f"FAILED: {text}"
        elif observation.finding:
            text = f"{text}; {observation.finding.text}"
        rows.append(f"{observation.subject}: {text}")
    return rows


def _task(task: TriedTask) -> str:
    if task.failure is not None:
        failed = "FAILED: " if task.failure.is_fault else ""
        return f"{task.task}: {failed}{task.failure.subject.partition(', ')[2]}: {task.failure.seen}"
    return f"{task.task}: {task.seconds:.3f} s, {', '.join(task.commands) or 'nothing to send'}"


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_GREETING else f"{text[: LONGEST_GREETING - 3]}..."
