"""The JMAP peer as a process of its own: it prints its port, and ends with a signal.

python -m tests.support.jmap_peer '[["user1", "user1@example.test", "secret"]]' relative_urls=true
"""

import asyncio
import json
import signal
import sys
from dataclasses import fields
from typing import Any

from . import Limits, Switches, User, jmap_peer


def chosen(kind: type[Any], settings: list[str]) -> Any:
    pairs = dict(setting.split("=", 1) for setting in settings)
    names = {each.name for each in fields(kind)}
    return kind(**{name: json.loads(value) for name, value in pairs.items() if name in names})


async def serve(users: str, *settings: str) -> None:
    switches, limits = (chosen(kind, list(settings)) for kind in (Switches, Limits))
    async with jmap_peer([User(*each) for each in json.loads(users)], switches, limits) as peer:
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        print(peer.base.rpartition(":")[2], flush=True)
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
