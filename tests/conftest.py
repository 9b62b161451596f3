"""What pytest needs to know before it collects: fixtures that start mail servers, and what to do without them."""

from __future__ import annotations

import os

import pytest
from mailservers import dovecot_postfix, embedded_server, server_directory

from loadsim.errors import ConfigError
from loadsim.servers.dovecot_postfix import check_machine

__all__ = ["dovecot_postfix", "embedded_server", "server_directory"]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs Dovecot and Postfix where they cannot run; with CI=true that is a failure."""
    if item.get_closest_marker("servers") is None:
        return
    try:
        check_machine()
    except ConfigError as lacking:
        reason = f"NOT TESTED on Dovecot and Postfix: {lacking} (as root on Debian: tests/install-mail-servers.sh)"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
