"""A pool of pools: machines are kept in step as a machine's engines are, and by the same words."""

import asyncio
import io
import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from control_lines import line_of, read_line
from patience import PATIENCE_S
from scripted_engines import DRAINED, FINISHED, GOOD, ON, READY, scripted_engine
from virtual_runs import NOWHERE, QUIET, scenario_of

from loadsim.engine.channel import Channel
from loadsim.engine.control import TO_A_MEMBER, Over, Start, Stop, decode, encode
from loadsim.engine.coordinator import Coordinator, MemberAssignment
from loadsim.engine.event_log import Events
from loadsim.engine.participant import RemoteControl
from loadsim.engine.process import Begin
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.errors import RunInvalid
from loadsim.model.partition import Assignment
from loadsim.timinglog.facts import ABORT_ON, EarlyEnd

AHEAD_NS = 3600 * 10**9


class Machine:
    """A machine's scripted engines in a task; the controller's channel to it, and its part of the run."""

    def __init__(self, place: Path, name: str, first: int, users: int, acts: Sequence[str], ahead_ns: int = 0) -> None:
        """Two users for each act, from user `first` on."""
        self.name = name
        self.assignment = Assignment(users, 1, first, first + 2 * len(acts))
        self.ahead_ns = ahead_ns
        scenario = scenario_of(place / "scenario", (QUIET, users))
        self.begins = [
            Begin(
                scenario,
                NOWHERE,
                Assignment(users, 1, first + 2 * at, first + 2 * at + 2),
                str(place / f"{name}.{at + 1}"),
                {"engine": str(at + 1), "acts": act},
            )
            for at, act in enumerate(acts)
        ]
        self.ready = 0
        self.silent_s = 0.0
        self.lost: str | None = None
        self.ended: str | None = None
        self.on_everybody: Callable[[], object] = lambda: None
        self.at_end: Callable[[], object] = lambda: None

    # its part

    def encode(self) -> bytes:
        return line_of(begin=None)

    def write_ready(self, events: Events, process: int) -> None:
        self.ready = process

    def write_lost(self, events: Events, why: str) -> None:
        self.lost = why

    # the channel to it

    def send(self, line: bytes) -> None:
        if self.ended is None:
            self._hear(line)

    def send_start(self, start_ns: int) -> None:
        self.send(encode(Start(start_ns + self.ahead_ns)))

    async def receive(self) -> bytes:
        return await self._said.get()

    async def wait(self) -> str:
        await asyncio.wait([self._life])
        return self.ended or pytest.fail()

    def kill(self) -> None:
        self._life.cancel()

    # the machine itself

    async def open(self) -> Channel:
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        self._leader = RemoteControl(self._say)
        events = Events(None, partial(self._leader.send_event, client=self.name))
        self._pool = Coordinator(self.begins, events, self._leader.watch, self._leader, scripted_engine)
        self._leader.controlled = self._pool
        self._life = asyncio.create_task(self._live())
        return self

    def _say(self, line: bytes) -> None:
        self._said.put_nowait(line)
        if read_line(line)[0] == "on":
            asyncio.get_running_loop().call_soon(self.on_everybody)

    def stop(self) -> None:
        self._pool.stop()

    def _hear(self, line: bytes) -> None:
        if read_line(line)[0] != "begin":
            self._leader.receive(decode(line, TO_A_MEMBER))

    async def _live(self) -> None:
        try:
            await self._pool.run()
            self.at_end()
            self._leader.send(Over())
            self.ended = "by itself"
        except RunInvalid as reason:
            self.ended = str(reason)
        finally:
            self.ended = self.ended or "cut off"
            self._said.put_nowait(b"")

    @property
    def early_end(self) -> EarlyEnd | None:
        return self._leader.early_end

    def received(self, engine: int) -> list[tuple[str, Any]]:
        return [read_line(line) for line in Path(self.begins[engine - 1].log).read_text().splitlines()]


def conduct(
    *machines: Machine,
    watch: Callable[[LiveSnapshot], None] = lambda _: None,
    stop: bool = False,
    end: EarlyEnd | None = None,
) -> list[dict[str, Any]]:
    out = io.StringIO()

    async def open_channel(part: MemberAssignment) -> Channel:
        assert isinstance(part, Machine)
        return await part.open()

    async def main() -> None:
        controller = Coordinator(machines, Events(out), watch, open_channel=open_channel)
        if stop:
            asyncio.get_running_loop().call_soon(controller.stop, end)
        await asyncio.wait_for(controller.run(), PATIENCE_S)

    asyncio.run(main())
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_engines_of_all_machines_start_together(tmp_path: Path) -> None:
    """Engines of all machines log on when the last one of any is ready, and are told one start, each by its clock."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)  # opening waits for the other end: the last engine is ready after the first has reported ready
    first = READY + f"open({str(gate)!r}, 'w').close(); " + GOOD.removeprefix(READY)
    last = f"open({str(gate)!r}).read(); " + GOOD
    one = Machine(tmp_path, "one", 1, 6, [first, GOOD])
    two = Machine(tmp_path, "two", 5, 6, [last], AHEAD_NS)
    events = conduct(one, two)
    assert [kind for kind, _ in one.received(1)] == ["log on", "start", "drain", "drained"]
    assert one.received(1) == one.received(2)
    assert dict(two.received(1))["start"] - dict(one.received(1))["start"] == AHEAD_NS
    assert {one.ready, two.ready} == {os.getpid()}
    ready = {(event["client"], event["engine"]) for event in events if event["event"] == "engine ready"}
    assert ready == {("one", "1"), ("one", "2"), ("two", "1")}


def test_machines_drain_until_all_mail_is_seen(tmp_path: Path) -> None:
    """A message on its way to an engine of another machine holds all, though every engine has said to have seen all."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    sends = ON + "say(accepted=[['a', 3]]); " + FINISHED + "snapshot('drain'); hear('drained'); "
    sends += "say(event=dict(event='released')); say(over=True)"
    slow = ON + FINISHED + f"snapshot('drain'); open({str(gate)!r}).read(1); "
    slow += "say(event=dict(event='seen')); snapshot('drain', 0, 1)" + DRAINED
    shown = []
    with gate.open("r+b", buffering=0) as opened:

        def watch(snapshot: LiveSnapshot) -> None:
            shown.append(snapshot)
            if snapshot.phase == "drain" and snapshot.accepted_undelivered == 1:
                opened.write(b"x")

        events = conduct(Machine(tmp_path, "one", 1, 4, [sends]), Machine(tmp_path, "two", 3, 4, [slow]), watch=watch)
    order = [event["event"] for event in events]
    assert order.index("seen") < order.index("released")


def test_machines_record_what_ended_the_run(tmp_path: Path) -> None:
    """Their logs state it; a user who then ends the run at once does not change it."""
    stopped = READY + "hear('stop'); say(over=True)"
    machine = Machine(tmp_path, "one", 1, 4, [stopped])
    machine.at_end = lambda: machine.send(encode(Stop()))
    end = EarlyEnd(ABORT_ON, "failed share 62 % over 60 s, at most 50 %")
    conduct(machine, stop=True, end=end)
    assert machine.early_end == end


def test_a_stopped_machine_waits_for_no_other(tmp_path: Path) -> None:
    """Stopped where it is, while the controller still waits for another machine, it ends; the other one goes on."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    one = Machine(tmp_path, "one", 1, 4, [READY + "hear('log on'); say(on=True); hear('stop'); say(over=True)"])
    late = READY + f"hear('log on'); open({str(gate)!r}).read(1); say(on=True); hear('start'); "
    two = Machine(tmp_path, "two", 3, 4, [late + FINISHED + "snapshot('drain')" + DRAINED])
    one.on_everybody = one.stop
    with gate.open("r+b", buffering=0) as opened:
        one.at_end = lambda: opened.write(b"x")
        conduct(one, two)
    assert [kind for kind, _ in one.received(1)] == ["log on", "stop"]
    assert [kind for kind, _ in two.received(1)] == ["log on", "start", "drain", "drained"]
    assert one.lost is None
