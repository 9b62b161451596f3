"""A check of the server that a scenario names, or of the embedded one, which it starts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from loadsim.engine.event_loop import run
from loadsim.model.scenario import Scenario
from loadsim.model.workload import Workload
from loadsim.monitor.server_banner import greetings
from loadsim.protocols.registry import check_drivers, check_protocols
from loadsim.provisioning.findings import ServerReport
from loadsim.provisioning.preflight import check_sources
from loadsim.provisioning.server_check import WAIT_S, check_server
from loadsim.runs.server import server_under_test
from loadsim.users.plugin_tasks import check_plugin_tasks


def check_scenario(
    scenario: Scenario, progress: Callable[[str], None], wait_s: float = WAIT_S
) -> tuple[str, Mapping[str, Any], ServerReport]:
    """Return the name of the server, its greetings (`server_banner.FACTS`), and what the check found.

    Raises `ConfigError` for bad input, a server that does not answer, and a refused log-on.
    """
    check_protocols(scenario)
    check_plugin_tasks(scenario)
    workload = Workload(scenario)
    check_sources(scenario)
    with (
        tempfile.TemporaryDirectory(prefix="loadsim-check-") as directory,
        server_under_test(scenario, Path(directory)) as (services, name),
    ):
        check_drivers(scenario, services)
        return name, greetings(services), run(check_server(workload, services, progress, wait_s))
