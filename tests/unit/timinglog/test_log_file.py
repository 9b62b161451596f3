"""The timing log as a file: records are read as written, or damage to the file is found."""

from __future__ import annotations

import errno
import io
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from named_records import MailRecord, TaskRecord
from paths import ROOT
from timing_samples import only

from loadsim.errors import LogError
from loadsim.model.records import CLOCKS, EVENTS, LOOP, OUTCOMES
from loadsim.model.terms import MOST_USERS
from loadsim.scenario.limits import Limits
from loadsim.timinglog import container
from loadsim.timinglog.exports import COLUMNS
from loadsim.timinglog.facts import LogFacts
from loadsim.timinglog.reader import read_log
from loadsim.timinglog.records import COMMAND, MAIL, NEVER, TASK
from loadsim.timinglog.writer import MOST_NAMES, TimingLogWriter

EPOCH_NS = 5_000_000_000
HEADER = {"run": "r1", "client": "c1", "engine": "0", "users": 4, "engine_users": 4, "criteria": only({})}
BASIC_TASK = TaskRecord(
    *("READ", 1, "medium", "imap"),
    *(EPOCH_NS + 1_000_000_000, EPOCH_NS + 1_250_000_000, EPOCH_NS + 1_300_000_000),
    *(0.25, 0.0, 0.0, 0.0, 0.0, "ok", "", 100, LOOP),
)


def write_sample(path: Path, flushes: int = 3) -> list[int]:
    """A log with records of every kind in each of some flushes; the sizes of the file after each, head included."""
    writer = TimingLogWriter(path, HEADER, EPOCH_NS)
    sizes = [path.stat().st_size]
    for number in range(flushes):
        writer.task(BASIC_TASK._replace(user=number, error=f"error {number}"))
        writer.mail(
            MailRecord(event="seen", message=f"n1.{number}", user=2, sender=1, at_ns=EPOCH_NS + number, folder="INBOX")
        )
        writer.command(("IMAP NOOP", number, EPOCH_NS, EPOCH_NS + 2000, "ok", 9, 8))
        writer.health({"cpu": number})
        writer.facts({"flushes": number})
        assert writer.flush() is None
        sizes.append(path.stat().st_size)
    writer.close()
    return sizes


def block_ends(path: Path) -> list[tuple[int, int]]:
    with path.open("rb") as file:
        _, begin = container.read_head(str(path), file)
        return [(begin, 0)] + [(block.end, block.kind) for block in container.whole_blocks(file, begin)]


@given(
    payloads=st.lists(st.binary(max_size=30), max_size=8),
    begin=st.integers(0, 20),
    read_bytes=st.integers(1, 50),
    missing=st.integers(0, 60),
)
def test_blocks_do_not_depend_on_how_much_is_read_at_once(
    payloads: list[bytes], begin: int, read_bytes: int, missing: int
) -> None:
    """Also of a file that is cut off in a block or in its head."""
    blocks = [container.encode_block(1 + number % 6, payload) for number, payload in enumerate(payloads)]
    data = bytes(begin) + b"".join(blocks)
    left = data[: max(begin, len(data) - missing)]
    ends = [begin + end for end in accumulate(map(len, blocks))]
    expected = [
        (1 + number % 6, payload, end - len(payload), end)
        for number, (payload, end) in enumerate(zip(payloads, ends, strict=True))
        if end <= len(left)
    ]
    found = container.whole_blocks(io.BytesIO(left), begin, read_bytes)
    assert [(block.kind, block.payload, block.begin, block.end) for block in found] == expected


def test_users_beyond_the_most_are_rejected(tmp_path: Path) -> None:
    """No scenario has them, and tables by user would be as large as their number."""
    for user in (MOST_USERS, MOST_USERS + 1):
        writer = TimingLogWriter(tmp_path / f"{user}.tlog", HEADER, EPOCH_NS)
        writer.task(BASIC_TASK._replace(user=user))
        writer.close()
    assert read_log(tmp_path / f"{MOST_USERS}.tlog").tasks["user"].tolist() == [MOST_USERS]
    with pytest.raises(LogError, match=f"user: expected one of {MOST_USERS}, found user {MOST_USERS + 1}"):
        read_log(tmp_path / f"{MOST_USERS + 1}.tlog")


def test_instants_count_from_the_common_start(tmp_path: Path) -> None:
    """After `start_ns` is known, t = 0 is there, for records that were written before, too; what never was stays so."""
    writer = TimingLogWriter(tmp_path / "a.tlog", HEADER, EPOCH_NS)
    writer.task(BASIC_TASK)
    writer.task(BASIC_TASK._replace(started_ns=None, ended_ns=None, outcome="skipped"))
    writer.mail(MailRecord(event="accepted", message="n1.0", user=2, sender=1, at_ns=EPOCH_NS + 700_000_999, folder=""))
    writer.command(("IMAP NOOP", 1, EPOCH_NS, EPOCH_NS + 7_000, "ok", 1, 2))
    writer.health({"at_ns": EPOCH_NS + 3_000_000_000, "cpu": 0.5})
    writer.facts({"start_ns": EPOCH_NS + 1_000_000_000})
    writer.close()
    log = read_log(tmp_path / "a.tlog")
    assert log.tasks["scheduled_us"].tolist() == [0, 0]
    assert log.tasks["started_us"].tolist() == [250_000, NEVER]
    assert log.tasks["ended_us"].tolist() == [300_000, NEVER]
    assert log.mails["at_us"].tolist() == [-300_000]
    assert (log.commands["started_us"].item(), log.commands["took_us"].item()) == (-1_000_000, 7)
    maker = {"client": "c1", "engine": "0", "run": "r1"}
    assert log.health == ({**maker, "at_ns": EPOCH_NS + 3_000_000_000, "cpu": 0.5, "at_s": 2.0},)


def test_every_field_is_read_as_written(tmp_path: Path) -> None:
    writer = TimingLogWriter(tmp_path / "a.tlog", HEADER, EPOCH_NS)
    clocks = [CLOCKS[number % len(CLOCKS)] for number in range(len(OUTCOMES))]
    for outcome, clock in zip(OUTCOMES, clocks, strict=True):
        late = {"late_generator_s": 0.5, "late_between_s": 0.125}
        writer.task(BASIC_TASK._replace(outcome=outcome, error=f"NO {outcome}", clock=clock, **late))
    for event in EVENTS:
        writer.mail(MailRecord(event=event, message="r" + "a" * 16, user=7, sender=8, at_ns=EPOCH_NS, folder="Täglich"))
    writer.facts({"lost_users": 1, "undelivered": 1})
    writer.facts({"undelivered": 2, "of a later version": 3})
    writer.close()
    log = read_log(tmp_path / "a.tlog")
    assert [OUTCOMES[code] for code in log.tasks["outcome"]] == list(OUTCOMES)
    assert log.names(log.tasks, "error").tolist() == [f"NO {outcome}" for outcome in OUTCOMES]
    assert set(log.names(log.tasks, "task")) == {"READ"} and set(log.names(log.tasks, "profile")) == {"medium"}
    assert set(log.names(log.tasks, "protocol")) == {"imap"} and set(log.names(log.tasks, "client")) == {"c1"}
    assert set(log.names(log.mails, "engine")) == {"0"}
    assert log.tasks["bytes"].tolist() == [100] * len(OUTCOMES)
    assert log.tasks["late_busy_s"][0] == 0.25 and log.tasks["late_generator_s"][0] == 0.5
    assert log.tasks["late_between_s"][0] == 0.125
    assert [CLOCKS[code] for code in log.tasks["clock"]] == clocks
    assert [EVENTS[code] for code in log.mails["event"]] == list(EVENTS)
    assert set(log.mails["message"]) == {b"raaaaaaaaaaaaaaaa"}
    assert set(log.names(log.mails, "folder")) == {"Täglich"}
    assert (log.mails["user"][0], log.mails["sender"][0]) == (7, 8)
    assert log.sources[0].facts == LogFacts(lost_users=1, undelivered=2)
    assert log.header.users == 4


def test_numbers_that_do_not_fit_saturate(tmp_path: Path) -> None:
    """Five gigabytes and two hours stay what they mean: at least the largest number."""
    writer = TimingLogWriter(tmp_path / "a.tlog", HEADER, EPOCH_NS)
    writer.task(BASIC_TASK._replace(moved_bytes=5 << 30))
    writer.command(("IMAP FETCH", 1, EPOCH_NS, EPOCH_NS + 7200 * 10**9, "ok", 1, 5 << 30))
    writer.close()
    log = read_log(tmp_path / "a.tlog")
    assert log.tasks["bytes"].item() == log.commands["received_bytes"].item() == 2**32 - 1
    assert log.commands["took_us"].item() == 2**32 - 1


def test_names_beyond_the_table_are_other(tmp_path: Path) -> None:
    writer = TimingLogWriter(tmp_path / "a.tlog", HEADER, EPOCH_NS)
    for number in range(MOST_NAMES):
        writer.task(BASIC_TASK._replace(profile=f"profile {number}"))
    writer.close()
    log = read_log(tmp_path / "a.tlog")
    profiles = log.names(log.tasks, "profile")
    assert profiles[0] == "profile 0" and profiles[-1] == "other"
    assert set(log.names(log.tasks, "task")) == {"READ"} and set(log.names(log.tasks, "client")) == {"c1"}


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_a_log_cut_anywhere_is_read_up_to_its_last_whole_block(tmp_path_factory: Any, data: st.DataObject) -> None:
    """Cut at any byte: refused when the head is not whole, otherwise all whole blocks, and word of what is missing."""
    directory = tmp_path_factory.mktemp("cut")
    write_sample(directory / "whole.tlog")
    whole = (directory / "whole.tlog").read_bytes()
    ends = block_ends(directory / "whole.tlog")
    cut = data.draw(st.integers(0, len(whole) - 1))
    (directory / "cut.tlog").write_bytes(whole[:cut])
    if cut < ends[0][0]:
        with pytest.raises(LogError, match=r"cut\.tlog"):
            read_log(directory / "cut.tlog")
        return
    log = read_log(directory / "cut.tlog")
    kinds = [kind for end, kind in ends if end <= cut]
    assert (len(log.tasks), len(log.mails), len(log.commands)) == tuple(
        kinds.count(kind) for kind in (container.TASKS, container.MAILS, container.COMMANDS)
    )
    unread = cut - max(end for end, _ in ends if end <= cut)
    if unread:
        assert log.damages == (f"cut.tlog: the last {unread} of {cut} bytes are cut off or damaged, and were not read",)
    else:
        assert not log.damages


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_a_flipped_bit_is_found(tmp_path_factory: Any, data: st.DataObject) -> None:
    """One wrong bit anywhere is refused (in the head) or ends the reading before its block, and is told."""
    directory = tmp_path_factory.mktemp("flip")
    write_sample(directory / "whole.tlog")
    broken = bytearray((directory / "whole.tlog").read_bytes())
    ends = [end for end, _ in block_ends(directory / "whole.tlog")]
    place = data.draw(st.integers(0, len(broken) - 1))
    broken[place] ^= 1 << data.draw(st.integers(0, 7))
    (directory / "flip.tlog").write_bytes(broken)
    if place < ends[0]:
        with pytest.raises(LogError):
            read_log(directory / "flip.tlog")
        return
    log = read_log(directory / "flip.tlog")
    assert f"the last {len(broken) - max(end for end in ends if end <= place)} of" in str(log.damages)


class NarrowDisk:
    """A file on a disk with room for some bytes; room can be made."""

    def __init__(self, file: Any, room: int) -> None:
        self.file, self.room, self.name = file, room, file.name

    def write(self, data: bytearray) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written: int = self.file.write(bytes(data[: self.room]))
        self.room -= written
        return written

    def fileno(self) -> int:
        number: int = self.file.fileno()
        return number

    def __enter__(self) -> NarrowDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


@given(room=st.integers(0, 300))
@settings(deadline=None, max_examples=40)
def test_a_full_disk_loses_nothing_while_the_process_lives(tmp_path_factory: Any, room: int) -> None:
    """Records that do not fit stay in memory, flush reports it, and they are written in order once there is room."""
    path = tmp_path_factory.mktemp("full") / "a.tlog"
    writer = TimingLogWriter(path, HEADER, EPOCH_NS)
    disk = NarrowDisk(writer._file, room)
    writer._file = disk  # type: ignore[assignment]
    for number in range(20):
        writer.task(BASIC_TASK._replace(user=number))
    failure = writer.flush()
    assert failure is not None and failure.startswith("No space left on device; ")
    for number in range(20, 40):
        writer.task(BASIC_TASK._replace(user=number))
    disk.room = 1 << 20
    assert writer.flush() is None
    writer.close()
    log = read_log(path)
    assert not log.damages
    assert log.tasks["user"].tolist() == list(range(40))


def test_closing_on_a_full_disk_raises(tmp_path: Path) -> None:
    writer = TimingLogWriter(tmp_path / "a.tlog", HEADER, EPOCH_NS)
    writer._file = NarrowDisk(writer._file, 10)  # type: ignore[assignment]
    writer.task(BASIC_TASK)
    with pytest.raises(OSError, match=r"a\.tlog.*No space left on device.*lost"):
        writer.close()


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    """Two engines with one name are a mistake that must not cost a log."""
    write_sample(tmp_path / "a.tlog")
    before = (tmp_path / "a.tlog").read_bytes()
    with pytest.raises(FileExistsError):
        TimingLogWriter(tmp_path / "a.tlog", HEADER, EPOCH_NS)
    assert (tmp_path / "a.tlog").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "found an empty file"),
        (b"scheduled_s,started_s\n", "found another kind of file"),
        (b"LSTLOG\r\n", "cut off in its head"),
        (b"LSTLOG\r\n\x01\x00" + bytes(8), "format 5, found format 1: use the version of loadsim that wrote it"),
        (b"LSTLOG\n\x02\x00" + bytes(30), "found another kind of file"),
    ],
)
def test_anything_but_a_timing_log_is_refused_in_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "x.tlog").write_bytes(content)
    with pytest.raises(LogError) as refused:
        read_log(tmp_path / "x.tlog")
    assert str(tmp_path / "x.tlog") in str(refused.value) and says in str(refused.value)
    assert "\n" not in str(refused.value)


REFERENCE = ROOT / "docs" / "reference" / "timing-log.md"


@pytest.mark.parametrize(
    ("said", "users"),
    [
        ({}, None),
        ({"hand": None}, None),
        ({"hand": {"users": 8, "step": 2**31, "begin": 0, "end": 1}}, [2, 4, 6, 8]),  # they come around to place 0
    ],
)
def test_a_log_states_its_users(tmp_path: Path, said: dict[str, Any], users: list[int] | None) -> None:
    TimingLogWriter(tmp_path / "a.tlog", HEADER | said, EPOCH_NS).close()
    (source,) = read_log(tmp_path / "a.tlog").sources
    assert (source.users, source.assignment and list(source.assignment)) == (4, users)


@pytest.mark.parametrize(("name", "record"), [("task", TASK), ("mail", MAIL), ("command", COMMAND)])
def test_the_reference_describes_every_field_of_a_record(name: str, record: np.dtype[np.void]) -> None:
    types = {"i8": "i64", "f4": "f32", "u4": "u32", "u2": "u16", "u1": "u8", "S20": "20 bytes"}
    fields = [f"`{field}` {types[kind.strip('<|')]}" for field, kind, *_ in record.descr]
    assert f"| {name} | {', '.join(fields)} |" in REFERENCE.read_text(encoding="utf-8")


def test_the_reference_lists_every_stable_name() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    assert f"Outcomes, from 0: {', '.join(f'`{outcome}`' for outcome in OUTCOMES)}." in text
    begin = text.index("Events, from 0:")
    events = text[begin : text.index(" Numbers", begin)]
    assert events.split("`")[1::2] == list(EVENTS)
    names = {*COLUMNS, *(f"limits.{name}" for name in Limits().in_header())}
    assert {name for name in names if f"`{name}`" not in text} == set()
