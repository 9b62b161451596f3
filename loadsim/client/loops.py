"""Which event loop a process runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes uvloop's loop, where it is installed (`loadsim[fast]`); None for asyncio's own."""
    if find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    return factory
