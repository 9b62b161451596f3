"""`python -m bench.preparation`, as root: the time that init and clean need with 1,000 Medium users, on Dovecot.

Four times are measured: the first init, an init that finds all mailboxes unchanged, an init after a run, and clean. Two
versions can be compared: `--before DIR` names the checkout of the other one. Both then take turns, each with a Dovecot
and Postfix of its own, and the same interpreter and dependencies.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.nullserver import HOST
from bench.processes import LONGEST_S, short_directory
from bench.runs import loadsim, written
from bench.table import table
from loadsim.errors import ConfigError
from loadsim.model.ports import Services
from loadsim.scenario.scenario import load_scenario
from loadsim.servers.dovecot_postfix import start_dovecot_postfix

STEPS = ("first init", "init, unchanged", "run", "init after a run", "clean")
"""The steps in order. The time of the run is not reported: the scenario states it."""

ROUNDS = 3
"""The number of inits that find all mailboxes unchanged."""


@dataclass(slots=True)
class Version:
    """A version of loadsim with a server of its own, and the seconds that its steps took."""

    name: str
    checkout: Path
    scenario: Path
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def measure(self, step: str) -> None:
        """Perform one step. Raises `ConfigError` if it fails."""
        verb = "clean" if step == "clean" else "run" if step == "run" else "init"
        options = ["--no-report", "--set", "initialise=never", "--out", self.scenario.parent / "run"]
        command = loadsim(verb, self.scenario, *(options if verb == "run" else ()))
        environment = os.environ | {"PYTHONPATH": str(self.checkout)}
        begin_s = time.monotonic()
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LONGEST_S, env=environment, cwd=self.checkout, check=False
        )
        took_s = time.monotonic() - begin_s
        if done.returncode not in ((0, 1, 3) if verb == "run" else (0,)):  # a run's verdict is of no interest here
            raise ConfigError(
                f"bench.preparation: {self.name}: {step} ended with {done.returncode}: {done.stderr[-500:]}"
            )
        self.seconds.setdefault(step, []).append(took_s)
        print(f"{self.name}: {step}: {took_s:.1f} s", file=sys.stderr)


@contextmanager
def version(name: str, checkout: Path, users: int, place: Path) -> Iterator[Version]:
    """Start the servers of a version below `place`. Raises `ConfigError` if they cannot be started."""
    place.mkdir()
    nowhere = load_scenario(str(_scenario(place, users, None)))
    accounts = [nowhere.account(index) for index in range(1, users + 1)]
    server = start_dovecot_postfix(accounts, {}, place / "server")
    try:
        yield Version(name, checkout, _scenario(place, users, server.services))
    finally:
        server.stop()


def _scenario(place: Path, users: int, services: Services | None) -> Path:
    ports = (services.endpoint("imap").port, services.endpoint("smtp").port) if services else (1, 1)
    return written(
        place / "scenario.yaml",
        {
            "name": "preparation",
            "server": {"imap": {"host": HOST, "port": ports[0]}, "smtp": {"host": HOST, "port": ports[1]}},
            "accounts": {"user": "user{index}", "password": "secret-{index}"},
            "topology": [{"profile": "loadsim-5.5/medium", "users": users}],
            "lists": {"count": 0},
            "run": {"day_length": "16m", "duration": "60s", "ramp_up": "20s", "warm_up": "10s", "window": "50s"},
            "limits": {"hits": 0},  # only the time of the steps is of interest
        },
    )


def compare(versions: Sequence[Version], rounds: int = ROUNDS) -> None:
    """Measure all steps of all versions, in turns; each is the first in half of the rounds."""
    turn = 0
    for step in STEPS:
        for _ in range(rounds if step == "init, unchanged" else 1):
            for each in versions if turn % 2 else reversed(versions):
                each.measure(step)
            turn += 1


def document(versions: Sequence[Version]) -> str:
    """Write the medians as a Markdown table, and the ratio of the first version to the last."""
    rows = []
    for step in STEPS:
        if step != "run":
            medians = [statistics.median(each.seconds[step]) for each in versions]
            rows.append([step, *(f"{each:.1f} s" for each in medians), f"{medians[0] / medians[-1]:.1f}"])
    return table(["step", *(each.name for each in versions), "ratio"], rows)


def figures(versions: Sequence[Version]) -> Mapping[str, Mapping[str, Sequence[float]]]:
    """Return all seconds that were measured, by version and step."""
    return {each.name: each.seconds for each in versions}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.preparation", description=__doc__)
    parser.add_argument("--users", type=int, default=1000, metavar="N", help="default: 1000")
    parser.add_argument("--before", type=Path, metavar="DIR", help="the checkout of another version, to compare with")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures into this file")
    args = parser.parse_args(arguments)
    checkouts = {"now": Path(__file__).resolve().parent.parent}
    if args.before:
        checkouts = {"before": args.before.resolve()} | checkouts
    with short_directory() as place, ExitStack() as running:
        try:
            versions = [
                running.enter_context(version(name, checkout, args.users, Path(place) / name))
                for name, checkout in checkouts.items()
            ]
            compare(versions)
        except ConfigError as error:
            print(f"bench.preparation: {error}", file=sys.stderr)
            return 2
    print(document(versions))
    if args.json:
        args.json.write_text(json.dumps(figures(versions), indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
