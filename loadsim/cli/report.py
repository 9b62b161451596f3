"""`loadsim report`: write a report on one or more runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from stat import S_ISDIR

from loadsim.analysis.recorded_run import RecordedRun, read_run, without_records
from loadsim.campaign.file import is_campaign, read_campaign
from loadsim.capacity.capacity import Capacity
from loadsim.capacity.document import describe_capacity
from loadsim.cli.live.progress import shown_work
from loadsim.cli.live.stderr_lines import print_line
from loadsim.cli.report_file import REPORT_NAME, check_place, write
from loadsim.comparison.many_runs import describe_runs
from loadsim.errors import ConfigError, LogError
from loadsim.files import mode_at
from loadsim.findings.formats import count
from loadsim.report.document import Document
from loadsim.report.one_run import describe_run
from loadsim.suite.document import describe_suite, measured_runs
from loadsim.suite.runs import compared
from loadsim.suite.suite import SuiteFigures
from loadsim.timinglog.merge import find_logs

OPTION = "-o"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="run directories or timing logs, or the directory of a search or suite"
    )
    parser.add_argument(
        OPTION, "--out", type=Path, metavar="FILE", help="file to write or replace, .html or .md; default: report.html"
    )
    parser.set_defaults(run=run_report)


def run_report(args: argparse.Namespace) -> int:
    only_run = Path(args.runs[0])
    in_run = len(args.runs) == 1 and S_ISDIR(mode_at(only_run))
    out: Path = args.out or (only_run / REPORT_NAME if in_run else Path(REPORT_NAME))
    if not _is_campaign(args.runs):
        find_logs(args.runs)  # if a run is missing, the error names the run, not where its report would go
    check_place(OPTION, out)
    with shown_work("Computing the figures"):
        document = document_of(args.runs, out)
    with shown_work("Drawing the report"):
        write(document, out, OPTION)
    print_line(str(out), sys.stdout)
    return 0


def _is_campaign(paths: list[str]) -> bool:
    return len(paths) == 1 and is_campaign(Path(paths[0]))


def document_of(paths: list[str], out: Path | None = None) -> Document:
    """Return the report on these runs, or on a search or suite, with links relative to the file `out`.

    Raises `LogError` for a run that cannot be read, and `ConfigError` for an unfinished search.
    """
    if _is_campaign(paths):
        campaign = read_campaign(Path(paths[0]), SuiteFigures, Capacity)
        here = (out.parent if out else campaign.directory).resolve()

        def place(run: str) -> str:
            return os.path.relpath((campaign.directory / run).resolve(), here)

        if isinstance(campaign, SuiteFigures):
            return describe_suite(replace(campaign, comparisons=compared(campaign)), measured_runs(campaign), place)
        assert isinstance(campaign, Capacity)
        if campaign.found is None:
            runs_so_far = f"{count(len(campaign.runs), 'run')} so far"
            raise ConfigError(
                f"{campaign.directory}: expected a finished search, found one with {runs_so_far};"
                " the same loadsim capacity command resumes it"
            )
        return describe_capacity(campaign, tuple(_readable(campaign)), place)
    runs = [read_run(path) for path in paths]
    return describe_run(runs[0]) if len(runs) == 1 else describe_runs(runs)


def _readable(capacity: Capacity) -> Iterator[RecordedRun]:
    for step in capacity.runs:
        with suppress(LogError):
            run = read_run(str(capacity.directory / step.run))
            yield without_records(run.place, run.log, run.summary)
