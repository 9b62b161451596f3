"""The JMAP peer as a process of its own: it prints its port, and ends with its standard input or a signal.

python -m tests.support.jmap_peer --accounts users.csv --switch relative_urls=true
"""

import argparse
import asyncio
import csv
import json
import signal
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from . import Limits, Switches, User, jmap_peer


def read_users(path: Path) -> list[User]:
    """Return the users of a table as `accounts.csv` of a scenario."""
    with path.open(newline="") as table:
        return [User(row["user"], row.get("address") or row["user"], row["password"]) for row in csv.DictReader(table)]


def chosen(kind: type[Any], settings: list[str]) -> Any:
    pairs = dict(setting.split("=", 1) for setting in settings)
    names = {each.name for each in fields(kind)}
    return kind(**{name: json.loads(value) for name, value in pairs.items() if name in names})


async def serve(arguments: argparse.Namespace) -> None:
    switches, limits = (chosen(kind, arguments.switch) for kind in (Switches, Limits))
    async with jmap_peer(read_users(arguments.accounts), switches, limits, port=arguments.port) as peer:
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        print(peer.base.rpartition(":")[2], flush=True)
        await ended.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="jmap_peer", description=__doc__)
    parser.add_argument(
        "--accounts", type=Path, required=True, help="table with the columns user, password and address"
    )
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--switch", action="append", default=[], metavar="NAME=JSON", help="a switch or a limit")
    sys.exit(asyncio.run(serve(parser.parse_args())))
