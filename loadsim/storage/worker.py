"""One database in its own process: `python -m loadsim.storage.worker`. So no other waits for its interpreter.

It reads one order a line from standard input, and answers with lines of JSON: any number with its progress, and one
with `done` at the end of the order. The first order is `open`. The end of the input ends it.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import secrets
import select
import shutil
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass, replace
from io import FileIO
from itertools import product
from pathlib import Path
from typing import Any

from loadsim.findings.formats import count
from loadsim.plugins import plugin
from loadsim.storage.ledger import Ledger, Live, compare, is_filled, live_of
from loadsim.storage.load import MOST_DAMAGES, StoreLoad
from loadsim.storage.messages import MAILBOX_BITS, StoredMessages, version_of
from loadsim.storage.places import STORE, room_bytes, used_bytes
from loadsim.storage.scenario import read_storage
from loadsim.storage.store import Damaged, Pass, Store, StoreSettings, added_to

SWITCH_INTERVAL_S = 0.0005  # a thread may keep the interpreter's lock from one whose read has ended; usually 5 ms
EACH_S = 60.0  # the interval of the words on progress
PR_SET_PDEATHSIG = 1  # prctl(2): the signal at the end of the process that started this one


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """The state of a database that was opened. `filled`: it has all messages. `clean`: it ended without a failure."""

    filled: bool = False
    clean: bool = False
    survived: bool = True  # the machine has not been started again since its last load began
    damaged: str = ""  # the damage that kept it from being opened


class Worker:
    """Carries out orders."""

    def __init__(self, orders: FileIO) -> None:
        self._orders = orders
        self._told_s = time.monotonic()

    def open(self, scenario: dict[str, Any], number: int, directory: str, log_bytes: int) -> dict[str, Any]:
        """Open a database, and return its `DatabaseState`."""
        self._scenario = read_storage(scenario)
        mailboxes = self._scenario.mailboxes_by_database[number]
        place = Path(directory)
        self._ledger = Ledger(place)
        filled = is_filled(place)
        self._settings = StoreSettings(
            place / STORE, not filled, mailboxes, self._scenario.cache, log_bytes, self._scenario.copies - 1
        )
        # Of no other process: disks that deduplicate may be shared with other machines.
        self._messages = StoredMessages(secrets.randbits(60), self._scenario.message_size)
        if not filled:
            self._ledger.begin()
            shutil.rmtree(place / STORE, ignore_errors=True)  # of a filling that was interrupted
        (place / STORE).mkdir(exist_ok=True)
        self._live: Live | None = None  # the messages that must be there, by this process: a disk cannot change them
        self._cut: list[str] = []  # the logs that were longer at the last clean end
        state = DatabaseState(filled, self._ledger.is_clean, not filled or self._ledger.survived)
        began_s = time.monotonic()
        try:
            self._store = self._opened()
        except Damaged as damage:
            return asdict(replace(state, damaged=str(damage)))
        self._opening_s = time.monotonic() - began_s
        return asdict(state)

    def _opened(self) -> Store:
        kind = plugin("store", self._scenario.store)
        assert kind is not None  # `load_storage` has found it
        store: Store = kind.load()(self._settings)
        if self._ledger.is_clean:
            found = store.log_sizes()
            missing = {name: size - found.get(name, 0) for name, size in self._ledger.ended()[1].items()}
            self._cut = [f"{name}: {count(size, 'byte')} at its end" for name, size in missing.items() if size > 0]
        return store

    def fill(self) -> dict[str, Any]:
        numbers = product(range(self._settings.mailboxes), range(self._scenario.messages_per_mailbox))
        keys = [mailbox << MAILBOX_BITS | number for mailbox, number in numbers]
        for number, key in enumerate(keys):
            self._tell(number / len(keys))
            if room_bytes(self._ledger.directory, self._scenario.reserve) < 0:  # others may fill it, too
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._store.insert(key, self._messages.make(key, 0), durable=False)
            self._store.settle()
        self._end(live_of((key, 0) for key in keys))
        return {}

    def load(self, sample_s: float) -> dict[str, Any]:
        """Load the store until there is a line of input or its end, or the disk is full. Tell a sample each time."""
        self._live = None
        load = StoreLoad(self._store, self._ledger, self._messages, self._scenario, self._settings.mailboxes)
        began_s = due_s = time.monotonic()
        load.start()
        try:
            while not (load.full or load.fault):
                due_s += sample_s
                ready, _, _ = select.select([self._orders], [], [], max(0.0, due_s - time.monotonic()))
                if ready:
                    self._orders.readline()
                    break
                _say(sample=load.take(), at_s=time.monotonic() - began_s)
        finally:
            load.stop()
        if not load.failed:
            with load.noted_failures():
                self._end(load.held.live())
        if load.fault and not load.full:
            raise load.fault
        return {"rest": load.take(), "full": load.full}

    def check(self) -> dict[str, Any]:
        began_s, size_bytes, damages = time.monotonic(), 0, [*self._cut]
        with added_to(damages):
            whole_bytes = max(1, used_bytes([self._settings.directory]))
            for checked in self._store.check():
                self._tell(size_bytes / whole_bytes)
                size_bytes += checked.bytes
                damages += [checked.damaged] if checked.damaged else []
        return _pass(time.monotonic() - began_s, damages, size_bytes=size_bytes)

    def verify(self) -> dict[str, Any]:
        """Read all messages, and hold them against the ledger."""
        began_s, damages = time.monotonic(), list[str]()
        expected = len(self._ledger.ended()[0] if self._live is None else self._live)
        entries: list[tuple[int, int]] = []
        altered = set()
        with added_to(damages):  # also of the list: those that it does not reach are lost
            for key in self._store.stored_keys():
                self._tell(len(entries) / max(1, expected))
                message = None
                with added_to([]):
                    message = self._store.read(key)
                version = version_of(key, message)
                if version is None:
                    altered.add(key)
                    damages.append(f"message {key:x}: altered")
                entries.append((key, version or 0))
        self._found = live_of(entries)
        damages += [
            f"message {key:x}: {kind}"
            for kind, key in compare(self._ledger, self._found, self._live)
            if key not in altered
        ]
        return _pass(time.monotonic() - began_s, damages, messages=len(entries))

    def recover(self) -> dict[str, Any]:
        """Replay the log, and measure how long that takes, with the opening of the store."""
        began_s = time.monotonic() - self._opening_s
        size_bytes = self._store.recover()
        return _pass(time.monotonic() - began_s, [], size_bytes=size_bytes)

    def accept(self) -> dict[str, Any]:
        """Take the messages that `verify` has found for those that there must be."""
        self._ledger.write(self._found, self._store.log_sizes())
        return {}

    def _tell(self, share: float) -> None:
        """Say, once a minute, how much has been done."""
        if (now_s := time.monotonic()) - self._told_s >= EACH_S:
            self._told_s = now_s
            _say(share=min(1.0, share))

    def _end(self, live: Live) -> None:
        """Close the store cleanly, record what it must have, and open it again with an empty cache."""
        sizes = self._store.log_sizes()
        self._store.close()
        self._ledger.write(live, sizes)
        self._live = live
        self._settings = replace(self._settings, new=False)
        self._store = self._opened()


def _pass(took_s: float, damages: list[str], size_bytes: int = 0, messages: int = 0) -> dict[str, Any]:
    return asdict(Pass(size_bytes, took_s, messages, len(damages), damages[:MOST_DAMAGES]))


def _say(**words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def _obey(worker: Worker, line: bytes) -> None:
    """Carry out an order, and say its result, or the failure of the disk."""
    order = json.loads(line)
    try:
        result = getattr(worker, order.pop("do"))(**order)
    except Damaged as damage:
        _say(failed=str(damage))
    except OSError as failure:
        _say(failed=failure.strerror or str(failure))
    else:
        _say(done=result)


def _end_process(failure: threading.ExceptHookArgs) -> None:
    """End the process after a defect in a thread: a load with fewer threads would be another one."""
    threading.__excepthook__(failure)
    os._exit(1)


def main() -> int:
    """Obey until the end of the input."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # it reads no input while it fills or verifies
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    threading.excepthook = _end_process
    orders = FileIO(0)  # unbuffered: an order that was read ahead would be hidden from `select`
    worker = Worker(orders)
    for line in orders:
        if line.strip():  # else it is the end of a load that has ended by itself
            _obey(worker, line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
