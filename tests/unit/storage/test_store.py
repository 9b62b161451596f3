"""The stores: what was stored is there after a restart, and any changed byte is found."""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import product
from pathlib import Path
from tempfile import NamedTemporaryFile

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_recordings import flip

from loadsim.storage.database import DatabaseStore
from loadsim.storage.file_store import FileStore
from loadsim.storage.layouts import ROTATE_BYTES, open_maildir, open_mdbox, open_sdbox
from loadsim.storage.messages import MAILBOX_BITS, StoredMessages, version_of
from loadsim.storage.page_cache import absent_bytes, drop
from loadsim.storage.pages import PAGE_BYTES, is_sound
from loadsim.storage.places import most_bytes
from loadsim.storage.scenario import OF_FILES, StorageScenario
from loadsim.storage.store import Damaged, Io, Store, StoreSettings, summed

OPENERS: dict[str, Callable[[StoreSettings], Store]] = {
    "database": DatabaseStore,
    "maildir": open_maildir,
    "sdbox": open_sdbox,
    "mdbox": open_mdbox,
}
MESSAGES = StoredMessages(7, 20_000)
KEYS = [mailbox << MAILBOX_BITS | number for mailbox in range(2) for number in range(6)]

Opened = Callable[[], Store]


def opener(kind: str, directory: Path, cache_bytes: int = 1 << 20) -> Opened:
    """Return a function that opens the store of a directory."""
    directory.mkdir(exist_ok=True)
    return lambda: OPENERS[kind](StoreSettings(directory, True, 2, cache_bytes, 1 << 20, 0))


@pytest.fixture(params=sorted(OPENERS))
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    return opener(request.param, tmp_path / "store")


def filled(store: Store) -> None:
    for number, key in enumerate(KEYS):
        store.insert(key, MESSAGES.make(key, 0), durable=number % 2 == 0)


def test_a_store_returns_stored_messages(opened: Opened) -> None:
    """Before and after it was closed: inserted, replaced and deleted messages."""
    store = opened()
    filled(store)
    store.replace(KEYS[1], MESSAGES.make(KEYS[1], 1) if store.transactional else None, durable=True)
    store.delete(KEYS[2], durable=True)
    store.delete(KEYS[3], durable=False)
    expected = {key: int(key == KEYS[1] and store.transactional) for key in KEYS if key not in KEYS[2:4]}
    for again in (store, None):
        with closing(again or opened()) as now:
            assert {key: version_of(key, now.read(key)) for key in now.stored_keys()} == expected
            assert now.read(KEYS[2]) is None
            assert [each.damaged for each in now.check() if each.damaged] == []


@pytest.mark.parametrize("mean_bytes", [1024, 20_000])
def test_a_store_takes_at_most_its_computed_space(mean_bytes: int, opened: Opened, tmp_path: Path) -> None:
    scenario = StorageScenario(
        mailboxes=2, mailbox_size=300 * mean_bytes, message_size=mean_bytes, iops_per_mailbox=1.0
    )
    messages, store = StoredMessages(1, mean_bytes), opened()
    for mailbox, number in product(range(2), range(300)):
        key = mailbox << MAILBOX_BITS | number
        store.insert(key, messages.make(key, 0), durable=False)
    store.recover()
    store.close()
    files = [path.stat() for path in tmp_path.rglob("*") if path.is_file()]
    taken = sum(512 * file.st_blocks for file in files)
    assert taken > 600 * mean_bytes
    assert taken <= most_bytes(scenario, 2)


@pytest.mark.parametrize(
    ("offset", "size", "pages"), [(0, 0, 0), (1, 1, 1), (4095, 2, 2), (0, 8192, 2), (9000, 100, 1)]
)
def test_asking_what_is_not_cached_reads_nothing(offset: int, size: int, pages: int) -> None:
    """The answer is the same a second time; a file that was just written is all there."""
    with NamedTemporaryFile(dir="/var/tmp", buffering=0) as file:  # /tmp may be in memory
        file.write(os.urandom(3 * mmap.PAGESIZE))
        assert absent_bytes(file.fileno(), offset, size) == 0
        drop(Path(file.name), written=True)
        for _ in range(2):
            assert absent_bytes(file.fileno(), offset, size) == min(size, pages * mmap.PAGESIZE)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(file.fileno(), 1, 0)
        assert absent_bytes(file.fileno(), 0, 3 * mmap.PAGESIZE) == 2 * mmap.PAGESIZE


def test_every_durable_change_waits_for_the_device(opened: Opened) -> None:
    with closing(opened()) as store:
        store.io.take()
        store.insert(KEYS[0], MESSAGES.make(KEYS[0], 0), durable=False)
        lazy = summed([store.io.take()])
        store.insert(KEYS[1], MESSAGES.make(KEYS[1], 0), durable=True)
        durable = summed([store.io.take()])
        assert lazy[Io.LOG_WRITE].count == 0
        assert durable[Io.LOG_WRITE].count >= 1
        assert durable[Io.LOG_WRITE].bytes > 0


def test_syncs_without_a_waiting_change_are_no_log_writes(tmp_path: Path) -> None:
    """SQLite syncs its log at a checkpoint, and when it starts again."""
    with closing(opener("database", tmp_path / "store")()) as store:
        store.io.take()
        for number in range(200):
            store.insert(key := KEYS[0] + number, MESSAGES.make(key, 0), durable=False)
            store.settle()
        found = summed([store.io.take()])
        assert found[Io.LOG_WRITE].count == 0
        assert found[Io.SYNC].count > 0
        store.insert(key := KEYS[-1], MESSAGES.make(key, 0), durable=True)
        assert summed([store.io.take()])[Io.LOG_WRITE].count == 1


def test_maintenance_reads_all_messages_repeatedly(opened: Opened) -> None:
    with closing(opened()) as store:
        filled(store)
        store.recover()
        stored = sum(len(MESSAGES.make(key, 0)) for key in KEYS)
        seen = [store.maintain() for _ in range(12)]
        assert sum(each.bytes for each in seen) >= 2 * stored
        assert not any(each.damaged for each in seen)


@pytest.mark.parametrize(
    ("kind", "pattern", "offset", "named"),
    [
        ("database", "mail.db", -3 * PAGE_BYTES // 2, "mail.db: page "),
        ("maildir", "new/*", 9000, "message "),
        ("maildir", "new/*", -1, "message "),
        ("maildir", "dovecot-uidlist", 20, "000001/dovecot-uidlist: record 1"),
        ("maildir", "dovecot-uidlist", -1, "000001/dovecot-uidlist: record 6"),
        ("sdbox", "u.*", 0, "message "),
        ("sdbox", "u.*", -1, "message "),
        ("sdbox", "*.log", 20, "dbox-Mails/dovecot.index.log: record 1"),
        ("mdbox", "m.*", 0, "message 0"),
        ("mdbox", "m.*", -1, "message 10000000005"),
        ("mdbox", "*map*.log", -1, "storage/dovecot.map.index.log: record 12"),
    ],
)
def test_a_flipped_byte_is_found_and_named(kind: str, pattern: str, offset: int, named: str, tmp_path: Path) -> None:
    """Also where a record or file is only filled up."""
    opened = opener(kind, tmp_path / "store")
    with closing(opened()) as store:
        filled(store)
        store.recover()
    flip(largest(tmp_path / "store", pattern), offset)
    with closing(opened()) as store:
        (damage,) = [each.damaged for each in store.check() if each.damaged]
        assert damage.startswith(named)


def largest(directory: Path, pattern: str) -> Path:
    return max(directory.rglob(pattern), key=lambda path: (path.stat().st_size, path))


def test_a_recovery_replays_the_whole_log_once(tmp_path: Path) -> None:
    with closing(opener("database", tmp_path / "store")()) as store:
        filled(store)
        log_bytes = (tmp_path / "store" / "mail.db-wal").stat().st_size
        assert store.recover() == log_bytes - 32
        assert store.recover() == 0


def test_a_damaged_page_is_not_read_as_a_message(tmp_path: Path) -> None:
    opened = opener("database", tmp_path / "store", PAGE_BYTES)
    with closing(opened()) as store:
        filled(store)
        store.recover()
    flip(tmp_path / "store" / "mail.db", -PAGE_BYTES // 2)
    with closing(opened()) as store:
        damaged = 0
        for key in KEYS:
            try:
                assert version_of(key, store.read(key)) == 0
            except Damaged:
                damaged += 1
        assert damaged == 1


def test_a_page_that_is_being_written_is_not_damaged(tmp_path: Path) -> None:
    """Maintenance reads it again when the write is over."""
    directory = tmp_path / "store"
    with closing(opener("database", directory)()) as store:
        filled(store)
        store.recover()
        path = directory / "mail.db"
        sound = path.read_bytes()

        class Written:
            """Ends the write that is under way."""

            def __enter__(self) -> None:
                path.write_bytes(sound)

            def __exit__(self, *_: object) -> None: ...

        flip(path, PAGE_BYTES // 2)
        store._pages.writing = Written()  # type: ignore[attr-defined]
        assert store.maintain().damaged == ""


def test_a_page_that_is_only_in_the_log_is_not_damaged(tmp_path: Path) -> None:
    """The checkpoint of a log whose last changes a reader must not see writes pages behind it, and leaves a hole."""
    with closing(opener("database", tmp_path / "store")()) as store:
        assert isinstance(store, DatabaseStore)
        filled(store)
        reader = store._own  # of this thread; others change the database
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM message").get == len(KEYS)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(replaced_all, store).result()
            pool.submit(store._write_pages, apsw.SQLITE_CHECKPOINT_PASSIVE).result()
        holes = [page for page in pages(tmp_path / "store" / "mail.db") if not any(page)]
        assert holes
        assert not any(store.maintain().damaged for _ in range(12))
        reader.execute("COMMIT")
        assert not any(each.damaged for each in store.check())


def replaced_all(store: Store) -> None:
    for key in KEYS:
        store.replace(key, MESSAGES.make(key, 1), durable=False)


def pages(path: Path) -> list[bytes]:
    content = path.read_bytes()
    return [content[begin : begin + PAGE_BYTES] for begin in range(0, len(content), PAGE_BYTES)]


# --- stores of files ---


def test_files_of_a_killed_process_are_overwritten(tmp_path: Path) -> None:
    with closing(opener("maildir", tmp_path / "store")()) as store:
        (tmp_path / "store" / "000000" / "tmp" / "1").write_bytes(b"x" * 10**6)
        store.insert(1, MESSAGES.make(1, 0), durable=True)
        assert version_of(1, store.read(1)) == 0


@pytest.mark.parametrize("kind", OF_FILES)
def test_a_record_cut_by_a_killed_process_is_left_out(kind: str, tmp_path: Path) -> None:
    """Linux ends a write at the bound of a page, if it had to wait there when the process was killed."""
    opened = opener(kind, tmp_path / "store")
    with closing(opened()) as store:
        filled(store)
    logs = [path for path in (tmp_path / "store").rglob("dovecot*") if path.is_file()]
    for log in logs:
        os.truncate(log, log.stat().st_size - 5)
    with closing(opened()) as store:
        store.recover()
        filled(store)
        assert [each.damaged for each in store.check() if each.damaged] == []
        assert {log.name for log in logs} == {*store.files.record_bytes}  # type: ignore[attr-defined]


def test_a_file_emptied_by_a_crash_is_damaged(tmp_path: Path) -> None:
    with closing(opener("sdbox", tmp_path / "store")()) as store:
        filled(store)
        largest(tmp_path / "store", "u.*").write_bytes(b"")
        assert len([each for each in store.check() if each.damaged]) == 1


def test_a_log_rotated_by_another_thread_is_no_failure(tmp_path: Path) -> None:
    with closing(opener("sdbox", tmp_path / "store")()) as store:
        assert isinstance(store, FileStore)
        filled(store)
        (log, _) = store.files.logs()
        for _ in range(2):
            store.files.rotate(log)
        assert not log.exists()


def test_only_the_page_of_the_lock_byte_may_be_empty() -> None:
    """It is that of SQLite's file format: the first byte of the second GiB."""
    empty = bytes(PAGE_BYTES)
    assert [offset for offset in (0, PAGE_BYTES, 1 << 30, 1 << 31) if is_sound(empty, offset)] == [1 << 30]


# --- messages ---


@given(st.integers(0, 2**50), st.integers(0, 100))
@settings(max_examples=30)
def test_a_message_proves_its_key_and_version(key: int, version: int) -> None:
    message = MESSAGES.make(key, version)
    assert message == MESSAGES.make(key, version)
    assert version_of(key, message) == version
    assert version_of(key + 1, message) is None


@given(st.integers(0, 10_000), st.data())
@settings(max_examples=30)
def test_a_message_with_another_byte_proves_nothing(key: int, data: st.DataObject) -> None:
    message = bytearray(MESSAGES.make(key, 0))
    message[data.draw(st.integers(0, len(message) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert version_of(key, bytes(message)) is None


def test_messages_are_of_the_mean_size_and_neither_repeat_nor_compress() -> None:
    messages = [MESSAGES.make(key, 0) for key in range(2000)]
    content = b"".join(messages)
    assert len(content) / len(messages) == pytest.approx(20_000, rel=0.1)
    blocks = [content[begin : begin + 4096] for begin in range(0, len(content), 4096)]
    assert len(set(blocks)) == len(blocks)
    assert len(content[: 1 << 22]) / len(zlib.compress(content[: 1 << 22])) < 1.8


# --- mdbox ---


def test_files_that_were_mostly_deleted_are_purged(tmp_path: Path) -> None:
    store = opener("mdbox", tmp_path / "store")()
    assert isinstance(store, FileStore)
    large, keys = StoredMessages(7, 1 << 20), list(range(24))
    with closing(store):
        for key in keys:
            store.insert(key, large.make(key, 0), durable=False)
        first = {key for key in keys if (place := store.layout.place(key)) and place.path.name == "m.1"}
        for key in sorted(first)[:-1]:
            store.delete(key, durable=True)
        store.settle()
        assert not (tmp_path / "store" / "storage" / "m.1").exists()
        assert all(version_of(key, store.read(key)) == 0 for key in store.stored_keys())
        assert [*store.stored_keys()] == sorted({*keys} - {*sorted(first)[:-1]})
    assert all(path.stat().st_size < 3 * ROTATE_BYTES for path in (tmp_path / "store" / "storage").glob("m.*"))
