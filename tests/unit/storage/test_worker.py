"""A database's worker: its orders, its load, and what it finds damaged."""

from __future__ import annotations

import errno
import json
import os
import resource
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from io import FileIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_recordings import flip

from loadsim.engine.control import Stop, encode
from loadsim.storage.database import DatabaseStore
from loadsim.storage.layouts import open_maildir
from loadsim.storage.ledger import Ledger, live_of
from loadsim.storage.load import StoreLoad
from loadsim.storage.messages import StoredMessages
from loadsim.storage.orders import LoadDatabase, OpenDatabase
from loadsim.storage.pages import PAGE_BYTES
from loadsim.storage.places import STORE
from loadsim.storage.scenario import OF_FILES, Mix, StorageScenario
from loadsim.storage.store import OF_DISK, StoreSettings
from loadsim.storage.worker import Worker

SCENARIO = StorageScenario(
    mailboxes=2, mailbox_size=200_000, message_size=20_000, iops_per_mailbox=1.0, cache=1 << 20, threads=2
)


@pytest.fixture
def orders() -> Iterator[tuple[FileIO, int]]:
    """The worker's end of a pipe, and that of the test."""
    receiving, sending = os.pipe()
    with FileIO(receiving) as file:
        yield file, sending
    os.close(sending)


def opened(orders: FileIO, place: Path, store: str) -> Worker:
    worker = Worker(orders)
    worker.open(OpenDatabase(asdict(replace(SCENARIO, store=store)), 0, str(place), 1 << 20))
    worker._messages = StoredMessages(1, SCENARIO.message_size)  # the same each time
    return worker


@contextmanager
def loading(place: Path, stored: int, **terms: Any) -> Iterator[StoreLoad]:
    """The load on a maildir that has so many messages."""
    settings = StoreSettings(place / STORE, True, 2, 1 << 20, 1 << 20, 0)
    settings.directory.mkdir()
    ledger, messages = Ledger(place), StoredMessages(1, 2000)
    with closing(open_maildir(settings)) as store, closing(ledger):
        for key in range(stored):
            store.insert(key, messages.make(key, 0), durable=False)
        ledger.write(live_of((key, 0) for key in range(stored)), {})
        yield StoreLoad(store, ledger, messages, replace(SCENARIO, store="maildir", **terms), 2)


def test_a_load_stopped_before_it_starts_ends(orders: tuple[FileIO, int], tmp_path: Path) -> None:
    """Orders are not read ahead: `Stop` would be hidden."""
    file, sending = orders
    worker = opened(file, tmp_path, "maildir")
    worker.fill()
    os.write(sending, encode(order := LoadDatabase(3600.0)) + encode(Stop()))
    assert file.readline() == encode(order)
    assert worker.load(order.sample_s).full is False
    assert worker.verify().damages == []


@pytest.mark.parametrize("damage", [b"\x01", bytes(PAGE_BYTES)])
def test_a_damaged_table_of_messages_is_damage(damage: bytes, orders: tuple[FileIO, int], tmp_path: Path) -> None:
    """The root page of the table, with another byte or empty: it is named, and the messages behind it are lost."""
    worker = opened(orders[0], tmp_path, "database")
    worker.fill()
    worker.recover()
    with (tmp_path / STORE / "mail.db").open("r+b") as database:
        database.seek(PAGE_BYTES)
        database.write(damage)
    verified = opened(orders[0], tmp_path, "database").verify()
    assert verified.damages[0].startswith("mail.db: ")
    assert verified.damaged == 1 + 2 * SCENARIO.messages_per_mailbox


@pytest.mark.parametrize("store", ["database", *OF_FILES])
@pytest.mark.parametrize("kept", [0.5, 0])
def test_a_log_that_lost_its_end_is_damage(store: str, kept: float, orders: tuple[FileIO, int], tmp_path: Path) -> None:
    """No message is lost with it, and what is left has its checksums."""
    worker = opened(orders[0], tmp_path, store)
    worker.fill()
    sizes = dict(worker._store.log_sizes())
    assert worker.check().damages == []
    worker._store.close()
    for name, size in sizes.items():
        path = tmp_path / STORE / name
        os.truncate(path, int(kept * size)) if kept else path.unlink()
    found = opened(orders[0], tmp_path, store).check().damages
    assert sorted(each.partition(":")[0] for each in found) == sorted(sizes)


@given(st.data())
@settings(max_examples=10, deadline=None)
def test_any_flipped_byte_of_the_databases_log_is_found(data: st.DataObject) -> None:
    """Of the header and of each frame, by SQLite itself."""
    with TemporaryDirectory() as directory, Path(os.devnull).open("rb", buffering=0) as orders:
        worker = opened(orders, Path(directory), "database")
        worker.fill()
        (size,) = worker._store.log_sizes().values()
        worker._store.close()
        log = Path(directory) / STORE / "mail.db-wal"
        flip(log, data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, 7)))
        (damage,) = opened(orders, Path(directory), "database").check().damages
        assert damage.startswith("mail.db-wal: ")


def test_the_reserve_stays_free_while_a_store_is_filled_and_loaded(orders: tuple[FileIO, int], tmp_path: Path) -> None:
    """Others may use it meanwhile: the load ends, and the store ends cleanly, with what it must have."""
    worker = opened(orders[0], tmp_path, "maildir")
    with reserve_used(worker), pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        worker.fill()
    worker.fill()
    with reserve_used(worker):
        loaded = worker.load(sample_s=0.1)
    assert (loaded.full, loaded.rest["failures"]) == (True, {})
    assert worker._ledger.is_clean
    assert worker.verify().damages == []


@pytest.mark.parametrize(
    ("number", "outcome"),
    [
        (errno.EIO, (False, None, {os.strerror(errno.EIO): 1})),
        (errno.EROFS, (False, None, {os.strerror(errno.EROFS): 1})),
        (errno.ENOSPC, (True, errno.ENOSPC, {})),
        (errno.EDQUOT, (True, errno.EDQUOT, {})),
        (errno.EMFILE, (False, errno.EMFILE, {})),
        (errno.EACCES, (False, errno.EACCES, {})),
    ],
)
def test_only_io_errors_blame_the_disk(
    number: int, outcome: tuple[bool, int | None, dict[str, int]], tmp_path: Path
) -> None:
    """A full disk, and faults of the machine or its user, end the load."""
    with loading(tmp_path, 0) as load, load.noted_failures():
        raise OSError(number, os.strerror(number))
    assert (load.full, load.fault and load.fault.errno, load.take()["failures"]) == outcome
    assert load.failed
    assert load._stop.is_set() != bool(outcome[2])


@pytest.mark.parametrize("store", OF_FILES)
def test_too_few_open_files_are_no_damage(store: str, orders: tuple[FileIO, int], tmp_path: Path) -> None:
    worker = opened(orders[0], tmp_path, store)
    worker.fill()
    for work in (worker.check, worker.verify):
        with no_more_files(), pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            work()
    assert worker.check().damages == worker.verify().damages == []


@contextmanager
def no_more_files() -> Iterator[None]:
    """This process has as many open files as it may have."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with FileIO(os.devnull) as last:
        resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 1, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_failure_to_open_a_database_does_not_blame_the_disk(tmp_path: Path) -> None:
    """As for want of open files: each thread has a connection of its own."""
    settings = StoreSettings(tmp_path, True, 2, 1 << 20, 1 << 20, 0)
    with closing(DatabaseStore(settings)) as store, no_more_files(), ThreadPoolExecutor() as pool:
        failure = pool.submit(store.read, 1).exception()
    assert isinstance(failure, OSError)
    assert failure.errno not in OF_DISK


@contextmanager
def reserve_used(worker: Worker) -> Iterator[None]:
    """The reserve is all of the file system."""
    before = worker._scenario
    worker._scenario = replace(before, reserve=1.0)
    yield
    worker._scenario = before


def test_only_work_on_an_existing_message_is_an_operation(tmp_path: Path) -> None:
    """Two threads that delete, and three messages."""
    with loading(tmp_path, 3, maintenance=False, mix=Mix(insert=0, delete=1, replace=0, read=0)) as load:
        load.start()
        while len(load.held.live()) and not load.failed:
            pass
        load.stop()
        assert load.take()["operations"] == {"delete": 3}
        assert [*load._store.stored_keys()] == []


@pytest.mark.parametrize("mix", [Mix(), Mix(insert=10, delete=10, replace=30, read=50)])
def test_operations_follow_the_mix(mix: Mix, tmp_path: Path) -> None:
    """Pearson's chi-square of four kinds: above 27.9 with a probability of 4e-6 (three degrees of freedom)."""
    with loading(tmp_path, 200, lazy=1.0, mix=mix) as load:
        done = Counter[str]()
        load.start()
        while done.total() < 1500 and not load.failed:
            done.update(load.take()["operations"])  # type: ignore[arg-type]
        load.stop()
        done.update(load.take()["operations"])  # type: ignore[arg-type]
    parts = asdict(mix)
    expected = {name: done.total() * part / sum(parts.values()) for name, part in parts.items()}
    assert sum((done[name] - each) ** 2 / each for name, each in expected.items()) < 27.9


def test_long_work_reports_its_progress(
    orders: tuple[FileIO, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once a minute."""
    worker = opened(orders[0], tmp_path, "maildir")
    for work in (worker.fill, worker.check, worker.verify):
        worker._reported_s = -60.0
        work()
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [{"progress": 0.0}] * 3
