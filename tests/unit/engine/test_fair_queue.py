"""An event for many users at once delays no other work of the loop for long."""

import asyncio
import os
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.engine.fair_queue import FairQueue
from loadsim.model.ports import Endpoint
from loadsim.processes.event_loop import fastest_loop
from loadsim.protocols.connect import connected_socket


def test_a_single_callback_runs_at_once() -> None:
    """A callback alone does not wait for the loop; in the next iteration another one may run."""

    async def run() -> None:
        queue, gone = FairQueue(), list[int]()
        for turn in range(3):
            queue.enter(lambda turn=turn: gone.append(turn))  # type: ignore[misc]
            assert gone == list(range(turn + 1))
            await asyncio.sleep(0)

    asyncio.run(run())


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=6))
def test_queued_callbacks_run_in_order_between_other_work(crowds: list[int]) -> None:
    """With any number of callbacks in any iterations, one runs per iteration, in order, and none is forgotten."""

    async def run() -> None:
        queue, gone = FairQueue(), list[int]()
        in_turn: list[int] = []
        came = 0
        for crowd in [*crowds, *[0] * (sum(crowds) + 1)]:
            before = len(gone)
            for number in range(came, came + crowd):
                queue.enter(lambda number=number: gone.append(number))  # type: ignore[misc]
            came += crowd
            await asyncio.sleep(0)
            in_turn.append(len(gone) - before)
        assert gone == list(range(sum(crowds)))
        assert max(in_turn) <= 2  # who found it open, and who went in the turn that followed

    asyncio.run(run())


def test_queued_callbacks_yield_to_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pinned process yields its core before each turn but the first; without a queue it asks no scheduler."""
    seen = list[str]()
    policy = os.SCHED_RR
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: policy)
    monkeypatch.setattr(os, "sched_yield", lambda: seen.append("offered"))

    async def run(crowd: int) -> list[str]:
        seen.clear()
        queue = FairQueue()
        for _ in range(crowd):
            queue.enter(lambda: seen.append("gone"))
        for _ in range(crowd + 1):
            await asyncio.sleep(0)
        return seen

    assert asyncio.run(run(1)) == ["gone"]
    assert asyncio.run(run(3)) == ["gone", "offered", "gone", "offered", "gone"]
    policy = os.SCHED_OTHER
    assert asyncio.run(run(3)) == ["gone"] * 3


def test_a_socket_connects_before_the_next_loop_iteration() -> None:
    """The time of a submission begins with its connection: no other user's work comes before its SYN."""

    async def run(server: socket.socket) -> None:
        endpoint = Endpoint("127.0.0.1", server.getsockname()[1])
        (await connected_socket(endpoint, None)).close()
        server.accept()[0].close()
        connecting = connected_socket(endpoint, None)
        try:
            connecting.send(None)  # to its first wait, if it has one
            server.accept()[0].close()
        finally:
            connecting.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        with asyncio.Runner(loop_factory=fastest_loop()) as runner:
            runner.run(run(server))
