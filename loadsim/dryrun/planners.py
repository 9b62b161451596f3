"""Processes that plan, each for some of the users. They exchange mail at the end of each round, through this process.

A planner receives the others' mail of the previous round before it sends its own of this one. So no two wait for each
other, and none waits for a planner that is less than a round behind.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection, Pipe
from typing import TypeVar

from loadsim.dryrun.plan_engine import PlannedUsers, plan_users, uncollected
from loadsim.dryrun.rounds import InTransit, Progress, rounds_of
from loadsim.errors import RunInvalid
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.workload import Workload

T = TypeVar("T")

PLANNER = (sys.executable, "-P", "-m", "loadsim.dryrun.planners")


class Planner:
    """A process that plans for some of the users."""

    def __init__(self) -> None:
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [*PLANNER, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # out of reach of Ctrl-C
            )

    def __enter__(self) -> Planner:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._pipe.close()

    def send(self, message: bytes) -> None:
        self._unless_ended(lambda: self._pipe.send_bytes(message))

    def receive(self) -> bytes:
        return self._unless_ended(self._pipe.recv_bytes)

    def _unless_ended(self, call: Callable[[], T]) -> T:
        """Return the call's result. Raises `RunInvalid` if the process has ended."""
        try:
            return call()
        except (EOFError, OSError):
            status = self._process.wait()
            how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
            raise RunInvalid(f"the load was not planned: its process {how}") from None


def plan_in_processes(workload: Workload, processes: int, progress: Progress | None = None) -> list[PlannedUsers]:
    """Plan in so many processes. No process is left behind. Raises `RunInvalid` if one is killed."""
    rounds = len(rounds_of(workload))
    with ExitStack() as stack:
        planners = [stack.enter_context(Planner()) for _ in range(processes)]
        for number, planner in enumerate(planners):
            planner.send(pickle.dumps((workload.scenario, number, processes)))
        for done in range(1, rounds + 1):
            mails = [planner.receive() for planner in planners]
            for planner in planners:
                for sender, mail in zip(planners, mails, strict=True):
                    if sender is not planner:
                        planner.send(mail)
            if progress is not None:
                progress(done / rounds)
        return [pickle.loads(planner.receive()) for planner in planners]  # noqa: S301 - our own process


class OtherPlanners:
    """The other planners, as one of them sees them (`rounds.Peers`)."""

    def __init__(self, pipe: Connection, count: int) -> None:
        self._pipe = pipe
        self._count = count

    def send(self, mails: Sequence[InTransit]) -> None:
        self._pipe.send_bytes(pickle.dumps(mails, pickle.HIGHEST_PROTOCOL))

    def receive(self) -> list[InTransit]:
        return [mail for _ in range(self._count) for mail in pickle.loads(self._pipe.recv_bytes())]  # noqa: S301


def main() -> int:
    """Plan for those whom the parent process states through a pipe, whose file descriptor is the argument."""
    pipe = Connection(int(sys.argv[1]))
    try:
        scenario: Scenario
        scenario, number, processes = pickle.loads(pipe.recv_bytes())  # noqa: S301
        with uncollected():
            users = range(1 + number, scenario.users + scenario.senders + 1, processes)
            planned = plan_users(Workload(scenario), users, OtherPlanners(pipe, processes - 1))
            pipe.send_bytes(pickle.dumps(planned))
    except (EOFError, OSError):  # the parent process has exited, or needs no plan any more
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
