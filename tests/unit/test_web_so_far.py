"""The criteria while the window lasts: what live counts tell, how sure that is, and what they cannot tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from growing_runs import second
from run_states import TIMES
from small_runs import written

from loadsim.cli.web.so_far import CriterionSoFar, SoFar, WindowSoFar
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.model.scenario import load_scenario

MAIL_SERVER = {
    "server": {"imap": {"host": "mail.sim.test"}, "smtp": {"host": "mail.sim.test"}},
    "accounts": {"user": "u{index}", "password": "p{index}"},
    "allow_hosts": ["mail.sim.test"],
}


def judged(place: Path, *snapshots: LiveSnapshot, **document: Any) -> SoFar | None:
    """What is known after these snapshots; the window is from 60 s to 240 s."""
    window = WindowSoFar(load_scenario(str(written(place / "small.yaml", **{"run": TIMES, "criteria": {}} | document))))
    for each in snapshots:
        window.add(each)
    return window.judged


def outcomes(found: SoFar | None) -> dict[str, tuple[str, bool | None]]:
    """The figure and the outcome by criterion."""
    assert found is not None
    return {each.words: (each.found, each.kept) for each in found.criteria}


def test_only_the_window_counts(tmp_path: Path) -> None:
    """All failures of the warm-up are forgotten, and what comes after the window changes nothing."""
    warm = [second(at_s, 10 * at_s, 50 * at_s) for at_s in range(1, 60)]
    assert judged(tmp_path, *warm) is None
    window = [second(60, 600, 2950), second(61, 690, 2960)]
    found = judged(tmp_path, *warm, *window)
    assert found is not None
    assert found.seen_s == 1
    assert outcomes(found)["failed tasks"] == ("10 %", False)
    after = [second(241, 700, 9999), second(300, 700, 99999)]
    assert outcomes(judged(tmp_path, *warm, *window, *after)) == outcomes(found)


@pytest.mark.parametrize(
    ("bucket", "kept"), [("794", True), ("1000", None), ("1260", None), ("1580", False), ("inf", False)]
)
def test_times_are_judged_as_precisely_as_they_are_known(tmp_path: Path, bucket: str, kept: bool | None) -> None:
    """READ has a limit of 1 s: buckets next to it do not tell, and one of more than 100 s does."""
    found = judged(
        tmp_path,
        second(60, 0, bucket=bucket),
        second(61, 300, bucket=bucket),
        criteria={"tasks": {"READ": {"p95_ms": {"max": 1000}}}},
    )
    assert outcomes(found)["95th percentile of READ"][1] is kept


def test_a_time_beyond_all_buckets_keeps_no_larger_limit(tmp_path: Path) -> None:
    """It may be 101 s or an hour: whether it is below 150 s is not known, and the score is not either."""
    found = judged(
        tmp_path,
        second(60, 0, bucket="inf"),
        second(61, 300, bucket="inf"),
        criteria={"tasks": {"READ": {"p95_ms": {"max": 150_000}}}},
    )
    assert outcomes(found)["95th percentile of READ"][1] is None
    assert found is not None
    assert "score" in found.unknown


def test_what_cannot_be_known_is_named(tmp_path: Path) -> None:
    """Mail, due times, and counts that still grow have no outcome, whatever their limits."""
    found = judged(
        tmp_path,
        second(60, 0),
        second(61, 30),
        criteria={"tasks": {"READ": {"failed": {"max": 0}, "planned": {"min": 1000}}}},
    )
    assert found is not None
    unknown = ", ".join(found.unknown)
    for words in ("score from due times", "messages not delivered by the end", "tasks that succeeded", "tasks due"):
        assert words in unknown
    assert not any("delivered" in each.words or "due" in each.words for each in found.criteria)
    assert "failed log-ons" in outcomes(found)


def test_the_generators_limits_are_counted_in_seconds(tmp_path: Path) -> None:
    """Each second of the window above a limit counts, and none below it does."""
    limits = {"generator": {"lag_p99_ms": 5, "lag_share": None, "cpu": 0.5}}
    quiet = [second(60 + at_s, at_s) for at_s in range(5)]
    found = judged(tmp_path, *quiet, limits=limits)
    assert found is not None
    assert found.generator == []
    busy = [second(65, 5, lag_ms=9), second(66, 6, lag_ms=9, cpu_share=0.9)]
    found = judged(tmp_path, *quiet, *busy, limits=limits)
    assert found is not None
    assert found.generator == [
        "event loop: later than its limit, 5.0 ms, in 2 of 6 s",
        "busiest engine: more than 50% of a core in 1 of 6 s",
    ]


@pytest.mark.parametrize(
    ("server", "says"),
    [
        (
            {},
            "The generator was beyond its limits, as listed below: it may be what slows this run. If the window ended",
        ),
        (
            MAIL_SERVER,
            "The run may be invalid: the generator was beyond its limits, as listed below. If the window ended",
        ),
    ],
    ids=["embedded", "mail server"],
)
def test_a_run_that_may_be_invalid_is_called_so_first(tmp_path: Path, server: dict[str, Any], says: str) -> None:
    """Even if it would miss no criterion; a generator within its limits leaves the first word to them."""
    limits = {"generator": {"lag_p99_ms": 5, "lag_share": None, "cpu": None}}
    late = [second(60 + at_s, 30 * at_s, lag_ms=9) for at_s in range(44)]
    found = judged(tmp_path, *late, limits=limits, **server)
    assert found is not None
    assert found.summary.startswith(f"{says} now, after 43 s, none of these ")
    found = judged(tmp_path, *(replace(one, lag_p99_ms=1.0) for one in late), limits=limits, **server)
    assert found is not None
    assert found.summary.startswith("If the window ended now, after 43 s, none of these ")


def test_the_summary_counts_what_is_known(tmp_path: Path) -> None:
    """The criteria that would be missed, those too near to tell, and those known only after the end."""
    found = judged(
        tmp_path,
        second(60, 0, bucket="1000"),
        second(120, 1500, 30, bucket="1000"),
        criteria={"tasks": {"READ": {"p95_ms": {"max": 1000}}}},
    )
    assert found is not None
    known, more = len(found.criteria), len(found.unknown)
    assert sum(one.kept is False for one in found.criteria) == 2
    assert found.summary == (
        f"If the window ended now, after 1 min, 2 of these {known} criteria would be missed; 2 are too near to tell;"
        f" {more} more are known only after the end. The window goes on, and the logs decide after the end."
    )


@pytest.mark.parametrize(
    ("kept", "unknown", "says"),
    [
        ((), 5, "no criterion could be judged; 5 more are known only after the end"),
        ((None, None), 0, "no criterion could be judged; 2 are too near to tell"),
        ((True,), 0, "no criterion would be missed"),
        ((False,), 0, "this criterion would be missed"),
        ((True, None), 0, "none of these 2 criteria would be missed; 1 is too near to tell"),
    ],
)
def test_what_is_not_known_is_not_called_kept(kept: tuple[bool | None, ...], unknown: int, says: str) -> None:
    """ "None would be missed" of no criteria reads as if all were well."""
    found = SoFar(60.0, [CriterionSoFar("READ", "1 ms", "2 ms", one) for one in kept], ["score"] * unknown, [], True)
    assert found.summary.startswith(f"If the window ended now, after 1 min, {says}. The window goes on")
