"""Keep a client machine joined to a cluster: run an agent, and join again when the controller is back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from loadsim.cluster.agent import Agent, serve
from loadsim.cluster.controller import deepest, reach
from loadsim.cluster.security import Access

RETRY_S = 1.0
"""Seconds between two attempts to join."""


async def join_forever(access: Access, name: str, agent: Agent, report: Callable[[str], None]) -> None:
    """Join the cluster as a client of this name, reconnect, and never return.

    `report` gets a line for each change. The agent listens only at the address by which it reaches the controller: on
    loopback, if the controller is there.
    """
    reported = ""

    def report_change(line: str) -> None:
        nonlocal reported
        if line != reported:
            reported = line
            report(line)

    def joined() -> None:
        report_change(f"joined {access.address} as {name}")

    async def until_back() -> None:
        report_change(f"the controller at {access.address} is gone; waiting for it")
        while True:
            with suppress(ConnectionError):
                await reach(access, name)
                return
            await asyncio.sleep(RETRY_S)

    while True:
        try:
            host = await reach(access, name)
            await serve(access.address.for_dask, name, agent, access.security, host, joined, until_back)
        except (ConnectionError, RuntimeError) as failure:  # RuntimeError: a Dask worker that cannot register
            report_change(f"waiting for {access.address}, found: {deepest(failure)}")
        await asyncio.sleep(RETRY_S)
