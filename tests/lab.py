"""Start a mail server that nightly tests know, with the accounts and lists of a scenario, until Ctrl-C.

    .venv/bin/python tests/lab.py cyrus SCENARIO --imap-port 10143 --smtp-port 10025

Kinds are cyrus, courier, james and greenmail; cyrus and james serve JMAP on `--jmap-port`, too. `make nightly-servers`
fetches their programs. `inn` has only the newsgroup that `folders.public` names, on `--nntp-port`.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from other_servers.courier import start_courier
from other_servers.cyrus import start_cyrus
from other_servers.greenmail import start_greenmail
from other_servers.inn import start_inn
from other_servers.james import start_james

from loadsim.cli.server import ServerKind, add_kinds, add_private_ports
from loadsim.errors import LoadSimError
from loadsim.servers.private import PrivateServer


def kind(name: str, start: Callable[..., Any], *options: str) -> ServerKind:
    """A server whose start takes the ports, and these settings."""

    def begin(args: argparse.Namespace, *given: Any) -> Any:
        own = {each: getattr(args, each) for each in options}
        return start(*given, imap_port=args.imap_port, smtp_port=args.smtp_port, **own)

    added = (add_private_ports, add_jmap_port) if "jmap_port" in options else (add_private_ports,)
    return ServerKind(name, f"run a private {name.capitalize()}", added, begin)


def start_news(args: argparse.Namespace, accounts: Any, lists: Any, directory: Path) -> PrivateServer:
    return start_inn(directory, args.public_folder or "example.board", nntp_port=args.nntp_port)


def add_nntp_port(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nntp-port", type=int, metavar="PORT", help="port of NNTP; default: a free one")


def add_jmap_port(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jmap-port", type=int, metavar="PORT", help="serve JMAP on this port, too; default: not at all"
    )


KINDS = (
    kind("cyrus", start_cyrus, "further", "jmap_port"),
    kind("courier", start_courier, "further"),
    kind("james", start_james, "jmap_port"),
    kind("greenmail", start_greenmail),
    ServerKind("inn", "run a private INN", (add_nntp_port,), start_news),
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Start a mail server of the nightly tests, until Ctrl-C.")
    add_kinds(parser, KINDS)
    args = parser.parse_args()
    try:
        return int(args.run(args))
    except LoadSimError as failure:
        parser.error(str(failure))


if __name__ == "__main__":
    sys.exit(main())
