"""`loadsim cluster`: the controller of several client machines, their certificates, and logs left on them."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from loadsim.cli.options import add_certs, add_cluster, cluster_access, needs_dask, print_with_time, whole
from loadsim.cli.run_view import Warnings
from loadsim.cli.shown_answer import add_wide, shown_answer
from loadsim.cluster.address import DEFAULT_PORT, LOOPBACK, ControlAddress
from loadsim.engine.event_loop import calls_on_signal, run
from loadsim.errors import ConfigError
from loadsim.model.host_port import is_loopback
from loadsim.report.text import table

if TYPE_CHECKING:
    from loadsim.cluster.security import Access

DAYS = 365
"""The default validity of a certificate."""

MOST_DAYS = 3650


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="cluster_verb", required=True, metavar="VERB")
    _add_up(verbs.add_parser("up", help="run the controller, until Ctrl-C"))
    _add_collect(verbs.add_parser("collect", help="collect the logs of a run that its clients still have"))
    _add_certs(
        verbs.add_parser(
            "certs", help="make certificate bundles of the machines; in a new directory, an authority first"
        )
    )


def _add_up(up: argparse.ArgumentParser) -> None:
    up.add_argument(
        "--listen",
        default=f"{LOOPBACK}:{DEFAULT_PORT}",
        metavar="HOST[:PORT]",
        help="address to listen on; 0.0.0.0: all interfaces; port 0: any free one; default: %(default)s",
    )
    add_certs(up)
    up.set_defaults(run=run_up)


def _add_collect(collecting: argparse.ArgumentParser) -> None:
    add_cluster(collecting, required=True)
    collecting.add_argument("name", nargs="?", metavar="RUN", help="ID of the run; without it, list the runs")
    collecting.add_argument("--out", type=Path, metavar="DIR", help="run directory, old or new; default: runs/RUN")
    add_wide(collecting)
    collecting.set_defaults(run=run_collect)


def run_collect(args: argparse.Namespace) -> int:
    """Collect a run, and return the exit status of its verdict; without a run, list the runs."""
    needs_dask()
    from loadsim.runs.collect import collect_run, runs_on_clients

    access = cluster_access(args, args.cluster)
    if args.name is None:
        if args.out is not None:
            raise ConfigError(f"--out {args.out}: expected RUN, too, found none")
        for line in _runs_table(runs_on_clients(access)):
            print(line)
        return 0
    result = collect_run(access, args.name, args.out, watcher=Warnings())
    print(f"{shown_answer(result.summary, wide=args.wide).rstrip()}\n\nRun directory: {result.directory}")
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
    """Run the controller. Print its address, and a line for each client that joins or leaves."""
    needs_dask()
    from loadsim.cluster.scheduler import silence_dask

    access = cluster_access(args, args.listen, "--listen", listens=True)
    silence_dask()
    return run(_up(access, args.certs))


async def _up(access: Access, certs: Path | None) -> int:
    from loadsim.cluster.scheduler import scheduler_at

    stop = asyncio.Event()
    with calls_on_signal(stop.set):
        async with scheduler_at(access, print_with_time) as address:
            print(
                f"# Controller at {address}. Anyone who can connect to it can run code on every machine of the cluster."
            )
            if is_loopback(address.host):
                print("# Only this machine can reach it; --listen 0.0.0.0 --certs DIR lets others.")
            print("# On each client machine:")
            print(_client_command(replace(address, host=_public_host(address.host, certs)), certs is not None))
            print("# Ctrl-C ends it.", flush=True)
            await stop.wait()
    return 0


def _public_host(host: str, certs: Path | None) -> str:
    """Return a name by which clients reach the controller: the host that it listens on, unless that is all."""
    if certs is None or host not in ("0.0.0.0", "::"):  # noqa: S104 - a comparison
        return host
    from loadsim.cluster.bundle import load_bundle

    return load_bundle(certs).hosts[0]


def _client_command(address: ControlAddress, secured: bool) -> str:
    return f"loadsim client --cluster {address} {'--certs BUNDLE' if secured else '--name NAME'}"


def _add_certs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="directory of the certificates")
    parser.add_argument(
        "--station",
        action="append",
        default=[],
        metavar="HOST",
        help="name or address at which clients reach the controller; localhost is added; repeatable",
    )
    parser.add_argument(
        "--client",
        action="append",
        default=[],
        metavar="NAME[=HOST,...]",
        help="a client machine and its addresses; repeatable",
    )
    parser.add_argument(
        "--days",
        type=whole(1, MOST_DAYS),
        default=DAYS,
        metavar="N",
        help="validity of the certificates in days; default: %(default)s",
    )
    parser.set_defaults(run=run_certs)


def run_certs(args: argparse.Namespace) -> int:
    """Make bundles, and the authority in a new directory; print where they are and where they belong."""
    from loadsim.cluster import certs
    from loadsim.cluster.bundle import AUTHORITY

    members = [*([certs.station(args.station)] if args.station else []), *map(certs.client, args.client)]
    is_new = not args.directory.exists()
    if is_new and not args.station:
        raise ConfigError(f"--station: expected a host for the controller of the new {args.directory}, found none")
    if not members:
        raise ConfigError("--client: expected a client, or --station, to make a bundle for, found none")
    (certs.make if is_new else certs.add)(args.directory, members, args.days)
    if is_new:
        print(f"{args.directory / AUTHORITY}: the authority; keep it here, and secret")
    for member in members:
        use = "for the controller" if member.role == "station" else f"copy to {member.name} only"
        print(f"{args.directory / member.directory}: {use}; hosts: {', '.join(member.hosts)}")
    return 0
