"""Logs larger than memory: with pieces of any size, records and answers are the same."""

import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_samples import decoded, done, event, ms, skipped, write_sample

from loadsim.analysis.summary import summarise, summary_of
from loadsim.cli.report import document_of
from loadsim.errors import LogError
from loadsim.model.records import CommandFields
from loadsim.timinglog import container, file, reader
from loadsim.timinglog.merge import merge, read_logs
from loadsim.timinglog.reader import read_log
from loadsim.timinglog.records import INSTANTS, NAMED_TASK, NAMES, NEVER

FEW = settings(deadline=None, max_examples=25)

Engine = tuple[list[dict[str, Any]], list[dict[str, Any]], list[CommandFields]]


@contextmanager
def little_memory(records: int) -> Iterator[None]:
    """For so many records of a kind at a time; what needs more is read in parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file, "GROUP_RECORDS", max(1, records // 2))
        patch.setattr(reader, "WHOLE_RECORDS", records)
        patch.setattr("loadsim.analysis.delivery.WHOLE_RECORDS", records)
        yield


def command(name: str, at_ms: float, took_us: int, outcome: str) -> CommandFields:
    return name, 1, ms(at_ms), ms(at_ms) + took_us * 1000, outcome, 1, 2


TASKS = st.builds(
    lambda name, due, late, took, user, ended: (
        done(name, due * 100, took, late_ms=late, user=user, late_generator_s=late / 7000)
        if ended
        else skipped(name, due * 100, user=user)
    ),
    st.sampled_from(["READ", "SEND", "LOGON", "SYNC"]),
    st.integers(-20, 60),
    st.integers(0, 3),
    st.integers(0, 50),
    st.integers(1, 4),
    st.booleans(),
)
MAILS = st.builds(
    event,
    st.sampled_from(["accepted", "seen", "found"]),
    st.sampled_from(["n1.0", "n1.1", "r2.7"]),
    st.integers(1, 5),
    st.integers(0, 4000),
)
COMMANDS = st.builds(
    command,
    st.sampled_from(["IMAP NOOP", "SMTP DATA"]),
    st.integers(-5, 4000),
    st.integers(0, 9),
    st.sampled_from(["ok", "refused"]),
)
ENGINES = st.lists(
    st.tuples(st.lists(TASKS, max_size=12), st.lists(MAILS, max_size=12), st.lists(COMMANDS, max_size=6)),
    min_size=1,
    max_size=4,
)


def write_engines(directory: Path, engines: Sequence[Engine], mode: str = "canonical") -> list[Path]:
    return [
        write_sample(
            directory / f"c.{number}.tlog",
            *records,
            header={
                "engine": str(number),
                "users": 8,
                "hand": {"users": 8, "step": 1, "begin": 1 + 2 * number, "end": 3 + 2 * number},
                "mode": mode,
            },
            flush_every=3,
        )
        for number, records in enumerate(engines)
    ]


@pytest.mark.slow
@FEW
@given(engines=ENGINES, records=st.integers(1, 9), mode=st.sampled_from(["canonical", "stress"]))
def test_a_log_in_parts_gives_the_same_records_and_answer(
    tmp_path_factory: pytest.TempPathFactory, engines: list[Engine], records: int, mode: str
) -> None:
    """Records and answer of a merged log do not depend on how much of it is in memory, or on the order of its logs."""
    paths = write_engines(tmp_path_factory.mktemp("parts"), engines, mode)
    whole = read_logs(paths)
    assert sorted(map(repr, decoded(whole))) == sorted(repr(row) for path in paths for row in decoded(read_log(path)))
    expected = decoded(whole), summary_of(whole, commands=True).score
    with little_memory(records):
        log = merge([read_log(path) for path in reversed(paths)])
        assert (decoded(log), summary_of(log, commands=True).score) == expected


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(engines=ENGINES, records=st.integers(1, 9), mode=st.sampled_from(["canonical", "stress"]))
def test_a_log_in_parts_gives_the_same_report(
    tmp_path_factory: pytest.TempPathFactory, engines: list[Engine], records: int, mode: str
) -> None:
    """Every figure of every table and chart, however many records are in memory or worked on at a time."""
    place = tmp_path_factory.mktemp("parts")
    write_engines(place, engines, mode)
    whole = document_of([str(place)])
    with little_memory(records):
        assert document_of([str(place)]) == whole


@FEW
@given(
    took_us=st.lists(st.lists(st.integers(0, 2**33), min_size=1, max_size=30), min_size=1, max_size=4),
    records=st.integers(1, 9),
)
def test_percentiles_are_numpys_over_all_logs(
    tmp_path_factory: pytest.TempPathFactory, took_us: list[list[int]], records: int
) -> None:
    """Nearest rank on the union of what all engines measured, exactly, and times that one of them did measure."""
    directory = tmp_path_factory.mktemp("percentiles")
    for number, durations_us in enumerate(took_us):
        tasks = [done("READ", at, 0, ended_ns=ms(at) + 1000 * took) for at, took in enumerate(durations_us)]
        write_sample(directory / f"{number}.tlog", tasks, header={"engine": str(number)}, flush_every=4)
    with little_memory(records):
        (task,) = summarise([directory]).score["tasks"]
    together = np.concatenate([np.array(durations_us, np.int64) for durations_us in took_us])
    for percent, found_ms in ((50, task["p50_ms"]), (95, task["p95_ms"])):
        expected_us = np.percentile(together, percent, method="inverted_cdf")
        assert found_ms == expected_us / 1000 and round(found_ms * 1000) in together


@FEW
@given(
    tasks=st.lists(TASKS, min_size=1, max_size=12),
    shift_us=st.sampled_from([0, 5, -(10**9)]),
    change=st.sampled_from([None, 1, 3]),
    which=st.lists(st.integers(0, 11), min_size=1),
)
def test_columns_have_the_values_of_the_records(
    tmp_path_factory: pytest.TempPathFactory,
    tasks: list[dict[str, Any]],
    shift_us: int,
    change: int | None,
    which: list[int],
) -> None:
    """Moved, renumbered and chosen column by column, they are what the records come to one by one."""
    (stream,) = read_log(write_sample(tmp_path_factory.mktemp("columns") / "a.tlog", tasks)).streams["tasks"]
    (stored,) = stream.pieces()
    places = np.array(which) % len(stored)
    renumber = None if change is None else np.arange(50, dtype=np.uint16)[::-1] * change
    (columns,) = (piece.kept(places) for piece in stream.moved(renumber, shift_us).pieces())
    expected = []
    for place in places.tolist():
        record = dict(zip(NAMED_TASK.names or (), stored.records()[place].tolist(), strict=True))
        for name in INSTANTS:
            if name in record and record[name] != NEVER:
                record[name] += shift_us
        for name in NAMES if change is not None else ():
            if name in record:
                record[name] = (49 - record[name]) * change
        expected.append(tuple(record.values()))
    assert columns.records().tolist() == expected
    assert list(zip(*(columns[name].tolist() for name in NAMED_TASK.names or ()), strict=True)) == expected


@FEW
@given(tasks=st.lists(TASKS, min_size=1, max_size=30), shift_us=st.sampled_from([0, 5]))
def test_records_by_name_are_all_records_in_groups(
    tmp_path_factory: pytest.TempPathFactory, tasks: list[dict[str, Any]], shift_us: int
) -> None:
    """One group for each name and user, in order, with the columns that its records have by themselves."""
    (stream,) = read_log(write_sample(tmp_path_factory.mktemp("by") / "a.tlog", tasks)).streams["tasks"]
    (piece,) = stream.moved(None, shift_us).pieces()
    groups = list(piece.by("task", "user"))
    keys = [(int(group["task"][0]), int(group["user"][0])) for group in groups]
    assert keys == sorted({*zip(piece["task"].tolist(), piece["user"].tolist(), strict=True)})
    by_key = sorted(piece.records().tolist(), key=lambda row: (row[NAME], row[USER]))  # stable, as groups are
    assert [row for group in groups for row in group.records().tolist()] == by_key
    for group in groups:
        some = group.kept(group["ended_us"] != NEVER)
        assert some.records().tolist() == [row for row in group.records().tolist() if row[ENDED] != NEVER]


NAME, USER, ENDED = ((NAMED_TASK.names or ()).index(name) for name in ("task", "user", "ended_us"))


def test_a_log_removed_while_in_use_is_one_line(tmp_path: Path) -> None:
    """Records are read when they are wanted; then the file may be gone, or shorter."""
    path = write_sample(tmp_path / "a.tlog", [done("READ", 0, 1)])
    log = read_log(path)
    data = path.read_bytes()
    path.write_bytes(data[:100])
    with pytest.raises(LogError, match=r"a\.tlog: expected 62 bytes at byte \d+, found that the file was truncated"):
        len(log.tasks)
    path.unlink()
    with pytest.raises(LogError, match=r"a\.tlog: expected to read it again, found: No such file"):
        len(log.tasks)


@pytest.mark.parametrize("byte", [3, 4])
def test_a_block_with_a_huge_stated_length_is_rejected(tmp_path: Path, byte: int) -> None:
    """A flipped bit in its length: what follows is found wrong, or not read at all."""
    path = write_sample(tmp_path / "a.tlog", [done("READ", at, 1) for at in range(50)], flush_every=10)
    assert len(read_log(path).tasks) == 50 and not read_log(path).damages
    data = bytearray(path.read_bytes())
    with path.open("rb") as file:
        _, begin = container.read_head("", file)
        blocks = list(container.whole_blocks(file, begin))
    before = blocks[[block.kind for block in blocks].index(container.TASKS) - 1]
    data[before.end + byte] ^= 8  # of the length (u32 after the kind): 512 KiB or 128 MiB more
    path.write_bytes(data + bytes(1 << 20))
    log = read_log(path)
    assert len(log.tasks) == 0 and log.damages


def test_blocks_without_records_take_no_memory(tmp_path: Path) -> None:
    """Only a file that is meant to fill its reader's memory has them."""
    path = write_sample(tmp_path / "a.tlog", [done("READ", 0, 1)])
    path.write_bytes(path.read_bytes() + container.encode_block(container.MAILS, b"") * 20_000)
    tracemalloc.start()
    try:
        log = read_log(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert (len(log.tasks), len(log.mails), log.damages) == (1, 0, ())
