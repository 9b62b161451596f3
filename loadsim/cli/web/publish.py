"""`--web`: serve the page of a run, at an address that browsers may reach safely."""

from __future__ import annotations

import argparse
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from secrets import token_urlsafe

from loadsim.cli.live_figures import Page, before
from loadsim.cli.options import listening_address
from loadsim.errors import ConfigError
from loadsim.model.host_port import bracketed
from loadsim.model.scenario import Scenario

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")

TOKEN_BYTES = 32


def add_web(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--web",
        metavar="[HOST:]PORT",
        help="serve a page that shows the run, and print its URL; without HOST, on loopback; port 0: any free one",
    )
    parser.add_argument(
        "--web-certificate", type=Path, metavar="FILE", help="with --web: certificate in PEM, needed beyond loopback"
    )
    parser.add_argument("--web-key", type=Path, metavar="FILE", help="with --web: the key of the certificate")


@contextmanager
def shown_page(args: argparse.Namespace, scenario: Scenario, title: str | None = None) -> Iterator[Page]:
    """Yield a view, and serve its figures as a page if `--web` is given, until open pages have the result.

    `scenario` and `title`, its name unless given, are those of a run; a sequence of runs states its own.
    Print the address of the page on standard error, also with `--quiet`: it is useless without its token.
    Raises `ConfigError` for an address that cannot be used, or one off loopback without a certificate.
    """
    if args.web is None:
        for option in ("web_certificate", "web_key"):
            if getattr(args, option) is not None:
                raise ConfigError(f"--{option.replace('_', '-')}: expected --web, too, found none")
        yield Page()
        return
    host, port = listening_address("--web", args.web)
    tls = _tls(args.web_certificate, args.web_key)
    family, place = _place(args.web, host, port, secure=tls is not None)
    from loadsim.cli.web.server import PageServer, serving
    from loadsim.cli.web.view import PageView

    view = PageView(before(scenario, title))
    token = token_urlsafe(TOKEN_BYTES)
    try:
        server = PageServer(place, family, view, token, _interrupt, tls)
    except OSError as failure:
        raise ConfigError(f"--web: expected to listen at {args.web}, found: {failure.strerror}") from None
    port = server.server_address[1]
    names = {bracketed(host).lower(), *(LOOPBACK_NAMES if _is_loopback(place[0]) else ())}
    default = 80 if tls is None else 443
    server.hosts = frozenset({f"{name}:{port}" for name in names} | (names if port == default else set()))
    scheme = "http" if tls is None else "https"
    with serving(server):
        with suppress(BrokenPipeError):  # no reader
            print(f"Watch: {scheme}://{bracketed(host)}:{port}/#{token}", file=sys.stderr, flush=True)
        yield view


def _interrupt() -> None:
    """Send this process what Ctrl-C sends, or SIGTERM if it ignores that, as a background job of a shell does.

    The signal goes to the main thread: elsewhere, it would not interrupt a wait of the main thread.
    """
    number = signal.SIGTERM if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else signal.SIGINT
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, number)


def _place(where: str, host: str, port: int, *, secure: bool) -> tuple[int, tuple[str, int]]:
    """Return the family and the address to listen at. Raises `ConfigError` for one that is not safe."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as failure:  # UnicodeError for an invalid host name
        why = getattr(failure, "strerror", None) or failure
        raise ConfigError(f"--web: expected to listen at {where}, found: {why}") from None
    family, _, _, _, place = found[0]
    address = str(place[0])
    if _plain(address).is_unspecified:
        raise ConfigError(f"--web: expected one name or address of this machine, found {host}, which is all of them")
    if not secure and not _is_loopback(address):
        expected = "expected --web-certificate and --web-key, too, for an address that other machines reach"
        raise ConfigError(f"--web: {expected}, found {where} without them")
    return family, (address, port)


def _is_loopback(address: str) -> bool:
    return _plain(address).is_loopback


def _plain(address: str) -> IPv4Address | IPv6Address:
    """Return an address without its zone; for one of IPv4 in the form of IPv6, the address of IPv4."""
    found = ip_address(address.partition("%")[0])
    return (found.ipv4_mapped if isinstance(found, IPv6Address) else None) or found


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """Return the settings of HTTPS; None without a certificate. Raises `ConfigError` for files that do not fit."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        given, missing = ("key", "certificate") if certificate is None else ("certificate", "key")
        raise ConfigError(f"--web-{given}: expected --web-{missing}, too, found none")
    for option, path in (("certificate", certificate), ("key", key)):
        try:
            path.read_bytes()
        except OSError as failure:
            raise ConfigError(f"--web-{option} {path}: expected a file to read, found: {failure.strerror}") from None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")  # else OpenSSL asks the terminal
    except (ssl.SSLError, ValueError):
        expected = "expected a certificate in PEM, and its key in PEM, not encrypted"
        raise ConfigError(f"--web-certificate {certificate}, --web-key {key}: {expected}, found others") from None
    return context
