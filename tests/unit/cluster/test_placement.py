"""The clients' shares of users and engines, and the clients that are refused, by name."""

import pytest

from loadsim.build_fingerprint import build_fingerprint
from loadsim.cluster.placement import ConnectedClient, assign_users, check_room, fit_clients
from loadsim.errors import ConfigError

MIB = 2**20


def about(**changes: object) -> dict[str, object]:
    return {"software": build_fingerprint(), "cores": 2, "free_bytes": 100 * MIB, "runs": {}} | changes


def joined(name: str, **changes: object) -> ConnectedClient:
    (client,) = fit_clients({name: about(**changes)})
    return client


def test_users_and_engines_go_by_cores() -> None:
    """A client without users is left out; everybody is with one engine of one client."""
    assignments = assign_users(50, [joined("a", cores=1), joined("b", cores=4)])
    assert {name: sum(map(len, mine)) for name, mine in assignments.items()} == {"a": 10, "b": 40}
    assert {name: len(mine) for name, mine in assignments.items()} == {"a": 1, "b": 4}
    assert sorted(user for mine in assignments.values() for assignment in mine for user in assignment) == list(
        range(1, 51)
    )
    assert list(assign_users(2, [joined("a", cores=1), joined("b", cores=1000)])) == ["b"]
    with_senders = assign_users(50, [joined("a", cores=1), joined("b", cores=1)], senders=90_000)
    assert {name: len(mine) for name, mine in with_senders.items()} == {"a": 4, "b": 3}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"software": "loadsim 0.0.1"}, f"client b: expected {build_fingerprint()}, found loadsim 0.0.1"),
        ({"software": None}, f"client b: expected {build_fingerprint()}, found None"),
        ({"runs": {"old": False, "new": True}}, "client b: expected nothing at work there, found run new"),
    ],
)
def test_unsuitable_clients_are_named(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        fit_clients({"a": about(runs={"old": False}), "b": about(**changes)})
    assert str(refusal.value) == said


def test_disk_space_is_checked_on_each_client_and_at_the_controller() -> None:
    """Each has its own logs, and all come here."""
    clients = [joined("a"), joined("b", free_bytes=50 * MIB)]
    check_room(clients, {"a": 50 * MIB, "b": 50 * MIB}, "here", 100 * MIB)
    with pytest.raises(ConfigError, match=r"^client b: expected room for about 51 MiB of logs, found 50 MiB$"):
        check_room(clients, {"a": 50 * MIB, "b": 51 * MIB}, "here", 500 * MIB)
    with pytest.raises(ConfigError, match=r"^here: expected room for about 100 MiB of logs, found 99 MiB$"):
        check_room(clients, {"a": 50 * MIB, "b": 50 * MIB}, "here", 99 * MIB)
