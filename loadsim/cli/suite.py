"""`loadsim suite`: make the runs of a matrix, in random order, with commands before and after each."""

from __future__ import annotations

import argparse
import sys

from loadsim.campaign.tables import length_words
from loadsim.cli.campaign import ENDED_EARLY, CampaignView, add_campaign
from loadsim.cli.live.stderr_lines import print_line
from loadsim.findings.formats import count
from loadsim.report.text import table
from loadsim.scenario.suite import Suite, load_suite
from loadsim.suite.cells import scenarios_of
from loadsim.suite.document import describe_suite
from loadsim.suite.runs import planned_s, run_suite, status_of, time_left_s


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suite", metavar="SUITE", help="a path, or the bare name of a shipped suite")
    parser.add_argument(
        "--list",
        action="store_true",
        help="print the order and length of the runs and, with --out, which are done; run nothing",
    )
    add_campaign(parser)
    parser.set_defaults(run=run_command)


def run_command(args: argparse.Namespace) -> int:
    """List a suite's runs; or make them, printing a line for each, and print the answer. Return 0, 1, 3 or 4."""
    suite = load_suite(args.suite)
    if args.list:
        return _list(suite, args)
    scenarios = scenarios_of(suite, passwords=False).values()
    warnings = (finding.text for scenario in scenarios for finding in (*scenario.exposed, *scenario.findings))
    for warning in dict.fromkeys(warnings):
        print_line(f"loadsim: warning: {warning}")
    view = CampaignView(args, suite.name)
    figures = view.made(lambda: run_suite(suite, args.out, watcher=view))
    if figures is None:
        return ENDED_EARLY
    view.answer(figures, describe_suite(figures, ()))
    return figures.exit_status


def _list(suite: Suite, args: argparse.Namespace) -> int:
    figures, scenarios = status_of(suite, args.out)
    results: dict[int, str] = {run.number: run.result for run in figures.runs}
    rows = [
        (
            f"{slot.number:3} {slot.cell.name}",
            str(slot.repeat),
            length_words(planned_s(scenarios[slot.cell.name])),
            results.get(slot.number, "to do"),
        )
        for slot in suite.slots
    ]
    lines = [
        f"Suite {suite.name}: {count(len(suite.slots), 'run')}: {count(len(suite.cells), 'cell')},"
        f" {count(suite.stated.repeats, 'repeat')} each; random order, seed {suite.stated.seed}",
        f"Time left: at least {length_words(time_left_s(suite, figures, scenarios))} (preparation, mail in transit and"
        " commands not counted)",
        "",
        *table([("Run", "Repeat", "Time", "State"), *rows]),
    ]
    print_line("\n".join(lines), sys.stdout)
    return 0
