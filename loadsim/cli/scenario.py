"""The scenario of a command line: its arguments, and warnings of exposed passwords."""

from __future__ import annotations

import argparse
import sys

from loadsim.errors import printable
from loadsim.model.scenario import Scenario, load_scenario


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """Register the scenario and its overrides."""
    parser.add_argument("scenario", metavar="SCENARIO", help="a path, or the bare name of a shipped scenario")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="KEY.PATH=VALUE",
        help="override a key of the scenario; repeatable",
    )


def given_scenario(args: argparse.Namespace) -> Scenario:
    """Read the scenario that the arguments name; warn of exposed passwords on standard error. Raises `ConfigError`."""
    scenario = load_scenario(args.scenario, args.overrides)
    for warning in (*scenario.exposed, *scenario.in_the_clear):
        print(f"loadsim: warning: {printable(warning)}", file=sys.stderr)
    return scenario
