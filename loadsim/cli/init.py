"""`loadsim init`: bring the mailboxes of a scenario to their start state."""

from __future__ import annotations

import argparse
import sys

from loadsim.cli.options import add_scenario, given_scenario
from loadsim.cli.progress import shown_progress
from loadsim.cli.stderr_lines import print_line
from loadsim.engine.event_loop import run
from loadsim.model.workload import Workload
from loadsim.protocols.registry import check_protocols
from loadsim.provisioning.initialise import initialise
from loadsim.provisioning.preflight import check_sources
from loadsim.provisioning.sessions import services_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario(parser)
    add_accept_unsigned(parser)
    parser.set_defaults(run=run_init)


def add_accept_unsigned(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--accept-unsigned", action="store_true", help="accept the unsigned manifests of older versions"
    )


def run_init(args: argparse.Namespace) -> int:
    """Inspect all accounts, then change what differs from the start state, as the scenario's `initialise` says."""
    scenario = given_scenario(args)
    check_protocols(scenario)
    services = services_of(scenario)
    check_sources(scenario)
    workload = Workload(scenario)
    with shown_progress() as progress:
        done = run(initialise(workload, services, scenario.initialise, progress, accept_unsigned=args.accept_unsigned))
    print_line(done.describe(), sys.stdout)
    if done.start_state is not None:
        print(f"Start state: {done.start_state}")
    return 0
