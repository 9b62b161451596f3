"""What the commands of a cluster's members have in common: certificates, the word for doing without, lines."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from loadsim.cluster.address import PLAIN_WORD
from loadsim.errors import ConfigError


def add_cluster(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Register the options that say which cluster, and how one gets into it."""
    parser.add_argument(
        "--cluster", required=required, metavar="ADDRESS", help="its control station, such as tls://station:8786"
    )
    add_certs(parser)


def add_certs(parser: argparse.ArgumentParser) -> None:
    """Register the options that say who we are to the others."""
    parser.add_argument("--certs", type=Path, metavar="DIR", help="this machine's bundle (see `loadsim cluster certs`)")
    parser.add_argument(
        PLAIN_WORD, action="store_true", help="do without encryption, although everybody there may then run code here"
    )


def needs_dask() -> None:
    """Raises `ConfigError` where the extra is not installed."""
    for package in ("distributed", "cryptography"):
        if find_spec(package) is None:
            raise ConfigError(
                f"cluster: expected the package {package}, found none; pip install 'loadsim[distributed]'"
            )


def say(line: str) -> None:
    """Something happened, now."""
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%SZ} {line}", flush=True)
