"""Hands: everybody is dealt to one engine, and all engines get a like share of everything."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.model import partition
from loadsim.model.partition import CIRCLE, Assignment, all_users, divide
from loadsim.scenario.population import Population
from loadsim.scenario.scenario import load_scenario


@given(st.integers(1, 3000), st.data())
@settings(deadline=None, max_examples=40)
def test_each_user_is_assigned_to_one_engine(users: int, data: st.DataObject) -> None:
    """All engines get equally many users, and equally many of any consecutive ones, such as those on a list.

    Multiples of the golden ratio stray from that by a few, in runs of any length; draws would stray by dozens.
    """
    engines = data.draw(st.integers(1, min(users, 20)))
    assignments = divide(users, engines)
    assert sorted(user for assignment in assignments for user in assignment) == list(range(1, users + 1))
    first = data.draw(st.integers(1, users))
    last = data.draw(st.integers(first, users))
    for assignment in assignments:
        own = list(assignment)
        assert own == sorted(own)
        assert len(assignment) == len(own)
        assert abs(len(assignment) - users / engines) < 1
        assert abs(sum(first <= user <= last for user in own) - (last - first + 1) / engines) < 6


@pytest.mark.parametrize("engines", [1, 2, 3, 5, 7])
def test_each_engine_has_its_share_of_each_profile(engines: int) -> None:
    """Profiles that come around every three users, with engines that do so, too."""
    groups = ", ".join(f"{{profile: loadsim-5.0/{name}, users: 300}}" for name in ("light", "medium", "heavy"))
    population = Population(load_scenario("quickstart", [f"topology=[{groups}]"]))
    for assignment in divide(900, engines):
        profiles = Counter(population.group(user).profile.name for user in assignment)
        assert len(profiles) == 3
        assert all(abs(users - len(assignment) / 3) < 10 for users in profiles.values())


@pytest.mark.parametrize("nobody", [0, -1, 8, CIRCLE + 1, "1", 1.5, None])
def test_an_assignment_holds_no_number_beyond_the_users(nobody: object) -> None:
    """The rule could be applied to other numbers, too."""
    (everybody,) = divide(7, 1)
    assert list(everybody) == [1, 2, 3, 4, 5, 6, 7]
    assert nobody not in everybody


@given(st.integers(1, 300), st.integers(1, CIRCLE), st.integers(0, CIRCLE), st.integers(0, CIRCLE), st.integers(1, 9))
def test_blocks_hold_the_users_of_the_rule(users: int, step: int, begin: int, end: int, block: int) -> None:
    """Users of any block size come in order; each is a Python int, which JSON takes."""
    assignment = Assignment(users, step, begin, end)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(partition, "BLOCK", block)
        own = list(assignment)
        assert own == [user for user in range(1, users + 1) if user in assignment]
        assert len(assignment) == len(own)
        assert {type(user) for user in own} <= {int}


@pytest.mark.parametrize(("users", "senders"), [(1, 1), (7, 50), (100, 3), (1000, 400)])
def test_senders_are_divided_as_users_are(users: int, senders: int) -> None:
    """Clients, and the engines of each, divide all senders; those of a client's engines are the client's."""
    clients = all_users(users).cut([3, 1])
    engines = [client.cut([1, 1]) for client in clients]
    for client, own in zip(clients, engines, strict=True):
        together = sorted(number for engine in own for number in engine.with_senders(senders))
        assert together == list(client.with_senders(senders))
    everyone = sorted(number for client in clients for number in client.with_senders(senders))
    assert everyone == list(range(1, users + senders + 1))
