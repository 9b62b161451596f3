"""Rates per user and day, days that count, hours, sizes and bursts, against a generator that knows them."""

import math
import statistics
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from mail_logs import MailLog, iso

from loadsim.characterise.reading import read_logs
from loadsim.characterise.workload import MeasuredWorkload, workload_of
from loadsim.findings.catalogue import Code

MONDAY = datetime(2026, 3, 2)


def measured(tmp_path: Path, log: MailLog) -> MeasuredWorkload:
    (tmp_path / "mail.log").write_text(iso(log.ordered()))
    return workload_of(read_logs([tmp_path / "mail.log"]))


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> tuple[MailLog, MeasuredWorkload]:
    """Five working days and a weekend of a tenth; a third of the users has six times the mail."""
    log = MailLog(MONDAY, seed=3)
    log.days(users=45, days=5, sent=4, from_outside=6, rate=lambda user: 6 if user % 3 == 0 else 1)
    log.begin = MONDAY + timedelta(days=5)
    log.days(users=45, days=2, sent=0.4, from_outside=0.6, rate=lambda _: 1)
    for host in ("mx1", "mx2"):  # the servers ran from the first midnight to the last
        for at in (MONDAY, MONDAY + timedelta(days=7, seconds=-1)):
            log.line(at, host, "postfix/master[1]", "daemon started")
    return log, measured(tmp_path_factory.mktemp("week"), log)


def test_days_with_little_mail_do_not_count(week: tuple[MailLog, MeasuredWorkload]) -> None:
    _, found = week
    assert (found.days_complete, found.days_counted) == (7, 5)
    assert 5 < found.days < 5.5  # the weekend has the mail of less than half a working day
    assert Code.LOG_DAYS_QUIET in [one.code for one in found.findings]


def test_logs_of_two_servers_that_pass_on_mail_are_told(tmp_path: Path) -> None:
    log = MailLog(MONDAY)
    log.message(MONDAY, log.address(1), [log.address(2)])
    fields = "date-time,source,event-id,message-id,recipient-address,total-bytes,sender-address"
    delivery = f"2026-03-02T00:00:00.1Z,STOREDRIVER,DELIVER,<m@x>,{log.address(1)},900,{log.address(2)}"
    (tmp_path / "MSGTRK.LOG").write_text(f"#Fields: {fields}\n{delivery}\n")
    (tmp_path / "mail.log").write_text(iso(log.ordered()))
    found = workload_of(read_logs([tmp_path / "MSGTRK.LOG", tmp_path / "mail.log"])).findings
    assert Code.LOGS_OVERLAP in [one.code for one in found]
    assert Code.LOGS_OVERLAP not in [one.code for one in measured(tmp_path, log).findings]


@pytest.mark.parametrize(("domain", "warned"), [("ad.example.test", True), ("example.test", False)])
def test_log_on_names_that_are_not_addresses_are_told(tmp_path: Path, domain: str, warned: bool) -> None:
    log = MailLog(MONDAY)
    for user in range(10):
        name, neighbour = log.address(user), log.address((user + 1) % 10)
        log.message(MONDAY, name, [neighbour], user=name.replace("example.test", domain))
    found = measured(tmp_path, log)
    assert (found.users, Code.LOG_ON_NAMES_UNMATCHED in [one.code for one in found.findings]) == (
        10 + 10 * warned,
        warned,
    )


def test_rates_are_within_four_standard_errors(week: tuple[MailLog, MeasuredWorkload]) -> None:
    """Per user and day: 4 sent, 6 from outside, and copies of others' messages; a third of the users times 6."""
    log, found = week
    mean = (1 + 1 + 6) / 3
    assert found.sent is not None
    assert found.received is not None
    assert abs(found.sent.per_day - 4 * mean) < 4 * found.sent.error + 0.03 * 4 * mean  # `days` is random, too
    expected = (6 + 4 * 2.5) * mean + 1 / 45
    assert abs(found.received.per_day - expected) < 4 * found.received.error + 0.03 * expected
    assert found.sent.count == log.truth.sent.total()
    assert found.received.count == log.truth.received.total()
    assert found.recipients == pytest.approx(statistics.fmean(log.truth.recipients))


def test_the_two_kinds_of_users_are_two_groups(week: tuple[MailLog, MeasuredWorkload]) -> None:
    _, found = week
    assert [group.users for group in found.groups] == [30, 15]
    low, high = (group.sent for group in found.groups)
    assert low is not None
    assert high is not None
    assert low.per_day == pytest.approx(4, rel=0.15)
    assert high.per_day == pytest.approx(24, rel=0.15)


def test_sizes_are_those_of_the_messages(week: tuple[MailLog, MeasuredWorkload]) -> None:
    log, found = week
    sizes = log.truth.sizes
    assert found.sizes is not None
    assert found.sizes.median_bytes == pytest.approx(statistics.median(sizes), rel=0.05)  # a bucket
    assert (found.sizes.mean_bytes, found.sizes.max_bytes) == (pytest.approx(statistics.fmean(sizes)), max(sizes))
    for edge, share in found.sizes.shares:
        assert share == pytest.approx(sum(size < edge for size in sizes) / len(sizes))
    assert found.sizes.shares[-1][1] == 1.0


def test_hours_and_the_days_shape_are_those_of_the_counted_days(week: tuple[MailLog, MeasuredWorkload]) -> None:
    """Hours 8 to 17 have five times the mail of the others, to within four standard errors of each."""
    _, found = week
    assert len(found.day_shape) == len(found.hours) == 24
    assert max(found.day_shape) == 1000
    total = sum(sent for sent, _, _ in found.hours)
    user_days = 45 * 5
    for hour, (sent, _, _) in enumerate(found.hours):
        expected = total * (5 if 8 <= hour < 18 else 1) / (10 * 5 + 14)
        assert abs(sent - expected) < 4 * math.sqrt(expected / user_days)


def test_a_burst_is_found(tmp_path: Path) -> None:
    log = MailLog(MONDAY)
    for minute in range(60):
        log.message(MONDAY + timedelta(hours=3, minutes=minute), "dave@example.org", ["user1@example.test"])
    everybody = [log.address(user) for user in range(1, 31)]
    for second in range(59):
        log.message(MONDAY + timedelta(hours=3, minutes=30, seconds=second), "dave@example.org", everybody)
    found = measured(tmp_path, log)
    assert (found.busiest_minute, found.most_recipients) == (60, 30)
    assert found.busiest_minute_to_hour == pytest.approx(60 * 60 / 119)
    assert (found.day_shape, found.hours) == ((), ())  # there is no complete day
    assert Code.LOG_DAYS_INCOMPLETE in [one.code for one in found.findings]


def test_missing_hours_of_a_busy_server_are_stated(tmp_path: Path) -> None:
    log = MailLog(MONDAY)
    for hour in (*range(5), *range(8, 12)):
        for minute in range(40):
            log.message(MONDAY + timedelta(hours=hour, minutes=minute), "dave@example.org", ["user1@example.test"])
    found = {one.code: one for one in measured(tmp_path, log).findings}
    assert found[Code.LOG_HOURS_MISSING].values == {"hours": 3, "of": 12}


def test_shares_of_sizes_rise(week: tuple[MailLog, MeasuredWorkload]) -> None:
    _, found = week
    assert found.sizes is not None
    assert all(low <= high for (_, low), (_, high) in pairwise(found.sizes.shares))
