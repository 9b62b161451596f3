"""One engine in a process of its own: `python -m loadsim.client.engine_process`, started by the pool of its machine.

It speaks the control protocol (`control`) on its standard input and output, and writes the timing log by itself: what
it has measured is in the file, whatever becomes of the others.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from loadsim.client.clock import MonotonicClock
from loadsim.client.control import ACCEPTED_AT_ONCE, LONGEST_LINE_BYTES, decode, encode
from loadsim.client.engine import Engine
from loadsim.client.events import Events
from loadsim.client.loops import fastest_loop
from loadsim.client.modules import open_modules
from loadsim.client.snapshot import LiveSnapshot
from loadsim.errors import ConfigError
from loadsim.model.content import Contents
from loadsim.model.ports import Services
from loadsim.model.scenario import Scenario
from loadsim.model.workload import Workload
from loadsim.results.hand import Hand
from loadsim.results.logwriter import TimingLogWriter


@dataclass(frozen=True, slots=True)
class Begin:
    """What an engine needs to know. `header` is that of its timing log, a new file at `log`."""

    scenario: Scenario
    services: Services
    hand: Hand
    log: str
    header: Mapping[str, Any]

    def encode(self) -> bytes:
        """The line that begins an engine.

        Scenario and services go as values, not as files: nothing can have changed, and nothing is read twice. It is
        safe to read them, for an engine hears nobody but the process that started it. Passwords go this way, and no
        other.
        """
        values = b64encode(pickle.dumps((self.scenario, self.services))).decode()
        about = {"hand": asdict(self.hand), "log": self.log, "header": self.header}
        return encode(begin={"values": values, **about})

    @classmethod
    def decode(cls, about: Mapping[str, Any]) -> Begin:
        """The inverse."""
        scenario, services = pickle.loads(b64decode(about["values"]))  # noqa: S301 - see encode
        return cls(scenario, services, Hand(**about["hand"]), about["log"], about["header"])


class Pool:
    """The pool, as an engine sees it (`control.Control`): tells it what it should know, and hears what it says."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._start: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._accepted: list[tuple[str, int]] = []
        self._heard = 0  # messages that others sent to our users
        self._draining = asyncio.Event()  # everybody's tasks have ended, or we shall not wait for it
        self._drained = False
        self._last: dict[str, Any] = {}
        self.going = asyncio.Event()  # the log-on has begun, or will not
        self.engine: Engine | None = None

    def tell(self, **message: Any) -> None:
        """Say something, without waiting until it is heard."""
        self._transport.write(encode(**message))

    async def common_start(self) -> int | None:
        """Ask for it, and wait."""
        self.tell(on=True)
        return await self._start

    def stop_waiting(self) -> None:
        """There will be no start, and no drain."""
        if not self._start.done():
            self._start.set_result(None)
        self._draining.set()

    def accepted_elsewhere(self, message: str, user: int) -> None:
        """Told with the next snapshot, or when there is enough to tell."""
        self._accepted.append((message, user))
        if len(self._accepted) >= ACCEPTED_AT_ONCE:
            self._tell_accepted()

    async def all_finished(self) -> None:
        """Say it, and wait until the pool says it of all."""
        self._tell_accepted()
        self.tell(finished=True)
        await self._draining.wait()

    def all_delivered(self, outstanding: int) -> bool:
        """As the pool knows it, who hears of every change."""
        assert self.engine is not None
        self._tell_accepted()
        if (outstanding, self._heard) != (self._last.get("accepted_undelivered"), self._last.get("heard")):
            self.watch(self.engine.snapshot())
        return self._drained

    def watch(self, snapshot: LiveSnapshot) -> None:
        """Hear where the engine stands."""
        self._tell_accepted()
        self._last = {**{each.name: getattr(snapshot, each.name) for each in fields(snapshot)}, "heard": self._heard}
        self.tell(snapshot=self._last)

    def _tell_accepted(self) -> None:
        if self._accepted:
            self.tell(accepted=self._accepted)
            self._accepted = []

    async def listen(self, reader: asyncio.StreamReader) -> None:
        """Do as we are told, to the end of the pipe; then nobody is there any more to run for."""
        while line := await reader.readline():
            kind, about = decode(line)
            if kind == "log on":
                self.going.set()
            elif kind == "start" and not self._start.done():
                self._start.set_result(about)
            elif kind == "accepted":
                assert self.engine is not None
                for message, user in about:
                    self.engine.mail_accepted(message, user)
                self._heard += len(about)
            elif kind == "drain":
                self._draining.set()
            elif kind == "drained":
                self._drained = True
            elif kind == "stop":
                self._stop()
        self._stop()

    def _stop(self) -> None:
        self.stop_waiting()
        if self.engine is not None:
            self.engine.stop()
        self.going.set()


class _Told:
    """A text stream for `Events` whose lines go to the pool; each says which engine it is of."""

    def __init__(self, pool: Pool, engine: str) -> None:
        self._pool = pool
        self._engine = engine

    def write(self, line: str) -> None:
        """One whole line."""
        self._pool.tell(event={**json.loads(line), "engine": self._engine})

    def flush(self) -> None:
        """It is on its way."""


class _Out(asyncio.BaseProtocol):
    """The end of our standard output."""

    def __init__(self) -> None:
        self.closed = asyncio.get_running_loop().create_future()

    def connection_lost(self, error: Exception | None) -> None:
        """Everything has been said, or nobody hears it any more."""
        self.closed.set_result(None)


async def live(from_pool: int, to_pool: int) -> None:
    """The life of an engine process; the file descriptors are its ends of the two pipes."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LONGEST_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_pool, "rb", 0))
    transport, out = await loop.connect_write_pipe(_Out, os.fdopen(to_pool, "wb", 0))
    pool = Pool(transport)
    line = await reader.readline()
    if line:
        _, about = decode(line)
        try:
            await _run(Begin.decode(about), pool, reader)
            pool.tell(over=True)
        except ConfigError as refusal:
            pool.tell(refused=str(refusal))
    transport.close()
    await out.closed


async def _run(begin: Begin, pool: Pool, reader: asyncio.StreamReader) -> None:
    scenario = begin.scenario
    workload = Workload(scenario)
    contents = Contents(workload.seed)
    modules = open_modules(workload, contents, begin.services)
    contents.prepare()
    clock = MonotonicClock()
    epoch_ns, epoch = clock.now_ns(), datetime.now(UTC)
    header = {
        **begin.header,
        "event_loop": type(asyncio.get_running_loop()).__module__,
        "wall_clock_start": epoch.isoformat(),
    }
    try:
        log = TimingLogWriter(Path(begin.log), header, epoch_ns)
    except OSError as failure:
        raise ConfigError(f"{begin.log}: expected to write a timing log, found: {failure}") from None
    events = Events(cast(Any, _Told(pool, str(begin.header["engine"]))))
    try:
        async with asyncio.TaskGroup() as group:
            engine = Engine(
                workload=workload,
                users=begin.hand,
                modules=modules,
                contents=contents,
                recorder=log,
                events=events,
                clock=clock,
                run_id=begin.header["run"],
                wall_clock_us=time.time_ns() // 1000,
                writes_aside=True,
                watch=pool.watch,
                control=pool,
            )
            pool.engine = engine
            listening = group.create_task(pool.listen(reader))
            pool.tell(ready=os.getpid())
            await pool.going.wait()
            await engine.run()
            listening.cancel()
    finally:
        _close(log, events)


def _close(log: TimingLogWriter, events: Events) -> None:
    """Close the log. What a full disk did not take is lost now, and is said; the answer finds that it has no end."""
    try:
        log.close()
    except OSError as failure:
        events.say("log incomplete", why=str(failure))
        print(f"loadsim: timing log incomplete: {failure}", file=sys.stderr)  # noqa: T201


def main() -> None:
    """Keep the pipe to the pool for ourselves: whatever else prints, prints to standard error."""
    from_pool, to_pool = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        runner.run(live(from_pool, to_pool))


if __name__ == "__main__":
    main()
