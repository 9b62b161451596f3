"""A client machine's part of a run, in a process of its own: `python -m loadsim.cluster.machine DIRECTORY`.

It runs the machine's pool of engines and is kept in step by the station, as an engine is by its pool. It outlives the
agent that has started it, and goes on when another one comes; what it measures is in its directory, whatever becomes of
the others. See `place` for that directory, `link` for how one speaks with it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import ceil
from pathlib import Path
from typing import TextIO, cast

from loadsim.client.clock import MonotonicClock
from loadsim.client.control import decode, encode
from loadsim.client.events import Events
from loadsim.client.leader import Leader, Told
from loadsim.client.loops import requests_are
from loadsim.client.modules import check_modules
from loadsim.client.open_files import allow_open_files
from loadsim.client.pool import Pool
from loadsim.cluster.beside import beside
from loadsim.cluster.link import BEAT_S, Link
from loadsim.cluster.offsets import NewestReading
from loadsim.cluster.place import EVENTS_NAME, LOGS_NAME, check_private, listening_at
from loadsim.cluster.share import Share
from loadsim.errors import ConfigError, RunInvalid
from loadsim.monitor.machine import open_machine_log, watched_machine
from loadsim.monitor.seen import seen_from_here
from loadsim.monitor.server import find_server
from loadsim.monitor.storage import server_storage
from loadsim.results.clocks import Reading
from loadsim.topology.preflight import check_sources

BEGIN_LIMIT_S = 60.0
"""A machine that is told nothing for so long was started for nobody."""


class Station:
    """The station, as the machine sees it: over a link, by whichever agent has connected last."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.link = Link(self.lines.put_nowait)
        self._agent: asyncio.StreamWriter | None = None
        self._stirred = asyncio.Event()

    async def attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """An agent has connected: from its first word on it is the one, to its end or until another one speaks."""
        spoken = False
        try:
            while (line := await reader.readline()).endswith(b"\n"):
                if not spoken:
                    spoken = True
                    self.leave()
                    self._agent = writer
                    self.link.attach(writer.write)
                if self._agent is not writer:
                    break
                self.link.receive(line)
                self._stirred.set()
        except ConnectionError:
            pass  # the next agent will come
        except ValueError as problem:
            print(f"loadsim: agent's connection cut: {problem}", file=sys.stderr)  # noqa: T201
        finally:
            if self._agent is writer:
                self.leave()
            writer.close()

    def leave(self) -> None:
        """End the connection that there is."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None
            self.link.detach()

    async def beat(self) -> None:
        """Be heard of, once in `BEAT_S`."""
        while True:
            await asyncio.sleep(BEAT_S)
            self.link.beat()
            self._stirred.set()

    async def until_heard(self, beats: int) -> None:
        """Wait until everything is heard, or nothing was heard of the station for so many beats."""
        while not self.link.all_heard and self.link.unanswered <= beats:
            self._stirred.clear()
            await self._stirred.wait()


class Watch:
    """Looks for the station while a share of a run lasts, and does what it would have us do when it is gone."""

    def __init__(self, share: Share, link: Link, leader: Leader, pool: Pool, events: Events) -> None:
        self._link = link
        self._leader = leader
        self._pool = pool
        self._events = events
        self._continues = share.on_control_loss == "continue"
        self._most_beats = most_beats(share)
        limits = share.scenario.limits
        self._all_finished_ns = round((share.scenario.duration_s + limits.grace_s) * 1e9)  # from the common start on
        self._alone = False

    async def keep(self) -> None:
        """Once in `BEAT_S`."""
        while True:
            await asyncio.sleep(BEAT_S)
            self._look()

    def _look(self) -> None:
        """Without a station we stop, or go on to the end if there was a common start.

        Nobody tells us then when the tasks of all machines have ended: at the latest, that is when the grace is over.
        Nor when all mail was seen: it is waited for as long as may be.
        """
        quiet = self._link.unanswered
        if quiet <= self._most_beats:
            if self._alone:
                self._alone = False
                self._events.say("station back")
            return
        goes_on = self._continues and self._pool.start_ns > 0
        if not self._alone:
            self._alone = True
            self._events.say("station lost", quiet_s=quiet * BEAT_S, goes_on=goes_on)
            if not goes_on:
                self._leader.stop()
        if goes_on and time.monotonic_ns() >= self._pool.start_ns + self._all_finished_ns:
            self._leader.hear(encode(drain=True))


def most_beats(share: Share) -> int:
    """The station is lost when it is not heard of for more beats."""
    return ceil(share.control_limit_s / BEAT_S)


class _Both:
    """A text stream into two. What one does not take (a full disk) is with the other all the same."""

    def __init__(self, first: TextIO, last: TextIO) -> None:
        self._first = first
        self._last = last

    def write(self, line: str) -> None:
        """Into both."""
        self._first.write(line)
        self._last.write(line)

    def flush(self) -> None:
        """The last one's lines may fail here only."""
        self._first.flush()
        self._last.flush()


async def make_load(directory: Path, share: Share, station: Station, leader: Leader) -> None:
    """Run a share from the start of its engines to their end.

    Raises `ConfigError` when it cannot begin here, `RunInvalid` when no engine was left to make load.
    """
    check_sources(share.scenario)
    check_modules(share.scenario, share.services)
    allow_open_files(max(map(len, share.hands)))
    place = find_server(share.services.imap, share.services.smtp)
    seen = await asyncio.to_thread(seen_from_here, place, share.services)
    logs = directory / LOGS_NAME
    begins = share.begins(logs)
    try:
        logs.mkdir()
        written = (directory / EVENTS_NAME).open("x", encoding="utf-8")
        machine_log = open_machine_log(logs, begins[0].header)
    except OSError as failure:
        raise ConfigError(f"{directory}: expected a directory to write to, found: {failure}") from None
    with written:
        events = Events(cast(TextIO, _Both(cast(TextIO, Told(leader, client=share.name)), written)))
        pool = Pool(begins, events, leader.watch, leader)
        leader.led = pool
        watch = Watch(share, station.link, leader, pool, events)
        clock = NewestReading()
        try:
            with requests_are(pool.stop):
                look = partial(server_storage, share.services)
                async with (
                    watched_machine(machine_log, MonotonicClock(), lambda: pool.start_ns, seen, look, clock),
                    beside(watch.keep(), _listen(station, leader, clock)),
                ):
                    await pool.run()
        finally:
            with suppress(OSError):  # a full disk; no figure of the answer but the machine's is from it
                machine_log.close()


async def _listen(station: Station, leader: Leader, clock: NewestReading) -> None:
    """Do as the station says, and note what it says of its clock (`MachineChannel.tell_clock`)."""
    while True:
        line = await station.lines.get()
        kind, about = decode(line)
        if kind == "clock":
            at_ns, station_ns, error_ns, ahead_ns = about
            clock.tell(Reading(at_ns, station_ns, error_ns), ahead_ns)
        else:
            leader.hear(line)


async def live(directory: Path, heard: Callable[[], object]) -> None:
    """The life of a machine process; `heard` is called when it listens. It ends when its last word was heard, or when
    nobody is there to hear it."""
    station = Station()
    async with asyncio.TaskGroup() as group:
        agents: set[asyncio.Task[None]] = set()

        def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            agents.add(agent := group.create_task(station.attend(reader, writer)))
            agent.add_done_callback(agents.discard)

        async with listening_at(directory, attend), beside(station.beat()):
            heard()
            share = await _begin(station)
            if share is not None:
                leader = Leader(station.link.tell, partial(station.link.tell, passing=True))
                try:
                    await make_load(directory, share, station, leader)
                    leader.tell(over=True)
                except ConfigError as refusal:
                    leader.tell(refused=f"client {share.name}: {refusal}")
                except RunInvalid as reason:
                    leader.tell(failed=str(reason))
                await station.until_heard(most_beats(share))
        for agent in agents:
            agent.cancel()


async def _begin(station: Station) -> Share | None:
    """What the station begins with; None when it does not within `BEGIN_LIMIT_S`."""
    try:
        async with asyncio.timeout(BEGIN_LIMIT_S):
            _, about = decode(await station.lines.get())
    except TimeoutError:
        return None
    return Share.decode(about)


def main() -> int:
    """Say in one line on standard output that we listen; from then on, that is where our complaints go."""

    def heard() -> None:
        print("listening", flush=True)  # noqa: T201
        os.dup2(2, 1)

    directory = Path(sys.argv[1])
    try:
        check_private(directory)
    except ConfigError as refusal:
        print(f"loadsim: {refusal}", file=sys.stderr)  # noqa: T201
        return 2
    asyncio.run(live(directory, heard))
    return 0


if __name__ == "__main__":
    sys.exit(main())
