"""`loadsim characterise`: the workload in a mail server's logs, as profiles, a scenario and a report."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from loadsim.characterise.document import describe_workload, workload_verdict
from loadsim.characterise.profile import assumptions, habits_of, profile_text, scenario_text
from loadsim.characterise.reading import read_logs
from loadsim.characterise.workload import workload_of
from loadsim.cli.live.progress import shown_share
from loadsim.cli.live.stderr_lines import print_line
from loadsim.cli.report_file import REPORT_NAME, write
from loadsim.cli.shown_answer import add_wide, shown
from loadsim.documents.json_values import to_json
from loadsim.errors import ConfigError
from loadsim.findings.next_step import next_step

JSON_NAME = "workload.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "logs",
        nargs="+",
        type=Path,
        metavar="LOG",
        help="log of Postfix, Dovecot or Exchange's message tracking; rotated and compressed ones in any order",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        required=True,
        help="new directory for the profiles, the scenario and the report",
    )
    add_wide(parser)
    parser.set_defaults(run=run_characterise)


def run_characterise(args: argparse.Namespace) -> int:
    """Read the logs, write the results, and print the answer. Return 0."""
    out: Path = args.out
    if out.exists() or out.is_symlink():
        raise ConfigError(f"--out {out}: expected a new directory, found one that exists")
    with shown_share("Reading the logs") as progress:
        workload = workload_of(read_logs(args.logs, progress))
    # 1. Write all files, the report last.
    habits = habits_of(workload)
    found = (*workload.findings, *assumptions(workload, habits))
    names = [one.name.replace("measured", "profile") + ".yaml" for one in habits]
    document = describe_workload(workload, habits, found)
    figures = {
        "verdict": workload_verdict(workload),
        "next_step": next_step(found),
        **to_json(workload),
        "profiles": to_json(habits),
        "findings": to_json(found),
    }
    try:
        out.mkdir(parents=True)
        for name, one in zip(names, habits, strict=True):
            (out / name).write_text(profile_text(workload, one), encoding="utf-8")
        (out / "scenario.yaml").write_text(scenario_text(workload, habits, names), encoding="utf-8")
        (out / JSON_NAME).write_text(f"{json.dumps(figures, indent=2)}\n", encoding="utf-8")
    except OSError as failure:
        raise ConfigError(f"--out {out}: expected a directory to write, found: {failure.strerror}") from None
    write(document, out / REPORT_NAME, "--out")
    # 2. Print the answer, and where everything is.
    print_line(shown(document, wide=args.wide), sys.stdout)
    print_line(f"Written to {out}: {', '.join((*names, 'scenario.yaml', JSON_NAME, REPORT_NAME))}", sys.stdout)
    return 0
