"""The pool of engines: in step, watched, and honest about those that are lost."""

import asyncio
import io
import json
import os
import time
from pathlib import Path

import pytest
from scripted_engines import DRAINED, FINISHED, GOOD, ON, READY, Conducted
from virtual_runs import NOWHERE, QUIET, scenario_of

from loadsim.cluster.channel import WorkerChannel
from loadsim.cluster.reliable_channel import BEAT_S
from loadsim.engine import coordinator
from loadsim.engine.channel import Channel
from loadsim.engine.clock import VirtualLoop, run_virtual
from loadsim.engine.control import decode
from loadsim.engine.coordinator import Coordinator, MemberAssignment, engines_for
from loadsim.engine.event_log import Events
from loadsim.engine.process import Begin
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.errors import ConfigError, RunInvalid
from loadsim.model.partition import CIRCLE, Assignment


def test_engines_start_together(tmp_path: Path) -> None:
    """All log on when all are ready, and are told one common start, which lies ahead."""
    before_ns = time.monotonic_ns()
    gate = tmp_path / "gate"
    os.mkfifo(gate)  # opening waits for the other end: the second engine is ready after the first has reported ready
    first = READY + f"open({str(gate)!r}, 'w').close(); " + GOOD.removeprefix(READY)
    done = Conducted(tmp_path, first, f"open({str(gate)!r}).read(); " + GOOD).run()
    first, second = done.received(1), done.received(2)
    assert [kind for kind, _ in first] == ["log on", "start", "drain", "drained"]
    assert first == second
    assert before_ns < dict(first)["start"] < time.monotonic_ns() + 1e9
    assert [line["engine"] for line in done.said("engine ready")].count("2") == 1


def test_accepted_mail_is_reported_to_the_recipients_engine_only(tmp_path: Path) -> None:
    """Users 1 and 5 are of the first engine, 2 and 6 of the second, 3 of the third, which gets no others'."""
    assignments = [Assignment(6, CIRCLE // 4, at * CIRCLE // 4, (at + 1) * CIRCLE // 4) for at in (1, 2, 3)]
    sends = ON + "say(accepted=[['a', 2], ['b', 1], ['c', 6]]); hear('accepted'); "
    sends += FINISHED + "snapshot('drain', 0, 1)"
    sees = ON + "n = len(hear('accepted')); " + FINISHED + "snapshot('drain', 0, n)"
    done = Conducted(tmp_path, sends + DRAINED, sees + DRAINED, GOOD, assignments=assignments).run()
    assert dict(done.received(2))["accepted"] == [["a", 2], ["c", 6]]
    assert dict(done.received(1))["accepted"] == [["b", 1]]
    assert "accepted" not in dict(done.received(3))


def test_engines_drain_until_all_mail_is_seen(tmp_path: Path) -> None:
    """Neither while an engine has yet to count mail for its users, nor while they have yet to see it.

    Mail that the second engine sends to itself shows that its snapshot before has been read. The second snapshot
    counts one of them in advance, so that only unseen mail keeps the engines.
    """
    sends = ON + "say(accepted=[['a', 3]]); " + FINISHED + "snapshot('drain'); say(accepted=[['b', 3]])" + DRAINED
    twice = "[(say(accepted=[['c', 3]]), hear('accepted')) for _ in 'cc']; "
    sees = ON + "hear('accepted'); " + FINISHED + "hear('accepted'); "
    sees += f"snapshot('drain', 0, 0); {twice}snapshot('drain', 4, 5); {twice}snapshot('drain', 0, 6)"
    done = Conducted(tmp_path, sends, sees + DRAINED).run()
    received = [kind for kind, _ in done.received(2)]
    assert received == ["log on", "start", "accepted", "drain", *["accepted"] * 5, "drained"]


def test_no_engine_drains_while_another_may_send(tmp_path: Path) -> None:
    """Finished engines wait for the last one, but not for a lost one."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    early = ON + "say(finished=True); " + f"open({str(gate)!r}, 'w').close(); hear('drain'); "
    early += "say(event=dict(event='drains')); snapshot('drain')" + DRAINED
    late = ON + f"open({str(gate)!r}).read(); say(event=dict(event='sends')); " + GOOD.removeprefix(ON)
    done = Conducted(tmp_path, early, late, ON + "os._exit(1)").run()
    order = [json.loads(line)["event"] for line in done.out.getvalue().splitlines()]
    assert order.index("sends") < order.index("drains")
    assert [line["engine"] for line in done.said("engine lost")] == ["3"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("death", "why"),
    [
        ("os._exit(7)", "exit status 7"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal 9"),
        ("sys.stdout.write('{\"snap'); sys.stdout.flush(); os._exit(1)", "exit status 1"),
    ],
)
@pytest.mark.parametrize("before", ["", ON])
def test_the_others_go_on_without_an_engine_that_dies(tmp_path: Path, before: str, death: str, why: str) -> None:
    """Whenever it dies, it is said once, with its users and why, and the other one comes to its end."""
    done = Conducted(tmp_path, GOOD, before + death).run()
    (lost,) = done.said("engine lost")
    assert (lost["engine"], lost["users"], lost["why"]) == ("2", 2, why)
    assert [kind for kind, _ in done.received(1)] == ["log on", "start", "drain", "drained"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("print('hello', flush=True)", "expected JSON, found something else"),
        ("print('[' * 100000, flush=True)", "expected JSON, found something else"),
        ("say(unknown=1)", "expected one of ready, refused, on,"),
        ("sys.stdout.write('x' * (17 << 20)); sys.stdout.flush()", "chunk exceed the limit"),
    ],
)
@pytest.mark.parametrize("before", ["", ON])
def test_an_engine_that_sends_a_malformed_line_is_lost(tmp_path: Path, before: str, said: str, why: str) -> None:
    """It is ended, the reason is said, and the other one comes to its end."""
    done = Conducted(tmp_path, GOOD, before + said + "; time.sleep(1000)").run()
    (lost,) = done.said("engine lost")
    assert lost["engine"] == "2" and why in lost["why"], lost
    assert [kind for kind, _ in done.received(1)] == ["log on", "start", "drain", "drained"]


def test_a_silent_engine_is_given_up(tmp_path: Path) -> None:
    """After five beats without a word it is killed and lost; one that has ended by itself need not speak."""
    ended = "snapshot('over'); " + ON + FINISHED + "snapshot('over')" + DRAINED
    done = Conducted(tmp_path, ended, ON + "os.kill(os.getpid(), signal.SIGSTOP)", heartbeat_s=0.05).run()
    (lost,) = done.said("engine lost")
    assert lost["engine"] == "2"
    assert lost["why"].startswith("sent nothing for")
    assert dict(done.received(1))["drained"] is True


def test_a_silent_machine_is_given_up(tmp_path: Path) -> None:
    """Before the log-on one that may take minutes to be ready is lost after some seconds, if it does not beat."""
    users = [Assignment(4, 1, 1, 3), Assignment(4, 1, 3, 5)]
    scenario = scenario_of(tmp_path / "scenario", (QUIET, 4))
    parts = [Begin(scenario, NOWHERE, assignment, "", {"engine": str(at)}) for at, assignment in enumerate(users, 1)]
    out, lost_at_s = io.StringIO(), []
    ways: dict[str, list[bytes]] = {}

    async def live(clock: VirtualLoop) -> None:
        channels: dict[str, WorkerChannel] = {}

        async def open_channel(part: MemberAssignment) -> Channel:
            channel = channels[part.name] = WorkerChannel()
            channel.link.attach(ways.setdefault(part.name, []).append)
            channel.link.feed(b"heard 0\n")
            return channel

        async def beat() -> None:
            for second in range(200):
                await asyncio.sleep(BEAT_S)
                for name, channel in channels.items():
                    channel.link.beat()
                    if name == "1" or second < 5:
                        channel.link.feed(b"heard 1\n")
                if second == 7:
                    channels["1"].link.feed(b'1 {"ready":1}\n')
                if any(b"log on" in line for line in ways["1"]) and not lost_at_s:
                    lost_at_s.append(clock.now_ns() * 1e-9)
                    channels["1"].link.feed(b'2 {"over":true}\n')

        beating = asyncio.create_task(beat())
        await Coordinator(parts, Events(out), lambda _: None, open_channel=open_channel).run()
        beating.cancel()

    run_virtual(live)
    (lost,) = [line for line in map(json.loads, out.getvalue().splitlines()) if line["event"] == "engine lost"]
    assert lost["engine"] == "2"
    assert lost["why"].startswith("sent nothing for")
    assert lost_at_s == [pytest.approx(5 + coordinator.SILENT_LIMIT_S, abs=3)]


def test_counts_of_a_lost_engine_are_kept(tmp_path: Path) -> None:
    """No count ever falls: its tasks are counted on, its users too, but none of them is on."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    stays = f"snapshot('over'); open({str(gate)!r}).read(1); " + ON + FINISHED + "snapshot('over')" + DRAINED
    done = Conducted(tmp_path, stays, "snapshot('over'); os._exit(1)", heartbeat_s=0.05)
    with gate.open("r+b", buffering=0) as opened:

        def watch(snapshot: LiveSnapshot) -> None:
            done.snapshots.append(snapshot)
            if (snapshot.users_on, snapshot.done) == (2, 2):
                opened.write(b"x")

        done.watch = watch
        done.run()
    assert (4, 2, 2) in [(each.users, each.users_on, each.done) for each in done.snapshots]
    assert {each.users for each in done.snapshots} == {4}  # from the first, before all engines have reported
    assert [each.done for each in done.snapshots] == sorted(each.done for each in done.snapshots)


@pytest.mark.parametrize("before", ["", READY + "hear('log on'); "])
def test_an_engine_may_be_silent_before_the_start(tmp_path: Path, before: str) -> None:
    """Until all are ready, silence is no sign of death; while they log on, it may last for a minute."""
    calm = "snapshot('log-on'); " + ON + FINISHED + "snapshot('over')" + DRAINED
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    silent = (
        f"{before}open({str(gate)!r}).read(1); " + ON.removeprefix(before) + FINISHED + "snapshot('over')" + DRAINED
    )
    done = Conducted(tmp_path, calm, silent, heartbeat_s=0.01)
    with gate.open("r+b", buffering=0) as opened:  # for both, so that neither waits for the other end

        def beat(snapshot: LiveSnapshot) -> None:
            done.snapshots.append(snapshot)
            if len(done.snapshots) == 10 * coordinator.MISSES:
                opened.write(b"x")

        done.watch = beat
        done.run()
    assert len(done.snapshots) >= 10 * coordinator.MISSES
    assert not done.said("engine lost")


def test_an_engine_that_cannot_start_ends_all(tmp_path: Path) -> None:
    """Its one line is the command's, and no other engine is left."""
    conducted = Conducted(tmp_path, GOOD, "say(refused='x.tlog: expected room, found none'); hear('nothing')")
    with pytest.raises(ConfigError, match=r"^x\.tlog: expected room, found none$"):
        conducted.run()
    assert all(member.channel.ended is not None for member in (conducted.pool or pytest.fail())._members)


def test_a_run_without_engines_fails(tmp_path: Path) -> None:
    with pytest.raises(RunInvalid, match="no engine was ready"):
        Conducted(tmp_path, "os._exit(1)", "os._exit(1)").run()


def test_stop_reaches_engines_that_were_not_ready(tmp_path: Path) -> None:
    """A stop during their start reaches the engines as soon as they can read it, and there is no common start."""
    stopped = "hear('stop'); say(over=True)"
    done = Conducted(tmp_path, READY + stopped, READY + stopped).run(stop=True)
    assert "start" not in dict(done.received(1)) | dict(done.received(2))


def test_the_number_of_engines_follows_cores_and_users() -> None:
    """At least one a core, no more than users, and one more with every 15,000 users and outside senders."""
    cores = os.cpu_count() or 1
    assert engines_for(1, cores) == 1
    assert engines_for(1000, cores) == cores
    assert engines_for(15_000 * cores + 1, cores) == cores + 1
    assert engines_for(1000, cores, senders=15_000 * cores) == cores + 1
    assert engines_for(2, 1, senders=100_000) == 2


def test_a_begin_message_shows_no_password(tmp_path: Path) -> None:
    """It carries passwords for the engine, but does not show them."""
    scenario = scenario_of(tmp_path, (QUIET, 2), accounts={"user": "u{index}", "password": "hush-{index}"})
    begin = Begin(scenario, NOWHERE, Assignment(2, 1, 1, 3), "x", {"engine": "1"})
    assert b"hush" not in begin.encode()
    assert "hush" not in repr(begin)
    assert decode(begin.encode(), [Begin]) == begin
