"""Delivery times: over all messages of the window, found and missing ones included."""

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from documents import all_tables
from hypothesis import example, given, settings
from hypothesis import strategies as st
from timing_samples import ENDED, START_NS, done, event, sample_log, write_sample
from virtual_runs import live, quiet, scenario_of

from loadsim.analysis.delivery import delivery
from loadsim.analysis.score import PERCENTS
from loadsim.analysis.summary import summarise
from loadsim.cli.report import document_of
from loadsim.model.terms import Window
from loadsim.timinglog.merge import merge

WINDOW_MS = (1000, 6000)
DEAD = (3, 4)
"""The users of the second engine, which may die."""


def nearest_rank(times_ms: list[float], percent: Fraction) -> float:
    """The smallest of the times that at least `percent` % of them do not exceed."""
    return min(at_ms for at_ms in times_ms if 100 * sum(each <= at_ms for each in times_ms) >= percent * len(times_ms))


SIGHTS = st.lists(st.tuples(st.sampled_from(["seen", "found"]), st.integers(0, 30)), max_size=3)
MESSAGES = st.lists(st.tuples(st.integers(0, 28), st.integers(1, 4), SIGHTS), max_size=25)
"""When each was accepted, for whom, and when it came into sight; in quarters of a second."""


@settings(deadline=None, max_examples=40)
@given(MESSAGES, st.booleans())
@example([(8, 1, [("seen", 9)]), (8, 2, [("found", 20)]), (8, 1, [])], False)
@example([(8, 3, []), (8, 4, [("found", 9)])], True)
def test_times_are_those_of_all_watched_messages(
    tmp_path_factory: pytest.TempPathFactory, messages: list[tuple[int, int, list[tuple[str, int]]]], dies: bool
) -> None:
    """Held against a list of all times: first sight less acceptance, 0 at least, infinite for what never came."""
    accepted, sights = [], []
    times_ms: list[float] = []
    counts = {"accepted": 0, "delivered": 0, "found": 0, "unwatched": 0, "undelivered": 0}
    for number, (quarter, user, came) in enumerate(messages):
        accepted_ms = 250 * quarter
        accepted.append(event("accepted", f"n1.{number}", user, accepted_ms))
        sights += [event(name, f"n1.{number}", user, 250 * at) for name, at in came]
        if not WINDOW_MS[0] <= accepted_ms < WINDOW_MS[1]:
            continue
        counts["accepted"] += 1
        if came:
            first = min(at for _, at in came)
            times_ms.append(max(0, 250 * first - accepted_ms))
            counts["delivered"] += 1
            counts["found"] += all(name == "found" for name, at in came if at == first)
        elif dies and user in DEAD:
            counts["unwatched"] += 1
        else:
            times_ms.append(math.inf)
            counts["undelivered"] += 1

    place = tmp_path_factory.mktemp("logs")
    one = sample_log(
        place / "1.tlog",
        mails=[*accepted, *(mail for mail in sights if mail["user"] not in DEAD)],
        header={"engine": "1", "engine_users": 2, "hand": {"users": 4, "step": 1, "begin": 1, "end": 3}},
    )
    two = sample_log(
        place / "2.tlog",
        mails=[mail for mail in sights if mail["user"] in DEAD],
        header={"engine": "2", "engine_users": 2, "hand": {"users": 4, "step": 1, "begin": 3, "end": 5}},
        facts={"start_ns": START_NS} if dies else ENDED,
    )
    found = delivery(merge([one, two]), Window(WINDOW_MS[0] / 1000, WINDOW_MS[1] / 1000))

    assert {name: getattr(found, name) for name in counts} == counts
    told = {name: getattr(found.took, name) for name in PERCENTS}
    assert told == {name: nearest_rank(times_ms, percent) if times_ms else None for name, percent in PERCENTS.items()}
    assert found.took.mean_ms == (pytest.approx(sum(times_ms) / len(times_ms)) if times_ms else None)
    assert (found.took.stddev_ms is None) == (not times_ms or math.inf in times_ms)


def test_undelivered_mail_misses_the_criterion(tmp_path: Path) -> None:
    """Of ten messages one never came: the 95th percentile and the mean are infinite, the median is not."""
    mails = [event("accepted", f"n1.{number}", 2, 100) for number in range(10)]
    mails += [event("seen", f"n1.{number}", 2, 110 + number) for number in range(9)]
    criteria: dict[str, Any] = {
        f"delivery.{name}": {"below": 60_000} for name in ("p50_ms", "p95_ms", "mean_ms", "stddev_ms")
    }
    criteria |= {"score_ms": None, "failed_share": None, "delivery.undelivered_at_end": None}
    write_sample(tmp_path / "a.tlog", [done("READ", 0, 1)], mails, header={"criteria": criteria})
    summary = summarise([tmp_path / "a.tlog"])
    assert summary.exit_status == 1
    results = {
        one["name"]: (one["figure"], one["passed"], one["found"]) for one in summary.score["verdict"]["criteria"]
    }
    assert results == {
        "delivery.p50_ms": (14, True, "14.0 ms"),
        "delivery.p95_ms": ("inf", False, "never"),
        "delivery.mean_ms": ("inf", False, "never"),
        "delivery.stddev_ms": (None, False, "not measured"),
    }


def test_mail_under_way_when_a_run_is_ended_early_is_infinite(tmp_path: Path) -> None:
    """Users did not wait for the message, and the run is invalid."""
    mails = [event("accepted", "n1.0", 2, 100)]
    write_sample(tmp_path / "a.tlog", [done("READ", 0, 1)], mails, facts=ENDED | {"ended": "early"})
    summary = summarise([tmp_path / "a.tlog"])
    assert summary.score["delivery"]["p50_ms"] == "inf"
    assert summary.score["verdict"]["validity"] == "invalid"


@pytest.mark.parametrize(("unlooked", "counts"), [([], (0, 1, 0)), ([3], (0, 1, 0)), ([2], (1, 0, 1))])
def test_mail_of_users_whose_inbox_was_not_looked_at_is_not_undelivered(
    tmp_path: Path, unlooked: list[int], counts: tuple[int, ...]
) -> None:
    mails = [event("accepted", "n1.0", 2, 100)]
    write_sample(tmp_path / "a.tlog", [done("READ", 0, 1)], mails, facts=ENDED | {"unlooked": unlooked})
    found = summarise([tmp_path / "a.tlog"]).figures.delivery
    assert (found.unwatched, found.undelivered_at_end, found.unlisted) == counts


def test_reports_show_infinite_delivery_times(tmp_path: Path) -> None:
    """In its table, and in the chart's figures, where mail never came."""
    mails = [event("accepted", "n1.0", 2, 100), event("accepted", "n1.1", 2, 1100), event("found", "n1.1", 2, 1900)]
    header = {"duration_s": 2.0, "window_s": [0.0, 2.0], "limits": {"hits": 1, "window_s": 1}}
    write_sample(tmp_path / "a.tlog", [done("SEND", 50, 50)], mails, header=header)
    document = document_of([str(tmp_path / "a.tlog")])
    tables = {table.caption: table.rows for table in all_tables(document)}
    never = math.inf
    times = dict(tables["Time to delivery"])
    assert (times.pop("50th"), times.pop("Std. Dev."), {*times.values()}) == (800, None, {never})
    assert [row[-2:] for row in tables["Mail over time"]] == [(never, never), (800, 800)]


def test_users_record_direct_recipients_and_list_members_apart(tmp_path: Path) -> None:
    profile = quiet(new_mail={"per_day": 20, "save_sent": False, "recipients": 2, "list_chance": 1})
    lists = {"count": 2, "size": {"min": 4, "average": 4, "max": 4}}
    lived = live(scenario_of(tmp_path / "run", (profile, 9), day="60s", lists=lists), tmp_path)
    workload = lived.engine.workload
    accepted = lived.mails("accepted")
    assert {mail["folder"] for mail in accepted} == {"individual", "list"}
    for mail in accepted:
        index = int(mail["message"].partition(".")[2])
        named = workload.addressing(mail["sender"], workload.profile(mail["sender"]), "new mail", index).users
        assert mail["folder"] == ("individual" if mail["user"] in named else "list")
