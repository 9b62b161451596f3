"""The load on one store: threads that insert, delete, replace and read messages at random."""

from __future__ import annotations

import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from random import Random

from loadsim.statistics.latency_histogram import LatencyHistogram
from loadsim.storage.ledger import ABSENT, Ledger, Live, Noted, live_of
from loadsim.storage.messages import MAILBOX_BITS, StoredMessages, version_of
from loadsim.storage.places import room_bytes
from loadsim.storage.scenario import StorageScenario
from loadsim.storage.store import FULL, OF_DISK, Damaged, Store

OPERATIONS = ("insert", "delete", "replace", "read")

MOST_DAMAGES = 100  # the most places of damage that are named
SETTLE_S, MAINTAIN_S, TICK_S = 0.05, 1 / 27, 0.01
"""The intervals of background work: writing pages, maintenance at Exchange's rate, and measuring the lag."""

AFTER_FAILURE_S = 0.1


class Held:
    """A store's messages that no thread is using."""

    def __init__(self, live: Live) -> None:
        self._keys = array("Q", live["key"].astype("<u8").tobytes())
        replaced = live[live["version"] != 0]
        self._versions = dict(zip(replaced["key"].tolist(), replaced["version"].tolist(), strict=True))
        self._lock = threading.Lock()
        self._next = int((live["key"] & ((1 << MAILBOX_BITS) - 1)).max(initial=0)) + 1

    def new(self, mailbox: int) -> int:
        with self._lock:
            self._next += 1
            return mailbox << MAILBOX_BITS | self._next

    def take(self, random: Random) -> tuple[int, int] | None:
        """Take out a random message, and return its key and version; None if there is none."""
        with self._lock:
            if not self._keys:
                return None
            index = random.randrange(len(self._keys))
            key, self._keys[index] = self._keys[index], self._keys[-1]
            self._keys.pop()
            return key, self._versions.pop(key, 0)

    def put(self, key: int, version: int) -> None:
        with self._lock:
            self._keys.append(key)
            if version:
                self._versions[key] = version

    def live(self) -> Live:
        return live_of((key, self._versions.get(key, 0)) for key in self._keys)


class StoreLoad:
    """The threads that load one store, from `start` to `stop`."""

    def __init__(
        self, store: Store, ledger: Ledger, messages: StoredMessages, scenario: StorageScenario, mailboxes: int
    ) -> None:
        self._store, self._ledger, self._messages, self._scenario = store, ledger, messages, scenario
        self._mailboxes = mailboxes
        self.held = Held(ledger.ended()[0])
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._operations: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._damaged = 0
        self._damages: list[str] = []
        self._lag = LatencyHistogram()
        self.failed = False  # an operation failed or found damage, so the state of some messages is unknown
        self.full = False  # the file system has reached its reserve
        self.fault: OSError | None = None  # the last failure that was not the disk's
        works: list[tuple[Callable[[], None], float]] = [(store.settle, SETTLE_S), (self._tick, 0.0)]
        works += [(self._maintain, MAINTAIN_S)] if scenario.maintenance else []
        self._threads = [threading.Thread(target=self._operate, args=(number,)) for number in range(scenario.threads)]
        self._threads += [threading.Thread(target=self._repeat, args=work) for work in works]
        self._cpu_s = 0.0

    def start(self) -> None:
        self._ledger.begin()
        self._cpu_s = time.process_time()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all threads after their current operation."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def take(self) -> dict[str, object]:
        """Return the figures since the last call, as JSON."""
        cpu_s = time.process_time()
        with self._lock:
            sample: dict[str, object] = {
                "operations": dict(self._operations),
                "failures": dict(self._failures),
                "damaged": self._damaged,
                "damages": self._damages,
                "lag": dict(self._lag.counts),
                "cpu_s": cpu_s - self._cpu_s,
                "io": self._store.io.take(),
                "warm_share": self._store.warm_share,
            }
            self._cpu_s = cpu_s
            self._operations, self._failures, self._damaged, self._damages = Counter(), Counter(), 0, []
            self._lag = LatencyHistogram()
        return sample

    # --- the threads ---

    def _operate(self, number: int) -> None:
        random = Random(f"{self._messages.seed}/{number}")  # noqa: S311
        mix = asdict(self._scenario.mix)
        weights = [mix[operation] for operation in OPERATIONS]
        while not self._stop.is_set():
            operation = random.choices(OPERATIONS, weights)[0]
            pause_s = self._scenario.pause_s
            with self.noted_failures():
                if self._do(operation, random):
                    with self._lock:
                        self._operations[operation] += 1
                else:
                    pause_s = AFTER_FAILURE_S
            if pause_s:
                self._stop.wait(pause_s)

    def _do(self, operation: str, random: Random) -> bool:
        """Perform an operation on a message that no other thread is using. Return False if there is none."""
        durable = random.random() >= self._scenario.lazy_share
        new = operation == "insert"
        taken = (self.held.new(random.randrange(self._mailboxes)), 0) if new else self.held.take(random)
        if taken is None:
            return False
        key, version = taken
        if operation == "read":
            message = self._store.read(key)
            if version_of(key, message) != version:
                raise Damaged(f"message {key:x}: {'lost' if message is None else 'not as stored'}")
        else:
            if operation == "replace":
                version += self._store.transactional
            elif operation == "delete":
                version = ABSENT
            self._ledger.note(key, version, Noted.BEGUN)
            self._change(operation, key, version, durable)
            lasts = durable and (new or self._store.transactional)
            self._ledger.note(key, version, Noted.DURABLE if lasts else Noted.LAZY)
        if version != ABSENT:
            self.held.put(key, version)
        return True

    def _change(self, operation: str, key: int, version: int, durable: bool) -> None:
        if operation == "delete":
            self._store.delete(key, durable=durable)
        elif operation == "insert":
            self._store.insert(key, self._messages.make(key, version), durable=durable)
        else:
            message = self._messages.make(key, version) if self._store.transactional else None
            self._store.replace(key, message, durable=durable)

    def _maintain(self) -> None:
        if damaged := self._store.maintain().damaged:
            raise Damaged(damaged)

    def _tick(self) -> None:
        """Stop at the file system's reserve, and measure how long a thread waits for the interpreter lock."""
        if room_bytes(self._ledger.directory, self._scenario.reserve) < 0:
            self.full = True
            self._stop.set()
        began_ns = time.monotonic_ns()
        self._stop.wait(TICK_S)
        with self._lock:
            self._lag.add(max(0, time.monotonic_ns() - began_ns - round(TICK_S * 1e9)))

    def _repeat(self, work: Callable[[], None], pause_s: float) -> None:
        while not self._stop.is_set():
            with self.noted_failures():
                work()
            self._stop.wait(pause_s)

    @contextmanager
    def noted_failures(self) -> Iterator[None]:
        """Record damage and disk failures, and wait a moment. A full disk or a fault on the machine ends the load."""
        try:
            yield
        except Damaged as damage:
            with self._lock:
                self._damaged += 1
                if len(self._damages) < MOST_DAMAGES:
                    self._damages.append(str(damage))
        except OSError as failure:
            if failure.errno in OF_DISK:
                with self._lock:
                    self._failures[str(failure.strerror)] += 1
            else:
                self.fault, self.full = failure, self.full or failure.errno in FULL
                self._stop.set()
        else:
            return
        self.failed = True
        self._stop.wait(AFTER_FAILURE_S)
