"""Start a mail server, or one of calendars, that tests know, with the accounts and lists of a scenario, until Ctrl-C.

    .venv/bin/python tests/lab.py cyrus SCENARIO --imap-port 10143 --smtp-port 10025

Kinds are cyrus, courier, james, greenmail and inn, whose programs `make nightly-servers` fetches, and radicale and
xandikos, which serve calendars. cyrus and james serve JMAP on `--jmap-port`, and cyrus CalDAV on `--caldav-port`, too.
inn has only the newsgroup that `folders.public` names.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from other_servers.calendars import start_radicale, start_xandikos
from other_servers.courier import start_courier
from other_servers.cyrus import start_cyrus
from other_servers.greenmail import start_greenmail
from other_servers.inn import start_inn
from other_servers.james import start_james

from loadsim.cli.server import ServerKind, add_kinds, add_private_ports
from loadsim.errors import LoadSimError
from loadsim.servers.private import PrivateServer


def kind(name: str, start: Callable[..., Any], *options: str) -> ServerKind:
    """A server whose start takes these settings; those with ports are options of the command."""

    def begin(args: argparse.Namespace, *given: Any) -> Any:
        return start(*given, **{each: getattr(args, each) for each in options})

    added = [PORTS[each] for each in options if each in PORTS]
    return ServerKind(name, f"run a private {name.capitalize()}", added, begin)


def start_news(args: argparse.Namespace, accounts: Any, lists: Any, directory: Path) -> PrivateServer:
    return start_inn(directory, args.public_folder or "example.board", nntp_port=args.nntp_port)


def port_of(service: str) -> Callable[[argparse.ArgumentParser], None]:
    def add(parser: argparse.ArgumentParser) -> None:
        told = f"serve {service} on this port; default: a free one, or not at all on a mail server"
        parser.add_argument(f"--{service.lower()}-port", type=int, metavar="PORT", help=told)

    return add


PORTS = {"imap_port": add_private_ports, "jmap_port": port_of("JMAP"), "caldav_port": port_of("CalDAV")}
MAIL = ("imap_port", "smtp_port")

KINDS = (
    kind("cyrus", start_cyrus, *MAIL, "further", "jmap_port", "caldav_port"),
    kind("courier", start_courier, *MAIL, "further"),
    kind("james", start_james, *MAIL, "jmap_port"),
    kind("greenmail", start_greenmail, *MAIL),
    kind("radicale", start_radicale, "caldav_port"),
    kind("xandikos", start_xandikos, "caldav_port"),
    ServerKind("inn", "run a private INN", (port_of("NNTP"),), start_news),
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
