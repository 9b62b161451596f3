"""`loadsim audit`: compare a server's mailboxes with the records of a run."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from loadsim.analysis.recorded_run import SCENARIO
from loadsim.audit.audit import audit
from loadsim.cli import BAD_INPUT
from loadsim.cli.live.progress import shown_progress
from loadsim.cli.live.run_view import Warnings
from loadsim.cli.live.stderr_lines import print_line
from loadsim.cli.options import add_set
from loadsim.cli.report_file import REPORT_NAME
from loadsim.cli.run import report_on
from loadsim.cli.shown_answer import shown
from loadsim.errors import ConfigError
from loadsim.processes.event_loop import run
from loadsim.provisioning.sessions import services_of
from loadsim.report.audit import describe_audit
from loadsim.runs.result import write_summary
from loadsim.scenario.accounts import MASK, AccountPattern
from loadsim.scenario.document import EMBEDDED
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.timinglog.merge import read_logs

VARIABLE = "LOADSIM_PASSWORD"
"""The environment variable with the password pattern, unless --set names another source."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_directory", metavar="RUN", type=Path, help="run directory")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    add_set(parser, "override a key of the run's scenario, such as accounts.password_env; repeatable")
    parser.set_defaults(run=run_audit)


def run_audit(args: argparse.Namespace) -> int:
    """Audit a run, print the faults, and update the run's results.

    Return 0 if there are no faults (allowed ones do not count), 1 for faults or too many unknown places, 3 if too many
    mailboxes could not be judged, and at least 2 if results could not be written.
    """
    directory: Path = args.run_directory
    log = read_logs([directory])
    scenario = _scenario(directory / SCENARIO, args.overrides)
    services = services_of(scenario)
    with shown_progress() as progress:
        record = run(audit(directory, log, scenario, services, progress))
    written = write_summary(directory, Warnings()).written  # the run's summary predates the audit
    made, line = report_on(directory) if (directory / REPORT_NAME).exists() else (True, "")
    if not made:
        print_line(line)
    most_lost = scenario.limits.lost_users
    document = json.dumps(record.document, indent=2) if args.json else shown(describe_audit(record, most_lost))
    print_line(document, sys.stdout)
    return max(record.exit_status(most_lost), 0 if written and made else BAD_INPUT)


def _scenario(path: Path, overrides: Sequence[str]) -> Scenario:
    """Read the scenario of a run directory, which has no passwords. Raises `ConfigError` if no source is given."""
    scenario = load_scenario(str(path), overrides)
    has_password = not isinstance(scenario.accounts, AccountPattern) or scenario.accounts.password != MASK
    if has_password or scenario.server == EMBEDDED:  # which `services_of` rejects
        return scenario
    if VARIABLE not in os.environ:
        raise ConfigError(
            f"{path}: accounts: expected a source of the passwords, which a run directory does not hold, found none:"
            f" set {VARIABLE}, or use --set accounts.password_env=NAME, or --set accounts.password_file=FILE"
        )
    return load_scenario(str(path), [*overrides, f"accounts.password_env={VARIABLE}"])
