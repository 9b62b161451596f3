"""The scenario that a command is given, with warnings of what it does to passwords."""

from __future__ import annotations

import argparse
import sys

from loadsim.errors import printable
from loadsim.model.scenario import Scenario, load_scenario


def given_scenario(args: argparse.Namespace) -> Scenario:
    """Read it, and tell on standard error how others may come to know a password. Raises `ConfigError`."""
    scenario = load_scenario(args.scenario, args.overrides)
    for warning in (*scenario.exposed, *scenario.in_the_clear):
        print(f"loadsim: warning: {printable(warning)}", file=sys.stderr)
    return scenario
