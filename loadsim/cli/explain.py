"""`loadsim explain`: what a finding means, and what to do about it."""

from __future__ import annotations

import argparse
import sys

from loadsim.cli.live.stderr_lines import print_line
from loadsim.cli.show import as_list
from loadsim.documents.schema import with_nearest
from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("code", metavar="CODE", nargs="?", help="the word in brackets; without it, list all")
    parser.set_defaults(run=run_explain)


def run_explain(args: argparse.Namespace) -> int:
    codes = {code.id: code for code in Code}
    if args.code is None:
        lines = as_list([(code.id, f"{code.severity}: {code.outline}") for code in Code])
    elif args.code not in codes:
        raise ConfigError(f"explain: expected a code of a finding, found {with_nearest(args.code, list(codes))}")
    else:
        code = codes[args.code]
        severity = f"{code.severity}, cause: {code.cause}" if code.cause else code.severity
        rows = [("Meaning", code.outline), ("Severity", severity), ("Remedy", code.remedy or "none needed")]
        lines = as_list(rows)
    print_line("\n".join(lines), sys.stdout)
    return 0
