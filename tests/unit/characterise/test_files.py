"""Rotated and compressed files are read in the order of their times; lines without a year get the right one."""

import bz2
import gzip
import lzma
import os
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from loadsim.characterise.files import MailLog, examine, in_order
from loadsim.errors import ConfigError


def stored(path: Path, content: bytes, modified: datetime) -> Path:
    path.write_bytes(content)
    os.utime(path, (modified.timestamp(), modified.timestamp()))
    return path


def yearless(moments: list[datetime]) -> bytes:
    lines = (f"{at:%b} {at.day:2} {at:%H:%M:%S} mx1 postfix/qmgr[1]: {at:%Y}\n" for at in moments)
    return "".join(lines).encode()


def times(paths: list[Path]) -> list[datetime]:
    lines = in_order(examine(paths), lambda _: None)
    return [datetime(1970, 1, 1) + timedelta(seconds=line.when) for _, line in lines if line.when is not None]


def refused(*paths: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        list(in_order(examine([*paths]), lambda _: None))
    assert len(caught.value.lines) == 1
    return str(caught.value)


@pytest.mark.parametrize("rotated_after", [timedelta(0), timedelta(days=40)])
def test_rotated_files_over_a_years_turn(tmp_path: Path, rotated_after: timedelta) -> None:
    """Each file has its own modification time; one has the turn inside; one was copied later."""
    begin = datetime(2024, 12, 20, 1)
    moments = [begin + timedelta(hours=7 * number) for number in range(90)]
    parts = [moments[:30], moments[30:60], moments[60:]]
    packed: list[tuple[str, Callable[[bytes], bytes]]] = [
        ("mail.log.2.gz", gzip.compress),
        ("mail.log.1", bytes),
        ("mail.log", bytes),
    ]
    paths = [
        stored(tmp_path / name, pack(yearless(part)), part[-1].replace(tzinfo=UTC) + rotated_after)
        for (name, pack), part in zip(packed, parts, strict=True)
    ]
    assert times([paths[1], paths[2], paths[0]]) == moments


def test_a_leap_day_is_of_a_leap_year(tmp_path: Path) -> None:
    path = stored(tmp_path / "log", yearless([datetime(2024, 2, 29, 3)]), datetime(2025, 6, 1, tzinfo=UTC))
    assert times([path]) == [datetime(2024, 2, 29, 3)]


def test_a_late_line_of_the_old_year_does_not_turn_the_year(tmp_path: Path) -> None:
    moments = [datetime(2026, 1, 1, 0, 0, 1), datetime(2025, 12, 31, 23, 59, 59), datetime(2026, 1, 1, 0, 0, 2)]
    path = stored(tmp_path / "log", yearless(moments), datetime(2026, 1, 1, 5, tzinfo=UTC))
    assert times([path]) == moments


def test_lines_after_the_files_modification_are_refused(tmp_path: Path) -> None:
    """The file would span more than a year, or its time was set back: no year is right."""
    moments = [datetime(2024, 11, 1), datetime(2025, 1, 2), datetime(2025, 11, 5), datetime(2025, 12, 30)]
    path = stored(tmp_path / "log", yearless(moments), datetime(2025, 12, 30, 1, tzinfo=UTC))
    assert f"{path}: expected lines until the file's last modification (2025-12-30)" in refused(path)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compression_is_found_by_content_and_damage_refused(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    moments = [datetime(2025, 3, 1) + timedelta(seconds=number) for number in range(3000)]
    whole = pack(yearless(moments))
    path = stored(tmp_path / "log", whole, datetime(2025, 3, 2, tzinfo=UTC))
    assert times([path]) == moments
    torn = stored(tmp_path / "torn", whole[:-20], datetime(2025, 3, 2, tzinfo=UTC))
    assert "expected a log that can be read, found: damaged compression" in refused(torn)


def test_files_of_several_hosts_are_merged_by_time_and_given_twice_read_once(tmp_path: Path) -> None:
    numbers = random.Random(7)
    begin = datetime(2025, 5, 1)
    moments = sorted(begin + timedelta(seconds=numbers.randrange(10_000)) for _ in range(600))
    parts: list[list[datetime]] = [[], [], []]
    for at in moments:
        numbers.choice(parts).append(at)
    modified = datetime(2025, 5, 2, tzinfo=UTC)
    paths = [stored(tmp_path / f"host{number}", yearless(part), modified) for number, part in enumerate(parts)]
    assert times([*paths, paths[0]]) == moments


def test_progress_ends_at_the_end(tmp_path: Path) -> None:
    moments = [datetime(2025, 3, 1) + timedelta(seconds=number) for number in range(50_000)]
    path = stored(tmp_path / "log", gzip.compress(yearless(moments)), datetime(2025, 3, 2, tzinfo=UTC))
    shares: list[float] = []
    assert len(list(in_order(examine([path]), shares.append))) == len(moments)
    assert shares == sorted(shares)
    assert len(shares) == 4
    assert shares[-1] == 1.0


def test_a_long_line_is_cut(tmp_path: Path) -> None:
    path = stored(tmp_path / "log", b"2026-03-01T12:00:00 a b: x\n" + b"y" * 200_000, datetime(2026, 3, 1, tzinfo=UTC))
    lines = [line for _, line in in_order(examine([path]), lambda _: None)]
    assert [line.when is None for line in lines] == [False, True, True, True, True]


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    assert f"{tmp_path}: expected a log that can be read, found: Is a directory" in refused(tmp_path)
    assert f"{tmp_path / 'no'}: expected a log, found: No such file or directory" in refused(tmp_path / "no")
    zstd = stored(tmp_path / "log.zst", b"\x28\xb5\x2f\xfd123456", datetime(2026, 3, 1, tzinfo=UTC))
    assert f"{zstd}: " in refused(zstd)
    empty = stored(tmp_path / "empty", b"", datetime(2026, 3, 1, tzinfo=UTC))
    assert examine([empty]) == []


def test_offsets_are_not_added(tmp_path: Path) -> None:
    """Hours are those of the server's clock, however the line states its offset."""
    lines = [f"2026-03-01T12:00:00{offset} mx1 a: b\n" for offset in ("Z", "+01:00", ".123456-0500", ",5")]
    path = stored(tmp_path / "log", "".join(lines).encode(), datetime(2026, 3, 1, tzinfo=UTC))
    assert {*times([path])} == {datetime(2026, 3, 1, 12)}
    assert MailLog(path, 1, 0).first == 0
