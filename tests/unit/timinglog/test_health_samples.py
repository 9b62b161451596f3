"""Samples of health by columns: each is the mapping that it was, in a fraction of the memory."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_samples import HEADER, START_NS, write_sample

from loadsim.errors import LogError
from loadsim.timinglog import container
from loadsim.timinglog.health_samples import Samples
from loadsim.timinglog.merge import merge
from loadsim.timinglog.reader import read_log
from loadsim.timinglog.writer import TimingLogWriter

NUMBERS = st.integers(-(2**70), 2**70) | st.integers(-3, 3) | st.floats(allow_nan=False)
VALUES = NUMBERS | st.none() | st.booleans() | st.text(max_size=3) | st.lists(NUMBERS | st.booleans(), max_size=4)
SAMPLES = st.lists(st.dictionaries(st.sampled_from(["at_s", "client", "lags_us", "cpu"]), VALUES), max_size=8)


@settings(deadline=None, max_examples=40)
@given(
    samples=SAMPLES, at_s=st.none() | st.floats(0, 9), whose=st.dictionaries(st.sampled_from(["client", "run"]), VALUES)
)
def test_samples_are_read_as_written(samples: list[dict[str, Any]], at_s: float | None, whose: dict[str, Any]) -> None:
    """Whole numbers stay whole, however large, and true stays true; makers are added, and the time is replaced."""
    kept = Samples()
    for was, found in zip(samples, [kept.add(sample) for sample in samples], strict=True):
        assert json.dumps(dict(found), sort_keys=True) == json.dumps(was, sort_keys=True)
        expected = {**was, **whose, **({} if at_s is None else {"at_s": at_s})}
        placed = found.placed(at_s, whose)
        assert json.dumps(dict(placed), sort_keys=True) == json.dumps(expected, sort_keys=True)
        assert len(placed) == len(expected) and all(key in placed for key in expected)
        assert [key in placed for key in ("at_s", "run", "?")] == [key in expected for key in ("at_s", "run", "?")]
        with pytest.raises(KeyError):
            placed["?"]


def test_samples_are_held_as_numbers_of_four_and_eight_bytes(tmp_path: Path) -> None:
    """All of an engine's in one table: lags in 32 bits each, where Python's numbers take 28 bytes and more."""
    writer = TimingLogWriter(tmp_path / "a.tlog", HEADER, START_NS)
    for second in range(20):
        lags_us = [300 + (second * tick) % 1000 for tick in range(100)]
        instants = dict.fromkeys(("at_ns", "lags_from_ns"), START_NS + second * 10**9)
        writer.health(instants | {"lags_us": lags_us, "cpu_share": second / 7000})
    writer.close()
    log = merge([read_log(tmp_path / "a.tlog")])
    assert len(log.health) == 20 and log.health[7]["lags_us"][3] == 321
    (table,) = {id(sample._table): sample._table for sample in log.health}.values()
    lags = table.columns["lags_us"].numbers
    assert (lags.itemsize, len(lags)) == (4, 2000)
    assert {column.itemsize for key, column in table.columns.items() if key != "lags_us"} == {8}


def test_malformed_samples_are_refused(tmp_path: Path) -> None:
    """A block of health whose checksum is right, and which holds something else."""
    path = write_sample(tmp_path / "a.tlog")
    with path.open("ab") as file:
        file.write(container.encode_json(container.HEALTH, [1]))
    with pytest.raises(LogError, match="expected objects in a block of kind 6"):
        read_log(path)
