"""`loadsim compare`: compare two sets of runs."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from loadsim.cli.junit import junit_file
from loadsim.cli.live.progress import shown_work
from loadsim.cli.live.stderr_lines import print_line
from loadsim.cli.options import whole
from loadsim.cli.report_file import check_place, write
from loadsim.cli.shown_answer import shown
from loadsim.comparison.comparison import compare_runs
from loadsim.comparison.document import compare_junit, describe_comparison
from loadsim.statistics.comparison import MOST_LOOKS

REPORT = "--report"

_SHARE = re.compile(r"(\d+(?:\.\d+)?)(\s*%)?", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for side, which in (("base", "runs to compare against"), ("new", "runs that may be slower")):
        parser.add_argument(f"--{side}", nargs="+", required=True, metavar="RUN", help=which)
    parser.add_argument(
        "--max-regression",
        type=share,
        metavar="SHARE",
        help="allowed increase of the deciding times, such as 5%%; the exit status is 1 if exceeded, 4 if undecided",
    )
    parser.add_argument(
        "--looks",
        type=whole(1, MOST_LOOKS),
        default=1,
        metavar="N",
        help="total number of comparisons as the sets grow; p-values and intervals are corrected for it; default: 1",
    )
    parser.add_argument(
        "--across-drivers",
        action="store_true",
        help="compare the same load on different drivers, such as imap and mapi",
    )
    parser.add_argument(
        REPORT, type=Path, metavar="FILE", help="also write a report; its suffix is the format: .html or .md"
    )
    parser.add_argument("--wide", action="store_true", help="print all figures, in lines of any length")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write JUnit XML")
    parser.set_defaults(run=run_compare)


def share(text: str) -> float:
    """Parse a share from 0 to 1, given as 5% or 0.05."""
    match = _SHARE.fullmatch(text)
    value = float(match[1]) / (100 if match[2] else 1) if match else None
    if value is None or value > 1:
        raise argparse.ArgumentTypeError(f"expected a share such as 5% or 0.05, from 0% to 100%, found {text!r}")
    return value


def run_compare(args: argparse.Namespace) -> int:
    """Print the comparison, and write its report. Return the exit status of `--max-regression`, or else 0."""
    if args.report:
        check_place(REPORT, args.report)
    with junit_file(args.junit, "compare") as write_junit, shown_work("Comparing the runs"):
        comparison = compare_runs(
            args.base,
            args.new,
            max_regression=args.max_regression,
            looks=args.looks,
            across_drivers=args.across_drivers,
        )
        write_junit(compare_junit(comparison))
    document = describe_comparison(comparison)
    text = json.dumps(comparison.document, indent=2) if args.json else shown(document, wide=args.wide)
    print_line(text, sys.stdout)  # before the report
    if args.report:
        with shown_work("Drawing the report"):
            write(document, args.report, REPORT)
        if not args.json:
            print_line(f"Report: {args.report}", sys.stdout)
    return comparison.exit_status
