"""`loadsim clean`: remove what loadsim put into a scenario's accounts, and nothing else."""

from __future__ import annotations

import argparse
import sys

from loadsim.cli.live.progress import shown_progress
from loadsim.cli.live.stderr_lines import print_line
from loadsim.cli.options import add_scenario, given_scenario
from loadsim.errors import ConfigError, printable
from loadsim.processes.event_loop import run
from loadsim.provisioning.clean import Cleaned, clean, describe
from loadsim.provisioning.preflight import check_sources
from loadsim.provisioning.sessions import services_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario(parser)
    parser.add_argument("--dry-run", action="store_true", help="list what would be removed, and remove nothing")
    parser.set_defaults(run=run_clean)


def run_clean(args: argparse.Namespace) -> int:
    """Clean all accounts. Print the total, and a line for each account that held anything or failed.

    Raises `ConfigError` if an account fails.
    """
    scenario = given_scenario(args)
    services = services_of(scenario)
    check_sources(scenario)
    with shown_progress() as progress:
        cleaned = run(clean(scenario, services, args.dry_run, progress))
    failures = [result.failure for result in cleaned if result.failure]
    for result in cleaned:
        if result or result.foreign or result.failure:
            print_line(printable(_line(result, args.dry_run)), sys.stdout)
    print_line(describe(cleaned, args.dry_run), sys.stdout)
    if failures:
        raise ConfigError(f"{len(failures)} of {len(cleaned)} accounts failed, such as {failures[0]}")
    return 0


def _line(result: Cleaned, dry_run: bool) -> str:
    if result.failure:
        return f"{result.account.login}: failed: {result.failure}"
    messages, folders = sum(result.messages.values()), len(result.folders)
    line = f"{result.account.login}: {'would remove' if dry_run else 'removed'} {messages} messages, {folders} folders"
    if result.foreign:
        line += "; not created by loadsim: " + ", ".join(f"{name} {count}" for name, count in result.foreign.items())
    return line
