"""Delivery times between machines with clocks of their own, held against a simulation in which the truth is known."""

from pathlib import Path

import numpy as np
import pytest
from simulated_clocks import LENGTH_S, write_run
from timing_samples import event, write_sample

from loadsim.analysis.clocks.correction import controller_clock
from loadsim.analysis.delivery import delivery, journeys
from loadsim.analysis.summary import summarise
from loadsim.model.terms import Window
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.reader import read_log


@pytest.mark.parametrize("sight", ["seen", "found"])
@pytest.mark.parametrize("error_ns", [0, 60_000])
def test_delivery_times_between_machines_are_within_the_stated_error(tmp_path: Path, error_ns: int, sight: str) -> None:
    """Each is right to the error that is told for it, which is not much more than two clocks were read by."""
    truth = write_run(tmp_path / "logs", error_ns, sight)
    log = read_logs([tmp_path / "logs"])
    [found] = list(journeys(log))
    told = np.sort(found.arrived_us - found.accepted_us)
    wanted = np.sort([(seen_s - sent_s) * 1e6 for sent_s, seen_s, _, _ in truth])
    assert np.abs(told - wanted).max() <= found.clock_error_us.max() + 3  # each instant is cut to a microsecond
    assert np.count_nonzero(found.clock_error_us == 0) == 200  # sent and seen on one machine
    at_most_us = 2 * (error_ns / 1000 + 100e-6 * 10e6 / 4) + 3
    assert max(1, 2 * error_ns / 1000) <= found.clock_error_us.max() <= at_most_us  # those of both
    assert delivery(log, Window(0, LENGTH_S)).clock_error_ms == found.clock_error_us.max() / 1000


def test_every_message_is_placed_by_the_controllers_clock(tmp_path: Path) -> None:
    """Message for message: when it was accepted, and when it was seen."""
    truth = write_run(tmp_path / "logs", 0)
    [found] = list(journeys(read_logs([tmp_path / "logs"])))
    order = np.argsort(found.accepted_us)
    wanted = sorted((sent_s * 1e6, seen_s * 1e6) for sent_s, seen_s, _, _ in truth)
    assert np.abs(found.accepted_us[order] - [sent for sent, _ in wanted]).max() <= 3
    assert np.abs(found.arrived_us[order] - [seen for _, seen in wanted]).max() <= 3


def test_without_clock_readings_no_error_is_stated(tmp_path: Path) -> None:
    """Times are what the machines' own clocks make of them: wrong by milliseconds here, and no error is told."""
    truth = write_run(tmp_path / "logs", None)
    log = read_logs([tmp_path / "logs"])
    [found] = list(journeys(log))
    told = np.sort(found.arrived_us - found.accepted_us)
    wanted = np.sort([(seen_s - sent_s) * 1e6 for sent_s, seen_s, _, _ in truth])
    assert np.abs(told - wanted).max() > 1000
    assert delivery(log, Window(0, LENGTH_S)).clock_error_ms is None


def test_one_machine_without_readings_leaves_the_error_unknown(tmp_path: Path) -> None:
    """The other's are corrected all the same; what lies between the two has no error that could be told."""
    write_run(tmp_path / "logs", 0)
    (tmp_path / "logs" / "c2.machine.tlog").unlink()
    clock = controller_clock(read_logs([tmp_path / "logs"]))
    assert not clock.compared
    assert list(clock.machines) == ["c1"]


def test_one_machine_needs_no_correction(tmp_path: Path) -> None:
    write_sample(tmp_path / "c1.0.tlog", mails=[event("accepted", "m", 1, 10), event("seen", "m", 1, 30)])
    found = delivery(read_logs([tmp_path]), Window(0, 100))
    assert found.clock_error_ms == 0
    assert found.took.max_ms == 20


def test_correction_moves_no_task(tmp_path: Path) -> None:
    """Only what is compared between machines is moved: due times are those of the plan, on each machine's clock."""
    write_run(tmp_path / "logs", 0)
    merged = read_logs([tmp_path / "logs"])
    for path in sorted((tmp_path / "logs").glob("*.0.tlog")):
        alone = read_log(path)
        mine = merged.names(merged.mails, "client") == alone.sources[0].client
        assert np.array_equal(np.sort(merged.mails["at_us"][mine]), np.sort(alone.mails["at_us"]))


def test_score_json_states_the_clock_error(tmp_path: Path) -> None:
    write_run(tmp_path / "logs", 60_000)
    assert 0.12 <= summarise([tmp_path / "logs"]).score["delivery"]["clock_error_ms"] <= 0.63
