"""The scenario of a command line, with warnings of exposed passwords."""

from __future__ import annotations

import argparse
import sys

from loadsim.errors import printable
from loadsim.model.scenario import Scenario, load_scenario


def given_scenario(args: argparse.Namespace) -> Scenario:
    """Read the scenario that the arguments name; warn of exposed passwords on standard error. Raises `ConfigError`."""
    scenario = load_scenario(args.scenario, args.overrides)
    for warning in (*scenario.exposed, *scenario.in_the_clear):
        print(f"loadsim: warning: {printable(warning)}", file=sys.stderr)
    return scenario
