"""Permitted names of clients and runs. The names become directories on the controller and on the clients."""

from __future__ import annotations

import re

LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
"""One label of a host name (RFC 1123 section 2.1)."""

CLIENT_NAME = re.compile(LABEL)
"""A client's name. It is also part of the names of its logs, and a name in its certificate."""

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
