"""Mailboxes prepared by many: in step, as one would, and by the clients of a cluster."""

import asyncio
import os
import shutil
import signal
import socket
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from cluster_commands import Command, client, controller, running
from control_lines import line_of
from mailservers import SITES, StartDovecotPostfix, StartEmbedded, logged_on, numbered_accounts
from patience import PATIENCE_S
from provisioning import FOREIGN, Lab, lab_maker, put, quiet, snapshot
from small_runs import loadsim, on, population_of, written
from workers import wait_for_end

import loadsim as package
from loadsim.build_fingerprint import build_fingerprint, sources_digest
from loadsim.cli import BAD_INPUT
from loadsim.cluster.placement import fingerprints
from loadsim.cluster.prepare import INITIALISE, INSPECT, PhaseProgress, Preparation, combine
from loadsim.engine.channel import Channel
from loadsim.engine.clock import VirtualLoop, run_virtual
from loadsim.engine.coordinator import READY_LIMIT_S
from loadsim.errors import ConfigError
from loadsim.model.partition import divide
from loadsim.provisioning.initialise import Initialised, initialise, inspect, restore, total
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import Workload, plan_digest
from loadsim.servers.running import RunningServer


class Told:
    """A channel whose other end is the test: what it was told, and what it says."""

    silent_s = 0.0

    def __init__(self, *says: dict[str, Any]) -> None:
        self.told: list[bytes] = []
        self.ended: str | None = None
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._gone = asyncio.Event()
        for each in says:
            self.lines.put_nowait(line_of(**each))

    def send(self, line: bytes) -> None:
        self.told.append(line)

    async def receive(self) -> bytes:
        return await self.lines.get()

    async def wait(self) -> str:
        await self._gone.wait()
        return str(self.ended)

    def kill(self) -> None:
        self.end("killed")

    def end(self, how: str) -> None:
        if self.ended is None:
            self.ended = how
            self._gone.set()
            self.lines.put_nowait(b"")


def done(count: int) -> dict[str, Any]:
    return {"prepared": asdict(Initialised(count, changed=count, put=3, start_state="s"))}


def test_no_client_changes_mailboxes_before_all_have_inspected_theirs() -> None:
    """One is through long before the other; then both are told."""

    async def live(_: VirtualLoop) -> None:
        quick, slow = Told({"inspected": True}), Told()
        channels: Mapping[str, tuple[Channel, int]] = {"quick": (quick, 2), "slow": (slow, 5)}
        running = asyncio.create_task(Preparation(channels, lambda _: None, 100).run())
        await asyncio.sleep(50)
        assert not quick.told
        slow.lines.put_nowait(line_of(inspected=True))
        await asyncio.sleep(1)
        assert quick.told == slow.told == [line_of(change=True)]
        for channel, count in ((quick, 2), (slow, 5)):
            channel.lines.put_nowait(line_of(**done(count)))
        prepared = await running
        assert total(list(prepared.values())) == Initialised(7, changed=7, put=6, start_state="s")
        assert (quick.ended, slow.ended) == (None, None)

    run_virtual(live)


@pytest.mark.parametrize("before_s", [0, 30])
@pytest.mark.parametrize(
    ("what", "said", "after_s"),
    [
        ("refuses", "account user3: too late", 0),
        ("ends", "bad: lost while it prepared mailboxes: signal 9", 0),
        ("ends when it is through", "bad: lost while it prepared mailboxes: signal 9", 0),
        ("says nothing more", "bad: lost while it prepared mailboxes: sent nothing for 9 s", 9),
        ("never said anything", "bad: lost while it prepared mailboxes: sent nothing for 301 s", READY_LIMIT_S + 1),
    ],
)
def test_a_failure_of_one_client_ends_the_preparation_of_all(
    what: str, said: str, after_s: float, before_s: int
) -> None:
    """Noticed at once, or after some missed beats; no client is left, and none was told to change mailboxes before."""

    async def live(_: VirtualLoop) -> None:
        good, bad = Told({"inspected": True}), Told()

        async def keep_well() -> None:
            while True:
                good.lines.put_nowait(line_of(progress=[INSPECT, 1, 1]))
                await asyncio.sleep(1)

        async def go_wrong() -> None:
            if what != "never said anything":
                for _ in range(before_s):
                    bad.lines.put_nowait(line_of(progress=[INSPECT, 0, 1]))
                    await asyncio.sleep(1)
                bad.lines.put_nowait(line_of(progress=[INSPECT, 0, 1]))
            if what == "refuses":
                bad.lines.put_nowait(line_of(refused="account user3: too late"))
            elif what == "ends when it is through":
                bad.lines.put_nowait(line_of(inspected=True))
                bad.lines.put_nowait(line_of(**done(1)))
            if what.startswith("ends"):
                bad.end("signal 9")

        beside = [asyncio.create_task(keep_well()), asyncio.create_task(go_wrong())]
        begun = asyncio.get_running_loop().time()
        channels: Mapping[str, tuple[Channel, int]] = {"good": (good, 1), "bad": (bad, 1)}
        with pytest.raises(ConfigError) as refused:
            await Preparation(channels, lambda _: None, 8).run()
        assert str(refused.value) == said
        waited_s = asyncio.get_running_loop().time() - begun
        assert waited_s == pytest.approx(after_s + (before_s if what != "never said anything" else 0), abs=1.01)
        assert None not in (good.ended, bad.ended)
        assert good.told == bad.told == ([line_of(change=True)] if what == "ends when it is through" else [])
        for task in beside:
            task.cancel()

    run_virtual(live)


def test_progress_of_several_clients_is_that_of_the_slowest() -> None:
    """A client that has not begun has all its accounts left; one with nothing to change is left out of that phase."""
    assert combine([]) == PhaseProgress()
    assert combine([PhaseProgress(INSPECT, 3, 10), PhaseProgress(of=5)]) == PhaseProgress(INSPECT, 3, 15)
    changing = PhaseProgress(INITIALISE, 1, 4)
    assert combine([changing, PhaseProgress(INSPECT, 5, 5)]) == changing


def test_fingerprints_are_compared_field_by_field() -> None:
    """A plan of any of the client's users that differs is a difference, one of somebody else's is not."""
    workload = Workload(load_scenario("medium", ["topology.0.users=6"]))
    ours = fingerprints(workload, [2, 4])
    assert ours.start_state == workload.start_state_digest()
    assert fingerprints(workload, range(1, 7)).plan == plan_digest(workload)
    ours.check(fingerprints(Workload(workload.scenario), [2, 4]))
    for changes, said in (
        ({"plugins": "x"}, "^plugins: expected the controller's, none, found x"),
        ({"start_state": None}, "^start state: expected .*, found None"),
        ({"plan": fingerprints(workload, [2, 5]).plan}, "^plan: expected the controller's"),
    ):
        with pytest.raises(ConfigError, match=said):
            ours.check(replace(ours, **changes))


def test_a_changed_source_changes_the_fingerprint(tmp_path: Path) -> None:
    """A byte of any source, a name, or what stands in messages; not what Python has compiled."""
    copy = tmp_path / "loadsim"
    shutil.copytree(Path(package.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__/draw.cpython-311.pyc").write_bytes(b"x")
    assert build_fingerprint(copy) == build_fingerprint()
    draw, sheet = copy / "model/draws.py", next((copy / "model/content/data").glob("sheet-*"))
    digests = {sources_digest(copy)}
    for change in (
        lambda: draw.write_bytes(draw.read_bytes() + b"#"),
        lambda: draw.rename(copy / "model/drawn.py"),
        lambda: sheet.write_bytes(b""),
    ):
        change()
        digests.add(sources_digest(copy))
    assert len(digests) == 4


@pytest.fixture(params=SITES)
def labs(request: pytest.FixtureRequest, embedded_server: StartEmbedded, tmp_path: Path) -> tuple[Lab, Lab]:
    """Two servers with new accounts of the same names, for one scenario."""
    start: StartEmbedded | StartDovecotPostfix = embedded_server
    if request.param == "dovecot":
        start = request.getfixturevalue("dovecot_postfix")
    made = []
    for name in ("one", "many"):
        (tmp_path / name).mkdir()
        server: RunningServer = start(numbered_accounts(3))
        made.append(lab_maker(server, numbered_accounts(3), tmp_path / name)())
    return made[0], made[1]


def test_clients_prepare_the_same_mailboxes_as_one_machine(labs: tuple[Lab, Lab]) -> None:
    """Messages, flags and folders are equal, byte by byte as imaplib reads them, and so is the digest."""
    alone, many = labs
    expected = asyncio.run(initialise(alone.workload, alone.services, "auto", quiet))

    async def live() -> list[Initialised]:
        parts = [await inspect(many.workload, many.services, "auto", quiet, assignment) for assignment in divide(3, 2)]
        assert not any(each.get("Folder 01") for each in many.snapshots())
        return [await restore(many.workload, many.services, "auto", part, quiet) for part in parts]

    prepared = asyncio.run(live())
    assert total(prepared) == expected
    assert {each.accounts for each in prepared} == {1, 2}
    for one, other in zip(alone.snapshots(), many.snapshots(), strict=True):
        assert one.keys() == other.keys()
        for folder in one:
            if folder != "LoadSim":  # the manifest has UIDs and UIDVALIDITY of its own mailbox
                assert [each[1:] for each in one[folder]] == [each[1:] for each in other[folder]]
    assert sum(len(messages) for each in many.snapshots() for messages in each.values()) == 36  # 11 and a manifest


RUN: dict[str, Any] = {"day_length": "6s", "ramp_up": "0s", "warm_up": "0s", "window": "6s"}


def machine_processes(place: Path) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"loadsim.cluster.worker" in words and any(word.startswith(os.fsencode(place)) for word in words):
            found.append(int(process.name))
    return found


def nothing_left(*runs: Path) -> bool:
    """Return if clients leave these directories empty once no worker runs there."""
    for place in runs:
        for process in machine_processes(place):
            wait_for_end(process)
    return not [left for place in runs for left in place.iterdir()]


def cluster_run(place: Path, path: Path, address: str, *options: str) -> tuple[int, list[str]]:
    """A run to its end: the exit status, and what it complained of. It leaves no directory if it did not begin."""
    made = loadsim("run", path, "--cluster", address, "--out", place / "out", "--no-report", *options)
    assert "Traceback" not in made.stderr
    return made.returncode, [line for line in made.stderr.splitlines() if line.startswith("loadsim: ")]


@pytest.mark.nightly(part="hosts")
def test_an_error_at_one_client_is_found_before_any_mailbox_changes(
    embedded_server: StartEmbedded, tmp_path: Path
) -> None:
    """Foreign mail in one mailbox, or a mail port without a server; one line states the place."""
    path = written(tmp_path / "small.yaml", run=RUN)
    accounts, lists = population_of(load_scenario(str(path)))
    server = embedded_server(accounts, lists)
    written(path, run=RUN, **on(server.services))
    accounts = population_of(load_scenario(str(path)))[0]
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    with logged_on(server, accounts[2]) as session:
        put(session, "INBOX", FOREIGN % 1)
    before = [snapshot(server, account) for account in accounts]
    with controller(tmp_path) as (address, _), client(tmp_path, address, "one"), client(tmp_path, address, "two"):
        status, said = cluster_run(tmp_path, path, address)
        assert status == BAD_INPUT
        assert len(said) == 1
        assert said[0].startswith("loadsim: client ")
        assert said[0].partition(": ")[2].partition(": ")[2] == (
            "account user00003 (user00003@loadsim.test): folder INBOX holds 1 message that loadsim did not put there;"
            " use empty test accounts"
        )
        status, said = cluster_run(tmp_path, path, address, "--set", f"server.smtp.port={port}")
        assert status == BAD_INPUT
        assert len(said) == 1
        assert f": server: smtp: expected a mail server at 127.0.0.1:{port}, found: connection refused" in said[0]
        assert [snapshot(server, account) for account in accounts] == before
        assert not (tmp_path / "out").exists()
        assert nothing_left(tmp_path / "one", tmp_path / "two")


@pytest.mark.nightly(part="hosts")
def test_ctrl_c_or_a_lost_client_ends_the_preparation(embedded_server: StartEmbedded, tmp_path: Path) -> None:
    """While a server is silent: Ctrl-C ends it everywhere; a killed worker ends it with a line."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE_S)
        port = silent.getsockname()[1]
        server = {"imap": {"host": "127.0.0.1", "port": port}, "smtp": {"host": "127.0.0.1", "port": port}}
        path = written(tmp_path / "small.yaml", run=RUN, server=server, accounts={"user": "u{index}", "password": "p"})

        def asked(command: Command) -> list[socket.socket]:
            assert command.process.poll() is None
            return [silent.accept()[0] for _ in range(2)]

        def over(connections: list[socket.socket]) -> None:
            for each in connections:
                each.settimeout(PATIENCE_S)
                with each:
                    while each.recv(4096):
                        pass

        with controller(tmp_path) as (address, _), client(tmp_path, address, "one"), client(tmp_path, address, "two"):
            again = ("run", path, "--cluster", address, "--out", tmp_path / "out", "--no-report")
            with running(tmp_path, *again, error=True) as command:
                connections = asked(command)
                assert command.end(signal.SIGINT) == 130
                over(connections)
            assert nothing_left(tmp_path / "one", tmp_path / "two")
            with running(tmp_path, *again, error=True) as command:
                connections = asked(command)
                (machine,) = machine_processes(tmp_path / "two")
                os.kill(machine, signal.SIGKILL)
                command.until("^loadsim: client two: lost while it prepared mailboxes: ")
                assert command.process.wait(PATIENCE_S) == BAD_INPUT
                over(connections)
            assert nothing_left(tmp_path / "one")
            assert not (tmp_path / "out").exists()
