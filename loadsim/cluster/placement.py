"""Who of a cluster's clients makes which part of a run, and whether he can: software, work at hand, room for logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from loadsim.cluster.build_fingerprint import build_fingerprint
from loadsim.engine.coordinator import engines_for
from loadsim.engine.engine import LOG_ON_LIMIT_S
from loadsim.errors import ConfigError
from loadsim.model.partition import Assignment, all_users
from loadsim.model.terms import STRESS
from loadsim.model.workload import Workload
from loadsim.timinglog.json_checks import each_in, having, switch, whole

BYTES_FOR_ACTIVITY = 3_500
"""What an activity of the plan leaves in the logs, with all that follows from it. Measured are up to 1,200 for the
profiles that come with loadsim (`python -m bench --full cluster_log_bytes`); it is more where lists have more members,
so three times as much is taken."""

BYTES_A_SECOND = 1_500
"""What an engine writes of its own health in a second, or the log of a machine: twice what is measured."""

STRESS_BYTES_A_SECOND = 1_000_000
"""What an engine writes in a second of a closed loop, in which nobody knows how much will be done: more than twice what
it is measured to write in a second of a core at 2.5 GHz, on a server that answers at once; cores may be faster."""


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """A client that is there, as it says itself (`Agent.describe`)."""

    name: str
    software: str
    cores: int
    weight: int
    free_bytes: int
    runs: Mapping[str, bool]


_DESCRIBED = having(
    {
        "cores": whole(1, 2**16),
        "weight": whole(1, 2**31),
        "free_bytes": whole(0, 2**63),
        "runs": each_in(switch),
    }
)


def fit_clients(found: Mapping[str, Mapping[str, Any]]) -> list[ConnectedClient]:
    """The clients, in the order in which they were found, by what each says of itself.

    Raises `ConfigError` for one that has other software than we, or that is at work.
    """
    ours = build_fingerprint()
    for name, about in found.items():
        if not isinstance(about, dict) or about.get("software") != ours:
            found_there = str(about.get("software") if isinstance(about, dict) else about)[:80]
            raise ConfigError(f"client {name}: expected {ours}, found {found_there}")
        if wrong := _DESCRIBED(about):
            raise ConfigError(f"client {name}: expected {wrong.rpartition(': ')[2]}, found something else ({wrong})")
    keys = [each.name for each in fields(ConnectedClient) if each.name != "name"]
    clients = [ConnectedClient(name, **{key: about[key] for key in keys}) for name, about in found.items()]
    for client in clients:
        for run, lives in client.runs.items():
            if lives:
                raise ConfigError(f"client {client.name}: expected nothing at work there, found run {run}")
    return clients


def assign_users(users: int, clients: Sequence[ConnectedClient]) -> dict[str, list[Assignment]]:
    """By client, a hand for each engine: users in proportion to the weights. Who would have none is left out."""
    hands = {}
    for client, hand in zip(clients, all_users(users).cut([client.weight for client in clients]), strict=True):
        if len(hand):
            hands[client.name] = hand.cut([1] * engines_for(len(hand), client.cores))
    return hands


def log_bytes(workload: Workload, hands: Sequence[Assignment]) -> int:
    """How much the logs of engines with these users take, and of their machine: rather more than less."""
    scenario = workload.scenario
    before_s = scenario.run.ramp_up_s + LOG_ON_LIMIT_S
    lasts_s = before_s + scenario.duration_s + scenario.limits.grace_s + scenario.limits.drain_s
    health_bytes = (len(hands) + 1) * BYTES_A_SECOND * lasts_s
    if scenario.run.mode == STRESS:
        return round(health_bytes + len(hands) * STRESS_BYTES_A_SECOND * scenario.duration_s)
    activities = sum(1 for hand in hands for user in hand for _ in workload.activities(user))
    return round(health_bytes + activities * BYTES_FOR_ACTIVITY)


def check_room(clients: Sequence[ConnectedClient], needed_bytes: Mapping[str, int], here: str, free_bytes: int) -> None:
    """Whether each client has room for its own logs, and the station for all, where it has `free_bytes` in `here`.

    Raises `ConfigError`.
    """
    for client in clients:
        needed = needed_bytes.get(client.name, 0)
        if needed > client.free_bytes:
            raise ConfigError(f"client {client.name}: {_expected(needed, client.free_bytes)}")
    if sum(needed_bytes.values()) > free_bytes:
        raise ConfigError(f"{here}: {_expected(sum(needed_bytes.values()), free_bytes)}")


def _expected(needed: int, free: int) -> str:
    return f"expected room for about {needed / 2**20:.0f} MiB of logs, found {free / 2**20:.0f} MiB"
