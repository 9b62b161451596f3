"""What pytest needs to know before it collects: fixtures that start mail servers, and what to do without them."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from mailservers import dovecot_postfix, embedded_server, server_directory

from bench.nullserver import compiler
from loadsim.errors import ConfigError
from loadsim.servers.dovecot_postfix import check_machine

__all__ = ["dovecot_postfix", "embedded_server", "server_directory"]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs Dovecot and Postfix, or a C compiler, where they are missing; with CI=true that is a failure."""
    for marker, check, what in (
        ("servers", check_machine, "on Dovecot and Postfix"),
        ("compiler", compiler, "on the null server"),
    ):
        if item.get_closest_marker(marker) is not None:
            _check(check, what)


def _check(check: Callable[[], object], what: str) -> None:
    try:
        check()
    except ConfigError as lacking:
        reason = f"NOT TESTED {what}: {lacking} (as root on Debian: tests/install-mail-servers.sh)"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
