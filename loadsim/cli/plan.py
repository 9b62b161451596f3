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
    parser.add_argument("--json", action="store_true", help="print all figures as JSON, including those by hour")
    parser.set_defaults(run=run_plan)


def run_plan(args: argparse.Namespace) -> int:
    scenario = load_scenario(args.scenario, args.overrides, passwords=False)
    with uncollected():  # this process ends here
        with shown_share("Planning") as progress:
            planned = plan(scenario, progress=progress)
        needs = describe(planned.needs, planned.resources)
        lists = scenario.lists.count != 0
        document = {**planned.figures, "findings": [finding.document for finding in planned.findings]}
        print(json.dumps(document) if args.json else shown(describe_plan(planned.figures, needs, lists=lists)))
        refused = refusal(planned.findings)
        for reason in (*([refused] if refused else []), *shortages(planned.needs, planned.resources)):
            print_line(f"loadsim: warning: {reason}")
        for finding in planned.findings:
            if finding.severity is Severity.NOTE:
                print_line(f"loadsim: note: {finding.text}")
    return 0
