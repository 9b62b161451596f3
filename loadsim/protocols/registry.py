"""Client modules by name, as entry points of the group `loadsim.protocols`; the built-in ones are found like any."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from loadsim.errors import ConfigError
from loadsim.model.content import Contents
from loadsim.model.ports import Driver, Services
from loadsim.model.scenario import Scenario
from loadsim.model.workload import Workload
from loadsim.users.tasks import TASKS

GROUP = "loadsim.protocols"

IN_THE_ENGINE = "fake"
"""The client module whose server lives in the engine: users of another engine would be out of its reach."""


def open_driver(name: str, services: Services, **options: Any) -> Driver:
    """The client module of this name. Raises `ConfigError` when there is none, or when it cannot do every task."""
    known = entry_points(group=GROUP)
    if name not in known.names:
        raise ConfigError(f"protocol: expected one of {', '.join(sorted(known.names))}, found {name}")
    module: Driver = known[name].load()(services, **options)
    for task in TASKS.values():
        missing = task.needs - module.supports
        if missing:
            raise ConfigError(
                f"protocol {name}: expected support for {', '.join(sorted(missing))} ({task.name}), found none"
            )
    return module


def check_protocols(scenario: Scenario) -> None:
    """Whether there is a client module for every group, asked before anything is started. Raises `ConfigError`."""
    known = entry_points(group=GROUP).names
    for at, group in enumerate(scenario.topology):
        if group.protocol not in known:
            raise ConfigError(
                f"{scenario.name}: topology[{at}].protocol: expected one of {', '.join(sorted(known))},"
                f" found {group.protocol!r}"
            )


def check_drivers(scenario: Scenario, services: Services) -> None:
    """Whether every group's client module can work with these services, before engines are. Raises `ConfigError`."""
    for name in sorted({group.protocol for group in scenario.topology} - {IN_THE_ENGINE}):
        open_driver(name, services)


def needs_one_engine(scenario: Scenario) -> str | None:
    """The client module that all users of a scenario must share a process for, or None."""
    return IN_THE_ENGINE if any(group.protocol == IN_THE_ENGINE for group in scenario.topology) else None


def open_drivers(workload: Workload, contents: Contents, services: Services) -> dict[str, Driver]:
    """The client modules that a scenario's groups name."""
    names = {group.protocol for group in workload.scenario.topology}
    # The in-memory mail system is itself the server: nothing outside tells it who its users are.
    own: dict[str, Any] = {"workload": workload, "contents": contents}
    return {name: open_driver(name, services, **(own if name == IN_THE_ENGINE else {})) for name in sorted(names)}
