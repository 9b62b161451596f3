"""`loadsim init`: bring the mailboxes of a scenario to their start state, and say what was done."""

from __future__ import annotations

import argparse

from loadsim.cli import VERBS
from loadsim.cli.progress import shown_progress
from loadsim.cli.scenario import given_scenario
from loadsim.engine.event_loop import run
from loadsim.model.workload import Workload
from loadsim.protocols.registry import check_protocols
from loadsim.provisioning.initialise import initialise
from loadsim.provisioning.preflight import check_sources
from loadsim.provisioning.sessions import services_of


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `init`."""
    parser = subparsers.add_parser("init", help=VERBS["init"])
    parser.add_argument("scenario", metavar="SCENARIO", help="a path, or the bare name of a shipped scenario")
    add_accept_unsigned(parser)
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY.PATH=VALUE")
    parser.set_defaults(run=run_init)


def add_accept_unsigned(parser: argparse.ArgumentParser) -> None:
    """Add the option for the manifests of older versions."""
    parser.add_argument(
        "--accept-unsigned", action="store_true", help="accept manifests of older versions, which are not signed"
    )


def run_init(args: argparse.Namespace) -> int:
    """Inspect all accounts, then change what is not as it should be; as the scenario's `initialise` says."""
    scenario = given_scenario(args)
    check_protocols(scenario)
    services = services_of(scenario)
    check_sources(scenario)
    workload = Workload(scenario)
    with shown_progress() as tell:
        done = run(initialise(workload, services, scenario.initialise, tell, accept_unsigned=args.accept_unsigned))
    print(done.describe())
    if done.start_state is not None:
        print(f"Start state: {done.start_state}")
    return 0
