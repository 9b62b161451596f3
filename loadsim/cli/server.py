"""`loadsim server`: run a mail server with a scenario's accounts and lists, until a signal."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

import yaml

from loadsim.cli.options import add_ports, add_scenario, given_scenario
from loadsim.files import locked
from loadsim.findings.formats import count
from loadsim.model.ports import Account, Endpoint
from loadsim.processes.event_loop import calls_on_signal, run
from loadsim.protocols.registry import check_protocols
from loadsim.runs.server import embedded_server
from loadsim.scenario.population import distribution_lists, further_connections
from loadsim.scenario.server import mapi_url
from loadsim.servers.dovecot_postfix import start_dovecot_postfix
from loadsim.servers.dovecot_postfix_config import TLS_MODES
from loadsim.servers.private import LOOPBACK
from loadsim.servers.running import RunningServer

add_private_ports = partial(add_ports, imap=10143, smtp=10025)
"""Adds the port options; the defaults are the tutorial's ports."""


class ServerKind(NamedTuple):
    """A kind of server: the functions that add its options, and the function that starts it in a directory."""

    name: str
    help: str
    options: Sequence[Callable[[argparse.ArgumentParser], None]]
    start: Callable[[argparse.Namespace, Sequence[Account], Mapping[str, Sequence[str]], Path], RunningServer]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_kinds(parser, KINDS)


def add_kinds(parser: argparse.ArgumentParser, kinds: Sequence[ServerKind]) -> None:
    verbs = parser.add_subparsers(dest="server_kind", required=True, metavar="KIND")
    for kind in kinds:
        added = verbs.add_parser(kind.name, help=kind.help)
        add_scenario(added)
        added.add_argument(
            "--dir", type=Path, metavar="DIR", help="directory for the server's files; default: a temporary directory"
        )
        for add in kind.options:
            add(added)
        added.set_defaults(run=partial(run_kind, kind))


def address(text: str) -> str:
    """Parse an IPv4 address to listen on and connect to."""
    try:
        parsed = IPv4Address(text)
    except ValueError:
        parsed = None
    if parsed is None or parsed.is_unspecified or parsed.is_multicast:
        raise argparse.ArgumentTypeError(f"expected an IPv4 address of this machine, found {text!r}")
    return str(parsed)


def run_kind(kind: ServerKind, args: argparse.Namespace) -> int:
    """Run a server of this kind with the scenario's accounts and lists, until a signal."""
    scenario = given_scenario(args)
    accounts = [scenario.account(index) for index in range(1, scenario.users + 1)]
    lists = dict(distribution_lists(scenario))
    check_protocols(scenario)
    args.start_embedded = embedded_server(scenario)
    args.further = further_connections(scenario)  # not an option: it follows from the users' mail programs
    args.public_folder = scenario.folders.public
    with server_directory(args.dir) as directory:
        print(f"# Starting {kind.name} with {count(scenario.users, 'account')}: this takes a few seconds.", flush=True)
        run(_serve_until_signal(partial(kind.start, args, accounts, lists, directory), directory))
    print("# Stopped." if args.dir is not None else "# Stopped; its files were removed.")
    return 0


@contextmanager
def server_directory(kept: Path | None) -> Iterator[Path]:
    """Yield the directory to keep, creating it if missing, or a temporary one that the server's system users can enter.

    The temporary path is short: a Unix socket's path has at most 107 characters.
    """
    if kept is not None:
        kept.mkdir(mode=0o711, parents=True, exist_ok=True)
        with locked(kept, "--dir", "server"):
            yield kept
        return
    directory = Path(tempfile.mkdtemp(prefix="loadsim-", dir="/tmp"))
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


async def _serve_until_signal(start: Callable[[], RunningServer], directory: Path) -> None:
    """Start the server, print its address, and stop it at SIGINT or SIGTERM, even if it arrives during the start."""
    stop = asyncio.Event()
    with calls_on_signal(stop.set), start() as server:
        print(f"# {server.describe()}, in {directory}")
        for note in getattr(server, "notes", ()):
            print(f"# {note}")
        print("# In the scenario:")
        block = {"server": {name: _lines(name, each) for name, each in server.services.endpoints.items()}}
        print(yaml.safe_dump(block, sort_keys=False, default_flow_style=None, width=200), end="")
        print("# Ctrl-C stops it.", flush=True)
        await stop.wait()
        print("# Stopping: with full mailboxes, this may take a minute.", flush=True)


def _lines(service: str, endpoint: Endpoint) -> dict[str, str | int]:
    if service == "mapi":
        return {"url": mapi_url(endpoint)}
    lines: dict[str, str | int] = {"host": endpoint.host, "port": endpoint.port, "tls": endpoint.tls}
    return lines | ({"ca_file": endpoint.ca_file} if endpoint.ca_file else {})


def _add_dovecot_postfix(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen",
        type=address,
        default=LOOPBACK,
        metavar="ADDRESS",
        help="IPv4 address for both; default: %(default)s",
    )
    parser.add_argument("--tls", choices=TLS_MODES, default="none", help="TLS mode for both; default: %(default)s")


KINDS = (
    ServerKind(
        "embedded",
        "run an in-memory server on free ports, without root; not for measurements",
        (),
        lambda args, accounts, lists, directory: args.start_embedded(accounts, lists, directory),
    ),
    ServerKind(
        "dovecot-postfix",
        "run a private instance of Debian's Dovecot and Postfix, as root",
        (add_private_ports, _add_dovecot_postfix),
        lambda args, *about: start_dovecot_postfix(
            *about,
            imap_port=args.imap_port,
            smtp_port=args.smtp_port,
            address=args.listen,
            tls=args.tls,
            further=args.further,
            public_folder=args.public_folder,
        ),
    ),
)
