"""A client machine in a cluster: it joins as an agent, and does so again whenever the station is back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from loadsim.cluster.agent import serve
from loadsim.cluster.controller import deepest, reach
from loadsim.cluster.security import Way

AGAIN_S = 1.0
"""How long after one attempt to join there is another."""


async def join_forever(way: Way, name: str, runs: Path, weight: int | None, tell: Callable[[str], None]) -> None:
    """Be a client of this name, again and again, and never end; each thing that happens is told in a line, once.

    It listens only at the address by which it reaches the station: on loopback, if the station is there.
    `runs` is a directory for machine processes, `weight` how much of the load the machine is to have (None: by cores).
    """
    told = ""

    def news(line: str) -> None:
        nonlocal told
        if line != told:
            told = line
            tell(line)

    def joined() -> None:
        news(f"joined {way.address} as {name}")

    async def until_back() -> None:
        news(f"the station at {way.address} is gone; waiting for it")
        while True:
            with suppress(ConnectionError):
                await reach(way, name)
                return
            await asyncio.sleep(AGAIN_S)

    while True:
        try:
            host = await reach(way, name)
            await serve(str(way.address), name, runs, way.security, host, weight, joined, until_back)
        except (ConnectionError, RuntimeError) as failure:  # the second is Dask's, of a worker that cannot register
            news(f"waiting for {way.address}, found: {deepest(failure)}")
        await asyncio.sleep(AGAIN_S)
