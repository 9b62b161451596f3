"""The other engines of a plan, each in a process of its own: `python -m loadsim.dryrun.plan_process`.

The first engine is in the process that the user started. It starts the others, sends them the scenario, and receives
their results. Each two engines have a pipe. An engine exits when a pipe ends: the plan has failed.
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

PEER_LOST = 75
"""The exit status of an engine that exits because another one has (EX_TEMPFAIL of sysexits.h)."""

NO_MEMORY = 71
"""The exit status of an engine without memory (EX_OSERR)."""

EXIT_LIMIT_S = 10
"""The time limit for the exit of an engine that has lost another."""

CHECK_S = 1.0
MOST_CHECKS = 60
"""An engine that is stopped (as by SIGSTOP) at this many checks in a row is killed: all others wait for it."""


class PeerExited(Exception):
    """The engine at the other end of pipe `at` has exited."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class PeerPipes:
    """The pipes from one engine to all others, in their order (`rounds.Peers`).

    A thread sends: two engines that send to each other and wait would wait for ever. A process that fails does not
    wait for this thread. If another engine has exited, the thread drops its messages, and `receive` raises.
    """

    def __init__(self, pipes: Sequence[Connection]) -> None:
        self._pipes = pipes
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._sender = Thread(target=self._send_all, daemon=True)
        self._sender.start()

    def send(self, message: bytes) -> None:
        """Queue a message to all."""
        self._outgoing.put(message)

    def _send_all(self) -> None:
        while (message := self._outgoing.get()) is not None:
            for pipe in self._pipes:
                with suppress(OSError):  # the remaining engines still need the message
                    pipe.send_bytes(message)

    def receive(self) -> Sequence[bytes]:
        """Wait for the next message of each engine, and return all. Raises `PeerExited`."""
        return [self._received(at, pipe.recv_bytes) for at, pipe in enumerate(self._pipes)]

    def send_object(self, at: int, value: Any) -> None:
        """Send an object to one engine, before the first `send` or after `flush`. Raises `PeerExited`."""
        try:
            self._pipes[at].send(value)
        except OSError:
            raise PeerExited(at) from None

    def receive_object(self, at: int) -> Any:
        """Wait for an object from one engine. Raises `PeerExited`."""
        return self._received(at, self._pipes[at].recv)

    def _received(self, at: int, receive: Any) -> Any:
        try:
            return receive()
        except (EOFError, OSError):  # at the end of a message, or within one
            raise PeerExited(at) from None

    def flush(self) -> None:
        """Wait until all messages are sent. No `send` may follow."""
        self._outgoing.put(None)
        self._sender.join()

    def close(self) -> None:
        """Send all messages, and close the pipes."""
        self.flush()
        for pipe in self._pipes:
            pipe.close()


class OtherEngines:
    """The other engines of a plan, in their order, for the first one (`rounds.Peers`)."""

    def __init__(self, check_s: float = CHECK_S, most_checks: int = MOST_CHECKS) -> None:
        self._check_s = check_s
        self._most_checks = most_checks
        self._processes: list[subprocess.Popen[bytes]] = []
        self._own: list[Connection] = []
        self._pipes = PeerPipes(self._own)
        self._given_up: set[int] = set()
        self._over = Event()
        self._watcher = Thread(target=self._kill_stopped, daemon=True)
        self._watcher.start()

    def start(self, scenario: Scenario, engines: int, command: Sequence[str]) -> None:
        """Start all engines but the first: never forked, in sessions of their own, away from Ctrl-C."""
        with ExitStack() as theirs:
            # Create a pipe for each two engines.
            ends: list[list[Connection]] = [self._own, *([] for _ in range(1, engines))]  # by engine
            for one in range(engines):
                for other in range(one + 1, engines):
                    for engine, end in zip((one, other), Pipe(), strict=True):
                        ends[engine].append(end)
                        if engine:
                            theirs.enter_context(end)
            # Start a process for each other engine, with its ends of the pipes.
            for pipes in ends[1:]:
                files = [pipe.fileno() for pipe in pipes]
                self._processes.append(
                    subprocess.Popen(  # noqa: S603 - our own module
                        [*command, *map(str, files)],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        pass_fds=files,
                        start_new_session=True,
                    )
                )
        with self._explaining_exits():
            for index in range(1, engines):
                self._pipes.send_object(index - 1, (scenario, index, engines))

    def end(self) -> None:
        """Kill all processes that are left."""
        self._over.set()
        for process in self._processes:
            process.kill()
            process.wait()
        self._watcher.join()
        self._pipes.close()

    def send(self, message: bytes) -> None:
        """Queue a message to all of them."""
        self._pipes.send(message)

    def receive(self) -> Sequence[bytes]:
        """Wait for the next message of each, and return all."""
        with self._explaining_exits():
            return self._pipes.receive()

    def planned(self) -> list[Planned]:
        """Wait for the results of all, and return them."""
        with self._explaining_exits():
            return [self._pipes.receive_object(at) for at in range(len(self._own))]

    def _kill_stopped(self) -> None:
        """Kill an engine that stays stopped; its peers detect the closed pipe.

        The limit is a number of checks, not a time: a process that is stopped itself, or a machine that sleeps, makes
        no checks.
        """
        stopped: Counter[int] = Counter()
        while not self._over.wait(self._check_s):
            for engine, process in enumerate(tuple(self._processes), 2):
                stopped[engine] = stopped[engine] + 1 if _is_stopped(process) else 0
                if stopped[engine] >= self._most_checks:
                    self._given_up.add(engine)
                    process.kill()

    @contextmanager
    def _explaining_exits(self) -> Iterator[None]:
        """Raise `RunInvalid` if an engine was killed or stayed stopped within the block.

        Raises `MemoryError` if one had too little memory, and `RuntimeError` if one failed; standard error has its
        traceback.
        """
        try:
            yield
        except PeerExited as exited:
            engine, status = self._first_exit(exited.at)
            if engine in self._given_up:
                raise RunInvalid(
                    f"engine {engine} of the plan was stopped, and not continued within"
                    f" {self._most_checks * self._check_s:g} s"
                ) from None
            if status == NO_MEMORY:
                raise MemoryError from None
            if status < 0:
                raise RunInvalid(f"engine {engine} of the plan was ended by signal {-status}") from None
            raise RuntimeError(f"engine {engine} of the plan has failed, with exit status {status}") from None

    def _first_exit(self, at: int) -> tuple[int, int]:
        """Return the engine that exited first, and its status: the one at pipe `at`, or one that this had lost."""
        for other in sorted(range(len(self._processes)), key=lambda each: each != at):
            with suppress(subprocess.TimeoutExpired):
                status = self._processes[other].wait(EXIT_LIMIT_S)
                if status not in (0, PEER_LOST):
                    return other + 2, status
        return at + 2, PEER_LOST


def _is_stopped(process: subprocess.Popen[bytes]) -> bool:
    """Return True while a process is stopped (SIGSTOP)."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # it has exited, and its status was collected
        return False


@contextmanager
def other_engines(
    scenario: Scenario,
    engines: int,
    command: Sequence[str] = ENGINE,
    *,
    check_s: float = CHECK_S,
    most_checks: int = MOST_CHECKS,
) -> Iterator[OtherEngines]:
    """Start all but the first of `engines` for the block; none is left after it."""
    others = OtherEngines(check_s, most_checks)
    try:
        others.start(scenario, engines, command)
        yield others
    finally:
        others.end()


def main() -> int:
    """Run one of the other engines. The arguments are the file descriptors of its pipes, the first engine's first."""
    pipes = PeerPipes([Connection(int(file)) for file in sys.argv[1:]])
    try:
        scenario, index, engines = pipes.receive_object(0)
        with uncollected():
            planned = plan_users(scenario, index, engines, pipes)
            pipes.flush()
            pipes.send_object(0, planned)
    except PeerExited:
        return PEER_LOST
    except MemoryError:
        return NO_MEMORY
    return 0


if __name__ == "__main__":
    sys.exit(main())
