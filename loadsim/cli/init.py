"""`loadsim init`: bring a scenario's mailboxes to their start state."""

from __future__ import annotations

import argparse
import sys

from loadsim.cli.live.progress import shown_progress
from loadsim.cli.live.stderr_lines import print_line
from loadsim.cli.options import add_scenario, given_scenario
from loadsim.model.ports import Services
from loadsim.processes.event_loop import run
from loadsim.protocols.registry import check_protocols
from loadsim.provisioning.hold import held
from loadsim.provisioning.initialise import Initialised, initialise
from loadsim.provisioning.preflight import check_sources
from loadsim.provisioning.sessions import Progress, accounts_on_server, services_of
from loadsim.scenario.workload import Workload


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario(parser)
    parser.set_defaults(run=run_init)


async def _initialise(workload: Workload, services: Services, progress: Progress) -> Initialised:
    scenario = workload.scenario
    async with held(accounts_on_server(scenario), services, "init") as hold:
        return await initialise(workload, services, scenario.initialise, hold.noting(progress))


def run_init(args: argparse.Namespace) -> int:
    """Inspect all accounts, then restore the start state as the scenario's `initialise` says."""
    scenario = given_scenario(args)
    check_protocols(scenario)
    services = services_of(scenario)
    check_sources(scenario)
    workload = Workload(scenario)
    with shown_progress() as progress:
        done = run(_initialise(workload, services, progress))
    print_line(done.describe(), sys.stdout)
    if done.start_state is not None:
        print(f"Start state: {done.start_state}")
    return 0
