"""`loadsim storage`: can these disks carry the mailboxes?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from loadsim.campaign.runs import DAMAGED
from loadsim.cli.cluster_runs import add_cluster_runs, refuse_cluster_options
from loadsim.cli.live.progress import shown_work
from loadsim.cli.live.stderr_lines import print_line
from loadsim.cli.options import add_set, cluster_access
from loadsim.cli.report_file import REPORT_NAME, check_place, write
from loadsim.cli.shown_answer import add_wide, shown
from loadsim.errors import ConfigError

if TYPE_CHECKING:
    from loadsim.report.document import Document, Section
    from loadsim.storage.recording import Recording, Tell
    from loadsim.storage.runs import Test
    from loadsim.storage.scenario import StorageScenario

TESTS: dict[str, tuple[Test, str]] = {
    "run": ("performance", "measure reads, writes and log writes under load, then verify everything"),
    "backup": ("backup", "read all files, and verify their checksums"),
    "verify": ("verify", "verify all checksums, and compare all messages with what was acknowledged"),
    "recover": ("recovery", "kill the processes under load, and replay the logs"),
}
"""The commands that run a test, with their help."""

JSON_NAME = "storage.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command, (test, purpose) in TESTS.items():
        added = commands.add_parser(command, help=purpose)
        _add_scenario(added, "new directory for the test, or the directory of a queue to resume; default: in runs")
        add_cluster_runs(added)
        added.set_defaults(run=partial(_test, test=test))
    tuning = commands.add_parser("tune", help="find the highest rate of reads and writes within the limits")
    _add_scenario(tuning, "new directory for the runs, or the directory of a tuning to resume; default: in runs")
    tuning.set_defaults(run=_tune)
    report = commands.add_parser("report", help="report on one or more tests, in HTML or Markdown")
    report.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="directories of tests")
    report.add_argument("-o", "--out", type=Path, metavar="FILE", help="file, .html or .md; default: report.html")
    report.add_argument(
        "--paper", type=Path, metavar="FILE", help="open the report with the sections of this YAML file"
    )
    add_wide(report)
    report.set_defaults(run=_report)


def _add_scenario(parser: argparse.ArgumentParser, out: str) -> None:
    parser.add_argument("scenario", metavar="SCENARIO", help="a path, or the bare name of a shipped storage scenario")
    add_set(parser, "override a key of the scenario; repeatable")
    parser.add_argument("--out", type=Path, metavar="DIR", help=out)
    parser.add_argument("--quiet", action="store_true", help="print only the answer and errors")
    add_wide(parser)


def _tell(args: argparse.Namespace) -> Tell:
    return (lambda _: None) if args.quiet else print_line


def _test(args: argparse.Namespace, test: Test) -> int:
    """Run each test of a scenario once, and print the answers. Return 0, 1 or 3."""
    from loadsim.storage.runs import campaign_directory, run_once, run_test
    from loadsim.storage.scenario import load_queue

    queue = load_queue(args.scenario, args.overrides)
    if args.cluster is not None:
        return _test_together(args, test, queue)
    refuse_cluster_options(args)

    def run(scenario: StorageScenario, out: Path | None) -> int:
        return _answer(run_test(scenario, test, out, _tell(args), queue), args)

    if len(queue) == 1:
        return run(queue[0], args.out)
    with campaign_directory(args.out, queue[0].name) as directory:
        tests: list[Recording] = []
        for scenario in queue:
            tests.append(run_once(scenario, test, directory, run))
            if (end := tests[-1].end) and end.stopped:
                break
        return _several(tests, directory / REPORT_NAME, args)


def _test_together(args: argparse.Namespace, test: Test, queue: Sequence[StorageScenario]) -> int:
    """Run a scenario's tests on all clients of a cluster, and print the answer. Return 0, 1 or 3."""
    access = cluster_access(args, args.cluster)
    from loadsim.storage.runs import campaign_directory
    from loadsim.storage.together import test_together

    tests: list[Recording] = []
    with campaign_directory(args.out, queue[0].name) as out:
        for number, scenario in enumerate(queue, 1):
            place = out / str(number) if len(queue) > 1 else out
            made = test_together([scenario, *queue], test, place, _tell(args), access, args.clients)
            tests += [_figures(directory) for directory in made]
            if any(recording.end is None or recording.end.stopped for recording in tests):
                break
        return _several(tests, out / REPORT_NAME, args)


def _tune(args: argparse.Namespace) -> int:
    """Run a tuning, and print the answer. Return 0, 1 or 3."""
    from loadsim.storage.document import describe_tuning
    from loadsim.storage.runs import campaign_directory, run_once, run_test
    from loadsim.storage.scenario import load_storage
    from loadsim.storage.tune import Try, exit_status, tune

    scenario, tries = load_storage(args.scenario, args.overrides), list[Try]()

    def run(one: StorageScenario, out: Path) -> None:
        _answer(run_test(one, "performance", out, _tell(args)), args)

    with campaign_directory(args.out, scenario.name) as directory:
        ended = tune(scenario, lambda one: run_once(one, "performance", directory, run), tries)
        _show(describe_tuning(scenario, tries, ended), directory / REPORT_NAME, args)
    return exit_status(tries, ended)


def _report(args: argparse.Namespace) -> int:
    from loadsim.storage.document import load_paper
    from loadsim.storage.recording import read_recording

    if len(args.directories) == 1 and args.paper is None:
        return _answer(args.directories[0], args, args.out)
    out = args.out or Path(REPORT_NAME)
    check_place("-o", out)
    tests = [read_recording(directory) for directory in args.directories]
    if any(one == other for one, other in combinations(tests, 2)):  # also if one is a copy
        raise ConfigError("DIR: expected different tests, found one twice")
    return _several(tests, out, args, load_paper(args.paper) if args.paper else ())


def _several(tests: Sequence[Recording], out: Path, args: argparse.Namespace, paper: Sequence[Section] = ()) -> int:
    from loadsim.storage.document import describe_tests, worst_exit_status

    with _sound("DIR"):
        document, status = describe_tests(tests, paper), worst_exit_status(tests)
    _show(document, out, args)
    return status


def _answer(directory: Path, args: argparse.Namespace, out: Path | None = None) -> int:
    """Write the figures and the report, and print the answer. Return 0, 1 or 3."""
    from loadsim.storage.document import describe_storage
    from loadsim.storage.verdict import judge

    recording = _figures(directory)
    with _sound(str(directory)):
        document, verdict = describe_storage(recording), judge(recording)
    _show(document, out or directory / REPORT_NAME, args)
    return verdict.exit_status


def _figures(directory: Path) -> Recording:
    """Write the figures of a test, and return its recording."""
    from loadsim.storage.document import storage_json
    from loadsim.storage.recording import read_recording

    recording = read_recording(directory)
    with _sound(str(directory)):
        figures = storage_json(recording)
    (directory / JSON_NAME).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return recording


@contextmanager
def _sound(name: str) -> Iterator[None]:
    """Raise `ConfigError` if the block finds unexpected values in a recording."""
    try:
        yield
    except DAMAGED:
        raise ConfigError(f"{name}: expected the recording of a storage test, found a damaged one") from None


def _show(document: Document, out: Path, args: argparse.Namespace) -> None:
    """Write a report, and print its brief form."""
    with shown_work("Drawing the report"):
        write(document, out, "--out")
    print_line(f"{shown(document, wide=args.wide)}\n\nReport: {out}", sys.stdout)
