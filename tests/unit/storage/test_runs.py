"""`loadsim storage`: whole tests of a small store, killed processes, and what it refuses to touch."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from signal import SIGINT
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest
from storage_recordings import flip

from loadsim.cli import main
from loadsim.errors import ConfigError
from loadsim.storage.ledger import CHANGES, Ledger
from loadsim.storage.pages import PAGE_BYTES
from loadsim.storage.places import MARK, ROOT, check_room
from loadsim.storage.recording import RECORDING, End, read_recording
from loadsim.storage.runs import KernelLog
from loadsim.storage.scenario import OF_FILES, check_installed, load_storage

pytestmark = pytest.mark.slow

SMALL = ["mailboxes=4", "mailbox_size=2M", "databases=2", "cache=1M", "duration=1s", "threads=2", "message_size=20K"]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory on a disk: /tmp may be in memory, which is refused."""
    with TemporaryDirectory(dir="/var/tmp") as directory:
        yield Path(directory)


def storage(*words: str) -> int:
    settings = [word for setting in SMALL for word in ("--set", setting)]
    return main(["storage", *words[:2], *settings, *words[2:], "--quiet"])


def on(disk: Path | str, *keys: str) -> list[str]:
    """Return the words of a test on a disk, up to its directory."""
    settings = [word for setting in (f"directories=[{disk}]", *keys) for word in ("--set", setting)]
    return ["storage-quickstart", *settings, "--out"]


def result(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "storage.json").read_text())
    return found


STORES = ["database", *(pytest.param(store, marks=pytest.mark.nightly(part="runs")) for store in OF_FILES)]


@pytest.mark.parametrize("store", STORES)
def test_a_test_loads_and_verifies_a_store_and_removes_it(store: str, tmp_path: Path) -> None:
    """Real processes and a real disk: what matters is that all was there, not how fast it was."""
    out = tmp_path / "out"
    assert storage("run", "storage-quickstart", "--set", f"store={store}", "--out", str(out)) in (0, 1, 3)
    found = result(out)
    assert [each["name"] for each in found["databases"]] == ["db-001", "db-002"]
    assert [each["damaged"] for each in (*found["checked"], *found["proved"])] == [0] * 4
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "storage.json", RECORDING]
    recording = read_recording(out)
    for name in ("db-001", "db-002"):  # a thread ends after its operation, so that it makes at least one
        assert any(each["operations"] for each in recording.samples_of(name))
    parts = ["Filling the caches", "Measuring", "Verifying checksums", "Verifying messages", "End"]
    assert [part for _, part in recording.log] == parts


@pytest.mark.parametrize("store", STORES)
def test_nothing_acknowledged_is_lost_when_the_processes_are_killed(store: str, tmp_path: Path) -> None:
    """The processes are killed under load; then all that was durable is there, and the store can be used again."""
    disk, out = tmp_path / "disk", tmp_path / "out"
    disk.mkdir()
    given = on(disk, f"store={store}")
    assert storage("recover", *given, str(out)) == 0
    found = result(out)
    assert [each["damaged"] for each in (*found["checked"], *found["proved"])] == [0] * 4
    assert all(each["bytes"] > 0 for each in found["recovered"])
    assert storage("verify", *given, str(tmp_path / "again")) == 0
    assert (disk / ROOT / MARK).is_file()


def test_a_report_is_recreated_from_the_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert storage("backup", "storage-quickstart", "--out", str(out)) == 0
    first, answer = result(out), capsys.readouterr().out
    (out / "storage.json").unlink()
    assert main(["storage", "report", str(out)]) == 0
    assert result(out) == first
    assert capsys.readouterr().out == answer


@pytest.fixture(scope="module")
def recorded() -> str:
    """The recording of a backup."""
    with TemporaryDirectory(dir="/var/tmp") as out:
        assert storage("backup", "storage-quickstart", "--out", out) == 0
        return (Path(out) / RECORDING).read_text()


def test_a_truncated_recording_is_an_unfinished_test(recorded: str, tmp_path: Path) -> None:
    (tmp_path / RECORDING).write_text(recorded[:-5])
    assert read_recording(tmp_path).end is None
    assert main(["storage", "report", str(tmp_path)]) == 3


def lost(lines: list[str]) -> None:
    """The messages were not verified."""
    del lines[next(at for at, line in enumerate(lines) if line.startswith('["proved"'))]


def repeated(lines: list[str]) -> None:
    lines.insert(-2, lines[-3])


def exchanged(lines: list[str]) -> None:
    lines[1], lines[2] = lines[2], lines[1]


def ended_again(lines: list[str]) -> None:
    lines.append(lines[-1])


def altered(lines: list[str]) -> None:
    lines[0] = lines[0].replace("backup", "verify")


@pytest.mark.parametrize("change", [lost, repeated, exchanged, ended_again, altered])
def test_an_incomplete_recording_is_refused(change: Any, recorded: str, tmp_path: Path) -> None:
    """The missing part may hold a failure."""
    lines = recorded.splitlines(keepends=True)
    change(lines)
    (tmp_path / RECORDING).write_text("".join(lines))
    assert main(["storage", "report", str(tmp_path)]) == 2


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400"])
def test_a_recording_with_impossible_figures_is_refused(number: str, recorded: str, tmp_path: Path) -> None:
    """No comparison with NaN is true: no limit would be exceeded."""
    changed = re.sub(r'"took_s": [\d.]+', f'"took_s": {number}', recorded, count=1)
    assert changed != recorded
    (tmp_path / RECORDING).write_text(changed)
    assert main(["storage", "report", str(tmp_path)]) == 2


def test_a_store_that_ended_uncleanly_needs_recovery(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = on(tmp_path)
    assert storage("backup", *given, str(tmp_path / "1")) == 0
    (tmp_path / ROOT / "db-001" / CHANGES).write_text("before\n")
    assert storage("run", *given, str(tmp_path / "2")) == 2
    assert "db-001" in capsys.readouterr().err
    assert not (tmp_path / "2").exists()
    assert storage("recover", *given, str(tmp_path / "3")) == 3
    assert "machine-restarted" in str(result(tmp_path / "3")["verdict"]["findings"])
    assert storage("verify", *given, str(tmp_path / "4")) == 0
    assert "machine-restarted" not in str(result(tmp_path / "4")["verdict"]["findings"])


def test_interrupted_filling_begins_again(tmp_path: Path) -> None:
    given = on(tmp_path)
    assert storage("backup", *given, str(tmp_path / "1")) == 0
    (tmp_path / ROOT / "db-001" / "live").unlink()
    (tmp_path / ROOT / "db-001" / CHANGES).touch()
    assert storage("backup", *given, str(tmp_path / "2")) == 0
    assert storage("verify", *given, str(tmp_path / "3")) == 0


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("store=exchange", "store"),
        ("mailbox_size=12", "mailbox_size"),
        ("mailbox_size=0M", "mailbox_size"),
        ("message_size=3M", "message_size: expected at most mailbox_size (2097152)"),
        ("databases=5", "mailboxes"),
        ("lazy=2", "lazy"),
        ("mix={insert: 0, delete: 0, replace: 0, read: 0}", "mix"),
        ("thread=3", "threads"),
        ("iops_per_mailbox=0", "iops_per_mailbox"),
        ("directories=[/nowhere]", "directories"),
        ("duration=0s", "duration"),
        ("mailbox_size=900T", "directories"),
    ],
)
def test_bad_input_is_named_and_creates_nothing(
    setting: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert storage("run", "storage-quickstart", "--set", setting, "--out", str(out)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert key in line
    assert not out.exists()


def foreign(root: Path) -> None:
    root.mkdir()
    (root / "precious").write_text("mail")


def linked(root: Path) -> None:
    elsewhere = root.with_name("elsewhere")
    foreign(elsewhere)
    root.symlink_to(elsewhere)


def other_terms(root: Path) -> None:
    root.mkdir()
    (root / MARK).write_text("{}\n")


@pytest.mark.parametrize("made", [foreign, linked, other_terms])
def test_storage_writes_only_into_its_own_directory(made: Any, tmp_path: Path) -> None:
    made(tmp_path / ROOT)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert storage("run", *on(tmp_path), "/tmp/never") == 2
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_reserve_of_the_file_system_stays_free(tmp_path: Path) -> None:
    """The whole file system is the reserve: there is room for what is there already, and for nothing new."""
    scenario = load_storage("storage-quickstart", ["reserve=100%", "databases=1"])
    check_room(load_storage("storage-quickstart", ["reserve=0%", "databases=1"]), [(tmp_path, False)])
    with pytest.raises(ConfigError):
        check_room(scenario, [(tmp_path, False)])


def test_tests_that_add_nothing_need_no_space(tmp_path: Path) -> None:
    """As after a load that has reached the reserve."""
    given = ("storage-quickstart", "--set", f"directories=[{tmp_path}]", "--out")
    assert storage("backup", *given, str(tmp_path / "1")) == 0
    given = (*given[:-1], "--set", "reserve=100%", "--out")
    assert storage("verify", *given, str(tmp_path / "2")) == 0
    assert storage("run", *given, str(tmp_path / "3")) == 2
    Ledger(tmp_path / ROOT / "db-001").begin()  # as after a crash
    assert storage("recover", *given, str(tmp_path / "4")) == 0


def test_a_machine_without_the_store_is_refused() -> None:
    """On a client of a cluster: the file was read elsewhere."""
    with pytest.raises(ConfigError):
        check_installed(replace(load_storage("storage-quickstart"), store="elsewhere"))


def test_a_file_system_in_memory_is_refused(tmp_path: Path) -> None:
    with TemporaryDirectory(dir="/dev/shm") as memory:
        assert storage("backup", *on(memory), str(tmp_path / "1")) == 2
        assert list(Path(memory).iterdir()) == []
    assert list(tmp_path.iterdir()) == []


def test_a_signal_ends_a_queue(tmp_path: Path) -> None:
    settings = [word for each in (*SMALL, "threads=[1, 2]", "duration=20s") for word in ("--set", each)]
    command = [sys.executable, "-m", "loadsim", "storage", "run", "storage-quickstart", *settings, "--out", tmp_path]
    with Popen(command, stderr=PIPE, stdout=DEVNULL, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("Measuring"):
                process.send_signal(SIGINT)
    assert process.returncode == 3
    assert [path.name for path in tmp_path.glob("[0-9]")] == ["1"]


def test_further_signals_end_a_test_whose_disk_hangs(tmp_path: Path) -> None:
    """So does the process of a database that was stopped."""
    settings = [word for each in (*SMALL, "duration=20s") for word in ("--set", each)]
    command = [sys.executable, "-m", "loadsim", "storage", "run", "storage-quickstart", *settings, "--out", tmp_path]
    with Popen(command, stderr=PIPE, stdout=DEVNULL, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("Measuring"):
                psutil.Process(process.pid).children()[0].suspend()
                break
        while process.poll() is None:
            process.send_signal(SIGINT)
            with suppress(TimeoutExpired):
                process.wait(1.0)
    assert read_recording(tmp_path).end in (None, End(stopped=True, full=False, failure=None))


def test_a_queue_runs_each_test_once_and_removes_its_own_stores_only(tmp_path: Path) -> None:
    disk, queue = tmp_path / "disk", tmp_path / "queue"
    disk.mkdir()
    given = ("backup", "storage-quickstart", "--set", f"directories=[{disk}]")
    assert storage(*given, "--out", str(tmp_path / "first")) == 0
    (disk / ROOT / "kept").touch()  # by a user
    for _ in range(2):
        assert storage(*given, "--set", "mailboxes=[4, 6]", "--out", str(queue)) == 0
    assert (disk / ROOT / "kept").exists()
    assert [read_recording(path).scenario.mailboxes for path in sorted(queue.glob("[0-9]"))] == [4, 6]
    assert json.loads((disk / ROOT / MARK).read_text())["mailboxes"] == 6
    assert storage(*given, "--set", "mailboxes=[8, 10]", "--out", str(tmp_path / "other")) == 2
    assert json.loads((disk / ROOT / MARK).read_text())["mailboxes"] == 6


DATABASE, P = "store/mail.db", PAGE_BYTES
DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "emptied": (DATABASE, lambda old: b""),
    "cut": (DATABASE, lambda old: old[: -3 * P]),
    "zeroed": (DATABASE, lambda old: old[: 5 * P] + bytes(4 * P) + old[9 * P :]),
    "misdirected": (DATABASE, lambda old: old[: 5 * P] + old[8 * P : 9 * P] + old[6 * P :]),
    "first page": (DATABASE, lambda old: old[:200] + bytes([old[200] ^ 1]) + old[201:]),
    "ledger": ("live", lambda old: old[:-1] + b"\x07"),
}


@pytest.fixture(scope="module")
def recovered() -> Iterator[Path]:
    """A directory with a store of one database, whose log is empty."""
    with TemporaryDirectory(dir="/var/tmp") as directory:
        assert storage("recover", *on(directory, "databases=1"), f"{directory}/out") == 0
        yield Path(directory)


@pytest.mark.parametrize("damage", [*DAMAGES, "removed"])
def test_any_damage_of_a_database_fails_every_test(damage: str, recovered: Path, tmp_path: Path) -> None:
    given = on(tmp_path, "databases=1")
    copytree(recovered / ROOT, tmp_path / ROOT)
    name, damaged = DAMAGES.get(damage, (DATABASE, bytes))
    path = tmp_path / ROOT / "db-001" / name
    path.write_bytes(damaged(path.read_bytes()))
    if damage == "removed":
        path.unlink()
    for number, test in enumerate(("backup", "verify")):
        assert storage(test, *given, str(tmp_path / str(number))) == 1
        assert "stored-damaged" in str(result(tmp_path / str(number))["verdict"]["findings"])


@pytest.mark.parametrize(
    ("store", "pattern", "named"),
    [
        ("database", "mail.db-wal", "mail.db-wal: "),
        ("maildir", "new/*", "message "),
        ("mdbox", "dovecot.map.index.log", "dovecot.map.index.log: record "),
    ],
)
def test_a_flipped_byte_is_found_and_named(store: str, pattern: str, named: str, tmp_path: Path) -> None:
    """By a backup, and by the verification of messages."""
    given = on(tmp_path, "databases=1", "mailbox_size=200K", f"store={store}")
    assert storage("backup", *given, str(tmp_path / "filled")) == 0
    flip(max((tmp_path / ROOT).rglob(pattern), key=lambda path: path.stat().st_size), 100)
    for test in ("backup", "verify"):
        assert storage(test, *given, str(tmp_path / test)) == 1
        findings = result(tmp_path / test)["verdict"]["findings"]
        assert any(each["code"] == "stored-damaged" and named in str(each) for each in findings)


def test_a_lost_ledger_is_not_a_new_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given, place = on(tmp_path, "databases=1"), tmp_path / ROOT / "db-001"
    assert storage("backup", *given, str(tmp_path / "1")) == 0
    (place / "live").unlink()
    stored = (place / DATABASE).read_bytes()
    assert storage("verify", *given, str(tmp_path / "2")) == 2
    assert "db-001" in capsys.readouterr().err
    assert (place / DATABASE).read_bytes() == stored


@pytest.mark.parametrize(("level", "errors"), [(3, ["I/O error, dev sda"]), (4, []), (11, [])])
def test_errors_are_those_of_the_kernel(level: int, errors: list[str], tmp_path: Path) -> None:
    """Not warnings, and not what programs (facility 1) write to its log."""
    os.mkfifo(tmp_path / "kmsg")
    log = KernelLog(str(tmp_path / "kmsg"))
    writer = os.open(tmp_path / "kmsg", os.O_WRONLY)
    os.write(writer, b"%d,5140,3919,-;I/O error, dev sda\n SUBSYSTEM=block\n" % level)
    assert log.errors() == errors
    os.close(writer)


def test_errors_of_an_unreadable_kernel_log_are_unknown(tmp_path: Path) -> None:
    assert KernelLog(str(tmp_path / "kmsg")).errors() is None
