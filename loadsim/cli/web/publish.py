"""`--web`: serve a run's page to browsers on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_urlsafe

from loadsim.cli.live.figures import View, before
from loadsim.cli.live.stderr_lines import print_line
from loadsim.cli.options import whole
from loadsim.errors import ConfigError
from loadsim.scenario.scenario import Scenario


def add_web(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--web",
        type=whole(0, 65535),
        metavar="PORT",
        help="serve a web page of the run on loopback, and print its URL; port 0: any free one",
    )


@contextmanager
def shown_page(args: argparse.Namespace, scenario: Scenario) -> Iterator[View]:
    """Yield a view and, with `--web`, serve its figures as a page, until open pages have the result.

    Print the page's address on standard error even with `--quiet`: the page cannot be opened without its token.
    Raises `ConfigError` if the port cannot be used.
    """
    if args.web is None:
        yield View()
        return
    from loadsim.cli.web.server import PageServer, serving
    from loadsim.cli.web.view import PageView

    view, token = PageView(before(scenario)), token_urlsafe(32)
    try:
        server = PageServer(args.web, view, token)
    except OSError as failure:
        raise ConfigError(f"--web: expected to listen at {args.web}, found: {failure.strerror}") from None
    with serving(server):
        print_line(f"Watch: http://127.0.0.1:{server.server_port}/#{token}")
        yield view
