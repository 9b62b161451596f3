"""The needs of a run compared with the means of this machine."""

from __future__ import annotations

from pathlib import Path

from loadsim.engine.coordinator import engines_for
from loadsim.errors import ConfigError
from loadsim.monitor.machine_needs import Needs, Resources, needs_of, resources_for
from loadsim.processes.control_groups import usable_cores
from loadsim.protocols.registry import needs_one_engine
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.workload import Workload
from loadsim.timinglog.planned_load import PlannedLoad


def compared_needs(
    workload: Workload, load: PlannedLoad | None, engines: int | None = None, directory: Path = Path("runs")
) -> tuple[Needs, Resources]:
    """Return the needs of a run in `engines` processes (None: by default), and the machine's means.

    `directory` is the run's; `load` is None if it is unknown.
    """
    engines = engine_count(workload.scenario, engines, pin=False)
    resources = resources_for(workload.scenario, engines, directory)
    return needs_of(workload, engines, load), resources


def engine_count(scenario: Scenario, wanted: int | None, pin: bool) -> int:
    """Return how many engines run the users: the wanted number, or one by cores, of which `pin` leaves half.

    Raises `ConfigError` for fewer than one, more than users, or several with a driver that needs a single process.
    """
    in_memory = needs_one_engine(scenario)
    if wanted is None:
        cores = usable_cores()
        return 1 if in_memory else engines_for(scenario.users, cores // 2 if pin else cores)
    most = 1 if in_memory else scenario.users
    if not 1 <= wanted <= most:
        why = f" with protocol {in_memory}, whose mail system is in the engine" if in_memory else ""
        raise ConfigError(f"--engines: expected a number from 1 to {most}{why}, found {wanted}")
    return wanted
