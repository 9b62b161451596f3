"""`loadsim plan`: print the load of a scenario, without a server."""

from __future__ import annotations

import argparse
import json

from loadsim.cli import VERBS
from loadsim.dryrun.plan_engine import uncollected
from loadsim.model.scenario import load_scenario
from loadsim.report.plan_text import plan_text
from loadsim.runs.library import plan


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `plan`."""
    parser = subparsers.add_parser("plan", help=VERBS["plan"])
    parser.add_argument("scenario", metavar="SCENARIO", help="a path, or the bare name of a shipped scenario")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY.PATH=VALUE")
    parser.add_argument(
        "--engines", type=int, metavar="N", help="processes that plan; default: one a core for many users"
    )
    parser.add_argument("--json", action="store_true", help="everything, by user and by hour too, as JSON")
    parser.set_defaults(run=run_plan)


def run_plan(args: argparse.Namespace) -> int:
    """Plan and print."""
    scenario = load_scenario(args.scenario, args.overrides, passwords=False)
    with uncollected():  # this process ends here
        figures = plan(scenario, engines=args.engines).figures
        print(json.dumps(figures) if args.json else plan_text(figures))
    return 0
