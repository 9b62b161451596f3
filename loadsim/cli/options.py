"""Options that several commands share, and their values."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from loadsim.cli.live.stderr_lines import print_line
from loadsim.cluster.address import LOOPBACK, control_address
from loadsim.documents.schema import PositiveDuration
from loadsim.documents.typed import Wrong, value_of
from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.model.host_port import host_and_port

if TYPE_CHECKING:
    from loadsim.cluster.security import Access
    from loadsim.scenario.scenario import Scenario


def whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, found {text!r}")
        return int(text)

    return parse


def duration(text: str) -> float:
    """Parse a duration such as 2m, written as in scenarios, into seconds."""
    try:
        seconds: float = value_of(PositiveDuration, text)
    except Wrong as wrong:
        raise argparse.ArgumentTypeError(f"expected {wrong.expected}, found {text!r}") from None
    return seconds


def listening_address(option: str, where: str) -> tuple[str, int]:
    """Parse the [HOST:]PORT of an option; without HOST, it is loopback. Raises `ConfigError`."""
    try:
        return host_and_port(where, host=LOOPBACK)
    except ValueError as wrong:
        raise ConfigError(f"{option}: expected [HOST:]PORT such as {LOOPBACK}:8080, found {where!r}{wrong}") from None


def add_scenario(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", metavar="SCENARIO", help="a path, or the bare name of a shipped scenario")
    add_set(parser, "override a key of the scenario; repeatable")


def add_set(parser: argparse.ArgumentParser, words: str) -> None:
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY.PATH=VALUE", help=words)


def add_ports(parser: argparse.ArgumentParser, imap: int, smtp: int, use: str = "") -> None:
    for service, port in (("imap", imap), ("smtp", smtp)):
        parser.add_argument(
            f"--{service}-port",
            type=whole(1, 65535),
            default=port,
            metavar="N",
            help=f"port of {service.upper()}{use}; default: %(default)s",
        )


def add_engines(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engines",
        type=int,
        metavar="N",
        help="number of load-generating processes; default: one per core, or per 15,000 users",
    )
    parser.add_argument(
        "--pin", action="store_true", help="pin the load, and as root a server on this machine, to separate cores"
    )


def given_scenario(args: argparse.Namespace) -> Scenario:
    """Read the scenario that the arguments name, and warn of risks on standard error. Raises `ConfigError`.

    Missing lists are not among the risks: commands that depend on them warn about them.
    """
    from loadsim.scenario.scenario import load_scenario  # only for commands with a scenario

    scenario = load_scenario(args.scenario, args.overrides)
    for finding in (*scenario.exposed, *scenario.findings):
        if finding.code is not Code.NO_LISTS:
            print_line(f"loadsim: warning: {finding.text}")
    return scenario


def add_cluster(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "--cluster", required=required, metavar="HOST[:PORT]", help="address of the controller; default port: 8786"
    )
    add_certs(parser)


def add_certs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--certs", type=Path, metavar="DIR", help="certificate of the cluster (see `loadsim cluster certs`)"
    )


def cluster_access(args: argparse.Namespace, address: str, what: str = "--cluster", *, listens: bool = False) -> Access:
    """Return access to the cluster whose controller has this address, or will listen there. Raises `ConfigError`."""
    needs_dask()
    from loadsim.cluster.security import access_to

    return access_to(control_address(address, what, listens=listens), args.certs)


def needs_dask() -> None:
    """Check that the `distributed` extra is installed. Raises `ConfigError`."""
    for package in ("distributed", "cryptography"):
        if find_spec(package) is None:
            raise ConfigError(
                f"cluster: expected the package {package}, found none; pip install 'loadsim[distributed]'"
            )


def print_with_time(line: str) -> None:
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%SZ} {line}", flush=True)
