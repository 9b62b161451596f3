"""The options and output that the cluster commands share."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from loadsim.cluster.address import PLAIN_WORD
from loadsim.errors import ConfigError


def add_cluster(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Register the address of a cluster and the options for access to it."""
    parser.add_argument(
        "--cluster", required=required, metavar="ADDRESS", help="address of the controller, such as tls://station:8786"
    )
    add_certs(parser)


def add_certs(parser: argparse.ArgumentParser) -> None:
    """Register the options for access to a cluster."""
    parser.add_argument(
        "--certs", type=Path, metavar="DIR", help="certificate bundle of this machine (see `loadsim cluster certs`)"
    )
    parser.add_argument(
        PLAIN_WORD, action="store_true", help="disable TLS (anyone who can connect can then run code on this machine)"
    )


def needs_dask() -> None:
    """Check that the extra `distributed` is installed. Raises `ConfigError`."""
    for package in ("distributed", "cryptography"):
        if find_spec(package) is None:
            raise ConfigError(
                f"cluster: expected the package {package}, found none; pip install 'loadsim[distributed]'"
            )


def print_with_time(line: str) -> None:
    """Print a line with the time in UTC."""
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%SZ} {line}", flush=True)
