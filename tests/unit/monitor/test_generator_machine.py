"""The machine under the generator: what /proc says about it, where the server is, and keeping the two apart."""

import asyncio
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest
from timing_samples import HEADER
from working_child import FORK, LISTEN, Child

from loadsim.engine.clock import VirtualLoop, run_virtual
from loadsim.errors import ConfigError
from loadsim.model.ports import Endpoint, Services
from loadsim.monitor.cpu_affinity import kept_apart, split
from loadsim.monitor.host import Machine, watched_machine
from loadsim.monitor.server_discovery import ServerPlace, find_server, listening
from loadsim.runs.server import server_facts
from loadsim.runs.watcher import SILENT
from loadsim.timinglog.facts import LogFacts
from loadsim.timinglog.reader import read_log
from loadsim.timinglog.writer import TimingLogWriter

FIRST = {
    "stat": (
        "cpu  300 20 100 1000 40 5 15 10 7 0\n"
        "cpu0 100 20 60 500 40 5 10 5 7 0\n"
        "cpu1 200 0 40 500 0 0 5 5 0 0\n"
        "intr 12345 0 1\nctxt 99\n"
    ),
    "net/snmp": (
        "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
        "Tcp: RtoAlgorithm MaxConn InSegs OutSegs RetransSegs\nTcp: 1 -1 70 1000 20\n"
    ),
}
LATER = FIRST | {
    "stat": (
        "cpu  380 30 110 1080 50 6 19 20 90 0\n"
        "cpu0 150 30 65 520 50 6 14 5 90 0\n"
        "cpu1 230 0 45 560 0 0 5 15 0 0\n"
        "intr 12345 0 1\nctxt 99\n"
    ),
    "net/snmp": FIRST["net/snmp"].replace("70 1000 20", "170 1200 23"),
}


def machine_of(*texts: dict[str, str]) -> Machine:
    """A machine whose files have these texts, one after the other."""
    left = {path: iter([text[path] for text in texts]) for path in FIRST}
    return Machine(lambda path: next(left[path]))


def test_a_sample_has_the_changes_since_the_last() -> None:
    """Worked out by hand: core 0 did 70 + 4 + ... ticks of 100; guests are part of `user`, a waiting disk is idle."""
    # cpu0: user 50, nice 10, system 5, irq 1, softirq 4 = 70 busy; idle 20 + iowait 10 = 30; steal 0
    # cpu1: user 30, system 5 = 35 busy; idle 60; steal 10 (of 105)
    sample = machine_of(FIRST, LATER).take()
    assert 0 < sample.pop("memory_available_bytes") < psutil.virtual_memory().total
    assert sample == {
        "core_shares": [0.7, 0.3333],
        "cpu_share": pytest.approx((80 + 10 + 10 + 1 + 4) / (105 + 90 + 10), abs=5e-5),
        "stolen_share": pytest.approx(10 / 205, abs=5e-5),
        "segments_sent": 200,
        "segments_sent_again": 3,
    }


def test_this_machine_is_sampled() -> None:
    sample = Machine().take()
    assert len(sample["core_shares"]) == os.cpu_count()
    assert all(0 <= share <= 1 for share in (*sample["core_shares"], sample["cpu_share"], sample["stolen_share"]))
    assert sample["memory_available_bytes"] > 1_000_000


def test_a_machine_has_a_log_of_its_own(tmp_path: Path) -> None:
    """A sample a second from the common start on, its facts, and no users: an answer does not count it as an engine."""
    path = tmp_path / "c1.machine.tlog"

    async def watch(clock: VirtualLoop) -> None:
        log = TimingLogWriter(path, HEADER | {"engine": "machine", "engine_users": 0}, clock.now_ns())
        started: list[int] = []
        async with watched_machine(log, clock, lambda: sum(started), {"server_here": True}):
            await asyncio.sleep(2)
            started.append(clock.now_ns())
            await asyncio.sleep(3.5)
        log.close()

    run_virtual(watch)
    log = read_log(path)
    (source,) = log.sources
    assert [sample["at_s"] for sample in log.health] == [-1, 0, 1, 2, 3]
    assert source.facts == LogFacts(server_here=True, start_ns=2_000_000_000, ended="completed")
    assert not source.simulates


@pytest.mark.parametrize(
    ("bound", "asked", "found"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("::1", "::1", True),
        ("::", "127.0.0.1", True),
    ],
)
def test_listening_sockets_are_found_by_address_and_port(bound: str, asked: str, found: bool) -> None:
    """By the inode that the kernel shows for the socket; who listens everywhere listens here."""
    family = socket.AF_INET6 if ":" in bound else socket.AF_INET
    with closing(socket.create_server((bound, 0), family=family)) as listener:
        port = listener.getsockname()[1]
        inode = os.fstat(listener.fileno()).st_ino
        assert (inode in listening([ip_address(asked)], port)) is found
        assert inode not in listening([ip_address(asked)], port - 1)


class Server(Child):
    """A process that listens at a port and has children; `fork` makes one more."""

    def __init__(self) -> None:
        super().__init__("server")
        self.endpoint = Endpoint("127.0.0.1", int(self.does(LISTEN)))
        self.pids = [self.number]
        self.fork()

    def fork(self) -> None:
        self.pids.append(int(self.does(FORK)))

    def cpus(self) -> list[set[int]]:
        return [os.sched_getaffinity(pid) for pid in self.pids]


@pytest.fixture
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.process.communicate()


def test_a_server_on_this_machine_is_found_with_all_its_processes(server: Server) -> None:
    """The listening process and its descendants; their cores are this process's unless they were pinned."""
    place = find_server(server.endpoint)
    assert place.here is True
    assert place.processes.keys() == set(server.pids)
    assert place.names == "server"
    assert place.cpus == os.sched_getaffinity(0)
    assert place.shares(os.sched_getaffinity(0)) is True
    assert place.shares({max(os.sched_getaffinity(0)) + 1}) is False


FIRST_OF_A_CONTAINER = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
child = os.fork()
if not child:
    os.execvp("sleep", ["sleep", "60"])
print(listener.getsockname()[1], child, flush=True)
sys.stdin.read()
os.kill(-1, 9)
"""
"""A first process that listens, and has a child that works."""

FIND_SERVER = """
import sys
from loadsim.model.ports import Endpoint
from loadsim.monitor.server_discovery import find_server
print(sorted(find_server(Endpoint("127.0.0.1", int(sys.argv[1]))).processes))
"""


@pytest.mark.system
def test_a_server_that_is_the_first_process_of_its_container_is_found() -> None:
    """With its children, by a loadsim that was started into the container."""
    namespaces = ("unshare", "--pid", "--fork", "--mount", "--propagation", "unchanged", "--kill-child", "--")
    own_proc = 'mount --make-private /proc && mount -t proc proc /proc && exec "$@"'
    container = subprocess.Popen(
        [*namespaces, "sh", "-c", own_proc, "sh", sys.executable, "-c", FIRST_OF_A_CONTAINER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert container.stdout is not None
        port, child = container.stdout.readline().split()
        first = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().strip()
        enter = (
            "nsenter",
            f"--target={first}",
            "--pid",
            "--mount",
            "--root",
            "--",
            sys.executable,
            "-c",
            FIND_SERVER,
            port,
        )
        assert subprocess.run(enter, capture_output=True, text=True, check=True).stdout == f"[1, {child}]\n"
    finally:
        container.communicate()


@pytest.mark.parametrize(("host", "here"), [("192.0.2.7", False), ("nowhere.invalid", None)])
def test_a_remote_server_is_not_found_here(host: str, here: bool | None) -> None:
    """By its address; a name that leads nowhere leaves it open."""
    place = find_server(Endpoint(host, 143), Endpoint(host, 25))
    assert (place.here, place.processes, place.shares({0})) == (here, {}, here)
    own = os.sched_getaffinity(0)
    with server_facts(Services(Endpoint(host, 143), Endpoint(host, 25), 0.01), 1, True, SILENT) as facts:
        assert (facts["server_here"], facts["pinned"], os.sched_getaffinity(0)) == (here, False, own)


def test_invisible_processes_share_the_generators_cores() -> None:
    """On some core of this machine: ours, if we may use them all."""
    hidden = ServerPlace(True, {}, frozenset())
    assert hidden.shares(range(os.cpu_count() or 1)) is True
    assert hidden.shares([]) is None


@pytest.mark.parametrize(
    ("cpus", "engines", "ours", "servers"),
    [([0, 1], 4, [1], [0]), ([4, 2, 7], 2, [7], [2, 4]), (list(range(8)), 3, [5, 6, 7], [0, 1, 2, 3, 4])],
)
def test_the_last_cores_are_the_generators(cpus: list[int], engines: int, ours: list[int], servers: list[int]) -> None:
    assert split(cpus, engines) == (ours, servers)


def test_one_core_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^--pin: expected at least 2 cores .*, found 1$"):
        split([3], 1)


@pytest.mark.system
def test_server_and_generator_are_pinned_apart_and_restored(server: Server) -> None:
    """Children that the server starts meanwhile stay with it; afterwards everybody may run anywhere again."""
    own = os.sched_getaffinity(0)
    scheduling = os.sched_getscheduler(0)
    with kept_apart(find_server(server.endpoint), engines=1) as cores:
        server.fork()
        assert os.sched_getaffinity(0) == set(cores.generator) == {max(own)}
        assert server.cpus() == [own - {max(own)}] * 3
        assert (os.sched_getscheduler(0) == os.SCHED_RR) is cores.real_time
    assert os.sched_getaffinity(0) == own
    assert os.sched_getscheduler(0) == scheduling
    with server_facts(Services(server.endpoint, server.endpoint, 0.01), 1, True, SILENT) as facts:
        assert (facts["generator_cpus"], facts["pinned"], facts["shares_cpus"]) == ([max(own)], True, False)
    assert server.cpus() == [own] * 3


@pytest.mark.system
def test_each_process_gets_its_own_affinity_back(server: Server) -> None:
    """A child with an affinity of its own gets it back, independently of its parent."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(server.pids[1], {max(own)})
    with kept_apart(find_server(server.endpoint), engines=1):
        assert server.cpus() == [own - {max(own)}] * 2
    assert server.cpus() == [own, {max(own)}]


@pytest.mark.system
def test_without_permission_only_the_generator_is_pinned(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an ordinary user with root's server: the others stay where they are, and the generator goes back."""
    own, set_affinity = os.sched_getaffinity(0), os.sched_setaffinity

    def only_own(process: int, cpus: Iterable[int]) -> None:
        if process:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        set_affinity(process, cpus)

    monkeypatch.setattr(os, "sched_setaffinity", only_own)
    place = find_server(server.endpoint)
    with kept_apart(place, engines=1) as cores:
        assert not cores.apart
        assert os.sched_getaffinity(0) == {max(own)}
        assert server.cpus() == [own] * 2
        assert place.shares(cores.generator) is True
    with server_facts(Services(server.endpoint, server.endpoint, 0.01), 1, True, SILENT) as facts:
        assert (facts["generator_cpus"], facts["pinned"], facts["shares_cpus"]) == ([max(own)], False, True)
    assert [os.sched_getaffinity(0), *server.cpus()] == [own] * 3


@pytest.mark.system
def test_the_generator_is_pinned_with_an_invisible_server() -> None:
    """It is unknown if the server shares the generator's cores."""
    own = os.sched_getaffinity(0)
    place = ServerPlace(True, {}, frozenset())
    with kept_apart(place, engines=1) as cores:
        assert (cores.apart, os.sched_getaffinity(0)) == (False, {max(own)})
        assert place.shares(cores.generator) is None
    assert os.sched_getaffinity(0) == own
