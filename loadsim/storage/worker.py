"""One database's process, `python -m loadsim.storage.worker`: databases do not share an interpreter lock.

It reads orders from standard input and writes its answers to standard output. The end of the input ends it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import select
import shutil
import signal
import sys
import threading
import time
from dataclasses import replace
from io import FileIO
from itertools import product
from pathlib import Path

from loadsim.engine.control import Message, Stop, decode, encode
from loadsim.findings.formats import count
from loadsim.plugins import plugin
from loadsim.storage import orders
from loadsim.storage.ledger import Ledger, Live, compare, is_filled, live_of
from loadsim.storage.load import MOST_DAMAGES, StoreLoad
from loadsim.storage.messages import MAILBOX_BITS, StoredMessages, version_of
from loadsim.storage.places import STORE, room_bytes, used_bytes
from loadsim.storage.scenario import read_storage
from loadsim.storage.store import Damaged, Store, StoreSettings, added_to

SWITCH_INTERVAL_S = 0.0005  # the longest wait for the interpreter lock after a read; default: 5 ms
PR_SET_PDEATHSIG = 1  # prctl(2): the signal that this process receives when its parent dies


class Worker:
    """Carries out orders."""

    def __init__(self, lines: FileIO) -> None:
        self._lines = lines
        self._reported_s = time.monotonic()

    def answer(self, order: Message) -> Message:
        """Carry out an order, and return its answer. Raises `Damaged`, and `OSError` if the disk fails."""
        match order:
            case orders.OpenDatabase():
                return self.open(order)
            case orders.FillDatabase():
                self.fill()
            case orders.LoadDatabase():
                return self.load(order.sample_s)
            case orders.CheckFiles():
                return self.check()
            case orders.VerifyMessages():
                return self.verify()
            case orders.ReplayLog():
                return self.recover()
            case orders.AcceptMessages():
                self._ledger.write(self._verified, self._store.log_sizes())
        return orders.Done()

    def open(self, order: orders.OpenDatabase) -> orders.DatabaseState:
        self._scenario = read_storage(order.scenario)
        mailboxes = self._scenario.mailboxes_by_database[order.number]
        place = Path(order.directory)
        self._ledger = Ledger(place)
        filled = is_filled(place)
        self._settings = StoreSettings(
            place / STORE, not filled, mailboxes, self._scenario.cache, order.log_bytes, self._scenario.copies - 1
        )
        # Processes make different messages: machines may share a disk that deduplicates.
        self._messages = StoredMessages(secrets.randbits(60), self._scenario.message_size)
        if not filled:
            self._ledger.begin()
            shutil.rmtree(place / STORE, ignore_errors=True)  # of an interrupted filling
        (place / STORE).mkdir(exist_ok=True)
        self._live: Live | None = None  # the messages that must be there, from memory, which a disk cannot change
        self._cut: list[str] = []  # the logs that were longer when they were last closed
        state = orders.DatabaseState(filled, self._ledger.is_clean, not filled or self._ledger.survived)
        began_s = time.monotonic()
        try:
            self._store = self._opened()
        except Damaged as damage:
            return replace(state, damaged=str(damage))
        self._opening_s = time.monotonic() - began_s
        return state

    def _opened(self) -> Store:
        kind = plugin("store", self._scenario.store)
        assert kind is not None  # `load_storage` has checked it
        store: Store = kind.load()(self._settings)
        if self._ledger.is_clean:
            sizes = store.log_sizes()
            missing = {name: size - sizes.get(name, 0) for name, size in self._ledger.ended()[1].items()}
            self._cut = [f"{name}: {count(size, 'byte')} at its end" for name, size in missing.items() if size > 0]
        return store

    def fill(self) -> None:
        numbers = product(range(self._settings.mailboxes), range(self._scenario.messages_per_mailbox))
        keys = [mailbox << MAILBOX_BITS | number for mailbox, number in numbers]
        for number, key in enumerate(keys):
            self._report(number / len(keys))
            if room_bytes(self._ledger.directory, self._scenario.reserve) < 0:  # other programs may also use the space
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._store.insert(key, self._messages.make(key, 0), durable=False)
            self._store.settle()
        self._reopen(live_of((key, 0) for key in keys))

    def load(self, sample_s: float) -> orders.LoadOver:
        """Load the store until a line of input, the end of the input, or a full disk. Send a sample each interval."""
        self._live = None
        load = StoreLoad(self._store, self._ledger, self._messages, self._scenario, self._settings.mailboxes)
        began_s = due_s = time.monotonic()
        load.start()
        try:
            while not (load.full or load.fault):
                due_s += sample_s
                ready, _, _ = select.select([self._lines], [], [], max(0.0, due_s - time.monotonic()))
                if ready:
                    self._lines.readline()
                    break
                _send(orders.LoadSample(load.take(), time.monotonic() - began_s))
        finally:
            load.stop()
        if not load.failed:
            with load.noted_failures():
                self._reopen(load.held.live())
        if load.fault and not load.full:
            raise load.fault
        return orders.LoadOver(load.take(), load.full)

    def check(self) -> orders.Pass:
        began_s, size_bytes, damages = time.monotonic(), 0, [*self._cut]
        with added_to(damages):
            whole_bytes = max(1, used_bytes([self._settings.directory]))
            for checked in self._store.check():
                self._report(size_bytes / whole_bytes)
                size_bytes += checked.bytes
                damages += [checked.damaged] if checked.damaged else []
        return _pass(time.monotonic() - began_s, damages, size_bytes=size_bytes)

    def verify(self) -> orders.Pass:
        began_s, damages = time.monotonic(), list[str]()
        expected = len(self._ledger.ended()[0] if self._live is None else self._live)
        entries: list[tuple[int, int]] = []
        altered = set()
        with added_to(damages):  # including damage to the list of keys: messages after it are lost
            for key in self._store.stored_keys():
                self._report(len(entries) / max(1, expected))
                message = None
                with added_to([]):
                    message = self._store.read(key)
                version = version_of(key, message)
                if version is None:
                    altered.add(key)
                    damages.append(f"message {key:x}: altered")
                entries.append((key, version or 0))
        self._verified = live_of(entries)
        damages += [
            f"message {key:x}: {kind}"
            for kind, key in compare(self._ledger, self._verified, self._live)
            if key not in altered
        ]
        return _pass(time.monotonic() - began_s, damages, messages=len(entries))

    def recover(self) -> orders.Pass:
        """Replay the log; the time includes opening the store."""
        began_s = time.monotonic() - self._opening_s
        size_bytes = self._store.recover()
        return _pass(time.monotonic() - began_s, [], size_bytes=size_bytes)

    def _report(self, share: float) -> None:
        """Report once a minute what share of the work is done."""
        if (now_s := time.monotonic()) - self._reported_s >= orders.PROGRESS_S:
            self._reported_s = now_s
            _send(orders.Progress(min(1.0, share)))

    def _reopen(self, live: Live) -> None:
        """Close the store cleanly, record the messages that it must have, and open it with an empty cache."""
        sizes = self._store.log_sizes()
        self._store.close()
        self._ledger.write(live, sizes)
        self._live = live
        self._settings = replace(self._settings, new=False)
        self._store = self._opened()


def _pass(took_s: float, damages: list[str], size_bytes: int = 0, messages: int = 0) -> orders.Pass:
    return orders.Pass(size_bytes, took_s, messages, len(damages), damages[:MOST_DAMAGES])


def _send(message: Message) -> None:
    sys.stdout.write(encode(message).decode())
    sys.stdout.flush()


def _end_process(failure: threading.ExceptHookArgs) -> None:
    """End the process after a defect in a thread: fewer threads would make a different load."""
    threading.__excepthook__(failure)
    os._exit(1)


def main() -> int:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # it reads no input while it fills or verifies
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    threading.excepthook = _end_process
    lines = FileIO(0)  # unbuffered: `select` would not see an order that was read ahead
    worker = Worker(lines)
    for line in lines:
        order = decode(line, orders.TO_A_WORKER)
        if isinstance(order, Stop):
            continue  # of a load that has already ended
        try:
            _send(worker.answer(order))
        except Damaged as damage:
            _send(orders.DiskFailed(str(damage)))
        except OSError as failure:
            _send(orders.DiskFailed(failure.strerror or str(failure)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
