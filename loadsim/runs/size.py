"""Size a server by a run directory: its logs, and the mailboxes of its scenario."""

from __future__ import annotations

from math import ceil
from pathlib import Path

from loadsim.analysis.recorded_run import SCENARIO, read_run
from loadsim.analysis.sizing import Sizing, size
from loadsim.errors import ConfigError
from loadsim.model.scenario import load_scenario
from loadsim.model.workload import Workload
from loadsim.provisioning.planned_size import mailbox_bytes

SAMPLED_USERS = 500
"""The most users whose mailboxes are counted; the rest are taken to be like them."""


def size_run(place: str, target: float) -> Sizing:
    """Return the sizing of a run's server; `target` is the utilisation to plan for, from 0 to 1.

    Raises `LogError`, `ConfigError` and `RunInvalid` for runs that size no server.
    """
    return size(read_run(place), _mailbox_bytes(Path(place) / SCENARIO), target)


def _mailbox_bytes(path: Path) -> int | None:
    """Return about how many bytes all mailboxes hold at the end of the run; None without its scenario."""
    try:
        scenario = load_scenario(str(path), passwords=False)
    except ConfigError:
        return None
    workload = Workload(scenario)
    sampled = range(1, scenario.users + 1, ceil(scenario.users / SAMPLED_USERS))
    return round(sum(mailbox_bytes(workload, user) for user in sampled) * scenario.users / len(sampled))
