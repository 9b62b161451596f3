"""Connections at once, against servers that take only some: simulated in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.engine.clock import LoopClock, run_virtual
from loadsim.errors import ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.provisioning.connection_gate import FIRST, ConnectionGate, about_limit


def visits(most: int, limit: int, accounts: int) -> tuple[int, int, int]:
    """Visit accounts of a server that refuses more than `limit` connections.

    Return the number of refusals, the most visits at once, and the most that were admitted at the end.
    """
    gate = ConnectionGate(most)
    left, at_once, refusals, peak = accounts, 0, 0, 0

    async def visitor() -> None:
        nonlocal left, at_once, refusals, peak
        while left:
            await gate.enter()
            if not left:
                await gate.leave(refused=None)
                return
            left -= 1
            at_once += 1
            peak = max(peak, at_once)
            refused = at_once > limit
            await asyncio.sleep(0.001 if refused else 1)
            at_once -= 1
            refusals += refused
            left += refused
            await gate.leave(refused=refused)

    async def main(_: LoopClock) -> None:
        await asyncio.gather(*(visitor() for _ in range(most)))

    run_virtual(main)
    assert gate.visiting == 0
    return refusals, peak, gate.allowed


@settings(max_examples=60)
@given(most=st.integers(1, 64), limit=st.integers(1, 80), accounts=st.integers(1, 300))
def test_all_are_visited_with_few_refusals(most: int, limit: int, accounts: int) -> None:
    """Whatever the server's limit is, each account gets its turn, and refusals are a small part."""
    refusals, peak, allowed = visits(most, limit, accounts)
    assert 1 <= allowed <= most
    assert peak <= most
    if most <= limit:
        assert refusals == 0
    assert refusals <= min(most, 64) + accounts // 4


def test_it_grows_to_the_most_without_refusals() -> None:
    assert visits(32, 1000, 400) == (0, 32, 32)


def test_it_begins_low() -> None:
    assert ConnectionGate(32).allowed == FIRST == 4
    assert ConnectionGate(2).allowed == 2


def test_a_visit_is_alone_only_if_no_other_began_during_it() -> None:
    """A server may refuse the first of several that log on at once: that is tried again."""

    async def main(_: LoopClock) -> None:
        gate = ConnectionGate(2)
        first = await gate.enter()
        assert first()
        second = await gate.enter()
        assert not first()
        await gate.leave(refused=False)
        assert not first()
        assert not second()
        await gate.leave(refused=True)
        assert (await gate.enter())()

    run_virtual(main)


@pytest.mark.parametrize("limit", [1, 3, 4, 10, 30])
def test_it_stays_near_the_limit(limit: int) -> None:
    """After hundreds of visits about as many are admitted as the server takes."""
    refusals, _, allowed = visits(64, limit, 600)
    assert max(1, limit // 2) <= allowed <= limit + 1
    assert refusals < 100


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (ServerLost("connection lost"), True),
        (ServerLost("BYE", "Too many connections"), True),
        (ServerRefused("NO [LIMIT] LOGIN", "NO [LIMIT] 10 connections"), True),
        (ServerRefused("NO LOGIN", "NO Maximum number of connections from user+IP exceeded"), True),
        (ServerRefused("NO [UNAVAILABLE] LOGIN", "NO [UNAVAILABLE] Temporary failure"), True),
        (ServerRefused("NO [AUTHENTICATIONFAILED] LOGIN", "NO [AUTHENTICATIONFAILED] Authentication failed."), False),
        (ServerRefused("LOGINDISABLED", "the server takes neither"), False),
        (ServerSilent("no answer to CONNECT"), False),
    ],
)
def test_which_failures_may_be_a_limit(failure: TaskFailed, expected: bool) -> None:
    assert about_limit(failure) is expected
