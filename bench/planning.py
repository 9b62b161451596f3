"""`python -m bench.planning [--before DIR]`: the CPU and the time that a plan of Medium users takes, on two cores.

With `--before`, the checkout of another version, both take turns, with the same interpreter and dependencies. Their
plans must have equal digests and figures.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.table import table

ROUNDS = 3
"""The number of plans that each version makes."""


def measured(checkout: Path, users: int) -> tuple[float, float, str]:
    """Plan a day of 8 hours. Return the seconds of CPU, the seconds that passed, and the figures."""
    topology = f"topology=[{{profile: loadsim-5.5/medium, users: {users}}}]"
    command = [sys.executable, "-P", "-m", "loadsim", "plan", "medium", "--set", topology, "--json"]
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    begin_s, before_s = time.monotonic(), _children_s()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return _children_s() - before_s, time.monotonic() - begin_s, done.stdout


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table of medians."""
    parser = argparse.ArgumentParser(prog="python -m bench.planning", description=__doc__)
    parser.add_argument("--users", type=int, default=10_000, metavar="N", help="default: 10000")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"default: {ROUNDS}")
    parser.add_argument("--before", type=Path, metavar="DIR", help="the checkout of another version, to compare with")
    args = parser.parse_args(arguments)
    checkouts = {"now": Path(__file__).resolve().parent.parent}
    if args.before:
        checkouts = {"before": args.before.resolve()} | checkouts
    took: dict[str, list[tuple[float, float, str]]] = {name: [] for name in checkouts}
    for _ in range(args.rounds):
        for name, checkout in checkouts.items():
            took[name].append(measured(checkout, args.users))
            print(f"{name}: {took[name][-1][0]:.1f} s of CPU, {took[name][-1][1]:.1f} s", file=sys.stderr)
    rows = []
    for name, each in took.items():
        cpu_s, wall_s, _ = zip(*each, strict=True)
        rows.append([name, f"{statistics.median(cpu_s):.1f} s", f"{statistics.median(wall_s):.1f} s"])
    print(table([f"{args.users:,} users", "CPU", "time"], rows))
    plans = [json.loads(figures) for each in took.values() for _, _, figures in each]
    if any(plan != plans[0] for plan in plans):
        print("bench.planning: expected equal plans, found different ones", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
