"""The server under test: started if it is the embedded one, located and, on request, kept on its own cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from loadsim.model.ports import Services
from loadsim.monitor.cpu_affinity import describe, kept_apart
from loadsim.monitor.server_banner import environment_facts
from loadsim.monitor.server_discovery import find_server
from loadsim.protocols.registry import IN_THE_ENGINE, needed_services
from loadsim.provisioning.sessions import services_of
from loadsim.runs.watcher import Watcher
from loadsim.scenario.population import distribution_lists
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.server import Server
from loadsim.servers.embedded import EmbeddedServer, start_embedded, start_embedded_mapi

IN_MEMORY = "none, mail systems in memory"
"""The server's name in a run whose users all have the in-memory driver, and so contact no server."""


@contextmanager
def server_under_test(scenario: Scenario, directory: Path) -> Iterator[tuple[Services, str]]:
    """Yield the services and the name of the server. The embedded server runs for as long as the block."""
    in_memory = all(group.protocol == IN_THE_ENGINE for group in scenario.topology)
    if isinstance(scenario.server, Server):
        services = services_of(scenario)
        yield services, IN_MEMORY if in_memory else services.address
        return
    accounts = [scenario.account(index) for index in range(1, scenario.users + 1)]
    with embedded_server(scenario)(accounts, distribution_lists(scenario), directory) as server:
        services = replace(server.services, command_limit_s=scenario.limits.command_s)
        yield scenario.using(services), IN_MEMORY if in_memory else server.describe()


def embedded_server(scenario: Scenario) -> Callable[..., EmbeddedServer]:
    """Return the function that starts the embedded server with the services that a scenario's users need."""
    return start_embedded_mapi if needed_services(scenario) == {"mapi"} else start_embedded


@contextmanager
def server_facts(services: Services, engines: int, pin: bool, watcher: Watcher) -> Iterator[dict[str, Any]]:
    """Yield facts about the server and this machine for the machine's log.

    With `pin`, a server on this machine and the load run on separate cores during the block, as far as permitted.
    """
    place = find_server(*services.endpoints.values())
    facts = environment_facts(place, services)
    if pin and place.here:
        with kept_apart(place, engines) as cores:
            (watcher.message if cores.apart else watcher.warning)(describe(cores, place))
            if cores.apart:
                cpus = {"generator_cpus": cores.generator, "server_cpus": cores.server}
                yield {**facts, **cpus, "shares_cpus": False, "pinned": True}
            else:
                yield {**facts, "generator_cpus": cores.generator, "shares_cpus": place.shares(cores.generator)}
        return
    if pin:
        watcher.warning("--pin has no effect: the server is not on this machine")
    yield facts
