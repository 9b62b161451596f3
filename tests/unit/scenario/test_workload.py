"""The plan of each user: rates, kinds and recipients as in the tables, independent of other users' draws."""

import math
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b, sha256
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.errors import ConfigError
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import (
    BROWSE,
    NEW_MAIL,
    PROCESS_INBOX,
    SCHEDULE,
    SIZED,
    Activity,
    Addressing,
    Workload,
    combine_digests,
    plan_digest,
)

LIMIT = 4.75
"""Standard deviations that a right plan exceeds once in a million seeds."""

PER_DAY = {NEW_MAIL: 4, PROCESS_INBOX: 12, BROWSE: 15, SCHEDULE: 5}
"""Compaq 1997, Table 1: the activities of a Medium user, in times a day."""


def workload(groups: Mapping[str, int], *overrides: str) -> Workload:
    topology = ", ".join(f"{{profile: {name}, users: {users}}}" for name, users in groups.items())
    return Workload(load_scenario("quickstart", [f"topology=[{topology}]", "run={day_length: 8h}", *overrides]))


def all_three(users: int, *overrides: str) -> Workload:
    return workload({f"loadsim-5.0/{name}": users for name in ("light", "medium", "heavy")}, *overrides)


def strays(observed: Sequence[float], expected: Sequence[float], degrees: int | None = None) -> float:
    """Pearson's chi-square in standard deviations of a normal distribution (Wilson and Hilferty 1931)."""
    assert len(observed) == len(expected)
    assert min(expected) >= 5
    k = degrees or len(observed) - 1
    chi_square = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    return (math.cbrt(chi_square / k) - (1 - 2 / (9 * k))) / math.sqrt(2 / (9 * k))


def follows(counts: Counter[Any], weights: Mapping[Any, float]) -> bool:
    if any(not weights.get(name) for name in counts):
        return False
    names = [name for name, weight in weights.items() if weight]
    total = sum(weights.values())
    expected = [counts.total() * weights[name] / total for name in names]
    return strays([counts[name] for name in names], expected) < LIMIT


def own_mail(load: Workload, user: int) -> list[tuple[Activity, str]]:
    """Return a user's activities, and the kinds of their new messages."""
    profile = load.profile(user)
    return [
        (each, load.message_kind(user, profile, "new.kind", each.number) if each.kind == NEW_MAIL else "")
        for each in load.activities(user)
    ]


def processes_s(load: Workload, user: int, day_s: float) -> list[tuple[str, int, float]]:
    """Each activity's kind and number, and its instant in seconds of day, from the description of the plan.

    Activities of a kind follow each other by gaps of -ln(1 - u) / rate; u is the upper 53 bits of 64 of BLAKE2b over
    `seed/user/kind/number`.
    """
    found = []
    for kind, per_day in PER_DAY.items():
        at_s = 0.0
        for number in range(1000):
            digest = blake2b(f"{load.seed}/{user}/{kind}/{number}".encode(), digest_size=8).digest()
            at_s -= math.log1p(-(int.from_bytes(digest) >> 11) / 2**53) * day_s / per_day
            found.append((kind, number, at_s))
    return found


@pytest.mark.parametrize("day_length_s", [28800, 300, 7.3])
def test_a_plan_without_nights_has_the_described_due_times(day_length_s: float) -> None:
    """Three days: the due times are those of the processes, rounded to microseconds, and the digest is of these."""
    load = workload({"loadsim-5.0/medium": 4}, f"run={{day_length: {day_length_s}s, days: 3}}")
    for user in range(1, 5):
        described = sorted(
            (due_us, kind, number)
            for kind, number, at_s in processes_s(load, user, day_length_s)
            if (due_us := round(at_s * 1e6)) < load.duration_us
        )
        assert list(load.activities(user)) == described
        lines = [*load.planned(user)]
        begins = [f"{due_us} {kind} {number}" for due_us, kind, number in described]
        assert all(line.startswith(begin) for line, begin in zip(lines, begins, strict=True))
        assert load.user_digest(user) == sha256("".join(f"{line}\n" for line in lines).encode()).digest()


@pytest.mark.parametrize(
    ("night", "day_length_s", "night_s"), [("4h", 28800, 14400), ("1s", 300, 1 / 96), ("16h", 60, 120)]
)
def test_nights_delay_later_activities(tmp_path: Path, night: str, day_length_s: float, night_s: float) -> None:
    """The processes count days only: in a run with nights each activity is later by as many as came before it."""
    (tmp_path / "own.yaml").write_text(f"name: own\nfrom: loadsim-5.0/medium\nnight: {night}\n")
    load = workload({str(tmp_path / "own.yaml"): 4}, f"run={{day_length: {day_length_s}s, days: 3}}")
    day_us, night_us = round(day_length_s * 1e6), round(night_s * 1e6)
    assert abs(load.duration_us - 3 * (day_us + night_us)) <= 3  # whole microseconds of each
    for user in range(1, 5):
        plan = list(load.activities(user))
        assert plan == sorted(
            (at_us + at_us // day_us * night_us, kind, number)
            for kind, number, at_s in processes_s(load, user, day_length_s)
            if (at_us := round(at_s * 1e6)) < 3 * day_us
        )
        assert all(each.due_us % (day_us + night_us) < day_us for each in plan)
        assert plan[-1].due_us >= 2 * (day_us + night_us)


def test_a_users_plan_does_not_depend_on_other_users() -> None:
    """Users added to the population: who has the same profile as before does the same, at the same times."""
    few, many = workload({"loadsim-5.0/light": 30}), workload({"loadsim-5.0/light": 30, "loadsim-5.0/heavy": 17})
    same = [user for user in range(1, 31) if many.profile(user) == few.profile(user)]
    assert len(same) > 10
    assert all(own_mail(few, user) == own_mail(many, user) for user in same)


@pytest.mark.slow
@given(st.permutations(range(1, 16)), st.lists(st.integers(0, 15), max_size=4))
@settings(deadline=None, max_examples=20)
def test_the_plan_digest_does_not_depend_on_the_partition(order: list[int], cuts: list[int]) -> None:
    """Users planned in any order by any number of engines, each with a workload of its own, and some without users."""
    edges = sorted({0, *cuts, 15})
    own: dict[int, bytes] = {}
    for low, high in pairwise(edges):
        load = all_three(5)
        own.update((user, load.user_digest(user)) for user in order[low:high])
    assert combine_digests([own[user] for user in sorted(own)]) == plan_digest(all_three(5))


def test_the_plan_is_the_same_in_another_process() -> None:
    """In another directory, with other hashes of strings, which a process has from its start to its end."""
    program = (
        "from loadsim.scenario.scenario import load_scenario\n"
        "from loadsim.scenario.workload import Workload, plan_digest\n"
        "print(plan_digest(Workload(load_scenario('quickstart'))))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd="/", capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == plan_digest(Workload(load_scenario("quickstart")))


@pytest.mark.parametrize(
    ("change", "same"),
    [
        *(("run.seed=2", False), ("topology.0.users=8", False), ("lists.seed=7", False)),
        *(("topology.0.protocol=fake", True), ("weights.READ=3", True)),
    ],
)
def test_the_plan_digest_changes_with_the_plan_alone(change: str, same: bool) -> None:
    assert (plan_digest(all_three(7, change)) == plan_digest(all_three(7))) == same


@pytest.mark.parametrize("row", ["new_mail: {recipients: 4}", "messages: {ups4K: 50}"])
def test_the_plan_digest_changes_with_the_profile(tmp_path: Path, row: str) -> None:
    """The rate of an activity, who gets its mail, and the kinds of messages."""
    (tmp_path / "other.yaml").write_text(f"from: loadsim-5.0/light\nname: other\n{row}\n")
    other = workload({str(tmp_path / "other.yaml"): 200})
    assert plan_digest(other) != plan_digest(workload({"loadsim-5.0/light": 200}))


@pytest.mark.parametrize("name", ["loadsim-5.0/medium", "loadsim-5.5/light"])
def test_message_kinds_follow_the_weights(name: str) -> None:
    """20,000 messages: chi-square against the weights; what has 0 is never sent."""
    load = workload({name: 40})
    profile = load.profile(1)
    sent = Counter(load.message_kind(1 + k % 40, profile, "new.kind", k)[0] for k in range(20_000))
    assert profile.messages is not None
    assert follows(sent, profile.messages)


def test_receipts_are_drawn_apart(tmp_path: Path) -> None:
    """They change no other draw; a plan without any is that of a profile that does not state them."""
    keys = {"without": "{}", "none": "{delivery: 0%, read: 0%, returned: 100%}", "some": "{delivery: 30%, read: 50%}"}
    plans = {}
    for name, receipts in keys.items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(f"name: asking\nfrom: loadsim-5.0/heavy\nreceipts: {receipts}\n")
        load = workload({str(path): 100})
        plans[name] = [line for user in range(1, 101) for line in load.planned(user)]
    heavy = workload({"loadsim-5.0/heavy": 100})
    assert plans["without"] == plans["none"] == [line for user in range(1, 101) for line in heavy.planned(user)]
    stated = [re.fullmatch(r"(.*?)( delivery receipt)?( read receipt)?", line) for line in plans["some"]]
    assert [found[1] for found in stated if found] == plans["without"]
    new = [found for found in stated if found and f" {NEW_MAIL} " in found[1]]
    for group, share in ((2, 0.3), (3, 0.5)):
        requested = sum(found[group] is not None for found in new)
        assert abs(requested - share * len(new)) < LIMIT * math.sqrt(share * (1 - share) * len(new))


def test_message_sizes_follow_the_distribution() -> None:
    """20,000 messages: as many in each tenth of the lognormal distribution."""
    load = workload({"exchange/100": 40})
    profile = load.profile(1)
    drawn = [load.message_kind(1 + k % 40, profile, "new.kind", k) for k in range(20_000)]
    assert {kind for kind, _ in drawn} == {SIZED}
    logarithm = NormalDist(math.log(4096), math.sqrt(2 * math.log(75 / 4)))  # of a median of 4K, and a mean of 75K
    tenths = Counter(int(10 * logarithm.cdf(math.log(size or 1))) for _, size in drawn)
    assert strays([tenths[at] for at in range(3, 10)], [2000.0] * 7) < LIMIT  # the least size is 1K


def test_recipients_are_random_others() -> None:
    """Three different users, never oneself, everybody else equally often, in each place."""
    load = workload({"loadsim-5.0/medium": 40})
    profile = load.profile(1)
    for user in (1, 17, 40):
        others = [other for other in range(1, 41) if other != user]
        to = [load.addressing(user, profile, NEW_MAIL, index).users for index in range(3_000)]
        assert all(len(users) == len(set(users)) == 3 for users in to)
        for place in range(3):
            found = Counter(users[place] for users in to)
            assert set(found) == set(others)
            assert strays([found[other] for other in others], [3_000 / 39] * 39) < LIMIT


def test_thirty_percent_of_messages_go_to_a_list() -> None:
    load = workload({"loadsim-5.0/heavy": 200})
    profile, lists = load.profile(1), len(load.population.lists)
    chosen = Counter(load.addressing(1 + k % 200, profile, "forward", f"n{k}.0").list_index for k in range(10_000))
    without = chosen.pop(None)
    assert strays([without, 10_000 - without], [7_000, 3_000]) < LIMIT
    assert set(chosen) <= set(range(lists))
    assert strays([chosen[index] for index in range(lists)], [(10_000 - without) / lists] * lists) < LIMIT


def test_recipients_are_individuals_and_list_members() -> None:
    """Individuals and members, each once; the sender only when on the list; addresses name users, then the list."""
    load = workload({"loadsim-5.0/heavy": 200})
    members = load.population.lists.members(1)
    individuals = (members[0], 199, 3)
    to = Addressing(individuals, 1)
    assert load.recipients(to) == {199, 3, *members}
    assert load.addresses(to) == [
        *(f"user{user:05d}@loadsim.test" for user in individuals),
        load.population.lists.address(1),
    ]
    assert load.recipients(Addressing((5, 6), None)) == {5, 6}


def test_of_two_users_each_writes_to_the_other() -> None:
    two = workload({"loadsim-5.0/medium": 2}, "lists={count: 0}")
    profile = two.profile(1)
    assert [two.addressing(user, profile, NEW_MAIL, 0) for user in (1, 2)] == [
        Addressing((2,), None),
        Addressing((1,), None),
    ]
    assert [two.initial(user, "INBOX", 0).sender for user in (1, 2)] == [2, 1]
    assert len(plan_digest(two)) == 64


def test_one_user_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^quickstart: topology: expected at least 2 users .*, found 1$"):
        workload({"loadsim-5.0/medium": 1})


def test_each_read_message_has_one_outcome_in_proportion() -> None:
    """20,000 messages: exactly one outcome each, by chi-square as often as the profile has it; copy never."""
    load = all_three(5)
    outcomes = load.profile(1).after_reading
    found = Counter(load.outcome(1, "after reading", outcomes, f"n2.{k}") for k in range(20_000))
    assert found.total() == 20_000
    assert follows(found, asdict(outcomes))


def test_schedule_files_have_the_published_sizes() -> None:
    """5.0: 22K on average, and no minimum or maximum published; 5.5: 5 to 40K, 22K on average (K is 1,024 bytes)."""
    old, new = workload({"loadsim-5.0/heavy": 2}), workload({"loadsim-5.5/heavy": 2})
    assert {old.schedule_bytes(1, old.profile(1), index) for index in range(50)} == {22 * 1024}
    sizes = [new.schedule_bytes(1, new.profile(1), index) for index in range(4_000)]
    assert 5 * 1024 <= min(sizes) <= max(sizes) <= 40 * 1024
    # No distribution on an interval has a standard deviation above half its length: an error of 17.5K / sqrt(4000).
    assert abs(sum(sizes) / 4_000 - 22 * 1024) < LIMIT * 17.5 * 1024 / math.sqrt(4_000)


def test_initial_messages_come_from_other_users_and_are_unread_in_the_inbox() -> None:
    """Senders are all users but the owner; ids are unique; kinds follow the weights; only the Inbox has unread mail."""
    load = workload({"loadsim-5.0/heavy": 12})
    senders: Counter[int] = Counter()
    kinds: Counter[str] = Counter()
    ids = set()
    for user in range(1, 13):
        for folder, count in load.start_state(user).items():
            for index in range(count):
                initial = load.initial(user, folder, index)
                assert initial.seen == (folder != "INBOX")
                assert initial.sender != user
                senders[initial.sender] += 1
                kinds[initial.kind] += 1
                ids.add(initial.id)
    assert len(ids) == senders.total() == 12 * (9 + 1 + 300)
    assert strays([senders[user] for user in range(1, 13)], [310.0] * 12) < LIMIT
    assert follows(kinds, load.profile(1).messages)


def test_the_start_state_digest_is_that_of_the_mailboxes(tmp_path: Path) -> None:
    """Seed, users, folders, and the kinds of the messages make another start; days and protocols do not."""
    (tmp_path / "kinds.yaml").write_text("from: loadsim-5.0/light\nname: kinds\nmessages: {ups4K: 50}\n")
    (tmp_path / "folders.yaml").write_text("from: loadsim-5.0/light\nname: folders\nstart_state: {folders: 19}\n")
    light = {"loadsim-5.0/light": 5}
    digests = [
        workload(light).start_state_digest(),
        workload(light, "run.seed=2").start_state_digest(),
        workload({"loadsim-5.0/light": 6}).start_state_digest(),
        workload({"loadsim-5.0/medium": 5}).start_state_digest(),
        workload({str(tmp_path / "kinds.yaml"): 5}).start_state_digest(),
        workload({str(tmp_path / "folders.yaml"): 5}).start_state_digest(),
    ]
    assert len(set(digests)) == len(digests)
    same = workload(light, "run.days=2", "run.day_length=1h", "topology.0.protocol=aioimaplib")
    assert same.start_state_digest() == digests[0]


@pytest.mark.parametrize("per_day", ["1.0e-320", "5.0e-324"])
def test_a_rate_next_to_0_is_due_after_the_run(tmp_path: Path, per_day: str) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(f"from: loadsim-5.5/light\nname: own\nbrowse: {{per_day: {per_day}}}\n", encoding="utf-8")
    load = workload({str(own): 2})
    assert BROWSE not in {activity.kind for activity in load.activities(1)}


def test_a_plan_without_an_end_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("from: loadsim-5.5/light\nname: own\nbrowse: {per_day: 1.0e+12}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"profile own: expected at most 100,000 activities .*, found 1e\+12$"):
        workload({str(own): 2})
