"""`loadsim plan`: what a scenario amounts to, without a server."""

from __future__ import annotations

import argparse
import json
import os

from loadsim.cli import VERBS
from loadsim.cluster.build_fingerprint import build_fingerprint
from loadsim.dryrun.plan import MOST_ENGINES, engines_for, make_plan, to_json
from loadsim.dryrun.plan_cache import keep
from loadsim.dryrun.plan_engine import uncollected
from loadsim.errors import ConfigError
from loadsim.model.scenario import load_scenario
from loadsim.protocols.registry import check_protocols
from loadsim.report.plan_text import plan_text


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
    check_protocols(scenario)
    engines = engines_for(scenario.users, os.cpu_count() or 1) if args.engines is None else args.engines
    most = min(scenario.users, MOST_ENGINES)
    if not 1 <= engines <= most:
        raise ConfigError(f"--engines: expected a number from 1 to {most}, found {engines}")
    with uncollected():
        plan = make_plan(scenario, engines)
        keep(scenario, build_fingerprint(), plan.tally.load())
        figures = to_json(plan)
        print(json.dumps(figures) if args.json else plan_text(figures))
    return 0
