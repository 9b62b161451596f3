"""Snapshots: what they count, how those of several engines add up, and what came between two of them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_runs import chosen, live, quiet, scenario_of

from loadsim.engine.control import Snapshot, decode, encode
from loadsim.engine.snapshot import PHASES, LiveSnapshot, Recent, Stretch, of_a_lost_engine, total
from loadsim.errors import ServerRefused, ServerSilent
from loadsim.statistics.latency_histogram import LatencyHistogram, about_ms
from loadsim.statistics.nearest_rank import percentile

SENDER = quiet(new_mail={"per_day": 60, "recipients": 1})
"""A user who sends a message every ten seconds of a day of 600."""

WORK = LiveSnapshot("work", 0.0, 4, 4, {}, 0, 0, 0.0)


def times_of(services_ns: Iterable[int]) -> LatencyHistogram:
    times = LatencyHistogram()
    for service_ns in services_ns:
        times.add(service_ns)
    return times


@pytest.mark.parametrize(
    ("service_ns", "label"),
    [(0, "0.1"), (100_000, "0.1"), (100_001, "0.126"), (10**9, "1000"), (10**11, "100000"), (10**11 + 1, "inf")],
)
def test_a_bucket_includes_its_upper_bound(service_ns: int, label: str) -> None:
    """As Prometheus has it: less than or equal."""
    assert times_of([service_ns]).counts == {label: 1}


within = st.integers(100_001, 10**11)


@settings(deadline=None)
@given(st.lists(within, min_size=1, max_size=200), st.sampled_from([50.0, 95.0, 99.0]))
def test_a_percentile_of_buckets_approximates_the_exact_one(services_ns: list[int], wanted: float) -> None:
    """Within 13 % of the nearest rank's, which the score takes."""
    exact_ms = percentile(np.sort(np.array(services_ns)), wanted) / 1e6
    about = about_ms(times_of(services_ns).counts, wanted)
    assert about is not None
    assert 1 / 1.13 <= about / exact_ms <= 1.13


def test_a_percentile_without_counts_is_none() -> None:
    """Without counts there is no percentile; beyond the buckets it is their last bound."""
    assert about_ms({}, 95) is None
    assert about_ms({"inf": 3}, 95) == 100_000
    assert about_ms({"0.1": 3}, 95) == 0.1


@given(st.lists(st.lists(st.integers(0, 2 * 10**11), max_size=20), min_size=1, max_size=4))
def test_service_times_add_up_over_engines(parts: list[list[int]]) -> None:
    """The buckets of all together are the sums of the buckets of each, and no task is missing."""
    engines = [
        replace(WORK, service_times={"READ": times.counts}, service_s={"READ": times.total_s})
        for times in map(times_of, parts)
    ]
    whole = times_of(service_ns for part in parts for service_ns in part)
    together = total(engines)
    assert together.service_times["READ"] == whole.counts
    assert sum(together.service_times["READ"].values()) == sum(map(len, parts))
    assert together.service_s["READ"] == pytest.approx(sum(sum(part) for part in parts) / 1e9)


counts = st.integers(0, 1000)
by_name = st.dictionaries(st.sampled_from(["READ", "SEND"]), st.dictionaries(st.sampled_from(["ok", "lost"]), counts))
snapshots = st.builds(
    LiveSnapshot,
    phase=st.sampled_from(PHASES),
    at_s=st.none() | st.floats(-1, 1000),
    users=counts,
    users_on=counts,
    tasks=by_name,
    accepted_undelivered=counts,
    sessions_lost=counts,
    generator_late_most_s=st.floats(0, 100),
    failures=by_name,
    late_busy_s=counts.map(float),
    lag_max_ms=st.none() | st.floats(0, 1000),
    rss_bytes=st.none() | counts,
)


@given(st.lists(snapshots, min_size=1, max_size=5))
def test_snapshots_add_up(parts: list[LiveSnapshot]) -> None:
    """Counts are summed, the phase is the earliest; and adding up in two steps comes to the same."""
    whole = total(parts)
    assert whole.users_on == sum(part.users_on for part in parts)
    assert whole.done == sum(part.tasks.get(task, {}).get("ok", 0) for part in parts for task in ("READ", "SEND"))
    assert whole.failed == sum(part.failed for part in parts)
    assert PHASES.index(whole.phase) == min(PHASES.index(part.phase) for part in parts)
    assert whole.lag_max_ms == max((part.lag_max_ms for part in parts if part.lag_max_ms is not None), default=None)
    assert total([total(parts[:1]), *parts[1:]]) == whole


@given(snapshots)
def test_a_snapshot_is_decoded_as_encoded(told: LiveSnapshot) -> None:
    message = Snapshot(told, 3)
    assert decode(encode(message), [Snapshot]) == message


def test_a_lost_engine_leaves_its_counts() -> None:
    """They stay in the total, and so do its users; the time and the phase are those of the others."""
    counted = {"tasks": {"READ": {"ok": 5}}, "service_times": {"READ": {"1": 5}}}
    one = replace(WORK, at_s=7.0, cpu_share=0.9, accepted_undelivered=2, **counted)
    both = total([of_a_lost_engine(one), replace(WORK, at_s=9.0, cpu_share=0.1, **counted)])
    assert (both.phase, both.at_s, both.users, both.users_on, both.cpu_share) == ("work", 9.0, 8, 4, 0.1)
    assert (both.done, both.accepted_undelivered) == (10, 0)
    assert both.service_times == {"READ": {"1": 10}}


@pytest.mark.slow
def test_an_engine_counts_service_times_and_failures(tmp_path: Path) -> None:
    """Every task that is ok is in its bucket; what fails is counted by outcome, and by task and kind."""
    faults = {
        (1, "SMTP DATA", 1): ServerRefused("554 DATA", "no"),
        (2, "SMTP DATA", 0): ServerRefused("554 DATA", "no"),
        (2, "SMTP DATA", 2): ServerSilent("no answer to DATA"),
    }
    lived = live(scenario_of(tmp_path, (SENDER, 2)), tmp_path, fault=chosen(faults))
    last = lived.snapshots[-1]
    assert last.failures == {"SEND": {"554 DATA": 2, "no answer to DATA": 1}}
    assert (last.tasks["SEND"]["refused"], last.tasks["SEND"]["timeout"], last.failed) == (2, 1, 3)
    for task in last.tasks:
        records = lived.tasks(task)
        assert last.tasks[task] == Counter(record["outcome"] for record in records)
        services_ns = [each["ended_ns"] - each["started_ns"] for each in records if each["outcome"] == "ok"]
        assert last.service_times[task] == times_of(services_ns).counts
        assert last.service_s[task] == pytest.approx(sum(services_ns) / 1e9)


def at(at_s: float | None, ok: int = 0, lost: int = 0, users_on: int = 4) -> LiveSnapshot:
    """A run at an instant: so many READs of 1 ms are done, the first ten of which took 10 s."""
    slow = min(ok, 10)
    return replace(
        WORK,
        at_s=at_s,
        users_on=users_on,
        tasks={"READ": {"ok": ok, "lost": lost}},
        service_times={"READ": {"1": ok - slow, "10000": slow}},
    )


def stretch_of(recent: Recent) -> Stretch:
    assert recent.stretch is not None
    return recent.stretch


def test_recent_counts_are_the_difference_of_two_snapshots() -> None:
    """Tasks and service times older than the span no longer count."""
    recent = Recent(60)
    for second in range(200):
        recent.add(at(float(second), ok=10 * second, lost=second))
    lately = stretch_of(recent)
    assert lately.seconds == 60
    assert (lately.ended("ok"), lately.done("READ"), lately.ended("lost")) == (600, 600, 60)
    assert lately.about_ms("READ", 99) == pytest.approx(1, rel=0.13)
    assert lately.about_ms("SEND", 95) is None


def test_recent_counts_begin_at_the_common_start() -> None:
    """From the common start on, as long as it is no longer ago than the span."""
    recent = Recent(60)
    for snapshot in (at(None, ok=1), at(-0.2, ok=2), at(0.1, ok=3), at(1.1, ok=5)):
        assert recent.stretch is None
        recent.add(snapshot)
    assert (stretch_of(recent).ended("ok"), stretch_of(recent).seconds) == (2, pytest.approx(1.0))


def test_recent_users_on_are_the_most_of_the_span() -> None:
    recent = Recent(2)
    for second, users_on in enumerate((4, 3, 1, 2, 1)):
        recent.add(at(float(second), users_on=users_on))
    assert recent.most_users_on == 2
