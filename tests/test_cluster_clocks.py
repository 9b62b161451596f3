"""Clocks of the machines of a cluster: read over Dask while a run lasts, told to the machines, and in their logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_cluster import conduct, quiet_dask, shared

from loadsim.cluster import station
from loadsim.results.merge import read_logs
from loadsim.results.one_clock import station_clock

__all__ = ["quiet_dask"]

pytestmark = pytest.mark.usefixtures("quiet_dask")


def test_a_runs_logs_know_the_stations_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each machine's log has the first reading and later ones; here all have one clock, and they are seen to.

    The agents and machines are processes of their own; what they are told comes from round trips over sockets.
    """
    monkeypatch.setattr(station, "CLOCK_EVERY_S", 0.5)
    conduct(tmp_path, shared(tmp_path, "one", "two"))
    log = read_logs(sorted(tmp_path.rglob("*.tlog")))
    clock = station_clock(log)
    assert clock.compared
    assert sorted(client for _, client in clock.machines) == ["one", "two"]
    read = [sample for sample in log.health if "station_clock" in sample]
    for other in clock.machines.values():
        told = other.there(0)
        assert abs(told.ahead_ns) <= 2 * told.error_ns  # the start was told by a reading, and this is another one
        assert told.error_ns < 50e6
    assert len(read) > 2
    for client in ("one", "two"):
        mine = [sample["station_clock"] for sample in read if sample["client"] == client]
        assert len({each["ahead_ns"] for each in mine}) == 1
        for each in mine:
            assert abs(each["station_ns"] - each["at_ns"]) <= each["error_ns"]
