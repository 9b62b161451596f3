"""`loadsim run`: make a run, print its summary, write its report."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path

from loadsim.cli import BAD_INPUT
from loadsim.cli.cluster_runs import add_cluster_runs, cluster_runner
from loadsim.cli.junit import junit_file
from loadsim.cli.live.figures import LiveRun
from loadsim.cli.live.progress import shown_work
from loadsim.cli.live.run_view import RunView
from loadsim.cli.live.stderr_lines import print_line
from loadsim.cli.metrics.publish import add_metrics, published_metrics
from loadsim.cli.options import add_engines, add_scenario, given_scenario
from loadsim.cli.report_file import REPORT_NAME
from loadsim.cli.shown_answer import add_wide, shown
from loadsim.cli.web.publish import add_web, shown_page
from loadsim.report.answer import describe_answer
from loadsim.report.junit import verdict_junit
from loadsim.runs.directory import hand_over
from loadsim.runs.local import run_locally
from loadsim.runs.result import RunResult
from loadsim.servers.program_name import program_name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="run directory, new or empty; default: runs/DATE-NAME")
    add_engines(parser)
    add_wide(parser)
    parser.add_argument("--json", action="store_true", help="print score.json instead of the table")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write the verdict as JUnit XML")
    parser.add_argument(
        "--even-invalid", action="store_true", help="run even if the plan and the limits rule out a valid result"
    )
    parser.add_argument("--no-report", action="store_true", help=f"do not write {REPORT_NAME}")
    parser.add_argument("--quiet", action="store_true", help="print only the summary, warnings and errors")
    add_web(parser)
    add_metrics(parser)
    add_cluster_runs(parser)
    parser.set_defaults(run=run_scenario)


def run_scenario(args: argparse.Namespace) -> int:
    with junit_file(args.junit, "run") as write_junit:
        scenario = given_scenario(args)
        make = cluster_runner(args, scenario) or partial(run_locally, engines=args.engines, pin=args.pin)
        with published_metrics(args, scenario) as metrics, shown_page(args, scenario) as page:
            with closing(RunView(quiet=args.quiet)) as view:
                live = LiveRun(scenario, metrics, page, view)
                result = make(scenario, out=args.out, even_invalid=args.even_invalid, watcher=live)
            write_junit(verdict_junit(result.summary))
            live.done(result.summary, result.directory)
            try:
                has_report = _show(result, args)
            finally:
                hand_over(result.directory)
    return max(result.exit_status, 0 if has_report else BAD_INPUT)


def _show(result: RunResult, args: argparse.Namespace) -> bool:
    """Print the answer, and write the report unless `--no-report` is given. Return False if writing failed."""
    made, line = True, ""
    text = f"{shown(describe_answer(result.summary), wide=args.wide)}\n\nRun directory: {result.directory}"
    print_line(json.dumps(result.summary.score, indent=2) if args.json else text, sys.stdout)
    if not args.no_report:
        with nullcontext() if args.quiet else shown_work("Drawing the report"):
            made, line = report_on(result.directory)
        if not (made and args.quiet):
            print_line(line, sys.stdout if made and not args.json else sys.stderr)
    if not (args.quiet or args.json):
        print_line(f"All figures: {program_name()} log answer --wide {result.directory}", sys.stdout)
    return made


def report_on(out: Path) -> tuple[bool, str]:
    """Write a run's report. Return True and a line that says where it is, or False and the reason why there is none.

    A separate process writes it: a crash there cannot affect the verdict.
    """
    place = out.absolute()
    command = [sys.executable, "-P", "-m", "loadsim", "report", str(place), "-o", str(place / REPORT_NAME)]
    try:
        made = subprocess.run(  # noqa: S603 - loadsim itself
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            start_new_session=True,
            umask=0o077,
            check=False,
        )
    except KeyboardInterrupt:
        return False, f"No {REPORT_NAME}: interrupted; loadsim report {out} writes it"
    except OSError as failure:
        return False, f"No {REPORT_NAME}: {failure}"
    if made.returncode:
        why = (made.stderr.strip().splitlines() or ["no message"])[-1]
        return False, f"No {REPORT_NAME}: {why.removeprefix('loadsim: ')}"
    return True, f"Report: {out / REPORT_NAME}"
