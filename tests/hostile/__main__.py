"""Run each fault by itself, through each driver, and print what should not be; `--write` writes the tables."""

import argparse
import sys

from .cases import Outcome, Provisioned
from .page import TABLES, rows, write


def main() -> int:
    """Return 1 if anything should not be."""
    parser = argparse.ArgumentParser(prog="python -m hostile", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the tables of tests/hostile/recorded.md")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only faults whose protocol, name or driver has this"
    )
    options = parser.parse_args()
    status = 0
    for table in TABLES:
        outcomes: dict[tuple[str, str], Outcome | Provisioned] = {}
        for fault, driver in table.runs():
            name = f"{table.title}/{fault.name}/{driver}"
            if options.only in name:
                outcome = outcomes[fault.name, driver] = table.play(fault, driver)
                problems = outcome.problems(fault)
                status |= bool(problems)
                print("\n    ".join([f"{name}: {'ok' if not problems else 'FAILED'}", *problems]), flush=True)
        if options.write and not options.only:
            write(table.title, rows(table, outcomes))
    return status


if __name__ == "__main__":
    sys.exit(main())
