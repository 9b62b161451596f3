"""Slices: several machines make one run without a word to each other, and their logs become one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailservers import StartEmbedded
from patience import PATIENCE_S, PATIENT_CRITERIA
from scripted_engines import FINISHED, GOOD, ON, READY, Conducted
from sliced_runs import part_of_sample
from small_runs import on, population_of, written
from timing_samples import event
from virtual_runs import Lived, live, quiet, scenario_of

from loadsim.analysis.compare_runs import compare_runs
from loadsim.analysis.mail_series import mail_series
from loadsim.analysis.summary import summarise
from loadsim.analysis.time_series import bins_of
from loadsim.cli import main
from loadsim.cli.run import parse_start
from loadsim.engine.control import StandaloneControl
from loadsim.engine.engine import Engine
from loadsim.engine.scheduled_start import ScheduledStart
from loadsim.errors import ConfigError, LogError
from loadsim.model.partition import Slice, all_users
from loadsim.model.scenario import Scenario, load_scenario
from loadsim.model.terms import Window
from loadsim.model.workload import BROWSE, NEW_MAIL, SCHEDULE, Workload, plan_digest
from loadsim.protocols.in_memory import InMemoryDriver
from loadsim.report.answer import full_answer
from loadsim.runs import common_start
from loadsim.runs.common_start import check_start, common_run_id, utc_text
from loadsim.timinglog.merge import merge, read_logs
from loadsim.timinglog.reader import read_log, write_log

NOW = datetime(2026, 3, 14, 13, 50, tzinfo=UTC)

SLEWED_NS = 5_000_000
"""More than a wall clock is slewed by in the seconds of these tests: 0.5 ms a second (adjtimex(2))."""

# --- who is whose -------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 2000), st.data())
@settings(deadline=None, max_examples=50)
def test_everybody_is_in_one_slice_and_with_one_of_its_engines(
    weights: list[int], users: int, data: st.DataObject
) -> None:
    """Whatever the weights and the numbers of engines; a slice's users are in proportion to its weight."""
    dealt = []
    first = Slice.parse(f"1/{','.join(map(str, weights))}") if len(weights) > 1 else Slice(1, (1,))
    for part, weight in zip(first.parts, weights, strict=True):
        hand = part.assignment(users)
        assert abs(len(hand) - users * weight / sum(weights)) < 1
        engines = hand.cut([1] * data.draw(st.integers(1, 5)))
        assert max(map(len, engines)) - min(map(len, engines)) <= 1
        dealt += [user for engine in engines for user in engine]
    assert sorted(dealt) == list(range(1, users + 1))


@pytest.mark.parametrize(
    ("text", "number", "weights", "again"),
    [
        ("3/12", 3, (1,) * 12, "3/12"),
        ("1/1", 1, (1,), "1/1"),
        ("4/2,2,1,1", 4, (2, 2, 1, 1), "4/2,2,1,1"),
        ("2/8,4,4", 2, (2, 1, 1), "2/2,1,1"),
        ("2/5,5,5", 2, (1, 1, 1), "2/3"),
    ],
)
def test_a_slice_is_read_and_written(text: str, number: int, weights: tuple[int, ...], again: str) -> None:
    """Equal weights are a number; weights say the same when all are so many times as large."""
    part = Slice.parse(text)
    assert (part.number, part.weights, str(part)) == (number, weights, again)
    assert Slice.parse(str(part)) == part


@pytest.mark.parametrize(
    "text", ["", "3", "0/3", "4/3", "1/0", "-1/3", "1/2/3", "3/2,1", "1/2,0", "1/2,", "1/99999", "a/b", "1/٣"]
)
def test_what_is_no_slice_is_refused(text: str) -> None:
    with pytest.raises(ValueError) as refusal:
        Slice.parse(text)
    assert str(refusal.value) == text


# --- when all start -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("14:00:00Z", "2026-03-14T14:00:00Z"),
        ("14:00Z", "2026-03-14T14:00:00Z"),
        ("15:00:00+01:00", "2026-03-14T14:00:00Z"),
        ("01:30:00Z", "2026-03-15T01:30:00Z"),
        ("2026-03-20T09:00:00.5-05:00", "2026-03-20T14:00:00.500000Z"),
    ],
)
def test_an_instant_is_the_same_on_all_machines(text: str, instant: str) -> None:
    """A time of day is the nearest one, whichever day it is where it is given."""
    start = parse_start(text, NOW)
    check_start(start, 60, NOW)
    assert utc_text(start) == instant


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("13:49:58Z", r"expected an instant to come, found 2026-03-14T13:49:58Z, 0:00:02 ago$"),
        ("00:30:00+14:00", r"expected an instant to come, found 2026-03-14T10:30:00Z, 3:20:00 ago$"),
        ("13:50:59Z", r"expected at least the ramp-up of 60 s before 2026-03-14T13:50:59Z, found 0:00:59$"),
        ("14:00:00", r"expected a time zone"),
        ("2026-03-20T09:00:00", r"expected a time zone"),
        ("2026-03-20", r"expected a time zone"),
        ("noon", r"expected an instant such as 14:00:00Z or"),
        ("25:00:00Z", r"expected an instant such as"),
        ("", r"expected"),
    ],
)
def test_an_instant_that_cannot_be_kept_is_refused(text: str, said: str) -> None:
    """One that has passed by two seconds is not tomorrow's."""
    with pytest.raises(ConfigError, match=said):
        check_start(parse_start(text, NOW), 60, NOW)


def test_machines_come_to_the_same_name_of_their_run(tmp_path: Path) -> None:
    """From the instant, however it was given, and from what load is made; another of either is another run."""
    scenario = scenario_of(tmp_path, (quiet(), 4))
    one, same = (parse_start(text, NOW) for text in ("14:00:00Z", "2026-03-14T16:00:00+02:00"))
    later = parse_start("14:00:01Z", NOW)
    assert common_run_id(one, scenario) == common_run_id(same, scenario)
    others = {common_run_id(later, scenario), common_run_id(one, scenario_of(tmp_path / "b", (quiet(), 5)))}
    assert len(others | {common_run_id(one, scenario)}) == 3


def test_engines_are_started_in_time_for_an_agreed_start() -> None:
    """Not long before all users can be on; not at all, where looking into the mailboxes took until it was too late."""
    wait_to_begin = partial(common_start.wait_to_begin, ramp_up_s=1, log_on_limit_s=2, ready_s=5)
    start = datetime.now(UTC) + timedelta(seconds=8.5)
    asyncio.run(wait_to_begin(start))
    assert datetime.now(UTC) >= start - timedelta(seconds=8)
    passed = datetime.now(UTC) - timedelta(seconds=7)
    with pytest.raises(ConfigError, match=r"expected an instant to come, .* ago: looking into the mailboxes took too"):
        asyncio.run(wait_to_begin(passed))


def agreed_on(start: datetime, conducted: Conducted, *, work_s: float = 0.0, part: bool = True) -> ScheduledStart:
    """What keeps a conducted pool to an instant."""

    def give_up(why: str) -> None:
        conducted.gave_up.append(why)
        assert conducted.pool is not None
        conducted.pool.stop()

    return ScheduledStart(start, work_s=work_s, part=part, give_up=give_up)


@pytest.mark.slow
def test_engines_start_at_the_instant_of_the_wall_clock(tmp_path: Path) -> None:
    """Told on their own clock; a part waits until everybody's tasks have ended on all machines."""
    at = datetime.now(UTC) + timedelta(seconds=2)
    alone = ON + FINISHED + "say(event=dict(event='drains', at=time.monotonic_ns())); snapshot('drain'); say(over=True)"
    done_ = Conducted(tmp_path, alone, alone)
    done_.run(control=lambda: agreed_on(at, done_, work_s=0.5))
    before_ns, wall_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    first, second = dict(done_.heard(1)), dict(done_.heard(2))
    assert [kind for kind, _ in done_.heard(1)] == ["log on", "start", "drain"]
    assert first["start"] == second["start"]
    at_ns = at.timestamp() * 1e9 - wall_ns + after_ns  # on the engines' clock, as long as the two clocks go alike
    assert at_ns - (after_ns - before_ns) - SLEWED_NS <= first["start"]
    assert min(line["at"] for line in done_.said("drains")) >= first["start"] + 0.5e9
    assert not done_.gave_up


@pytest.mark.parametrize("part", [True, False])
def test_no_machine_says_that_all_is_delivered_where_others_send(part: bool) -> None:
    """By itself it knows when its own users have seen everything."""

    async def ask() -> tuple[bool, bool]:
        agreed = ScheduledStart(NOW, work_s=0, part=part, give_up=lambda _: None)
        return agreed.all_delivered(0), agreed.all_delivered(1)

    assert asyncio.run(ask()) == (not part, False)


def test_all_of_a_run_can_have_an_agreed_start(tmp_path: Path) -> None:
    """Without a slice, mail is waited for as ever."""
    at = datetime.now(UTC) + timedelta(seconds=1.5)
    done_ = Conducted(tmp_path, GOOD)
    done_.run(control=lambda: agreed_on(at, done_, part=False))
    assert [kind for kind, _ in done_.heard(1)] == ["log on", "start", "drain", "drained"]


def test_who_is_on_too_late_does_not_start(tmp_path: Path) -> None:
    """The instant has passed when the last user is on: the run is given up, and nobody is told of a start."""
    at = datetime.now(UTC) - timedelta(seconds=1)
    stopped = READY + "hear('log on'); say(on=True); hear('stop'); say(over=True)"
    done_ = Conducted(tmp_path, stopped, stopped)
    done_.run(control=lambda: agreed_on(at, done_))
    assert [kind for kind, _ in done_.heard(1)] == ["log on", "stop"]
    assert done_.gave_up == ["not ready for the common start: the log-on took too long"]


def test_who_is_not_on_at_the_instant_is_judged(tmp_path: Path) -> None:
    """Not before the instant, and with how many users were on."""
    snapshot = live(scenario_of(tmp_path / "s", (quiet(), 2), day="2s"), tmp_path).snapshots[0]

    def judged(ahead_s: float) -> str | None:
        async def ask() -> str | None:
            at = datetime.now(UTC) + timedelta(seconds=ahead_s)
            return ScheduledStart(at, work_s=1, part=True, give_up=lambda _: None).judge(snapshot)

        return asyncio.run(ask())

    assert judged(60) is None
    assert judged(-1) == f"not ready for the common start: {snapshot.users_on} of 2 users were on"


# --- what users do ------------------------------------------------------------------------------------------------


def busy(place: Path) -> Scenario:
    """Users that send, browse and change their schedule, some of them on a list."""
    active = quiet(
        new_mail={"per_day": 10, "recipients": 3, "list_chance": "20%"},
        browse={"per_day": 6},
        schedule={"per_day": 4},
        process_inbox={"per_day": 6},
    )
    return scenario_of(place, (active, 12), day="200s", lists={"count": 2, "size": {"min": 3, "average": 4, "max": 5}})


def planned(lived: Lived) -> dict[int, list[tuple[Any, ...]]]:
    """By user, what was planned: due times in microseconds from the start, kinds; recipients of new mail by its id."""
    found: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
    start_ns = lived.engine.start_ns
    for task in lived.tasks():
        if task["task"] in ("SEND", "BROWSE", "SCHEDULE"):
            due_us = (task["scheduled_ns"] - start_ns) // 1000
            found[task["user"]].append((task["task"], due_us, task["profile"]))
    for mail in lived.mails("accepted"):
        if mail["message"].startswith("n"):
            found[mail["sender"]].append((mail["message"], mail["user"]))
    return {user: sorted(each) for user, each in found.items()}


async def mail_stays_out(users: list[int], _: Engine, module: InMemoryDriver) -> None:
    """Mail to users that are simulated elsewhere arrives there."""
    module.post = lambda mail, reached: module.arrive(mail, [user for user in reached if user in users])


@pytest.mark.slow
def test_users_do_the_same_in_a_slice_as_in_the_whole(tmp_path: Path) -> None:
    """User by user the same due times, kinds and recipients; mail between slices is not waited for, but looked for."""
    scenario = busy(tmp_path / "s")
    whole = planned(live(scenario, tmp_path))
    together: dict[int, list[tuple[Any, ...]]] = {}
    for part in Slice.parse("1/2,1").parts:
        hand = list(part.assignment(12))
        lived = live(scenario, tmp_path, users=hand, here=hand, during=partial(mail_stays_out, hand))
        assert lived.failure is None
        assert {mail["user"] for mail in lived.mails("accepted")} - set(hand)
        assert lived.engine.outstanding == 0
        end_ns = lived.engine.start_ns + 200_000_000_000
        assert {task["user"] for task in lived.tasks("SYNC") if task["scheduled_ns"] >= end_ns} == set(hand)
        together |= planned(lived)
    assert sum(map(len, whole.values())) > 300
    assert together == whole


def test_mail_of_other_machines_is_not_kept_account_of(tmp_path: Path) -> None:
    """Nobody will tell that it was accepted, nor hears that it was; mail between users of this machine is as ever."""
    elsewhere: list[tuple[str, int]] = []

    class Hears(StandaloneControl):
        def accepted_elsewhere(self, message: str, user: int) -> None:
            elsewhere.append((message, user))

    engine = live(
        scenario_of(tmp_path, (quiet(), 4), day="2s"), tmp_path, users=[1, 2], here=[1, 2, 3], control=Hears
    ).engine
    engine.mail_seen("x", 1, sender=4)
    engine.mail_accepted("x", 1)
    assert engine.outstanding == 1
    engine.mail_seen("y", 1, sender=3)
    engine.mail_accepted("y", 1)
    assert engine.outstanding == 1
    for user in (1, 3, 4):
        engine.mail_accepted("z", user)
    assert (elsewhere, engine.outstanding) == ([("z", 3)], 2)


# --- their logs ---------------------------------------------------------------------------------------------------


def test_all_slices_are_one_run(tmp_path: Path) -> None:
    """As the logs of one machine are; a merged log of them is one again, and says who took part."""
    places = [part_of_sample(tmp_path, text) for text in ("1/3", "2/3", "3/3")]
    score = summarise(places).score
    assert (score["slice"], score["users"], score["clients"]) == (None, 4, 3)
    verdict = score["verdict"]
    assert (verdict["validity"], verdict["passed"], verdict["reasons"]) == ("valid", True, [])
    (reads,) = [task for task in score["tasks"] if task["task"] == "READ"]
    assert reads["hits"] == 15
    write_log(read_logs(places), tmp_path / "whole.tlog")
    again = read_log(tmp_path / "whole.tlog")
    assert [str(source.slice) for source in again.sources] == ["1/3", "2/3", "3/3"]
    assert "slice" not in again.header
    assert summarise([tmp_path / "whole.tlog"]).score == score


def test_a_slice_by_itself_judges_its_machine_only(tmp_path: Path) -> None:
    """Nobody is lost, criteria are not judged, mail to others is of unknown fate, and it says that it is a part."""
    own, other = (next(iter(Slice.parse(text).assignment(4))) for text in ("1/3", "2/3"))
    mails = [event("accepted", "n1.0", own, 1000), event("accepted", "n1.0", other, 1000)]
    summary = summarise([part_of_sample(tmp_path, "1/3", mails=[*mails, event("seen", "n1.0", own, 1010)])])
    verdict, delivery = summary.score["verdict"], summary.score["delivery"]
    assert (summary.score["slice"], summary.score["users"]) == ("1/3", len(Slice.parse("1/3").assignment(4)))
    assert verdict == {"validity": "valid", "passed": None, "reasons": [], "causes": [], "criteria": []}
    assert summary.exit_status == 0
    assert (delivery["accepted"], delivery["delivered"], delivery["unwatched"]) == (2, 1, 1)
    assert (delivery["undelivered"], delivery["undelivered_at_end"]) == (0, 0)
    log = read_logs([tmp_path / "1of3-host1"])
    assert mail_series(log, bins_of(log), Window(0, 100)).under_way.tolist()[-1] == 0
    assert "1/3, a part of the run" in full_answer(summary)
    assert "1 to users of other slices" in full_answer(summary)
    assert "Verdict: valid, criteria not judged by a slice" in full_answer(summary)


def test_a_slice_that_went_wrong_is_invalid_by_itself(tmp_path: Path) -> None:
    """Its machine gave up, which is said by slice, in its answer and in that of all; of its mail nobody can tell."""
    facts = {"ended": "early", "ended_by": "start missed", "ended_why": "not ready"}
    second, third = (part_of_sample(tmp_path, text, facts=facts) for text in ("2/3", "3/3"))
    sent = [event("accepted", "n1.0", next(iter(Slice.parse("2/3").assignment(4))), 1000)]
    first = part_of_sample(tmp_path, "1/3", mails=sent)
    for logs, why in (
        ([second], "slice 2/3: not ready"),
        ([first, second, third], "slice 2/3: not ready; slice 3/3: not ready"),
    ):
        summary = summarise(logs)
        assert summary.exit_status == 3
        assert summary.score["verdict"]["reasons"][0] == f"ended early: {why}"
        assert summary.score["verdict"]["causes"][0] == "fault"
    assert (summary.score["delivery"]["unwatched"], summary.score["delivery"]["undelivered_at_end"]) == (1, 0)


def test_mail_between_slices_is_joined(tmp_path: Path) -> None:
    """Accepted in one log, seen in another's; by its clock perhaps too early, which is counted and said."""
    hands = [list(Slice.parse(text).assignment(4)) for text in ("1/2", "2/2")]
    accepted = [event("accepted", f"n1.{number}", hands[1][0], 1000 + number) for number in range(3)]
    seen = [event("seen", "n1.0", hands[1][0], 1020), event("seen", "n1.1", hands[1][0], 993.5)]
    places = [part_of_sample(tmp_path, "1/2", mails=accepted), part_of_sample(tmp_path, "2/2", mails=seen)]
    summary = summarise(places)
    delivery = summary.score["delivery"]
    assert (delivery["accepted"], delivery["delivered"], delivery["undelivered_at_end"]) == (3, 2, 1)
    assert (delivery["p50_ms"], delivery["max_ms"]) == (20, "inf")  # of 0, 20 and the one that never came
    assert (delivery["early"], delivery["earliest_ms"]) == (1, 7.5)
    assert "1 message seen before being accepted, by up to 7.5 ms" in full_answer(summary)
    assert "started by hand for 2026-01-05T08:00:03Z" in full_answer(summary)


def test_a_missing_slice_is_named(tmp_path: Path) -> None:
    """It is a run whose users were lost: those of the machine that is missing, and nobody saw their mail."""
    hand = list(Slice.parse("2/4").assignment(4))
    sent = [event("accepted", "n1.0", hand[0], 1000)]
    places = [part_of_sample(tmp_path, "1/4", mails=sent), part_of_sample(tmp_path, "3/4")]
    score = summarise(places).score
    assert score["verdict"]["validity"] == "invalid"
    assert "the generator lost 2 of 4 users, at most 1 % allowed" in score["verdict"]["reasons"]
    assert "the logs are of 2 of 4 users; there are none of slice 2/4, slice 4/4" in score["verdict"]["reasons"]
    assert (score["delivery"]["undelivered_at_end"], score["delivery"]["unwatched"]) == (0, 1)


def test_slices_that_are_not_one_run_are_refused(tmp_path: Path) -> None:
    """The same slice twice, other divisions, other runs, and machines that were told different things."""
    first, second = part_of_sample(tmp_path, "1/2"), part_of_sample(tmp_path, "2/2")
    twice = part_of_sample(tmp_path, "2/2", {"client": "elsewhere"})
    with pytest.raises(LogError, match=r"expected each slice once, found 2/2 twice, by elsewhere and host2"):
        merge([*map(read_one, (first, second, twice))])
    with pytest.raises(LogError, match=r"expected slices of one division of the users, found 1/2 and 3/3"):
        merge([*map(read_one, (first, part_of_sample(tmp_path / "other", "3/3")))])
    later = part_of_sample(tmp_path, "2/2", {"run": "run-2", "client": "late"})
    with pytest.raises(LogError, match=r"expected the logs of one run, found those of 'run-1', 'run-2'"):
        summarise([first, later])
    for key, value in (("start_state_digest", None), ("duration_s", 7), ("software", "loadsim 9")):
        other = part_of_sample(tmp_path / key, "2/2", {key: value})
        with pytest.raises(LogError, match=rf"merge: {key}: expected the same in all logs of a run, found "):
            summarise([first, other])


def read_one(place: Path) -> Any:
    (path,) = place.glob("logs/*.tlog")
    return read_log(path)


def test_a_slice_is_compared_with_nothing(tmp_path: Path) -> None:
    """It is refused by name; a whole run of slices, by a pattern, is not."""
    first, second = part_of_sample(tmp_path, "1/2"), part_of_sample(tmp_path, "2/2")
    with pytest.raises(ConfigError, match=r"expected a whole run, found slice 1/2 of one: merge all slices first"):
        compare_runs([first], [second], force=True)
    other = [part_of_sample(tmp_path / "b", text, {"run": "b"}) for text in ("1/2", "2/2")]
    write_log(read_logs(other), tmp_path / "b.tlog")
    found = compare_runs([str(tmp_path / "*of2-*/logs/*.tlog")], [tmp_path / "b.tlog"], force=True)
    assert [task["ratio"] for task in found.document["tasks"] if task["name"] == "READ"] == [1]


# --- for real -----------------------------------------------------------------------------------------------------


@pytest.mark.nightly(part="hosts")
def test_two_slices_make_the_run_of_one_machine(
    embedded_server: StartEmbedded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One run of all users, nothing lost on the way, and the plan of the whole.

    Two processes, as on two machines: all that they share is the scenario and the instant.
    """
    run = {"day_length": "3s", "ramp_up": "0s", "warm_up": "0s", "window": "3s"}
    path = written(tmp_path / "small.yaml", run=run)
    server = embedded_server(*population_of(load_scenario(str(path))))
    written(
        path,
        run=run,
        limits={"grace": "1s", "drain": "1s", "done": 0, "load": 0},
        criteria=PATIENT_CRITERIA,
        **on(server.services),
    )
    begun_s = time.monotonic()
    assert main(["init", str(path)]) == 0
    enough = timedelta(seconds=3 + 3 * (time.monotonic() - begun_s))  # however busy this machine is
    start = utc_text((datetime.now(UTC) + enough).replace(microsecond=0))
    places = [tmp_path / name for name in ("first", "second")]
    command = [sys.executable, "-m", "loadsim", "run", str(path), "--start-at", start, "--no-report"]
    each = [["--slice", "1/2,1", "--engines", "1"], ["--slice", "2/2,1", "--engines", "1"]]
    running = [
        subprocess.Popen(
            [*command, *own, "--out", str(place)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for place, own in zip(places, each, strict=True)
    ]
    told_all = [(process.communicate(timeout=PATIENCE_S), process.returncode) for process in running]
    for ((printed, said), status), text in zip(told_all, ("1/2,1", "2/2,1"), strict=True):
        assert status == 0, said
        assert f"Common start at {start}" in said
        assert f"Slice {text}: a part of the run" in printed
    log = read_logs(places)
    engines = [source for source in log.sources if source.simulates]
    assert len({source.run for source in engines}) == 1
    assert sorted(user for source in engines for user in source.assignment or ()) == list(all_users(6))
    assert len({source.client for source in engines}) == 2
    capsys.readouterr()
    assert main(["log", "answer", "--json", *map(str, places)]) == 0
    score = json.loads(capsys.readouterr().out)
    assert (score["slice"], score["users"], score["engines"], score["clients"]) == (None, 6, 2, 2)
    assert score["delivery"]["undelivered_at_end"] == 0
    assert score["verdict"]["passed"] is True
    workload = Workload(load_scenario(str(path)))
    assert score["plan_digest"] == plan_digest(workload)
    due = Counter(activity.kind for user in range(1, 7) for activity in workload.activities(user))
    tasks = {task["task"]: task["planned"] for task in score["tasks"]}
    for task, kind in (("SEND", NEW_MAIL), ("BROWSE", BROWSE), ("SCHEDULE", SCHEDULE)):
        assert tasks.get(task, 0) == due[kind]
