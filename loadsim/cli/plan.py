"""`loadsim plan`: print the load of a scenario, without a server."""

from __future__ import annotations

import argparse
import json

from loadsim.api import plan
from loadsim.cli.live.progress import shown_share
from loadsim.cli.live.stderr_lines import print_line
from loadsim.cli.options import add_scenario
from loadsim.cli.shown_answer import shown
from loadsim.dryrun.document import describe_plan
from loadsim.dryrun.forecast import refusal
from loadsim.dryrun.plan_engine import uncollected
from loadsim.findings.severity import Severity
from loadsim.runs.needs import describe, shortages
from loadsim.scenario.scenario import load_scenario


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario(parser)
    parser.add_argument("--json", action="store_true", help="print all figures as JSON, also by hour")
    parser.set_defaults(run=run_plan)


def run_plan(args: argparse.Namespace) -> int:
    scenario = load_scenario(args.scenario, args.overrides, passwords=False)
    with uncollected():  # this process ends here
        with shown_share("Planning") as progress:
            found = plan(scenario, progress=progress)
        needs = describe(found.needs, found.resources)
        lists = scenario.lists.count != 0
        document = {**found.figures, "findings": [one.document for one in found.findings]}
        print(json.dumps(document) if args.json else shown(describe_plan(found.figures, needs, lists=lists)))
        refused = refusal(found.findings)
        for reason in (*([refused] if refused else []), *shortages(found.needs, found.resources)):
            print_line(f"loadsim: warning: {reason}")
        for one in found.findings:
            if one.severity is Severity.NOTE:
                print_line(f"loadsim: note: {one.text}")
    return 0
