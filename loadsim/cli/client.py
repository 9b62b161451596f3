"""`loadsim client`: join a cluster, and make a part of its runs' load."""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from loadsim.cli.options import add_cluster, cluster_access, print_with_time
from loadsim.cluster.address import CLIENT_NAME
from loadsim.errors import ConfigError
from loadsim.files import locked
from loadsim.processes.event_loop import background_tasks, calls_on_signal, run

if TYPE_CHECKING:
    from loadsim.cluster.security import Access

RUNS = "client-runs"
"""The directory of runs whose logs the controller has yet to collect."""

STORAGE_TEST = (sys.executable, "-P", "-m", "loadsim.storage.member")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_cluster(parser, required=True)
    parser.add_argument("--name", metavar="NAME", help="client name; default: this machine's host name")
    parser.add_argument(
        "--runs",
        type=Path,
        default=Path(RUNS),
        metavar="DIR",
        help=f"directory for logs until the controller has collected them; default: {RUNS}",
    )
    parser.set_defaults(run=run_client)


def run_client(args: argparse.Namespace) -> int:
    """Join the cluster until Ctrl-C. Workers keep running without this process."""
    access = cluster_access(args, args.cluster)
    name = args.name or socket.gethostname().partition(".")[0]
    if CLIENT_NAME.fullmatch(name) is None:
        raise ConfigError(f"--name: expected letters, digits and hyphens, at most 63, found {name!r}")
    with _own_directory(args.runs) as runs:
        run(_join_until_signal(access, name, runs))
        from loadsim.cluster.agent import run_directories
        from loadsim.cluster.worker_directory import in_use

        for directory in filter(in_use, run_directories(runs)):
            print_with_time(f"run {directory.name} continues, and is reachable when this client joins again")
    return 0


@contextmanager
def _own_directory(runs: Path) -> Iterator[Path]:
    """Create the directory if it is missing, and lock it for the block. Raises `ConfigError`.

    Two clients in one directory would mistake each other's workers for their own.
    """
    try:
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as failure:
        raise ConfigError(f"--runs {runs}: expected a directory to write to, found: {failure.strerror}") from None
    with locked(runs, "--runs", "client"):
        yield runs.absolute()


async def _join_until_signal(access: Access, name: str, runs: Path) -> None:
    from loadsim.cluster.agent import Agent, join_forever

    stop = asyncio.Event()
    with calls_on_signal(stop.set):
        async with background_tasks(join_forever(access, name, Agent(runs, STORAGE_TEST), print_with_time)):
            await stop.wait()
