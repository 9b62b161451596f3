"""`loadsim size`: the number of users that would fill each resource of a measured server."""

from __future__ import annotations

import argparse
import json
import sys

from loadsim.analysis.recorded_run import read_run
from loadsim.cli.live.progress import shown_work
from loadsim.cli.live.stderr_lines import print_line
from loadsim.cli.shown_answer import shown
from loadsim.documents.json_values import to_json
from loadsim.size.document import describe_sizing
from loadsim.size.sizing import size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_directory", metavar="RUN", help="run directory with samples from the probe host")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.set_defaults(run=run_size)


def run_size(args: argparse.Namespace) -> int:
    with shown_work("Computing the demands"):
        sizing = size(read_run(args.run_directory))
    first = sizing.first and sizing.first.name
    document = {"first": first, "next_step": sizing.next_step, **to_json(sizing)}
    text = json.dumps(document, indent=2) if args.json else shown(describe_sizing(sizing))
    print_line(text, sys.stdout)
    return sizing.exit_status
