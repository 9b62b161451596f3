"""`loadsim topology export`: write a scenario's accounts and lists in mail servers' formats."""

from __future__ import annotations

import argparse
from pathlib import Path

from loadsim.cli.options import add_scenario, given_scenario
from loadsim.errors import ConfigError
from loadsim.files import real_path
from loadsim.provisioning.export import ACCOUNTS_CSV, FORMATS, export
from loadsim.scenario.accounts import AccountTable
from loadsim.scenario.population import distribution_lists


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="topology_verb", required=True, metavar="VERB")
    exporting = verbs.add_parser("export", help="write accounts and lists for a mail server")
    add_scenario(exporting)
    exporting.add_argument("--format", choices=FORMATS, required=True, help="format of the files")
    exporting.add_argument(
        "--out", type=Path, default=Path(), metavar="DIR", help="directory to write to; default: the current one"
    )
    exporting.set_defaults(run=run_export)


def run_export(args: argparse.Namespace) -> int:
    scenario = given_scenario(args)
    table = Path(scenario.accounts.csv) if isinstance(scenario.accounts, AccountTable) else None
    if table is not None and table == real_path(args.out / ACCOUNTS_CSV) and args.format == "csv":
        raise ConfigError(
            f"--out {args.out}: expected a directory without the scenario's own table, found {table.name}"
        )
    accounts = [scenario.account(index) for index in range(1, scenario.users + 1)]
    for path in export(accounts, distribution_lists(scenario), args.format, args.out):
        print(path)
    return 0
