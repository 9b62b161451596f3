"""One machine's part in a storage test on several: `python -m loadsim.storage.member`, a child of the machine's agent.

Its first line of input is the test. It writes its recording and its progress as lines of JSON. A further line of input
means that all machines have reached the point where this one waits. `STOP`, or the end of the input, acts as Ctrl-C.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from loadsim.engine.channel import coordinator_lines, own_pipes
from loadsim.errors import ConfigError, RunInvalid
from loadsim.processes.event_loop import background_tasks, run
from loadsim.processes.signals import ended_by_signals
from loadsim.storage.databases import Others
from loadsim.storage.runs import test_disks
from loadsim.storage.scenario import read_storage

STOP, BEAT_S = b"stop\n", 1.0


async def _member(from_agent: int, to_agent: int) -> None:
    async with coordinator_lines(from_agent, to_agent) as (lines, send):

        def report(kind: str, text: str = "") -> None:
            send(json.dumps([kind, text]).encode() + b"\n")

        async def follow() -> None:
            while line := await lines.readline():
                if line == STOP:
                    interrupt()
                else:
                    all_there.release()
            interrupt()

        async def meet() -> None:
            report("arrive")
            await all_there.acquire()

        async def beat() -> None:
            while True:
                report("beat")
                await asyncio.sleep(BEAT_S)

        all_there, interrupt = asyncio.Semaphore(0), partial(os.kill, os.getpid(), signal.SIGINT)
        order = json.loads(await lines.readline())
        scenario, *queue = map(read_storage, order["scenarios"])
        others = Others(meet, partial(report, "leave"))
        try:
            with TemporaryDirectory() as temporary:
                async with background_tasks(follow(), beat()):
                    record, tell = partial(report, "record"), partial(report, "tell")
                    await test_disks(scenario, order["test"], Path(temporary) / "store", record, tell, queue, others)
        except ConfigError as failure:
            report("refused", str(failure))
        except RunInvalid as failure:
            report("failed", str(failure))


def main() -> None:
    with ended_by_signals(), suppress(KeyboardInterrupt):
        run(_member(*own_pipes()))


if __name__ == "__main__":
    main()
