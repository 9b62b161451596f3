"""A client machine's part of a run, in a process of its own: `python -m loadsim.cluster.worker DIRECTORY`.

It runs the machine's pool of engines and is kept in step by the station, as an engine is by its pool. It outlives the
agent that has started it, and goes on when another one comes; what it measures is in its directory, whatever becomes of
the others. See `worker_directory` for that directory, `reliable_channel` for how one speaks with it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, TextIO, cast

from loadsim.analysis.clock_model import Reading
from loadsim.cluster.background import background_tasks
from loadsim.cluster.clock_sync import NewestReading
from loadsim.cluster.prepare import Preparation, Standing, together
from loadsim.cluster.prepare_process import PREPARER
from loadsim.cluster.reliable_channel import BEAT_S, ReliableChannel
from loadsim.cluster.share import WorkerAssignment, fingerprints
from loadsim.cluster.worker_directory import EVENTS_NAME, LOGS_NAME, check_private, held, listening_at
from loadsim.engine.channel import Channel, start_process
from loadsim.engine.clock import MonotonicClock
from loadsim.engine.control import TO_A_MEMBER, decode, encode
from loadsim.engine.coordinator import Coordinator, start_engine
from loadsim.engine.event_log import Events, closed_at_last
from loadsim.engine.event_loop import requests_are
from loadsim.engine.participant import EventForwarder, RemoteControl
from loadsim.engine.rlimits import raise_open_file_limit
from loadsim.errors import ConfigError, RunInvalid
from loadsim.model.workload import Workload
from loadsim.monitor.filesystems import server_storage
from loadsim.monitor.host import open_machine_log, watched_machine
from loadsim.monitor.server_banner import environment_facts
from loadsim.monitor.server_discovery import find_server
from loadsim.protocols.registry import check_drivers
from loadsim.provisioning.initialise import total
from loadsim.provisioning.preflight import check_ports, check_sources, check_submission
from loadsim.timinglog.json_checks import having, or_none, whole

BEGIN_LIMIT_S = 60.0
"""A machine that is told nothing for so long was started for nobody, or prepares mailboxes for nobody."""

STILL_BEATS = 60
"""How long a process that prepares mailboxes may say nothing: it is busy with one after the other, and says it late."""


class Controller:
    """The station, as the machine sees it: over a link, by whichever agent has connected last."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.link = ReliableChannel(self.lines.put_nowait)
        self._agent: asyncio.StreamWriter | None = None
        self._stirred = asyncio.Event()

    async def attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """An agent has connected: from its first word on it is the one, to its end or until another one speaks."""
        spoken = False

        def write(line: bytes) -> None:
            if not writer.is_closing():  # else asyncio would complain; it is said again to the next agent
                writer.write(line)

        try:
            while (line := await reader.readline()).endswith(b"\n"):
                if not spoken:
                    spoken = True
                    self.leave()
                    self._agent = writer
                    self.link.attach(write)
                if self._agent is not writer:
                    break
                self.link.feed(line)
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
        while not self.link.all_acknowledged and self.link.silent_beats <= beats:
            self._stirred.clear()
            await self._stirred.wait()


class Watch:
    """Looks for the station while a share of a run lasts, and does what it would have us do when it is gone."""

    def __init__(
        self, share: WorkerAssignment, link: ReliableChannel, leader: RemoteControl, pool: Coordinator, events: Events
    ) -> None:
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
        quiet = self._link.silent_beats
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
                why = "cluster.on_control_loss is stop" if self._pool.start_ns else "before the common start"
                self._leader.give_up(f"its machine had not heard of the station for {quiet * BEAT_S:.0f} s, {why}")
        if goes_on and time.monotonic_ns() >= self._pool.start_ns + self._all_finished_ns:
            self._leader.receive(encode(drain=True))


def most_beats(share: WorkerAssignment) -> int:
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


async def check(share: WorkerAssignment) -> None:
    """Whether we can make a share, and make of it what the station does. Raises `ConfigError`."""
    share.fingerprints.check(await asyncio.to_thread(lambda: fingerprints(Workload(share.scenario), share.assignment)))
    check_sources(share.scenario)
    check_ports(share.scenario, share.assignment)
    check_drivers(share.scenario, share.services)
    raise_open_file_limit(max(map(len, share.hands)))


class Released(Exception):
    """Nobody wants load of us, or the station is gone."""


async def prepare(share: WorkerAssignment, station: Controller, leader: RemoteControl) -> None:
    """Prepare the mailboxes of our users, in step with the other machines; return when we are to make the load.

    Raises `ConfigError` for what is wrong with any of them, and `Released`.
    """
    change, begin = asyncio.Event(), asyncio.Event()
    users = len(share.assignment)
    standing = Standing(of=users)

    def note(all_of_us: Mapping[str, Standing]) -> None:
        nonlocal standing
        begins, standing = standing.phase, together(all_of_us)
        if begins != standing.phase:
            tell()

    def tell() -> None:
        station.link.send(encode(progress=standing), replaceable=True)

    async def keep_telling() -> None:
        while True:
            tell()
            await asyncio.sleep(BEAT_S)

    async def listen() -> None:
        while not begin.is_set():
            kind = await _word(station)
            if kind == "stop":
                raise Released
            if kind in ("change", "begin"):
                {"change": change, "begin": begin}[kind].set()

    async def agree(to_change: int) -> None:
        tell()
        leader.send(inspected=to_change)
        await change.wait()

    async with background_tasks(listen(), keep_telling()):
        await check(share)
        await check_submission(Workload(share.scenario), share.services, share.assignment)
        channels: dict[str, tuple[Channel, int]] = {}
        try:
            for name, errand in share.errands().items():
                channels[name] = await start_process(PREPARER), len(errand.hand)
                channels[name][0].send(errand.encode())
            done = await Preparation(channels, note, STILL_BEATS).run(agree)
        finally:
            for channel, _ in channels.values():
                channel.kill()
                await channel.wait()
        tell()
        leader.send(prepared=asdict(total(list(done.values()))))
        await begin.wait()


async def _word(station: Controller) -> str:
    """The next thing that the station says. Raises `Released` when it is not heard of any more."""
    while True:
        try:
            async with asyncio.timeout(BEAT_S):
                kind, _ = decode(await station.lines.get())
                return kind
        except TimeoutError:
            if station.link.silent_beats * BEAT_S > BEGIN_LIMIT_S:
                raise Released from None


async def make_load(
    directory: Path, share: WorkerAssignment, station: Controller, leader: RemoteControl, kept: int
) -> None:
    """Run a share from the start of its engines to their end; they have the open file `kept`, too.

    Raises `ConfigError` when it cannot begin here, `RunInvalid` when no engine was left to make load.
    """
    place = await asyncio.to_thread(find_server, share.services.imap, share.services.smtp)  # names may take their time
    seen = await asyncio.to_thread(environment_facts, place, share.services)
    logs = directory / LOGS_NAME
    begins = share.begins(logs)
    try:
        logs.mkdir()
        written = (directory / EVENTS_NAME).open("x", encoding="utf-8")
        machine_log = open_machine_log(logs, begins[0].header)
    except OSError as failure:
        raise ConfigError(f"{directory}: expected a directory to write to, found: {failure}") from None
    with closed_at_last(written):
        events = Events(cast(TextIO, _Both(cast(TextIO, EventForwarder(leader, client=share.name)), written)))
        pool = Coordinator(begins, events, leader.watch, leader, partial(start_engine, kept=[kept]))
        leader.controlled = pool
        watch = Watch(share, station.link, leader, pool, events)
        clock = NewestReading()
        try:
            with requests_are(pool.stop):
                look = partial(server_storage, share.services)
                async with (
                    watched_machine(machine_log, MonotonicClock(), lambda: pool.start_ns, seen, look, clock),
                    background_tasks(watch.keep(), _listen(station, leader, clock)),
                ):
                    await pool.run()
                    if leader.why is not None:
                        machine_log.facts({"ended_why": leader.why})
        finally:
            with suppress(OSError):  # a full disk; no figure of the answer but the machine's is from it
                machine_log.close()


def _clock(value: Any) -> str | None:
    good = isinstance(value, list) and len(value) == 4 and not any(map(_INSTANT, value)) and value[2] >= 0
    return None if good else "four instants of clocks"


_INSTANT = whole(-(2**62), 2**62)

TO_A_WORKER = {**TO_A_MEMBER, "begin": or_none(having({})), "clock": _clock}
"""The messages of a station to a machine that makes load, by kind."""


async def _listen(station: Controller, leader: RemoteControl, clock: NewestReading) -> None:
    """Do as the station says, and note what it says of its clock (`WorkerChannel.send_clock`)."""
    while True:
        line = await station.lines.get()
        try:
            kind, about = decode(line, TO_A_WORKER)
            if kind == "clock":
                at_ns, station_ns, error_ns, ahead_ns = about
                clock.update(Reading(at_ns, station_ns, error_ns), ahead_ns)
            elif kind != "begin":  # `begin` has been handled: it brought this share
                leader.receive(line)
        except ValueError as problem:
            leader.give_up(str(problem))


async def live(directory: Path, heard: Callable[[], object], kept: int) -> None:
    """The life of a machine process; `heard` is called when it listens. It ends when its last word was heard, or when
    nobody is there to hear it. Where it made no load, it leaves nothing. Its engines have the open file `kept`, too."""
    station = Controller()
    async with asyncio.TaskGroup() as group:
        agents: set[asyncio.Task[None]] = set()

        def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            agents.add(agent := group.create_task(station.attend(reader, writer)))
            agent.add_done_callback(agents.discard)

        async with listening_at(directory, attend), background_tasks(station.beat()):
            heard()
            first = await _first_word(station)
            begun = False
            if first is not None:
                kind, about = first
                share = WorkerAssignment.decode(about)
                leader = RemoteControl(station.link.send, partial(station.link.send, replaceable=True))
                try:
                    await (prepare(share, station, leader) if kind == "prepare" else check(share))
                    begun = True
                    await make_load(directory, share, station, leader, kept)
                    leader.send(over=True)
                except Released:
                    leader.send(over=True)
                except ConfigError as refusal:
                    begun = False
                    leader.send(refused=f"client {share.name}: {refusal}")
                except RunInvalid as reason:
                    leader.send(failed=str(reason))
                await station.until_heard(most_beats(share))
            if not begun:  # there is nothing to collect
                shutil.rmtree(directory, ignore_errors=True)
        for agent in agents:
            agent.cancel()


async def _first_word(station: Controller) -> tuple[str, Any] | None:
    """With which the station begins; None when it does not within `BEGIN_LIMIT_S`."""
    try:
        async with asyncio.timeout(BEGIN_LIMIT_S):
            return decode(await station.lines.get())
    except TimeoutError:
        return None


def main() -> int:
    """Say in one line on standard output that we listen; from then on, that is where our complaints go."""

    def heard() -> None:
        print("listening", flush=True)  # noqa: T201
        os.dup2(2, 1)

    directory = Path(sys.argv[1])
    os.umask(0o077)
    try:
        check_private(directory)
        with held(directory) as kept:
            asyncio.run(live(directory, heard, kept))
    except ConfigError as refusal:
        print(f"loadsim: {refusal}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
