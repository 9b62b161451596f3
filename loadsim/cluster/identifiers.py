"""What clients and runs of a cluster may be called: their names become directories, here and there."""

from __future__ import annotations

import re

LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
"""RFC 1123 section 2.1: one piece of a host's name."""

CLIENT_NAME = re.compile(LABEL)
"""A client's becomes a part of a log's name, too, and a name in its certificate."""

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
