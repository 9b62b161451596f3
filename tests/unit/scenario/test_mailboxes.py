"""The section `mailbox`: what is read, refused and digested, and the start state that it makes."""

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_runs import live, quiet, scenario_of

from loadsim.dryrun.plan_engine import PlannedContents, plan_users
from loadsim.errors import ConfigError
from loadsim.model.content.compose import Contents
from loadsim.model.content.sized import layout
from loadsim.model.message_tag import MessageTag, body_digest
from loadsim.protocols.in_memory_mail import parse_mail
from loadsim.provisioning.start_state import StoredState, tag_of
from loadsim.scenario.mailboxes import DEEPEST, LognormalSizes, SizeTable, deepest_first, folder_names, levels
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.workload import Workload, may_be_made

FULL = (
    "mailbox={inbox: 300, deleted_items: 2, folders: 30, fan_out: 3, age_days: 90, sizes: {2K: 60%, 20K: 40%},"
    " messages_per_folder: {min: 1, average: 5, max: 40}}"
)


def scenario(*settings: str) -> Scenario:
    return load_scenario("quickstart", settings)


@pytest.mark.parametrize(
    "key",
    [
        *("inbox: 5", "deleted_items: 5", "folders: 5", "fan_out: 5", "messages_per_folder: 6", "age_days: 5"),
        *("messages_per_folder: {min: 1, average: 2, max: 3}", "sizes: {1K: 1}", "sizes: {median: 20K, mean: 33K}"),
    ],
)
def test_each_key_is_in_the_digests_and_in_the_resolved_scenario(tmp_path: Path, key: str) -> None:
    found = scenario(f"mailbox={{{key}}}")
    assert found.digest() != scenario().digest()
    assert Workload(found).start_state_digest() != Workload(scenario()).start_state_digest()
    (tmp_path / "again.yaml").write_text(found.to_yaml())
    again = load_scenario(str(tmp_path / "again.yaml"))
    assert again.mailbox == found.mailbox
    assert again.digest() == found.digest()


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (
            "{inboxes: 3}",
            "one of the keys inbox, deleted_items, folders, fan_out, messages_per_folder, public, sizes, age_days",
        ),
        ("{folders: 20000}", "mailbox.folders: expected a whole number from 1 to 10000, found 20000"),
        ("{folders: 40, fan_out: 1}", "fan_out that gives at most 10 levels of folders, found 1"),
        ("{fan_out: 1}", "mailbox.fan_out: expected a number that gives at most 10 levels of folders, found 1"),
        ("{messages_per_folder: {min: 3, average: 4, max: 5000000}}", "at most 1000000 messages, found 5000000"),
        ("{sizes: 20K}", "mailbox.sizes: expected a mapping of sizes to shares"),
        ("{sizes: {2K: 50%}}", "mailbox.sizes: expected shares that add up to 100%, found 50%"),
        ("{sizes: {2K: 50%, 2048: 50%}}", "expected each size once, found 2048"),
        ("{sizes: {100: 1}}", "mailbox.sizes.100: expected a size from 1024 bytes to 256M, found 100"),
        ("{sizes: {median: 20K}}", "mailbox.sizes.mean: expected a value, found nothing"),
        ("{sizes: {median: 20K, mean: 10K}}", "mailbox.sizes.mean: expected a mean from the median"),
        ("{sizes: {median: 20K, mean: 33K, max: 10K}}", "mailbox.sizes.max: expected a maximum of at least the median"),
    ],
)
def test_bad_mailbox_sections_are_rejected(section: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        scenario(f"mailbox={section}")
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2000), st.none() | st.integers(1, 50))
def test_folders_form_the_stated_tree(folders: int, fan_out: int | None) -> None:
    """Each name once, each parent before its children, at most `fan_out` folders in each, level by level."""
    if levels(folders, fan_out) > DEEPEST:
        return
    names = folder_names(folders, fan_out)
    assert len(set(names)) == len(names) == folders
    seen, inside = set(), Counter[str]()
    for name in names:
        parent = name.rpartition("/")[0]
        assert not parent or parent in seen
        assert may_be_made(name)
        seen.add(name)
        inside[parent] += 1
    assert all(count <= (fan_out or folders) for count in inside.values())
    depths = [name.count("/") for name in names]
    assert depths == sorted(depths)
    assert max(depths, default=-1) + 1 == levels(folders, fan_out)
    order = deepest_first(names)
    assert all(order.index(name) < order.index(name.rpartition("/")[0]) for name in names[:200] if "/" in name)


def test_sizes_have_the_stated_distribution() -> None:
    """Over evenly spaced draws; the mean of a lognormal distribution is the one that was asked for."""
    spaced = [(number + 0.5) / 100_000 for number in range(100_000)]
    table = scenario("mailbox={sizes: {20K: 25%, 1K: 60%, 1M: 15%}}").mailbox.sizes
    assert isinstance(table, SizeTable)
    assert Counter(map(table.at, spaced)) == {1024: 60_000, 20 * 1024: 25_000, 1024 * 1024: 15_000}
    assert table.at(0.0) == 1024
    lognormal = scenario("mailbox={sizes: {median: 20K, mean: 60K, max: 200M}}").mailbox.sizes
    assert isinstance(lognormal, LognormalSizes)
    sizes = [lognormal.at(u) for u in (0.0, *spaced)]
    assert median(sizes) == pytest.approx(20 * 1024, rel=0.01)
    assert fmean(sizes) == pytest.approx(60 * 1024, rel=0.02)
    assert min(sizes) == 1024
    assert all(isinstance(size, int) for size in sizes)
    assert LognormalSizes(2048, 1_000_000, 10_000).at(1 - 2**-53) == 10_000


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.integers(900, 300_000), st.integers(0, 10**6))
def test_messages_have_exactly_their_size(size_bytes: int, index: int) -> None:
    """Valid MIME by Python's own parser: one text, above 8 KB an attachment; short lines; the tag's digest."""
    message = contents.initial(
        user=3, address="u3@loadsim.test", sender=9, sender_address="u9@loadsim.test", folder="Folder 01/Folder 02",
        index=index, kind="sized", domain="loadsim.test", size_bytes=size_bytes, sent_us=1_750_000_000_000_000,
    )  # fmt: skip
    assert len(message) == size_bytes
    assert max(map(len, message.split(b"\r\n"))) <= 998
    assert b"\r" not in message.replace(b"\r\n", b"") and b"\n" not in message.replace(b"\r\n", b"")
    body = message.partition(b"\r\n\r\n")[2]
    read = message_from_bytes(message, policy=policy.default)
    tag = MessageTag.parse(read["X-LoadSim"])
    assert tag is not None and tag.body == body_digest(body)
    assert read["Date"] == "Sun, 15 Jun 2025 15:06:40 +0000"
    assert not any(part.defects for part in read.walk())
    mail = parse_mail(message)
    text_bytes, file_bytes = layout(len(message) - message.index(b"Content-Type: "))
    assert mail.structure.text is not None and mail.structure.text.size_bytes == text_bytes
    assert [part.size_bytes for part in mail.structure.attachments] == ([file_bytes] if file_bytes else [])
    for part in read.iter_attachments():
        assert len(part.get_content()) == (file_bytes + 2) // 78 * 57


contents = Contents(1)


def test_a_mailbox_has_the_stated_contents() -> None:
    """Counts, read and unread, sizes, dates in order over 90 days; one user's do not depend on the others."""
    workload = Workload(scenario(FULL))
    state = workload.start_state(3)
    assert list(state) == ["INBOX", "Deleted Items", *folder_names(30, 3)]
    assert (state["INBOX"], state["Deleted Items"]) == (300, 2)
    own = [state[name] for name in workload.own_folders(3)]
    assert 1 <= min(own) < max(own) <= 40
    profile = workload.profile(3)
    seen = [workload.initial(3, "INBOX", index).seen for index in range(300)]
    unread = profile.start_state.inbox
    assert unread > 0 and seen == [True] * (300 - unread) + [False] * unread
    dates, sizes = [], Counter[int]()
    for wanted in StoredState(workload).messages(3, "INBOX"):
        tag = tag_of(wanted.message)
        assert tag is not None and wanted.received_us == tag.sent_us
        dates.append(datetime.fromtimestamp(wanted.received_us / 1e6, UTC))
        sizes[len(wanted.message)] += 1
    assert all(before < after for before, after in pairwise(dates))
    end = datetime(2025, 12, 1, tzinfo=UTC)
    assert end - timedelta(days=90) <= dates[0] < end - timedelta(days=88)
    assert end - timedelta(days=1) < dates[-1] <= end
    assert set(sizes) == {2048, 20 * 1024}
    assert abs(sizes[2048] - 180) < 5 * math.sqrt(300 * 0.6 * 0.4)
    fewer = Workload(scenario(FULL, "topology.0.users=4"))
    assert fewer.start_state(3) == state
    sizes_of = [[each.initial(3, "INBOX", index).size_bytes for index in range(300)] for each in (workload, fewer)]
    assert sizes_of[0] == sizes_of[1]


def test_users_of_stated_mailboxes_do_all_their_tasks(tmp_path: Path) -> None:
    """They browse nested folders, move mail into them, and read as much on the first occasion as the profile has."""
    profile = quiet(
        process_inbox={"per_day": 6},
        browse={"per_day": 60},
        after_reading={"move": "100%"},
        start_state={"inbox": 3},
        load_attachment=1,
        inbox_limit=2,
    )
    made = scenario_of(
        tmp_path / "s",
        (profile, 2),
        mailbox={"inbox": 90, "folders": 8, "fan_out": 2, "sizes": {"2K": "50%", "30K": "50%"}},
    )
    lived = live(made, tmp_path)
    assert {task["outcome"] for task in lived.tape.tasks} == {"ok"}
    moved = lived.mails("moved", user=1)
    assert len(moved) == len(lived.tasks("READ", user=1)) == 3
    assert {mail["folder"] for mail in lived.mails("moved")} <= set(folder_names(8, 2))
    assert lived.tasks("LOAD ATTACHMENT")
    assert len(lived.tasks("BROWSE")) > 20
    assert not lived.tasks("EVICT")  # 87 read messages are above the limit; it counts only the users' own work
    assert {mail["folder"] for mail in lived.mails("moved")} - set(folder_names(2))


@pytest.mark.slow
def test_plan_shows_stated_mailboxes() -> None:
    """Its fillers have the sizes of a run's messages; users browse, and load attachments that only large mail has."""
    made = scenario("mailbox={inbox: 90, folders: 8, fan_out: 2, sizes: {2K: 50%, 30K: 50%}}")
    tally = plan_users(Workload(made), range(1, made.users + 1)).tally
    assert sum(tally.tasks["BROWSE"]) > 0
    assert sum(tally.tasks["LOAD ATTACHMENT"]) > 0
    assert not tally.failures
    for size_bytes in (2048, 40_000):
        arguments: dict[str, Any] = {
            "user": 3, "address": "u3@loadsim.test", "sender": 9, "sender_address": "u9@loadsim.test",
            "folder": "INBOX", "index": 1, "kind": "sized", "domain": "loadsim.test", "size_bytes": size_bytes,
        }  # fmt: skip
        structures = [parse_mail(each.initial(**arguments)).structure for each in (contents, PlannedContents(1))]
        assert structures[0] == structures[1]


@pytest.mark.slow
@given(st.integers(2, 60), st.integers(2, 60), st.sampled_from(("", "mailbox.messages_per_folder=4")))
@settings(max_examples=20, deadline=None)
def test_mailboxes_of_a_population_do_not_depend_on_the_active_users(few: int, many: int, more: str) -> None:
    """Every byte and flag, and the digests by which a server's mailboxes count as prepared; also with other keys."""

    def start(users: int) -> StoredState:
        group = f"topology=[{{profile: loadsim-5.5/medium, users: {users}}}]"
        return StoredState(Workload(scenario(group, "mailbox.population=60", *filter(None, (more,)))))

    one, other = start(few), start(many)
    user = min(few, many)
    assert one.digest(user) == other.digest(user)
    assert one.folders(user) == other.folders(user)
    for folder in one.folders(user):
        assert list(one.messages(user, folder)) == list(other.messages(user, folder))


@pytest.mark.slow
@given(st.integers(2, 30), st.integers(1, 30), st.integers(1, 500))
def test_answers_go_to_active_users_only(users: int, user: int, sender: int) -> None:
    user = min(user, users)
    group = f"topology=[{{profile: loadsim-5.5/medium, users: {users}}}]"
    workload = Workload(scenario(group, "mailbox.population=500"))
    found = workload.correspondent(user, sender)
    assert 1 <= found <= users
    assert found == sender if sender <= users else found != user


def test_senders_who_are_not_active_are_replaced_evenly() -> None:
    """Chi-squared of 9 other users, at the 99.9th percentile (Abramowitz and Stegun, table 26.8: 26.1 with 8)."""
    workload = Workload(scenario("topology=[{profile: loadsim-5.5/medium, users: 10}]", "mailbox.population=9010"))
    counts = Counter(workload.correspondent(4, sender) for sender in range(11, 9011))
    assert len(counts) == 9 and 4 not in counts
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 26.1


@pytest.mark.parametrize("population", [0, 9, 10_000_001, "all"])
def test_a_population_has_at_least_the_active_users(population: object) -> None:
    with pytest.raises(ConfigError, match=r"mailbox\.population: expected") as refused:
        scenario("topology=[{profile: loadsim-5.5/medium, users: 10}]", f"mailbox.population={population}")
    assert len(refused.value.lines) == 1
