"""`loadsim cluster`: a controller for several client machines, their certificate, and the logs left on them."""

from __future__ import annotations

import argparse
import asyncio
import socket
from collections.abc import Mapping
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from loadsim.cli.live.run_view import Warnings
from loadsim.cli.options import add_certs, add_cluster, cluster_access, needs_dask, print_with_time
from loadsim.cli.shown_answer import add_wide, shown
from loadsim.cluster.address import DEFAULT_PORT, LOOPBACK, ControlAddress
from loadsim.errors import ConfigError
from loadsim.model.host_port import is_loopback
from loadsim.processes.event_loop import calls_on_signal, run
from loadsim.report.answer import describe_answer
from loadsim.report.text import table

if TYPE_CHECKING:
    from loadsim.cluster.security import Access


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="cluster_verb", required=True, metavar="VERB")

    up = verbs.add_parser("up", help="run the controller, until Ctrl-C")
    up.add_argument(
        "--listen",
        default=f"{LOOPBACK}:{DEFAULT_PORT}",
        metavar="HOST[:PORT]",
        help="address to listen on; 0.0.0.0: all interfaces; port 0: any free one; default: %(default)s",
    )
    add_certs(up)
    up.set_defaults(run=run_up)

    collecting = verbs.add_parser("collect", help="collect the logs of a run that are still on its clients")
    add_cluster(collecting, required=True)
    collecting.add_argument("name", nargs="?", metavar="RUN", help="ID of the run; without it, list the runs")
    collecting.add_argument("--out", type=Path, metavar="DIR", help="run directory, old or new; default: runs/RUN")
    add_wide(collecting)
    collecting.set_defaults(run=run_collect)

    certs = verbs.add_parser("certs", help="make the certificate of a cluster")
    certs.add_argument("directory", type=Path, metavar="DIR", help="new directory for the certificate and its key")
    certs.set_defaults(run=run_certs)


def run_collect(args: argparse.Namespace) -> int:
    """Collect a run, and return the exit status of its verdict. Without a run, list the runs."""
    access = cluster_access(args, args.cluster)
    from loadsim.runs.collect import collect_run, runs_on_clients

    if args.name is None:
        if args.out is not None:
            raise ConfigError(f"--out {args.out}: expected RUN as well, found none")
        for line in _runs_table(runs_on_clients(access)):
            print(line)
        return 0
    result = collect_run(access, args.name, args.out, watcher=Warnings())
    print(f"{shown(describe_answer(result.summary), wide=args.wide)}\n\nRun directory: {result.directory}")
    return result.exit_status


def _runs_table(runs_of: Mapping[str, Mapping[str, bool]]) -> list[str]:
    rows = [
        (run_id, name, "still at work" if at_work else "ended")
        for name, runs in runs_of.items()
        for run_id, at_work in runs.items()
    ]
    if not rows:
        return ["No client has logs of any run."]
    return table([("Run", "Client", ""), *sorted(rows, key=itemgetter(0))])


def run_up(args: argparse.Namespace) -> int:
    """Run the controller. Print its address, and a line whenever a client joins or leaves."""
    return run(_up(cluster_access(args, args.listen, "--listen", listens=True)))


async def _up(access: Access) -> int:
    from loadsim.cluster.controller import scheduler_at

    stop = asyncio.Event()
    with calls_on_signal(stop.set):
        async with scheduler_at(access, print_with_time) as address:
            print(
                f"# Controller at {address}. Anyone who can connect to it can run code on every machine of the cluster."
            )
            if is_loopback(address.host):
                print("# Only this machine can reach it; --listen 0.0.0.0 --certs DIR lets others.")
            print("# On each client machine:")
            print(_client_command(address))
            print("# Ctrl-C ends it.", flush=True)
            await stop.wait()
    return 0


def _client_command(address: ControlAddress) -> str:
    """Return the command that joins a client; it names this machine if the controller listens on all interfaces."""
    if address.host in ("0.0.0.0", "::"):  # noqa: S104 - a comparison
        address = replace(address, host=socket.gethostname())
    return f"loadsim client --cluster {address} {'--certs DIR' if address.secured else '--name NAME'}"


def run_certs(args: argparse.Namespace) -> int:
    needs_dask()
    from loadsim.cluster.certs import make

    make(args.directory)
    print(f"{args.directory}: the cluster's certificate and its key; copy it to the cluster's machines only")
    return 0
