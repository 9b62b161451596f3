"""`loadsim client`: be a client machine of a cluster, which makes a part of the load of runs that others start."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from loadsim.cli import VERBS
from loadsim.cli.cluster_options import add_cluster, needs_dask, say
from loadsim.cluster.address import control_address
from loadsim.engine.event_loop import requests_are, run
from loadsim.errors import ConfigError

if TYPE_CHECKING:
    from loadsim.cluster.security import Way

RUNS = "client-runs"
"""Where what is measured lies until the station has it."""

MOST_WEIGHT = 1_000_000


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `client`."""
    parser = subparsers.add_parser("client", help=VERBS["client"])
    add_cluster(parser, required=True)
    parser.add_argument("--name", metavar="NAME", help="what it is called; default: the name in its bundle")
    parser.add_argument(
        "--runs",
        type=Path,
        default=Path(RUNS),
        metavar="DIR",
        help=f"where what it measures lies until the station has it; default: {RUNS}",
    )
    parser.add_argument("--weight", type=weight, metavar="N", help="its share of the load; default: its cores")
    parser.set_defaults(run=run_client)


def weight(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or not 0 < int(text) <= MOST_WEIGHT:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {MOST_WEIGHT}, found {text!r}")
    return int(text)


def run_client(args: argparse.Namespace) -> int:
    """Join, until Ctrl-C; what a machine process does goes on without us."""
    needs_dask()
    from loadsim.cluster.scheduler import silence_dask
    from loadsim.cluster.security import way_to

    way = way_to(control_address(args.cluster), args.certs, args.insecure_plain_tcp)
    name = _name(args.name, args.certs)
    silence_dask()
    with _place(args.runs) as runs:
        run(_until_asked(way, name, runs, args.weight))
        _tell_what_goes_on(runs)
    return 0


def _name(given: str | None, certs: Path | None) -> str:
    """Raises `ConfigError` for none, or for what cannot be one."""
    from loadsim.cluster.bundle import load_bundle
    from loadsim.cluster.certs import client

    if given is None:
        if certs is None:
            raise ConfigError("--name: expected what this client is called, found nothing")
        given = load_bundle(certs).name
    if "=" in given:
        raise ConfigError(f"--name: expected letters, digits and hyphens, found {given!r}")
    return client(given).name


@contextmanager
def _place(runs: Path) -> Iterator[Path]:
    """The directory for machine processes, made if need be, and no other client's as long as the block lasts.

    Two would take each other's machine processes for their own. Raises `ConfigError`.
    """
    try:
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(runs, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as failure:
        raise ConfigError(f"--runs {runs}: expected a directory to write to, found: {failure.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"--runs {runs}: expected a directory of its own, found another client at it") from None
        except OSError:
            pass  # not every file system can keep others out
        yield runs.absolute()
    finally:
        os.close(descriptor)


async def _until_asked(way: Way, name: str, runs: Path, share: int | None) -> None:
    from loadsim.cluster.background import background_tasks
    from loadsim.cluster.join import join_forever

    asked = asyncio.Event()
    with requests_are(asked.set):
        async with background_tasks(join_forever(way, name, runs, share, say)):
            await asked.wait()


def _tell_what_goes_on(runs: Path) -> None:
    from loadsim.cluster.agent import run_directories
    from loadsim.cluster.worker_directory import in_use

    for directory in run_directories(runs):
        if in_use(directory):
            say(f"run {directory.name} goes on, and is reached again when this client joins again")
