"""Inputs and outputs of the stores, held against those that the kernel counts for their device."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from fcntl import ioctl
from pathlib import Path
from random import Random
from typing import Any

import pytest
from patience import PATIENCE_S

from bench.control_groups import ROOT, Limits, limited
from bench.loop_device import LoopDevice, loop_device
from loadsim.cli import main
from loadsim.errors import ConfigError, RunInvalid
from loadsim.findings.catalogue import Code
from loadsim.plugins import plugin
from loadsim.storage.databases import databases
from loadsim.storage.ledger import is_filled
from loadsim.storage.messages import MAILBOX_BITS, StoredMessages
from loadsim.storage.orders import (
    AcceptMessages,
    CheckFiles,
    FillDatabase,
    LoadDatabase,
    LoadOver,
    Order,
    Pass,
    ReplayLog,
    VerifyMessages,
)
from loadsim.storage.page_cache import drop
from loadsim.storage.page_cache import opened as opened_file
from loadsim.storage.pages import PAGE_BYTES
from loadsim.storage.scenario import OF_FILES, load_storage
from loadsim.storage.store import Io, IoTotals, Store, StoreSettings, summed
from loadsim.storage.verdict import AVERAGE_MS

pytestmark = pytest.mark.nightly(part="tools")

MAILBOXES = 4
SLOW = f"loadsim-slow-{os.getpid()}"  # the control group of this process
STORES = ("database", *OF_FILES)
SMALL = ("databases=1", "mailboxes=4", "cache=1M", "message_size=20K")


@pytest.fixture
def device() -> Iterator[LoopDevice]:
    with loop_device() as made:
        yield made


class Counted:
    """The counts of a store and of the kernel in a block."""

    def __init__(self, device: LoopDevice, store: Store) -> None:
        self._device, self._store = device, store

    def __enter__(self) -> Counted:
        os.sync()
        self._store.io.take()
        self._before = self._device.counts()
        return self

    def __exit__(self, *_: object) -> None:
        self.ours: Mapping[Io, IoTotals] = summed([self._store.io.take()])
        self.kernel = {name: value - self._before[name] for name, value in self._device.counts().items()}

    def count(self, *kinds: Io) -> int:
        return sum(self.ours[kind].count for kind in kinds)

    def bytes(self, *kinds: Io) -> int:
        return sum(self.ours[kind].bytes for kind in kinds)


def within_5_percent(value: int) -> object:
    return pytest.approx(value, rel=0.05)


def keys(begin: int, end: int) -> list[int]:
    return [(number % MAILBOXES) << MAILBOX_BITS | number for number in range(begin, end)]


def opened(kind: str, place: Path, *, new: bool, log_bytes: int = 64 << 20) -> Store:
    found = plugin("store", kind)
    assert found is not None
    place.mkdir(exist_ok=True)
    store: Store = found.load()(StoreSettings(place, new, MAILBOXES, 1 << 20, log_bytes, 0))
    return store


@pytest.mark.parametrize("kind", STORES)
def test_each_read_reaches_the_device(kind: str, device: LoopDevice) -> None:
    """Of a store that was closed, so that its messages are in no cache."""
    place, messages = device.place / "store", StoredMessages(1, 110_000)
    with closing(opened(kind, place, new=True)) as store:
        for key in keys(0, 200):
            store.insert(key, messages.make(key, 0), durable=False)
        store.recover()
    with closing(opened(kind, place, new=False)) as store:
        with Counted(device, store) as counted:
            for key in Random(1).sample(keys(0, 200), 200):
                store.read(key)
        assert counted.kernel["reads"] == within_5_percent(counted.count(Io.READ))
        assert counted.kernel["read_bytes"] == within_5_percent(counted.bytes(Io.READ))
        with Counted(device, store) as counted:
            for _ in range(100):
                store.maintain()
        assert counted.kernel["read_bytes"] == within_5_percent(counted.bytes(Io.MAINTENANCE))


@pytest.mark.parametrize("kind", STORES)
def test_each_durable_change_is_written_and_flushed(kind: str, device: LoopDevice) -> None:
    """The metadata of files is not counted: large messages have little of it."""
    messages = StoredMessages(1, 1_000_000)
    with closing(opened(kind, device.place / "store", new=True)) as store:
        store.insert(*(first := (keys(0, 1)[0], messages.make(0, 0))), durable=True)
        with Counted(device, store) as inserted:
            for key in keys(1, 31):
                store.insert(key, messages.make(key, 0), durable=True)
        with Counted(device, store) as deleted:
            store.delete(first[0], durable=True)
            for key in keys(1, 31):
                store.delete(key, durable=True)
        for counted in (inserted, deleted):
            assert counted.kernel["flushes"] == within_5_percent(counted.count(Io.WRITE, Io.LOG_WRITE, Io.SYNC))
        assert inserted.kernel["written_bytes"] == within_5_percent(inserted.bytes(Io.WRITE, Io.LOG_WRITE))


def test_each_changed_page_is_written(device: LoopDevice) -> None:
    messages = StoredMessages(1, 200_000)
    with closing(opened("database", device.place / "store", new=True)) as store:
        for key in keys(0, 200):
            store.insert(key, messages.make(key, 0), durable=True)
        with Counted(device, store) as counted:
            store.recover()
        assert counted.kernel["writes"] == within_5_percent(counted.count(Io.WRITE))
        assert counted.kernel["written_bytes"] == within_5_percent(counted.bytes(Io.WRITE))


@pytest.mark.parametrize("kind", STORES)
def test_times_are_those_of_the_kernel(kind: str, device: LoopDevice) -> None:
    """On a slow disk below the device, so that the way through Python is a small part of them."""
    place, messages = device.place / "store", StoredMessages(1, 60_000)
    with closing(opened(kind, place, new=True)) as store:
        for key in keys(0, 30):
            store.insert(key, messages.make(key, 0), durable=False)
        if not can_limit(device):
            return
        store.insert(keys(30, 31)[0], messages.make(0, 0), durable=True)
        with Counted(device, store) as counted, slow_disk(device, 5):
            for key in keys(31, 36):
                store.insert(key, messages.make(key, 0), durable=True)
        writing_ns = sum(counted.ours[each].total_ns for each in (Io.WRITE, Io.LOG_WRITE, Io.SYNC))
        assert writing_ns / 1e6 == within_5_percent(counted.kernel["write_ms"])
        if kind == "database":
            with Counted(device, store) as counted, slow_disk(device, 10):
                store.recover()
            # In sum: the kernel also counts writes to metadata in the background, which take no time.
            assert counted.ours[Io.WRITE].total_ns / 1e6 == within_5_percent(counted.kernel["write_ms"])
    with closing(opened(kind, place, new=False)) as store, Counted(device, store) as counted, slow_disk(device, 10):
        for key in Random(1).sample(keys(0, 30), 30):
            store.read(key)
    assert counted.ours[Io.READ].mean_ms == pytest.approx(counted.kernel["read_ms"] / counted.kernel["reads"], rel=0.05)


def test_threads_run_while_one_waits_for_the_log(device: LoopDevice) -> None:
    """Else a slow disk would come out as a slow generator. What lies between frames is read before it is written."""
    place, messages = device.place / "store", StoredMessages(1, 60_000)
    log = place / "mail.db-wal"
    with closing(opened("database", place, new=True, log_bytes=1 << 20)) as store:

        def insert(begin: int, end: int) -> None:
            for key in keys(begin, end):
                store.insert(key, messages.make(key, 0), durable=False)

        def read() -> None:
            for key in keys(0, 60):
                store.read(key)

        insert(0, 60)
        if not can_limit(device):
            return
        drop(log, written=True)
        assert_others_run(device, store, read)
        store.settle()  # all pages are written: the log starts again
        drop(log, written=True)
        assert_others_run(device, store, lambda: insert(60, 70))


def test_writes_to_an_old_log_read_nothing(device: LoopDevice) -> None:
    """Its frames begin and end within blocks of the file system."""
    place, messages = device.place / "store", StoredMessages(1, 60_000)
    with closing(opened("database", place, new=True, log_bytes=1 << 20)) as store:
        for key in keys(0, 100):
            store.insert(key, messages.make(key, 0), durable=False)
        store.settle()
        store.insert(keys(100, 101)[0], messages.make(0, 0), durable=True)  # the log has started again
    frames = (place / "mail.db-wal").stat().st_size // PAGE_BYTES
    with closing(opened("database", place, new=False)) as store, Counted(device, store) as counted:
        for key in keys(101, 200):
            store.insert(key, messages.make(key, 0), durable=False)
    assert counted.kernel["reads"] - counted.count(Io.READ) < frames / 4


def assert_others_run(device: LoopDevice, store: Store, work: Callable[[], None]) -> None:
    """While a thread works on a slow disk, another one runs more often than after each read alone."""
    thread, runs = threading.Thread(target=work), 0
    with slow_disk(device, 20), Counted(device, store) as counted:
        thread.start()
        while thread.is_alive():
            thread.join(0.001)
            runs += 1
    assert counted.kernel["reads"] > 5
    assert runs > 3 * counted.kernel["reads"]


@contextmanager
def slow_disk(device: LoopDevice, per_s: int) -> Iterator[None]:
    """Give this process at most so many reads and writes per second of the disk that has the device's file."""
    limits = Limits(reads_per_s=per_s, writes_per_s=per_s)
    with limited(SLOW, limits, device.place.parent) as group, group.joined():
        yield


def can_limit(device: LoopDevice) -> bool:
    """Return False without control groups of version 1, which are refused then."""
    if (ROOT / "blkio").is_dir():
        return True
    with pytest.raises(ConfigError, match="version 1"), limited(SLOW, Limits(), device.place):
        pass
    return False


@pytest.mark.parametrize("store", STORES)
def test_a_full_disk_is_no_damage(store: str) -> None:
    """While it is filled, loaded, closed, verified, opened and recovered; with room again, all is there."""
    with loop_device(300 << 20, on="/dev/shm") as device:
        asyncio.run(filled_up(store, device.place))


async def filled_up(store: str, place: Path) -> None:
    terms = load_storage("storage-quickstart", [*SMALL, f"store={store}", "mailbox_size=10M", "reserve=0%"])
    (directory := place / "db-001").mkdir()
    other = place / "other"

    async def told(*orders: Order[Any]) -> list[str]:
        """Open the database, and give orders, any of which may need room; return the damage that they find."""
        damages: list[str] = []
        try:
            async with databases(terms, [directory]) as (one,):
                damages += [one.state.damaged] if one.state.damaged else []
                for order in orders:
                    try:
                        match await one.order(order):
                            case Pass() as verified:
                                damages += verified.damages
                            case LoadOver() as load:
                                assert load.full
                    except RunInvalid as failure:
                        assert str(failure) == FULL
        except RunInvalid as failure:
            assert str(failure) == FULL
        return damages

    fill_up(other, left_bytes=10 << 20)
    assert await told(FillDatabase()) == []
    assert not is_filled(directory)
    other.unlink()
    assert await told(FillDatabase()) == []
    fill_up(other, left_bytes=1 << 20)
    assert await told(LoadDatabase(1.0), CheckFiles(), VerifyMessages()) == []
    assert await told(ReplayLog(), CheckFiles(), VerifyMessages()) == []
    other.unlink()
    async with databases(terms, [directory]) as (one,):
        await one.order(ReplayLog())
        assert [(await one.order(each)).damages for each in (CheckFiles(), VerifyMessages())] == [[], []]
        await one.order(AcceptMessages())


FULL = f"db-001: {os.strerror(errno.ENOSPC)}"


@pytest.mark.parametrize("store", STORES)
def test_a_store_that_ended_cleanly_survives_a_loss_of_power(store: str, device: LoopDevice, tmp_path: Path) -> None:
    """The file system ends without writing anything more."""
    settings = [*SMALL, f"store={store}", "mailbox_size=1M", f"directories=[{device.place}]"]
    given = ["storage-quickstart", *(word for each in settings for word in ("--set", each)), "--quiet", "--out"]
    assert main(["storage", "backup", *given, str(tmp_path / "filled")]) == 0
    with opened_file(device.place, os.O_RDONLY) as root:
        ioctl(root, SHUT_DOWN, NO_FLUSH.to_bytes(4, sys.byteorder))
    for command in (("umount", device.place), ("mount", device.path, device.place)):
        subprocess.run(command, check=True, timeout=PATIENCE_S)
    assert main(["storage", "verify", *given, str(tmp_path / "verified")]) == 0


SHUT_DOWN, NO_FLUSH = 0x8004587D, 2
"""Linux, fs/ext4/ext4.h: EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH."""


def fill_up(path: Path, left_bytes: int) -> None:
    """Write a file that leaves so much room."""
    system = os.statvfs(path.parent)
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, system.f_bavail * system.f_frsize - left_bytes)


def test_a_file_system_that_ignores_direct_reads_is_refused(device: LoopDevice, tmp_path: Path) -> None:
    """As ext4 does if it journals data (ext4(5), data): reads would come from memory."""
    for command in (
        ("umount", device.place),
        ("tune2fs", "-O", "has_journal", device.path),
        ("mount", "-o", "data=journal", device.path, device.place),
    ):
        subprocess.run(command, check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL)
    assert_refused(device, tmp_path / "out")


def test_a_device_with_larger_sectors_is_refused(tmp_path: Path) -> None:
    """It takes direct reads of 16 KiB, and no smaller ones."""
    xfs = ("mkfs.xfs", "-q", "-s", "size=16384", "-b", "size=16384")
    with loop_device(sector_bytes=16384, make=xfs) as device:
        assert_refused(device, tmp_path / "out")


def assert_refused(device: LoopDevice, out: Path) -> None:
    settings = ("--set", f"directories=[{device.place}]", "--quiet")
    assert main(["storage", "backup", "storage-quickstart", *settings, "--out", str(out)]) == 2
    assert [path.name for path in device.place.iterdir() if path.name != "lost+found"] == []
    assert not out.exists()


def test_a_slow_disk_fails_by_its_reads(device: LoopDevice, tmp_path: Path) -> None:
    """Three threads that share 20 reads per second wait 150 ms for each, less the rest of their work."""
    keys = ["databases=1", "mailboxes=4", "mailbox_size=1M", "cache=1M", "threads=3", "duration=15s", "maintenance=no"]
    settings = [word for key in (*keys, f"directories=[{device.place}]") for word in ("--set", key)]
    if not can_limit(device):
        return
    given = ["storage-quickstart", *settings, "--out"]
    assert main(["storage", "backup", *given, str(tmp_path / "filled")]) == 0
    command = [sys.executable, "-m", "loadsim", "storage", "run", *given]
    with limited(SLOW, Limits(reads_per_s=20), device.place) as group, group.joined():
        subprocess.run([*command, str(tmp_path / "slow")], check=False, timeout=PATIENCE_S)
    figures = json.loads((tmp_path / "slow" / "storage.json").read_text())
    (database,) = figures["databases"]
    codes = {each["code"] for each in figures["verdict"]["findings"]}
    assert database["reads_per_s"] <= 20 * 1.05
    assert database["read_ms"] > AVERAGE_MS[Io.READ]
    assert Code.DISK_READS_SLOW.id in codes
    assert not {Code.STORED_DAMAGED.id, Code.DISK_FAILED.id} & codes
    assert (tmp_path / "slow" / "report.html").exists()
