"""Fuzz all targets, print what they came to, and each kind of finding with its smallest case; 1 if there is any."""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from .all_targets import TARGETS
from .oracle import Finding, judge
from .target import Target, case
from .work import run, shrunk


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=cores(), help="default: one for each core, at least two")
    parser.add_argument("--seed", type=int, default=1, help="which cases (default: %(default)s)")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="one target; may be repeated")
    parser.add_argument("--case", type=int, metavar="N", help="run case N of the target, and no other")
    parser.add_argument("--file", type=Path, help="run the bytes of this file as the case of the target")
    parser.add_argument("--save", type=Path, metavar="DIRECTORY", help="save the bytes of what is found there")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # temporary files go, processes end
    chosen = [TARGETS[name] for name in options.target or TARGETS]
    if options.case is None and options.file is None:
        return fuzz(chosen, options.seed, options.seconds, options.processes, options.save)
    if len(chosen) != 1:
        parser.error("--case and --file need one --target")
    data = options.file.read_bytes() if options.file else case(chosen[0], options.seed, options.case)
    return repeat(chosen[0], data, options.save)


def cores() -> int:
    """Return how many processes there are, unless the command line says it."""
    return max(2, len(os.sched_getaffinity(0)))


def fuzz(targets: list[Target], seed: int, seconds: float, processes: int, save: Path | None) -> int:
    began_s = time.monotonic()
    tallies = run(targets, seed, seconds, processes)
    print("| target | cases | CPU s | us/case | findings |\n|---|---:|---:|---:|---:|")
    found = 0
    for name, tally in tallies.items():
        found += len(tally.found)
        each_us = tally.cpu_s * 1e6 / max(1, tally.cases)
        print(f"| `{name}` | {tally.cases:,} | {tally.cpu_s:.0f} | {each_us:.0f} | {len(tally.found)} |")
    cases, took_s = sum(tally.cases for tally in tallies.values()), time.monotonic() - began_s
    print(f"{cases:,} cases in {took_s:.0f} s ({cases / took_s:,.0f}/s), seed {seed}, {found} findings")
    for target in targets:
        for number, finding, data in tallies[target.name].found.values():
            show(target, finding, data)
            again = f"python -m fuzz --target {target.name} --seed {seed} --case {number}"
            print(f"    again: PYTHONPATH=tests:tests/support {again}")
            if save is not None:
                keep(save / f"{target.name}-{seed}-{number}", data)
    return int(found > 0)


def repeat(target: Target, data: bytes, save: Path | None) -> int:
    """Run one case, and make it smaller; return 1 if it is a finding."""
    finding = judge(target, data)
    if finding is None:
        print(f"{target.name}: {len(data)} bytes: as documented")
        return 0
    if save is not None:
        keep(save / target.name, data)
    show(target, finding, shrunk(target, data, finding.kind))
    return 1


def show(target: Target, finding: Finding, data: bytes) -> None:
    print(f"FOUND {target.name}: {finding.detail}")
    print(f"    {len(data)} bytes: {data[:300]!r}{'...' if len(data) > 300 else ''}")


def keep(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    print(f"    saved: {path}")


if __name__ == "__main__":
    sys.exit(main())
