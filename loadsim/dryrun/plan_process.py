"""The other engines of a plan, each in a process of its own: `python -m loadsim.dryrun.plan_process`.

The first engine is in the process that the user started. It starts the others, sends them the scenario, and receives
their results. Each two engines have a pipe. An engine exits when a pipe ends: the plan has failed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from threading import Thread

from loadsim.dryrun.plan_engine import PlannedEngine, plan_users, uncollected
from loadsim.errors import RunInvalid
from loadsim.model.scenario import Scenario

ENGINE = (sys.executable, "-P", "-m", "loadsim.dryrun.plan_process")

PEER_LOST = 75
"""The exit status of an engine that exits because another one has (EX_TEMPFAIL of sysexits.h)."""

EXIT_LIMIT_S = 10
"""The time limit for the exit of an engine that has lost another."""


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
        """Wait for the next message of each engine, and return all. Raises `EOFError` or `OSError` after an exit."""
        return [pipe.recv_bytes() for pipe in self._pipes]

    def flush(self) -> None:
        """Wait until all messages are sent. No `send` may follow."""
        self._outgoing.put(None)
        self._sender.join()


class OtherEngines:
    """The processes of the other engines of a plan, in their order, for the first one."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Connection] = []
        self.peers = PeerPipes(self._pipes)

    def start(self, scenario: Scenario, engines: int, command: Sequence[str]) -> None:
        """Start all engines but the first: never forked, in sessions of their own, away from Ctrl-C."""
        with ExitStack() as theirs:
            # Create a pipe for each two engines.
            ends: list[list[Connection]] = [self._pipes, *([] for _ in range(1, engines))]  # by engine
            for one in range(engines):
                for other in range(one + 1, engines):
                    for engine, end in zip((one, other), Pipe(), strict=True):
                        ends[engine].append(end)
                        if engine:
                            theirs.enter_context(end)
            # Start a process for each other engine, with its ends of the pipes.
            for pipes in ends[1:]:
                files = [pipe.fileno() for pipe in pipes]
                self.processes.append(
                    subprocess.Popen(  # noqa: S603 - our own module
                        [*command, *map(str, files)],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        pass_fds=files,
                        start_new_session=True,
                    )
                )
        for index, pipe in enumerate(self._pipes, 1):
            pipe.send((scenario, index, engines))

    def planned(self) -> list[PlannedEngine]:
        """Wait for the results of all, and return them."""
        return [pipe.recv() for pipe in self._pipes]

    def failure(self) -> str:
        """Return how an engine has ended that did not exit for another; "" if none has."""
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                status = process.wait(EXIT_LIMIT_S)
                if status not in (0, PEER_LOST):
                    return f"was ended by signal {-status}" if status < 0 else f"failed with exit status {status}"
        return ""

    def end(self) -> None:
        """Kill all processes that are left."""
        for process in self.processes:
            process.kill()
            process.wait()
        self.peers.flush()
        for pipe in self._pipes:
            pipe.close()


@contextmanager
def other_engines(scenario: Scenario, engines: int, command: Sequence[str] = ENGINE) -> Iterator[OtherEngines]:
    """Start all but the first of `engines` for the block; none is left after it.

    Raises `RunInvalid` if one failed or was killed within the block; standard error has its traceback.
    """
    others = OtherEngines()
    try:
        others.start(scenario, engines, command)
        yield others
    except (EOFError, OSError):  # at the end of a message, or within one
        if failure := others.failure():
            raise RunInvalid(f"a process of the plan {failure}") from None
        raise
    finally:
        others.end()


def main() -> int:
    """Run one of the other engines. The arguments are the file descriptors of its pipes, the first engine's first."""
    pipes = [Connection(int(file)) for file in sys.argv[1:]]
    peers = PeerPipes(pipes)
    try:
        scenario, index, engines = pipes[0].recv()
        with uncollected():
            planned = plan_users(scenario, index, engines, peers)
            peers.flush()
            pipes[0].send(planned)
    except (EOFError, OSError):
        return PEER_LOST
    return 0


if __name__ == "__main__":
    sys.exit(main())
