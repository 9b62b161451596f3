"""Cores of groups of processes: the server's, loadsim's, those of a name, and the rest."""

import os
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from working_child import LISTEN, Child, in_child, working

from loadsim.model.ports import Endpoint, Services
from loadsim.monitor.process_groups import FIND_EACH_NS, TICKS_PER_S, ProcessGroups, find_processes
from loadsim.monitor.system.core_times import ALL_CORES, CoreTime
from loadsim.monitor.system.processes import BusiestThread, Process, ProcessTimes

ROUNDED_S = 4 / TICKS_PER_S
"""Each of four times of a process may be rounded down to a tick."""

NOBODY = 65_534


def busy(ticks: int) -> dict[str, CoreTime]:
    """The time of a machine whose cores together were busy for this long; no core of it is known."""
    return {ALL_CORES: CoreTime(ticks, 0, 0, 0, 0)}


class Clock:
    """Moves by a second with each reading, so that cores are seconds; reading has a cost that a test states."""

    def __init__(self) -> None:
        self.now_ns, self.cost_ns, self.each_cost_ns = 0, 0, 0

    def now(self) -> int:
        self.now_ns += 10**9
        return self.now_ns

    def cost(self) -> int:
        self.cost_ns += self.each_cost_ns
        return self.cost_ns


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def started(name: str = "child") -> Child:
        children.append(Child(name))
        return children[-1]

    yield started
    for each in children:
        each.process.communicate()


def at(port: int, other: int | None = None) -> Services:
    return Services(Endpoint("127.0.0.1", port), Endpoint("127.0.0.1", other or port))


def listening(server: Child) -> int:
    return int(server.does(LISTEN))


def groups_of(services: Services, clock: Clock, **named: str) -> ProcessGroups:
    return ProcessGroups(find_processes(services), named, clock.now, clock.cost)


@pytest.mark.slow
def test_a_server_started_by_loadsim_is_not_counted_as_loadsim(start: Callable[..., Child]) -> None:
    """Its own time and that of a child that began and ended unseen are the server's; the rest is loadsim's."""
    server, engine = start(), start()
    groups = groups_of(at(listening(server)), Clock())
    assert groups.take(busy(0)).keys() == {"server_rss_bytes", "loadsim_rss_bytes"}
    server.does(working(0.1))
    server.does(in_child(working(0.2)))
    engine.does(working(0.15))
    begun_s = time.process_time()
    while time.process_time() < begun_s + 0.05:
        pass
    figures = groups.take(busy(100 * TICKS_PER_S))
    assert figures["server_cpu_cores"] >= 0.3 - ROUNDED_S
    assert figures["loadsim_cpu_cores"] >= 0.2 - 2 * ROUNDED_S
    # All cores together were busy for 100 s.
    assert sum(figures[f"{group}_cpu_cores"] for group in ("server", "loadsim", "others")) == pytest.approx(100)
    server_s = server.ends()
    assert figures["server_cpu_cores"] <= server_s + ROUNDED_S
    assert figures["server_rss_bytes"] > 1 << 20
    engine.does(working(0.05))
    assert groups.take(busy(100 * TICKS_PER_S))["others_cpu_cores"] == 0


def test_children_of_the_server_stay_its_own(start: Callable[..., Child]) -> None:
    """Those that begin later, and those whose parent has ended."""
    server = start()
    groups = groups_of(at(listening(server)), Clock())
    groups.take(busy(0))
    # A child, which does the rest, begins; its parent ends once both were read.
    server.does("import os; r, w = os.pipe(); pid = os.fork(); pid and (os.read(r, 1), os._exit(0))")
    groups.take(busy(0))
    server.does("os.write(w, b'x')")
    server.process.wait()
    groups.take(busy(0))
    server.does(working(0.2))
    figures = groups.take(busy(10 * TICKS_PER_S))
    assert figures["server_cpu_cores"] >= 0.2 - ROUNDED_S
    assert figures["loadsim_cpu_cores"] + figures["server_cpu_cores"] + figures["others_cpu_cores"] == pytest.approx(10)


def test_a_restarted_server_is_found(start: Callable[..., Child]) -> None:
    """At once, if nothing was left of it; meanwhile its figures are missing, and not 0."""
    first = start()
    port = listening(first)
    groups = groups_of(at(port), Clock())
    assert "server_rss_bytes" in groups.take(busy(0))
    first.process.communicate()
    assert not [name for name in groups.take(busy(0)) if name.startswith("server")]
    second = start()
    second.does(f"import socket; listener = socket.create_server(('127.0.0.1', {port}))")
    groups.take(busy(0))
    second.does(working(0.1))
    assert groups.take(busy(0))["server_cpu_cores"] >= 0.1 - ROUNDED_S


def test_the_server_is_searched_for_periodically(start: Callable[..., Child]) -> None:
    """A second instance may have joined it; each search costs, so that none is made before its time."""
    first, second, searches = start(), start(), []
    found = {first.number}

    def find() -> frozenset[int]:
        searches.append(clock.now_ns)
        return frozenset(found)

    clock = Clock()
    groups = ProcessGroups(find, {}, clock.now, clock.cost)
    one = groups.take(busy(0))["server_rss_bytes"]
    found.add(second.number)
    figures = [groups.take(busy(0))["server_rss_bytes"] for _ in range(FIND_EACH_NS // 10**9)]
    assert searches == [10**9, 10**9 + FIND_EACH_NS]
    assert figures[-1] > 1.5 * one > figures[-2]


def test_processes_have_the_name_that_the_kernel_keeps(start: Callable[..., Child]) -> None:
    """Fifteen bytes of it; a name that no process has is left out."""
    filter_ = start("a-long-name-of-a-filter"[:15])
    groups = groups_of(at(1), Clock(), mail_filter="a-long-name-of-", nothing="nothing-of-this")
    groups.take(busy(0))
    filter_.does(working(0.1))
    figures = groups.take(busy(10 * TICKS_PER_S))
    assert figures["mail_filter_cpu_cores"] >= 0.1 - ROUNDED_S
    assert figures["mail_filter_rss_bytes"] > 1 << 20
    # It descends from loadsim, which has its time, too; of the rest, it is taken off once.
    assert figures["loadsim_cpu_cores"] >= figures["mail_filter_cpu_cores"]
    assert figures["loadsim_cpu_cores"] + figures["others_cpu_cores"] == pytest.approx(10)
    assert not [name for name in figures if name.startswith(("nothing", "server"))]


def test_reading_takes_a_limited_share_of_a_core() -> None:
    """A reading of 2 x 10 ms is made each third second; its figures are of all the time since the last one."""
    clock, searches = Clock(), []
    clock.each_cost_ns = 10 * 10**6

    def find() -> frozenset[int]:
        searches.append(clock.now_ns // 10**9)
        return frozenset()

    groups = ProcessGroups(find, {}, clock.now, clock.cost)
    samples = {each: groups.take(busy(each * TICKS_PER_S)) for each in range(1, 33)}
    assert [each for each, figures in samples.items() if figures] == list(range(1, 33, 3))
    for each in (4, 7):
        assert samples[each]["others_cpu_cores"] + samples[each]["loadsim_cpu_cores"] == pytest.approx(1)
    assert searches == [1, 13, 25]


def test_one_slow_reading_leaves_no_gap() -> None:
    """A reading of 2 x 100 ms among others of 2 x 2 ms: the next one does not wait for 25 s.

    Such a gap would be longer than a tenth of a window of four minutes, and all of its figures not measured.
    """
    clock = Clock()
    groups = ProcessGroups(frozenset, {}, clock.now, clock.cost)
    read = []
    for each in range(1, 61):
        clock.each_cost_ns = (100 if each == 30 else 2) * 10**6
        if groups.take(busy(each * TICKS_PER_S)):
            read.append(each)
    assert read == list(range(1, 61))


def test_a_partly_invisible_server_has_no_figures(start: Callable[..., Child]) -> None:
    """One service has no process here that this user may see: the sum of the rest would be too small."""
    imap, smtp = start(), start()
    services = at(listening(imap), listening(smtp))
    smtp.does("listener.close()")
    assert find_processes(services)() == frozenset()


def test_a_proxy_is_not_the_server(start: Callable[..., Child]) -> None:
    """The server is in a container, or elsewhere: the time of this program would be taken for the server's."""
    imap, smtp = start(), start("docker-proxy")
    services = at(listening(imap), listening(smtp))
    assert find_processes(services)() == frozenset()
    assert find_processes(at(services.imap.port))() == {imap.number}


@pytest.mark.system
def test_a_server_of_another_user_is_invisible(start: Callable[..., Child]) -> None:
    imap, smtp = start(), start()
    services = at(listening(imap), listening(smtp))
    smtp.does(f"import ctypes, os; os.setuid({NOBODY}); ctypes.CDLL(None).prctl(4, 1)")  # PR_SET_DUMPABLE
    os.seteuid(NOBODY)
    try:
        assert find_processes(services)() == frozenset()
        assert find_processes(at(services.smtp.port))() == {smtp.number}
    finally:
        os.seteuid(0)


def test_a_server_in_this_process_is_not_found() -> None:
    """Its time would count as the server's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert find_processes(at(listener.getsockname()[1]))() == frozenset()


def test_the_busiest_thread_and_the_busiest_other_program_are_named() -> None:
    """A server of two processes, of which one has three threads, and two programs that are none of it."""
    names = {2: "mxd", 3: "mxd-worker", 4: "rspamd", 5: "cron", os.getpid(): "loadsim"}
    ticks = dict.fromkeys(names, 0)

    def at(number: int) -> Process:
        return Process(names[number], 1, ticks[number], 0, 1, number, 1, in_kernel=False)

    clock = Clock()
    groups = ProcessGroups(
        lambda: frozenset((2, 3)),
        {},
        clock.now,
        clock.cost,
        ProcessTimes(lambda: set(ticks), at),
        BusiestThread(lambda number: of_threads[number]),
    )
    of_threads = {2: {20: 0, 21: 0, 22: 0}, 3: {3: 0}}
    found = []
    for _ in range(3):
        found.append(groups.take(busy(10**6)))
        for number, each in ((2, 60), (3, 5), (4, 40), (5, 1)):
            ticks[number] += each
        of_threads = {2: {20: of_threads[2][20] + 50, 21: of_threads[2][21] + 9, 22: 1}, 3: {3: ticks[3]}}
    named = {name: round(value * TICKS_PER_S) for name, value in found[-1].items() if name.endswith("d_cores")}
    assert named == {"server_thread_mxd_cores": 50, "others_rspamd_cores": 40}
