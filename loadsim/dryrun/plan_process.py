"""The other engines of a plan, each in a process of its own: `python -m loadsim.dryrun.plan_process`, started here.

The first engine is in the process that the user sees; it also tells the others what to plan, and is told what they
found. Between any two engines there is a pipe. An engine whose pipe ends has nobody left to plan for, and ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from loadsim.dryrun.plan_engine import Planned, plan_users, uncollected
from loadsim.errors import RunInvalid
from loadsim.model.scenario import Scenario

ENGINE = (sys.executable, "-P", "-m", "loadsim.dryrun.plan_process")

BEREFT = 75
"""The exit status of an engine that ends because another one has (EX_TEMPFAIL of sysexits.h)."""

PATIENCE_S = 10
"""How long one that has lost another may take to end."""

LOOK_S = 1.0
LOOKS = 60
"""An engine that is found stopped (as by SIGSTOP) so many times in a row is given up: all others wait for it."""


class Ended(Exception):
    """The engine at the other end of link `at` has ended."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class Links:
    """The pipes from one engine to all others, in their order (`rounds.Others`).

    Two who wait until the other has read would wait for ever: what is told goes out in a thread of its own, for which a
    process that fails does not wait. If it does not, because somebody has ended, that is noticed by who waits to hear
    from him.
    """

    def __init__(self, links: Sequence[Connection]) -> None:
        self._links = links
        self._told: SimpleQueue[bytes | None] = SimpleQueue()
        self._teller = Thread(target=self._tell_all, daemon=True)
        self._teller.start()

    def tell(self, said: bytes) -> None:
        """Say it to all."""
        self._told.put(said)

    def _tell_all(self) -> None:
        while (said := self._told.get()) is not None:
            for link in self._links:
                with suppress(OSError):  # the others are still waiting for it
                    link.send_bytes(said)

    def hear(self) -> Sequence[bytes]:
        """The next thing that each has told. Raises `Ended`."""
        return [self._taken(at, link.recv_bytes) for at, link in enumerate(self._links)]

    def give(self, at: int, what: Any) -> None:
        """Something else than is told, to one of them: before anything is told, or when `told`. Raises `Ended`."""
        try:
            self._links[at].send(what)
        except OSError:
            raise Ended(at) from None

    def take(self, at: int) -> Any:
        """What one of them gives. Raises `Ended`."""
        return self._taken(at, self._links[at].recv)

    def _taken(self, at: int, take: Any) -> Any:
        try:
            return take()
        except (EOFError, OSError):  # before a word, or in the middle of one
            raise Ended(at) from None

    def told(self) -> None:
        """Wait until everything is with those who live; nothing is told any more."""
        self._told.put(None)
        self._teller.join()

    def close(self) -> None:
        """Close them, when nobody speaks any more."""
        self.told()
        for link in self._links:
            link.close()


class OtherEngines:
    """All engines of a plan but the first, in their order, as the first one sees them (`rounds.Others`)."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._own: list[Connection] = []
        self._links = Links(self._own)
        self._given_up: set[int] = set()
        self._over = Event()
        self._watcher = Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def start(self, scenario: Scenario, engines: int, command: Sequence[str]) -> None:
        """Start those that are wanted beside the first: never forked, in sessions of their own, for Ctrl-C is ours."""
        with ExitStack() as theirs:
            ends: list[list[Connection]] = [self._own, *([] for _ in range(1, engines))]  # of each engine
            for one in range(engines):
                for other in range(one + 1, engines):
                    for engine, end in zip((one, other), Pipe(), strict=True):
                        ends[engine].append(end)
                        if engine:
                            theirs.enter_context(end)
            for links in ends[1:]:
                files = [link.fileno() for link in links]
                self._processes.append(
                    subprocess.Popen(  # noqa: S603 - ourselves
                        [*command, *map(str, files)],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        pass_fds=files,
                        start_new_session=True,
                    )
                )
        with self._noticing():
            for part in range(1, engines):
                self._links.give(part - 1, (scenario, part, engines))

    def end(self) -> None:
        """Leave none behind."""
        self._over.set()
        for process in self._processes:
            process.kill()
            process.wait()
        self._watcher.join()
        self._links.close()

    def tell(self, said: bytes) -> None:
        """Say it to all of them."""
        self._links.tell(said)

    def hear(self) -> Sequence[bytes]:
        """What each has to say next."""
        with self._noticing():
            return self._links.hear()

    def planned(self) -> list[Planned]:
        """What each of them has found, when it is through."""
        with self._noticing():
            return [self._links.take(at) for at in range(len(self._own))]

    def _watch(self) -> None:
        """Kill whoever is stopped for too long: that is noticed by all that wait for him.

        It is counted in our own looks: while somebody stops us, or the machine sleeps, nobody is late.
        """
        stopped: Counter[int] = Counter()
        while not self._over.wait(LOOK_S):
            for engine, process in enumerate(tuple(self._processes), 2):
                stopped[engine] = stopped[engine] + 1 if _is_stopped(process) else 0
                if stopped[engine] >= LOOKS:
                    self._given_up.add(engine)
                    process.kill()

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        """Raises `RunInvalid` when somebody has killed one of them, or stopped it.

        Raises `RuntimeError` when one has failed; its traceback stands above, on standard error.
        """
        try:
            yield
        except Ended as ended:
            engine, status = self._culprit(ended.at)
            if engine in self._given_up:
                raise RunInvalid(
                    f"engine {engine} of the plan was stopped, and did not go on within {LOOKS * LOOK_S:g} s"
                ) from None
            if status < 0:
                raise RunInvalid(f"engine {engine} of the plan was ended by signal {-status}") from None
            raise RuntimeError(f"engine {engine} of the plan has failed, with exit status {status}") from None

    def _culprit(self, at: int) -> tuple[int, int]:
        """Which engine ended first, and how: the one at link `at`, or the one that it had lost itself."""
        for other in sorted(range(len(self._processes)), key=lambda each: each != at):
            with suppress(subprocess.TimeoutExpired):
                status = self._processes[other].wait(PATIENCE_S)
                if status not in (0, BEREFT):
                    return other + 2, status
        return at + 2, BEREFT


def _is_stopped(process: subprocess.Popen[bytes]) -> bool:
    """Whether somebody has stopped it, and it has not gone on."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # it has ended, and we know
        return False


@contextmanager
def other_engines(scenario: Scenario, engines: int, command: Sequence[str] = ENGINE) -> Iterator[OtherEngines]:
    """All but the first of so many engines; none is left when the block is."""
    others = OtherEngines()
    try:
        others.start(scenario, engines, command)
        yield others
    finally:
        others.end()


def main() -> int:
    """The life of one of them. Its pipes are the file descriptors that it was told: to the first engine, and so on."""
    links = Links([Connection(int(file)) for file in sys.argv[1:]])
    try:
        scenario, part, engines = links.take(0)
        with uncollected():
            planned = plan_users(scenario, part, engines, links)
            links.told()
            links.give(0, planned)
    except Ended:
        return BEREFT
    return 0


if __name__ == "__main__":
    sys.exit(main())
