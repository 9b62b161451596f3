"""`loadsim log`: check, summarise and export timing logs."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from loadsim.cli import BAD_INPUT
from loadsim.cli.live.progress import shown_work
from loadsim.cli.live.stderr_lines import print_line
from loadsim.cli.shown_answer import add_wide, shown
from loadsim.documents.yaml_reader import read_yaml
from loadsim.errors import LogError, printable
from loadsim.files import read_text
from loadsim.findings.catalogue import Code
from loadsim.timinglog.container import VERSION
from loadsim.timinglog.exports import CSV_KINDS, export_csv
from loadsim.timinglog.file import open_log
from loadsim.timinglog.merge import find_logs, read_logs
from loadsim.timinglog.reader import log_of

DAMAGED = 1
"""The exit status of `check` and `export` if a log is incomplete or damaged."""

OUT = "--out"

_CLOCK = re.compile(r"(\d{1,9}):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?", re.ASCII)
_SECONDS = re.compile(r"\d{1,9}(?:\.\d+)?", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="log_verb", required=True, metavar="VERB")

    check = verbs.add_parser("check", help="check that logs are complete and undamaged; the exit status is 1 if not")
    _add_logs(check)
    check.set_defaults(run=run_check)

    answer = verbs.add_parser("answer", help="print score table and verdict; the verdict sets the exit status")
    _add_logs(answer)
    answer.add_argument(
        "--weights", type=Path, metavar="FILE", help="task weights, in YAML or JSON, instead of the scenario's"
    )
    answer.add_argument("--criteria", type=Path, metavar="FILE", help="judge the run by the criteria of this scenario")
    answer.add_argument(
        "--begin", type=instant_s, metavar="TIME", help="start of the window, instead of the scenario's"
    )
    answer.add_argument("--end", type=instant_s, metavar="TIME", help="end of the window, instead of the scenario's")
    answer.add_argument("--commands", action="store_true", help="also print the times of single protocol commands")
    add_wide(answer)
    answer.add_argument("--json", action="store_true", help="print score.json instead of the table")
    answer.add_argument("--junit", type=Path, metavar="FILE", help="also write the verdict as JUnit XML")
    answer.set_defaults(run=run_answer)

    export = verbs.add_parser("export", help="export the records to another format")
    formats = export.add_subparsers(dest="format", required=True, metavar="FORMAT")
    csv = formats.add_parser("csv", help="write comma-separated values to standard output")
    csv.add_argument("--kind", choices=CSV_KINDS, default=CSV_KINDS[0], help="kind of record; default: %(default)s")
    _add_logs(csv)
    csv.set_defaults(run=run_export_csv)
    series = formats.add_parser("series", help="append a run to a series of builds, a file for Apache Otava")
    series.add_argument("run_directory", metavar="RUN", help="run directory; its run must be valid or degraded")
    series.add_argument(OUT, type=Path, required=True, metavar="FILE", help="CSV file; a new one gets a header")
    series.add_argument("--build", default="", metavar="NAME", help="name of the build, such as a commit or version")
    series.set_defaults(run=run_export_series)


def instant_s(text: str) -> float:
    """Parse an instant into seconds from the common start: h:mm as in LsLog, h:mm:ss, or seconds."""
    if clock := _CLOCK.fullmatch(text):
        hours, minutes, seconds = clock.groups()
        return int(hours) * 3600 + int(minutes) * 60 + float(seconds or 0)
    if _SECONDS.fullmatch(text):
        return float(text)
    raise argparse.ArgumentTypeError(f"expected h:mm, h:mm:ss or seconds, found {text!r}")


def run_check(args: argparse.Namespace) -> int:
    """Print the contents and gaps of each log. Return 0 if all are complete, 1 if not, 2 if one is not a timing log."""
    status = 0
    for path in find_logs(args.logs):
        try:
            file = open_log(path)
        except LogError as error:
            print(f"loadsim: {printable(str(error))}", file=sys.stderr)
            status = BAD_INPUT
            continue
        ended = log_of(file).sources[0].ended
        state = f"damaged at byte {file.end}" if file.damage else "whole" if ended else "without an end"
        tasks, mails, commands = (sum(group.count for group in groups) for groups in file.groups.values())
        print(
            f"{printable(str(path))}: {state}; format {VERSION}, {file.blocks} blocks, {file.size} bytes,"
            f" {tasks:,} tasks, {mails:,} mail events, {commands:,} commands"
        )
        if file.damage:
            print(f"  {file.damage}")
        status = max(status, 0 if ended and not file.damage else DAMAGED)
    return status


def run_answer(args: argparse.Namespace) -> int:
    """Print the summary, and return the verdict's exit status."""
    from loadsim.analysis.summary import summarise  # only for this verb
    from loadsim.cli.junit import junit_file

    with junit_file(args.junit, "log answer") as write_junit, shown_work("Computing the summary"):
        weights = None
        if args.weights:
            from loadsim.scenario.weights import weights_of  # only with the option

            name = str(args.weights)
            weights = weights_of(read_yaml(read_text(args.weights, name), name), name)
        summary = summarise(
            args.logs,
            weights=weights,
            begin_s=args.begin,
            end_s=args.end,
            commands=args.commands,
            criteria=args.criteria,
        )
        if args.junit:
            from loadsim.report.junit import verdict_junit

            write_junit(verdict_junit(summary))
    if args.json:
        text = json.dumps(summary.score, indent=2)
    else:
        from loadsim.report.answer import describe_answer

        text = shown(describe_answer(summary), wide=args.wide)
    print_line(text, sys.stdout)
    return summary.exit_status


def run_export_csv(args: argparse.Namespace) -> int:
    """Print the records, and the logs' gaps on standard error. Return 1 if a log is damaged or incomplete, else 0."""
    from loadsim.analysis.analyse import incomplete  # only for this verb

    log = read_logs(args.logs)
    export_csv(log, sys.stdout, args.kind)
    findings = incomplete(log)
    for finding in findings:
        print(f"loadsim: {printable(finding.text)}", file=sys.stderr)
    return DAMAGED if any(finding.code is not Code.LOGS_MISSING for finding in findings) else 0


def run_export_series(args: argparse.Namespace) -> int:
    from loadsim.comparison.build_series import append_run  # only for this verb

    append_run(args.run_directory, args.out, OUT, args.build)
    return 0


def _add_logs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("logs", nargs="+", metavar="LOG", help="timing logs, patterns, or run directories")
