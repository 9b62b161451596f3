"""The other engines of a plan, each in a process of its own: `python -m loadsim.client.plan_process`, started here.

The first engine is in the process that the user sees, and what the others tell each other goes through it. An engine
whose connection ends has nobody left to plan for, and ends.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe
from typing import Any

from loadsim.client.plan_engine import Planned, plan_users
from loadsim.errors import ConfigError, RunInvalid
from loadsim.model.scenario import Scenario

ENGINE = (sys.executable, "-m", "loadsim.client.plan_process")


class OtherEngines:
    """All engines of a plan but the first, in their order."""

    def __init__(self) -> None:
        self._members: list[tuple[subprocess.Popen[bytes], Connection]] = []

    def start(self, scenario: Scenario, engines: int, command: Sequence[str]) -> None:
        """Start those that are wanted beside the first: never forked, in sessions of their own, for Ctrl-C is ours."""
        for _ in range(1, engines):
            ours, theirs = Pipe()
            with theirs:
                process = subprocess.Popen(  # noqa: S603 - ourselves
                    [*command, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            self._members.append((process, ours))
        for at in range(len(self._members)):
            with self._member(at) as link:
                link.send((scenario, at + 1, engines))

    def end(self) -> None:
        """Leave none behind."""
        for process, link in self._members:
            link.close()
            process.kill()
            process.wait()

    def exchange(self, own: bytes) -> Sequence[bytes]:
        """What each of them has to say, when all have; to each of them goes what it has not said itself."""
        said: list[bytes] = self._hear()
        for at in range(len(said)):
            with self._member(at) as link:
                link.send([own, *said[:at], *said[at + 1 :]])
        return said

    def planned(self) -> list[Planned]:
        """What each of them has found, when it is through."""
        return self._hear()

    def _hear(self) -> list[Any]:
        heard = []
        for at in range(len(self._members)):
            with self._member(at) as link:
                heard.append(link.recv())
            if isinstance(heard[-1], ConfigError):
                raise heard[-1]
        return heard

    @contextmanager
    def _member(self, at: int) -> Iterator[Connection]:
        """The connection to one of them. Raises `RunInvalid` when somebody has killed it.

        Raises `RuntimeError` when it has failed; its traceback stands above, on standard error.
        """
        process, link = self._members[at]
        try:
            yield link
        except (EOFError, ConnectionError):
            status = process.wait()
            if status < 0:
                raise RunInvalid(f"engine {at + 2} of the plan was ended by signal {-status}") from None
            raise RuntimeError(f"engine {at + 2} of the plan has failed, with exit status {status}") from None


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
    """The life of one of them; its connection is the file descriptor that it was told."""
    with Connection(int(sys.argv[1])) as link:

        def exchange(own: bytes) -> Sequence[bytes]:
            link.send(own)
            return list(link.recv())

        try:
            scenario, part, engines = link.recv()
            try:
                link.send(plan_users(scenario, part, engines, exchange))
            except ConfigError as refusal:
                link.send(refusal)
        except (EOFError, ConnectionError):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
