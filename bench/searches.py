"""`python -m bench.searches`, as root: capacity searches on Dovecot and Postfix, whose processor and disk are limited.

Four searches have a server of their own each, on other cores than the load: two with equal limits, one with half of the
processor, and one with a slow disk. The intervals of the first two must overlap, and the resource that the others lack
must be the nearest to saturation. Resumable: the same `--out` continues where a search was interrupted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.control_groups import Limits, limited
from bench.nullserver import HOST
from bench.processes import short_directory
from bench.runs import loadsim, written
from loadsim.errors import ConfigError
from loadsim.scenario.population import distribution_lists
from loadsim.scenario.scenario import load_scenario
from loadsim.servers.dovecot_postfix import start_dovecot_postfix

FIRST = 50
"""The users of the first step."""

PORTS = (12143, 12025)
"""Of IMAP and SMTP: those of a scenario must not change while a search is resumed."""

STATED = (0, 1, 4)
"""The exit statuses of a search that has ended with an answer."""


@dataclass(frozen=True, slots=True)
class Search:
    """One search: its name, the server's limits, and further options of `loadsim capacity`."""

    name: str
    limits: Limits
    options: Sequence[str]


def searches(cores: float, writes_per_s: int) -> Sequence[Search]:
    """Return the four searches. The last two need a clear difference and no interval, so they are quick."""
    upward = ("--from", str(FIRST))
    few = ("--from", "20", "--most", "105", "--quick")
    return (
        Search("first", Limits(cores), upward),
        Search("second", Limits(cores), upward),
        Search("half the processor", Limits(cores / 2), few),
        Search("slow disk", Limits(cores, writes_per_s), few),
    )


def scenario(users: int) -> Mapping[str, Any]:
    """Return Medium users with a day of 150 s, small mailboxes, and limits on times.

    READ has half of the 100 ms that users notice (docs/how-to/find-the-capacity.md). From about 60 ms on, the users of
    so short a day wait so long that the run is degraded, and decides nothing. Few users on half of the processor have
    fewer than the usual 20 hits of FORWARD in the window.
    """
    imap, smtp = PORTS
    return {
        "name": "searches",
        "server": {"imap": {"host": HOST, "port": imap}, "smtp": {"host": HOST, "port": smtp}},
        "accounts": {"user": "user{index:05d}", "password": "secret-{index}"},
        "topology": [{"profile": "loadsim-5.5/medium", "users": users}],
        "lists": {"population": users},
        "mailbox": {"folders": 5, "messages_per_folder": 5, "inbox": 4, "deleted_items": 1, "population": users},
        "probes": {"host": {}},
        "limits": {"hits": 10},
        "run": {"day_length": "150s", "duration": "46s", "ramp_up": "5s", "warm_up": "10s", "window": "35s"},
        "criteria": {
            "tasks.READ.p95_ms": {"max": 50},
            **{f"tasks.{task}.p95_ms": {"max": 1000} for task in ("BROWSE", "MOVE", "DELETE", "SEND", "REPLY")},
        },
    }


def perform(search: Search, users: int, place: Path) -> Mapping[str, Any]:
    """Make a search below `place` on a server of its own; return its `campaign.json`.

    Raises `ConfigError` if the server cannot be started, or the search ended without an answer.
    """
    place.mkdir(parents=True, exist_ok=True)
    nowhere = load_scenario(str(written(place / "scenario.json", scenario(users))))
    accounts = [nowhere.account(index) for index in range(1, users + 1)]
    with short_directory() as directory, limited(f"loadsim-{Path(directory).name}", search.limits, place) as group:
        imap, smtp = PORTS
        with group.joined():
            lists = dict(distribution_lists(nowhere))
            server = start_dovecot_postfix(accounts, lists, Path(directory) / "server", imap_port=imap, smtp_port=smtp)
        try:
            options = ("--pause", "1s", "--pin", "--engines", "1")
            command = loadsim("capacity", place / "scenario.json", *options, *search.options, "--out", place / "search")
            status = subprocess.run(command, check=False).returncode
        finally:
            server.stop()
    if status not in STATED:
        raise ConfigError(f"bench.searches: {search.name}: loadsim capacity ended with {status}")
    found: Mapping[str, Any] = json.loads((place / "search" / "campaign.json").read_text(encoding="utf-8"))
    return found


def row(search: Search, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row of the table: what a search found, and the resource that was nearest to saturation."""
    resources = [one for one in found["resources"] or () if one["mean"] is not None]
    nearest = resources[0] if resources else None
    return {
        "search": search.name,
        "users": found["users"],
        "failed_users": found["failed_users"],
        "interval": found["interval"],
        "stopped_by": found["stopped_by"],
        "steps": len(found["steps"]),
        "tasks_per_s": found["tasks_per_s"],
        "nearest": nearest and {"name": nearest["name"], "mean": nearest["mean"]},
    }


def main() -> int:
    """Make the searches, and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="directory of the searches, new, or of some to resume")
    parser.add_argument("--users", type=int, default=400, help="largest number of users; default: 400")
    parser.add_argument("--cores", type=float, default=0.5, help="processor quota of the server; default: 0.5")
    parser.add_argument(
        "--writes", type=int, default=300, help="write requests per second of the slow disk; default: 300"
    )
    args = parser.parse_args()
    try:
        for search in searches(args.cores, args.writes):
            place = args.out / search.name.replace(" ", "-")
            print(json.dumps(row(search, perform(search, args.users, place))), flush=True)
    except ConfigError as error:
        print(f"bench.searches: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
