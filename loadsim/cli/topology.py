"""`loadsim topology export`: write accounts, lists and mailboxes of a scenario in the formats of mail servers."""

from __future__ import annotations

import argparse
import grp
import pwd
import sys
import time
from pathlib import Path

from loadsim.cli.live.progress import shown_progress
from loadsim.cli.live.stderr_lines import print_line
from loadsim.cli.options import add_scenario, given_scenario
from loadsim.errors import ConfigError
from loadsim.model.accounts import AccountTable
from loadsim.model.population import distribution_lists
from loadsim.model.scenario import Scenario
from loadsim.provisioning.export import ACCOUNTS_CSV, FORMATS, export
from loadsim.provisioning.export_maildir import PATTERN, Exported, Target, export_maildir

MAILDIR = "maildir"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="topology_verb", required=True, metavar="VERB")
    exporting = verbs.add_parser("export", help="write accounts, lists or mailboxes for a mail server")
    add_scenario(exporting)
    exporting.add_argument("--format", choices=(*FORMATS, MAILDIR), required=True, help="format of the files")
    exporting.add_argument(
        "--out", type=Path, default=Path(), metavar="DIR", help="directory to write to; default: the current one"
    )
    exporting.add_argument(
        "--force",
        action="store_true",
        help="replace tables that exist with other contents; without it, none is written",
    )
    exporting.add_argument(
        "--mailbox-path", metavar="PATH", help=f"with maildir: each account's Maildir in DIR; default: {PATTERN}"
    )
    exporting.add_argument("--owner", metavar="USER[:GROUP]", help="with maildir: owner of all files")
    exporting.set_defaults(run=run_export)


def run_export(args: argparse.Namespace) -> int:
    scenario = given_scenario(args)
    if args.format == MAILDIR:
        if args.force:
            raise ConfigError(f"--force: expected with tables only, found --format {MAILDIR}")
        return _export_maildir(args, scenario)
    for option in ("mailbox_path", "owner"):
        if getattr(args, option) is not None:
            raise ConfigError(f"--{option.replace('_', '-')}: expected with --format {MAILDIR} only, found it without")
    table = Path(scenario.accounts.csv) if isinstance(scenario.accounts, AccountTable) else None
    if table is not None and table == (args.out / ACCOUNTS_CSV).resolve() and args.format == "csv":
        raise ConfigError(
            f"--out {args.out}: expected another directory than that of the scenario's table, found {table.name}"
        )
    accounts = [scenario.account(index) for index in range(1, scenario.users + 1)]
    for path in export(accounts, distribution_lists(scenario), args.format, args.out, force=args.force):
        print(path)
    return 0


def _export_maildir(args: argparse.Namespace, scenario: Scenario) -> int:
    target = Target(args.out, args.mailbox_path or PATTERN, _owner(args.owner), scenario.folders.paths)
    began_s = time.monotonic()
    with shown_progress() as progress:
        done = export_maildir(scenario, target, progress)
    print_line(_describe(done, time.monotonic() - began_s), sys.stdout)
    return 0


def _describe(done: Exported, took_s: float) -> str:
    return (
        f"Wrote {done.messages} messages ({done.message_bytes / 1e6:.1f} MB) of {done.accounts} accounts in"
        f" {took_s:.1f} s: {done.messages / took_s:.0f} messages/s."
    )


def _owner(stated: str | None) -> tuple[int, int] | None:
    """Return the numbers of a user and a group; without a group, the user's own one."""
    if stated is None:
        return None
    user, _, group = stated.partition(":")
    try:
        found = pwd.getpwnam(user)
        return found.pw_uid, grp.getgrnam(group).gr_gid if group else found.pw_gid
    except KeyError:
        raise ConfigError(f"--owner: expected a user, or user:group, of this machine, found {stated!r}") from None
