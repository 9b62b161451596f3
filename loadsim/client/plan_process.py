"""The other engines of a plan, each in a process of its own: `python -m loadsim.client.plan_process`, started here.

The first engine is in the process that the user sees; it also tells the others what to plan, and is told what they
found. Between any two engines there is a pipe. An engine whose pipe ends has nobody left to plan for, and ends.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from threading import Thread

from loadsim.client.plan_engine import Planned, plan_users, uncollected
from loadsim.errors import RunInvalid
from loadsim.model.scenario import Scenario

ENGINE = (sys.executable, "-m", "loadsim.client.plan_process")

BEREFT = 75
"""The exit status of an engine that ends because another one has (EX_TEMPFAIL of sysexits.h)."""


class Links:
    """The pipes from one engine to all others (`rounds.Others`), in their order.

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
        """Raises `EOFError` when one of them has ended, perhaps in the middle of what he had to say."""
        try:
            return [link.recv_bytes() for link in self._links]
        except OSError:
            raise EOFError from None

    def close(self) -> None:
        """When all that was told is with those who live."""
        self._told.put(None)
        self._teller.join()
        for link in self._links:
            link.close()


class OtherEngines:
    """All engines of a plan but the first, in their order, as the first one sees them (`rounds.Others`)."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._links: list[Connection] = []
        self._mail = Links(self._links)

    def start(self, scenario: Scenario, engines: int, command: Sequence[str]) -> None:
        """Start those that are wanted beside the first: never forked, in sessions of their own, for Ctrl-C is ours."""
        with ExitStack() as theirs:
            ends: list[dict[int, Connection]] = [{} for _ in range(engines)]  # of each engine, by the other's number
            for one in range(engines):
                for other in range(one + 1, engines):
                    ends[one][other], ends[other][one] = Pipe()
                    theirs.enter_context(ends[other][one])
                    (theirs.enter_context if one else self._links.append)(ends[one][other])
            for part in range(1, engines):
                files = [link.fileno() for _, link in sorted(ends[part].items())]
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
            for part, link in enumerate(self._links, start=1):
                link.send((scenario, part, engines))

    def end(self) -> None:
        """Leave none behind."""
        for process in self._processes:
            process.kill()
            process.wait()
        self._mail.close()

    def tell(self, said: bytes) -> None:
        """Say it to all of them."""
        self._mail.tell(said)

    def hear(self) -> Sequence[bytes]:
        """What each has to say next."""
        with self._noticing():
            return self._mail.hear()

    def planned(self) -> list[Planned]:
        """What each of them has found, when it is through."""
        with self._noticing():
            return [link.recv() for link in self._links]

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        """Raises `RunInvalid` when somebody has killed one of them.

        Raises `RuntimeError` when one has failed; its traceback stands above, on standard error.
        """
        try:
            yield
        except (EOFError, ConnectionError):
            for link in self._links:
                link.close()  # those that still live end, too
            statuses = [(engine, process.wait()) for engine, process in enumerate(self._processes, start=2)]
            engine, status = next(((engine, status) for engine, status in statuses if status != BEREFT), statuses[0])
            if status < 0:
                raise RunInvalid(f"engine {engine} of the plan was ended by signal {-status}") from None
            raise RuntimeError(f"engine {engine} of the plan has failed, with exit status {status}") from None


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
    links = [Connection(int(file)) for file in sys.argv[1:]]
    mail = Links(links)
    try:
        scenario, part, engines = links[0].recv()
        with uncollected():
            links[0].send(plan_users(scenario, part, engines, mail))
    except (EOFError, ConnectionError):
        return BEREFT
    mail.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
