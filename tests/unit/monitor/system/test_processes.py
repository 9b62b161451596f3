"""CPU time of processes: none is lost or counted twice, while others begin and end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from working_child import Child, in_child, working

from loadsim.monitor.system.processes import Process, ProcessTimes, process_at, process_of

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
INIT = 1


@given(
    name=st.binary(max_size=64).filter(lambda name: b"\0" not in name),
    numbers=st.lists(st.integers(0, 2**63), min_size=49, max_size=49),
    kernel=st.booleans(),
)
def test_a_name_may_have_any_character(name: bytes, numbers: list[int], kernel: bool) -> None:
    """Fields are those of proc_pid_stat(5), by number; a name with blanks, brackets or lines moves none of them."""
    fields = dict(enumerate(numbers, 4))
    fields[9] = fields[9] & ~0x00200000 | (0x00200000 if kernel else 0)
    line = b"77 (" + name + b") S " + b" ".join(b"%d" % number for number in fields.values()) + b"\n"
    assert process_of(line) == Process(
        name.decode(errors="replace"),
        parent=fields[4],
        own_ticks=fields[14] + fields[15],
        reaped_ticks=fields[16] + fields[17],
        threads=fields[20],
        started_ticks=fields[22],
        rss_pages=fields[24],
        in_kernel=kernel,
    )


@contextmanager
def child() -> Iterator[Child]:
    made = Child()
    try:
        yield made
    finally:
        made.process.communicate()


def test_figures_of_a_process_are_those_of_psutil() -> None:
    """Its time lies between two readings around psutil's own; a process that has ended is None."""
    with child() as waiting:
        waiting.does(working(0.05))
        number = waiting.number
        before = process_at(number)
        other = psutil.Process(number)
        times, rss_bytes = other.cpu_times(), other.memory_info().rss
        after = process_at(number)
        assert before is not None and after is not None
        assert (before.name, before.parent, before.in_kernel) == ("a) (b 1 2", os.getpid(), False)
        assert before.own_ticks - 0.5 <= (times.user + times.system) / TICK_S <= after.own_ticks + 0.5
        assert before.own_ticks >= 5 - 2
        # The kernel adds pages in batches for each core and each of three kinds of page.
        cores = os.cpu_count() or 1
        batches = 3 * cores * max(32, 2 * cores)
        assert before.rss_pages == pytest.approx(rss_bytes / os.sysconf("SC_PAGE_SIZE"), abs=batches)
    assert process_at(number) is None


class Kernel:
    """A tree of processes that changes at chosen moments, also while it is read; all are descendants of INIT."""

    def __init__(self, change: Callable[[Kernel], None]) -> None:
        self.processes: dict[int, Process] = {INIT: Process("init", 0, 0, 0, 1, 0, 0, False)}
        self.worked = 0
        self._change = change
        self._clock = 0

    def numbers(self) -> set[int]:
        listed = set(self.processes)
        self._change(self)
        return listed

    def at(self, number: int) -> Process | None:
        found = self.processes.get(number)
        self._change(self)
        return found

    def work(self, number: int, ticks: int) -> None:
        process = self.processes[number]
        self.processes[number] = process._replace(own_ticks=process.own_ticks + ticks)
        self.worked += ticks

    def fork(self, parent: int, number: int) -> None:
        self._clock += 1
        self.processes[number] = Process("child", parent, 0, 0, 1, self._clock, 0, False)

    def end(self, number: int) -> None:
        """End a process, for which its parent has waited, as wait4(2) counts it."""
        ended = self.processes.pop(number)
        parent = self.processes[ended.parent]
        reaped_ticks = parent.reaped_ticks + ended.own_ticks + ended.reaped_ticks
        self.processes[ended.parent] = parent._replace(reaped_ticks=reaped_ticks)


@pytest.mark.slow
@given(data=st.data())
def test_all_cpu_time_counts_once(data: st.DataObject) -> None:
    """Processes begin, work and end between and during readings, and numbers are used again: the sum is exact."""
    quiet = False

    def change(kernel: Kernel) -> None:
        for _ in range(0 if quiet else data.draw(st.integers(0, 3))):
            number = data.draw(st.sampled_from(sorted(kernel.processes)))
            # The kernel numbers upwards, and begins again at the top only.
            free = [each for each in range(number + 1, number + 5) if each not in kernel.processes]
            action = data.draw(st.sampled_from(("work", "fork", "end")))
            if action == "work":
                kernel.work(number, data.draw(st.integers(0, 9)))
            elif action == "fork" and free:
                kernel.fork(number, data.draw(st.sampled_from(free)))
            elif action == "end" and number != INIT and number not in {p.parent for p in kernel.processes.values()}:
                kernel.end(number)

    kernel = Kernel(change)
    times = ProcessTimes(kernel.numbers, kernel.at)
    quiet = True
    assert times.take() == {}
    quiet = False
    counted = []
    for _ in range(data.draw(st.integers(1, 4))):
        change(kernel)
        counted.append(times.take())
    quiet = True
    counted += [times.take(), times.take()]
    all_ticks = [ticks for found in counted for ticks in found.values()]
    assert all(ticks >= 0 for ticks in all_ticks)
    assert sum(all_ticks) == kernel.worked
    assert times.processes == kernel.processes


def test_an_orphans_cpu_time_stays_its_own() -> None:
    """Its time is that of the process that adopts it; that of its parent's parent grows by the parent's time only."""
    kernel = Kernel(lambda kernel: None)
    kernel.fork(INIT, 2)
    kernel.fork(2, 3)
    kernel.fork(3, 4)
    times = ProcessTimes(kernel.numbers, kernel.at)
    times.take()
    kernel.work(4, 50)
    assert times.take()[4] == 50
    kernel.processes[4] = kernel.processes[4]._replace(parent=INIT)
    kernel.end(3)
    assert times.take() == {INIT: 0, 2: 0, 4: 0}
    kernel.work(4, 7)
    kernel.end(4)
    assert times.take() == {INIT: 7, 2: 0}


def test_cpu_time_of_ignored_children_is_not_subtracted_later() -> None:
    """The kernel drops the time of such children (times(2)); a later child's time counts in full."""
    kernel = Kernel(lambda kernel: None)
    kernel.fork(INIT, 2)
    kernel.fork(2, 3)
    times = ProcessTimes(kernel.numbers, kernel.at)
    times.take()
    kernel.work(3, 50)
    times.take()
    del kernel.processes[3]
    assert times.take() == {INIT: 0, 2: 0}
    assert times.take() == {INIT: 0, 2: 0}
    kernel.fork(2, 5)
    kernel.work(5, 9)
    kernel.end(5)
    assert times.take() == {INIT: 0, 2: 9}


def test_the_times_of_real_processes_are_those_of_the_kernel() -> None:
    """A process works, and so does a child of it that ends unseen: the sum is that which wait4(2) states at the end."""
    times = ProcessTimes()
    times.take()
    with child() as parent:
        sums_s = []
        for code in (working(0.1), in_child(working(0.2)), working(0.05)):
            parent.does(code)
            sums_s.append(times.take()[parent.number] * TICK_S)
        whole_s = parent.ends()
    rounded_s = 4 * TICK_S
    assert all(sum_s >= least_s - rounded_s for sum_s, least_s in zip(sums_s, (0.1, 0.2, 0.05), strict=True))
    assert 0.35 - rounded_s <= sum(sums_s) <= whole_s + rounded_s
