"""The options of `run` and `capacity` for runs on a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from loadsim.cli.options import add_cluster, cluster_access
from loadsim.errors import ConfigError
from loadsim.runs.result import RunResult
from loadsim.scenario.scenario import Scenario


def add_cluster_runs(parser: argparse.ArgumentParser) -> None:
    add_cluster(parser, required=False)
    parser.add_argument(
        "--clients", type=int, metavar="N", help="with --cluster: wait until N clients have joined; capacity needs it"
    )


def refuse_cluster_options(args: argparse.Namespace) -> None:
    """Raise `ConfigError` for options that need `--cluster`."""
    for option in ("clients", "certs"):
        if getattr(args, option) is not None:
            raise ConfigError(f"--{option}: expected --cluster as well, found none")


def cluster_runner(args: argparse.Namespace, scenario: Scenario) -> Callable[..., RunResult] | None:
    """Return `run_on_cluster` with its access and number of clients; None without `--cluster`.

    Raises `ConfigError` for options that exclude each other, and for a scenario that machines cannot share.
    """
    if args.cluster is None:
        refuse_cluster_options(args)
        return None
    for option in ("engines", "pin"):
        if getattr(args, option):
            raise ConfigError(f"--{option}: expected a run on one machine, found --cluster")
    if args.clients is not None and args.clients < 1:
        raise ConfigError(f"--clients: expected a number of at least 1, found {args.clients}")
    access = cluster_access(args, args.cluster)
    from loadsim.runs.cluster import check_shareable, run_on_cluster

    check_shareable(scenario)
    return partial(run_on_cluster, access=access, clients=args.clients)
