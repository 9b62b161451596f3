"""A machine that other programs keep busy: said before a run, and only if it is so.

Seen from outside, it could be wrong so: loadsim's or the server's own work counts as that of others; a server that
cannot be seen does; an idle machine is called busy; two ticks are taken for a measurement.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from working_child import Child, working

from loadsim.monitor.other_programs import OtherPrograms
from loadsim.monitor.process_groups import TICKS_PER_S, ProcessGroups

CORES = 4


class Proc:
    """A clock that moves by 2 s with each reading, and a /proc/stat of four cores."""

    def __init__(self, step_ns: int = 2 * 10**9) -> None:
        self.busy_s, self._now_ns, self._step_ns = 0.0, 0, step_ns

    def now_ns(self) -> int:
        self._now_ns += self._step_ns
        return self._now_ns

    def read(self, name: str) -> str:
        assert name == "stat"
        busy = round(self.busy_s * TICKS_PER_S)
        return "".join(f"{name} {busy} 0 0 0 0 0 0 0 0 0\n" for name in ("cpu", *(f"cpu{n}" for n in range(CORES))))


@pytest.fixture
def child() -> Iterator[Child]:
    """A child of this process, which is loadsim's or the server's."""
    begun = Child()
    yield begun
    begun.process.communicate()


def others(proc: Proc, *server: int, server_here: bool = False) -> OtherPrograms:
    """What is not of this process and of the server's; reading processes has no cost."""
    clock = Proc()
    groups = ProcessGroups(lambda: frozenset(server), {}, clock.now_ns, lambda: 0)
    return OtherPrograms(groups, server_here=server_here, read=proc.read, now_ns=proc.now_ns)


def test_the_share_is_of_all_cores() -> None:
    """All cores together were busy for 4 s of the 2 s that each of the four had: half."""
    proc = Proc()
    measured = others(proc)
    proc.busy_s = 4.0
    share = measured.share()
    assert share == pytest.approx(0.5, abs=0.05)  # this process has taken some ticks
    proc.busy_s = 8.0
    assert measured.warning() == (
        "other programs used 50 % of this machine's processors in the last 6 s: the run may become invalid"
        " (top shows them)"
    )


@pytest.mark.parametrize("is_server", [True, False])
def test_the_work_of_loadsim_and_of_the_server_is_theirs(child: Child, is_server: bool) -> None:
    """One core's work of a quarter of a second, and no other."""
    proc = Proc()
    measured = others(proc, *([child.number] if is_server else []), server_here=is_server)
    child.does(working(0.25))
    proc.busy_s = 0.25
    assert measured.share() == pytest.approx(0, abs=0.01)
    assert measured.warning() is None


def test_a_server_that_cannot_be_seen_may_be_the_busy_one() -> None:
    proc = Proc()
    measured = others(proc, server_here=True)
    proc.busy_s = 8.0
    assert measured.share() is None
    assert measured.warning() is None


def test_a_moment_says_nothing() -> None:
    proc = Proc(step_ns=10**8)
    measured = others(proc)
    proc.busy_s = 8.0
    assert measured.share() is None


def test_a_system_without_proc_has_no_figures() -> None:
    def read(_: str) -> str:
        raise FileNotFoundError

    groups = ProcessGroups(frozenset, {})
    assert OtherPrograms(groups, server_here=False, read=read, now_ns=Proc().now_ns).share() is None


def test_this_machine_can_be_read() -> None:
    """The kernel's own files: a share from 0 on, of all cores that it has."""
    clock = Proc()
    groups = ProcessGroups(frozenset, {}, clock.now_ns, lambda: 0)
    measured = OtherPrograms(groups, server_here=False, now_ns=Proc().now_ns)
    share = measured.share()
    assert share is not None and share >= 0
