"""What is seen from a machine that makes load, before there is any: the server, where it is, and the machine itself."""

from __future__ import annotations

import os
from typing import Any

from loadsim.model.ports import Services
from loadsim.monitor.host import this_machine
from loadsim.monitor.server_banner import greetings
from loadsim.monitor.server_discovery import ServerPlace


def seen_from_here(place: ServerPlace, services: Services) -> dict[str, Any]:
    """Facts for the machine's log, where nothing is done to keep server and load apart."""
    return {
        "server_here": place.here,
        "server_processes": len(place.processes),
        **this_machine(),
        **greetings(services),
        "shares_cpus": place.shares(os.sched_getaffinity(0)),
        "pinned": False,
    }
