"""Cores on which the server's processes may run: those of real processes, and their use by recorded times."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from working_child import FORK, LISTEN, Child, working

from loadsim.model.ports import Endpoint, Services
from loadsim.monitor.process_groups import TICKS_PER_S, ProcessGroups, find_processes
from loadsim.monitor.system.core_times import ALL_CORES, CoreTime

OWN = sorted(os.sched_getaffinity(0))
ONE, OTHER = OWN[0], OWN[-1]

pytestmark = pytest.mark.system

ROUNDED_S = 4 / TICKS_PER_S

THREAD = (
    "import os, threading; more = threading.Event(); begun = threading.Barrier(2);"
    " threading.Thread(target=lambda: (begun.wait(), more.wait()), daemon=True).start(); begun.wait()"
)


def clock() -> Callable[[], int]:
    return partial(next, count(10**9, 10**9))


@pytest.fixture
def server() -> Iterator[Child]:
    child = Child("server")
    yield child
    child.process.communicate()


def groups_of(server: Child, **named: str) -> ProcessGroups:
    endpoint = Endpoint("127.0.0.1", int(server.does(LISTEN)))
    return ProcessGroups(find_processes(Services(endpoint, endpoint)), named, clock(), lambda: 0)


def machine(at_s: int, busy: Mapping[int, float], stolen: float = 0.0) -> dict[str, CoreTime]:
    """The times of this machine's cores if each was busy for these parts of each second, else idle."""
    times = {}
    for core in OWN:
        ticks, stolen_ticks = (round(at_s * share * TICKS_PER_S) for share in (busy.get(core, 0.0), stolen))
        times[f"cpu{core}"] = CoreTime(ticks, 0, at_s * TICKS_PER_S - ticks - stolen_ticks, 0, stolen_ticks)
    return {ALL_CORES: CoreTime(sum(each.busy for each in times.values()), 0, 0, 0, 0), **times}


def about_cores(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if name.startswith("server_core")}


def test_an_unpinned_server_has_all_cores(server: Child) -> None:
    """Its busy share is that of the machine, and what others took is `others_cpu_cores`."""
    groups = groups_of(server)
    assert about_cores(groups.take(machine(1, {ONE: 0.75, OTHER: 0.25}, 0.125))) == {
        "server_cores": len(OWN),
        "server_core_sets": 1,
    }
    server.does(working(0.1))
    figures = groups.take(machine(2, {ONE: 0.75, OTHER: 0.25}, 0.125))
    assert figures["server_cores_busy_share"] == pytest.approx(1 / len(OWN) + 0.125, abs=0.01)
    assert figures["server_cores_steal_share"] == pytest.approx(0.125, abs=0.01)
    assert figures["server_cores_taken_by_others"] == pytest.approx(figures["others_cpu_cores"])


def test_a_pinned_server_has_its_cores(server: Child) -> None:
    """The generator keeps the other core busy, which is neither the server's nor that of others here.

    As `--pin` does it, the probe is open already; a sample of which a part was before has no share.
    """
    groups = groups_of(server)
    groups.take(machine(1, {ONE: 1.0, OTHER: 0.25}))
    os.sched_setaffinity(server.number, {ONE})
    with pinned({OTHER}):
        assert about_cores(groups.take(machine(2, {ONE: 1.0, OTHER: 0.25}))) == {
            "server_cores": 1,
            "server_core_sets": 1,
        }
        server.does(working(0.3))
        spend(0.1)
        figures = groups.take(machine(3, {ONE: 1.0, OTHER: 0.25}))
    assert figures["server_cores_busy_share"] == 1
    assert figures["server_cores_taken_by_others"] == pytest.approx(1 - figures["server_cpu_cores"])
    assert figures["server_cores_taken_by_others"] <= 0.7 + ROUNDED_S
    os.sched_setaffinity(server.number, OWN)
    assert about_cores(groups.take(machine(4, {}))) == {"server_cores": len(OWN), "server_core_sets": 1}


def test_a_generator_with_further_cores_counts_as_another_program(server: Child) -> None:
    """It may have taken the server's core: nothing shows where it ran. Only on the same cores, it does not count."""
    os.sched_setaffinity(server.number, {ONE})
    groups = groups_of(server)
    groups.take(machine(1, {ONE: 1.0}))
    spend(0.1)
    assert groups.take(machine(2, {ONE: 1.0}))["server_cores_taken_by_others"] >= 1 - ROUNDED_S
    with pinned({ONE}):
        spend(0.1)
        assert groups.take(machine(3, {ONE: 1.0}))["server_cores_taken_by_others"] <= 0.9 + ROUNDED_S


def spend(s: float) -> None:
    exec(working(s), {})


@contextmanager
def pinned(cores: Collection[int]) -> Iterator[None]:
    """Run all threads of this process, also those of its libraries, on these cores."""
    threads = [int(each.name) for each in Path("/proc/self/task").iterdir()]
    for thread in threads:
        os.sched_setaffinity(thread, cores)
    try:
        yield
    finally:
        for thread in threads:
            with suppress(ProcessLookupError):
                os.sched_setaffinity(thread, OWN)


def test_processes_with_different_cores_have_their_union(server: Child) -> None:
    """A child inherits the cores; one that is moved adds its own, and takes them along when it ends."""
    os.sched_setaffinity(server.number, {ONE})
    child = int(server.does(FORK))
    groups = groups_of(server)
    assert about_cores(groups.take(machine(1, {ONE: 1.0, OTHER: 0.5}))) == {"server_cores": 1, "server_core_sets": 1}
    os.sched_setaffinity(child, {OTHER})
    assert about_cores(groups.take(machine(2, {ONE: 1.0, OTHER: 0.5}))) == {"server_cores": 2, "server_core_sets": 2}
    figures = groups.take(machine(3, {ONE: 1.0, OTHER: 0.5}))
    assert figures["server_cores_busy_share"] == 0.75
    server.does("os.write(w, b'x'); os.waitpid(pid, 0)")
    assert about_cores(groups.take(machine(4, {}))) == {"server_cores": 1, "server_core_sets": 1}


def test_each_threads_affinity_counts(server: Child) -> None:
    """`taskset -p` moves the first thread only: the rest of the server stays where it was."""
    server.does(THREAD)
    groups = groups_of(server)
    os.sched_setaffinity(server.number, {ONE})
    try:
        assert about_cores(groups.take(machine(1, {}))) == {"server_cores": len(OWN), "server_core_sets": 2}
    finally:
        server.does("more.set()")


def test_a_named_group_with_further_cores_is_stated(server: Child) -> None:
    """It is a part of the server for `loadsim size`, which cannot tell what it took of the server's cores."""
    filter_ = Child("a-filter")
    try:
        os.sched_setaffinity(server.number, {ONE})
        groups = groups_of(server, a_filter="a-filter")
        assert about_cores(groups.take(machine(1, {ONE: 1.0}))) == {"server_cores": 1, "server_core_sets": 2}
        os.sched_setaffinity(filter_.number, {ONE})
        assert about_cores(groups.take(machine(2, {ONE: 1.0}))) == {
            "server_cores": 1,
            "server_core_sets": 1,
            "server_cores_busy_share": 1,
            "server_cores_steal_share": 0,
            "server_cores_taken_by_others": pytest.approx(1, abs=ROUNDED_S),
        }
    finally:
        filter_.process.communicate()


def test_unknown_cores_have_no_figures(server: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    """No processes of a server; a core that /proc/stat numbers otherwise; a security module that hides the cores."""
    named = ProcessGroups(frozenset, {"server": "server"}, clock(), lambda: 0)
    assert about_cores(named.take(machine(1, {}))) == {}
    os.sched_setaffinity(server.number, {OTHER})
    groups = groups_of(server)
    times = machine(1, {})
    del times[f"cpu{OTHER}"]
    assert about_cores(groups.take(times)) == {}
    assert about_cores(groups.take(machine(2, {}))) == {"server_cores": 1, "server_core_sets": 1}

    def hidden(number: int) -> set[int]:
        raise PermissionError(number)

    monkeypatch.setattr(os, "sched_getaffinity", hidden)
    assert about_cores(groups.take(machine(3, {}))) == {}
    monkeypatch.undo()
    assert about_cores(groups.take(machine(4, {}))) == {"server_cores": 1, "server_core_sets": 1}
    assert "server_cores_busy_share" in groups.take(machine(5, {}))
