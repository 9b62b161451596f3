"""What all timing logs of a run say of it in their headers."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from loadsim import __version__
from loadsim.cli.scheduled_start_options import told
from loadsim.model.partition import Slice
from loadsim.model.scenario import Scenario, Server
from loadsim.model.workload import Workload
from loadsim.timinglog.planned_load import PlannedLoad


def run_header(
    workload: Workload,
    run: str,
    server: str,
    plan: str,
    start_state: str | None,
    part: Slice | None = None,
    start: datetime | None = None,
    load: PlannedLoad | None = None,
) -> dict[str, Any]:
    """Of the run with this name on a server that is called so; `plan` and `start_state` are digests.

    `load` is that of the plan, None if it is not known. `part` is the slice of the run that this machine makes, `start`
    the common start that was agreed on, if any.
    """
    scenario: Scenario = workload.scenario
    return {
        "software": f"loadsim {__version__}",
        "run": run,
        "name": scenario.name,
        "slice": asdict(part) if part else None,
        "start_at": told(start) if start else None,
        "server": server,
        "in_the_clear": list(scenario.in_the_clear),
        "embedded": not isinstance(scenario.server, Server),
        "submission": scenario.client.submission,
        "mode": scenario.run.mode,
        "scenario_digest": scenario.digest(),
        "plan_digest": plan,
        "planned_load": load.document() if load else None,
        "start_state_digest": start_state,
        "users": scenario.users,
        "profiles": sorted({group.profile.name for group in scenario.topology}),
        "groups": [
            {"profile": group.profile.name, "module": group.protocol, "users": group.users}
            for group in scenario.topology
        ],
        "profile_day_s": scenario.topology[0].profile.day_s,
        "day_s": scenario.run.day_length_s,
        "night_s": scenario.run.night_length_s,
        "compression": scenario.compression,
        "duration_s": scenario.duration_s,
        "window_s": [scenario.run.warm_up_s, scenario.run.warm_up_s + scenario.run.window_s],
        "weights": scenario.weights,
        "criteria": scenario.criteria_document(),
        "limits": scenario.limits.in_header(),
    }
