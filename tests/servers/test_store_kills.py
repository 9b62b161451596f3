"""Stores whose processes are killed at random instants keep all that was acknowledged as durable."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from loadsim.errors import RunInvalid
from loadsim.storage.databases import databases, of_all
from loadsim.storage.orders import AcceptMessages, CheckFiles, FillDatabase, LoadDatabase, ReplayLog, VerifyMessages
from loadsim.storage.scenario import load_storage

pytestmark = pytest.mark.nightly(part="runs")

SETTINGS = ["mailboxes=2", "mailbox_size=1M", "message_size=20K", "cache=1M", "databases=1", "threads=3"]


async def killed_once(kind: str, place: Path, after_s: float) -> tuple[int, int]:
    """Load a store, kill its process, recover it; return the messages that are there, and the damaged or lost ones."""
    scenario = load_storage("storage-quickstart", [*SETTINGS, f"store={kind}"])
    async with databases(scenario, [place]) as (one,):
        if not one.state.filled:
            await one.order(FillDatabase())
        asyncio.get_running_loop().call_later(after_s, one.channel.kill)
        with pytest.raises(RunInvalid):
            await one.order(LoadDatabase(60.0))
    async with databases(scenario, [place]) as started:
        for order in (ReplayLog(), CheckFiles()):
            (done,) = await of_all(started, order)
            assert done.damages == []
        (proved,) = await of_all(started, VerifyMessages())
        await of_all(started, AcceptMessages())
    return proved.messages, proved.damaged


@pytest.mark.parametrize(("kind", "times"), [("database", 100), ("maildir", 20), ("sdbox", 20), ("mdbox", 20)])
def test_no_durable_change_is_lost(kind: str, times: int, tmp_path: Path) -> None:
    random = Random(times)
    for _ in range(times):
        messages, damaged = asyncio.run(killed_once(kind, tmp_path, random.uniform(0.0, 0.5)))
        assert messages > 0
        assert damaged == 0
