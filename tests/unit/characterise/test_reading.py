"""Logs are counted as the generator that wrote them counted; what is not understood is counted, not guessed."""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from mail_logs import HOSTS, MailLog, Truth, iso, rfc3164, rfc5424

from loadsim.characterise.postfix import PostfixLog
from loadsim.characterise.reading import LogReading, read_logs
from loadsim.characterise.traffic import Traffic
from loadsim.errors import ConfigError

BEGIN = datetime(2025, 12, 30)
END = datetime(2026, 1, 4)


def stored(path: Path, text: str, modified: datetime = END) -> Path:
    path.write_text(text, "latin-1")
    os.utime(path, (modified.timestamp(), modified.timestamp()))
    return path


def per_user(reading: LogReading, name: str) -> Counter[int]:
    """The number of users with each count: the reading has no names."""
    return Counter(getattr(mailbox, name) for mailbox in reading.traffic.mailboxes.values())


def assert_counted(reading: LogReading, truth: Truth, users: int = 12) -> None:
    traffic = reading.traffic
    names = {*truth.sent, *truth.received}
    assert len(traffic.mailboxes) == len(names) == users
    assert per_user(reading, "sent") == Counter(truth.sent[name] for name in names)
    assert per_user(reading, "received") == Counter(truth.received[name] for name in names)
    log_ons = Counter(name.partition("@")[0] for name in truth.log_ons.elements())
    assert per_user(reading, "log_ons") == Counter(log_ons[name.partition("@")[0]] for name in names)
    assert (traffic.sizes.messages, traffic.sizes.total_bytes) == (len(truth.sizes), sum(truth.sizes))
    assert (traffic.recipients, traffic.most_recipients) == (sum(truth.recipients), max(truth.recipients))
    assert {name: traffic.counts[name] for name in truth.others} == truth.others
    hours = Counter[int]()
    for number, hour in traffic.hours.items():
        hours[number % 24] += hour.sent
    assert +hours == truth.hours


@pytest.fixture(scope="module")
def days() -> MailLog:
    """Four days over a year's turn: two hosts, reused queue ids, a filter, deferrals, rejects, bounces, IPv6, TLS."""
    log = MailLog(BEGIN)
    log.days(users=12, days=4, sent=4, from_outside=6, rate=lambda _: 1)
    return log


@pytest.mark.parametrize("written", [rfc3164, iso, rfc5424])
def test_each_user_is_counted_as_the_generator_counted(
    tmp_path: Path, days: MailLog, written: Callable[..., str]
) -> None:
    reading = read_logs([stored(tmp_path / "mail.log", written(days.ordered()))])
    assert_counted(reading, days.truth)
    assert (reading.unknown.lines, reading.yearless) == (0, written is rfc3164)
    first, last = (datetime(1970, 1, 1) + timedelta(seconds=at or 0) for at in (reading.first, reading.last))
    assert (first, last) == tuple(days.ordered()[at][0] for at in (0, -1))


def test_hosts_with_files_of_their_own_are_merged(tmp_path: Path, days: MailLog) -> None:
    paths = [
        stored(tmp_path / host, rfc3164(line for line in days.ordered() if line[2] == host)) for host in reversed(HOSTS)
    ]
    assert_counted(read_logs(paths), days.truth)


def test_a_message_that_passes_two_hosts_was_sent_once(tmp_path: Path) -> None:
    """The first host hands it to the second before its own queue id, which is the same one, is removed."""
    begin, log = datetime(2026, 3, 1, 12), MailLog(datetime(2026, 3, 1))
    log._leg(
        begin, "edge", "4AB12", "<m@x>", "ann@example.test", 5000, 1, "c[192.0.2.1], sasl_username=ann@example.test"
    )
    log._leg(begin, "store", "4AB12", "<m@x>", "ann@example.test", 5300, 1, "edge[192.0.2.2]")
    log._to(begin, "edge", "smtp", "4AB12", "bob@example.test", "store[192.0.2.3]:25", "sent (250 Ok: queued as 4AB12)")
    log._removed(begin, "edge", "4AB12")
    log._to(begin, "store", "lmtp", "4AB12", "bob@example.test", "store[private/l]", "sent (250 Saved)")
    log._removed(begin, "store", "4AB12")
    traffic = read_logs([stored(tmp_path / "log", iso(log.lines))]).traffic
    assert sorted((each.sent, each.received) for each in traffic.mailboxes.values()) == [(0, 1), (1, 0)]
    assert (traffic.counts["messages"], traffic.sizes.total_bytes) == (1, 5000)


@pytest.mark.parametrize("late_s", [0, 1, 30])
def test_a_message_is_sent_once_if_each_host_has_a_file(tmp_path: Path, late_s: int) -> None:
    """The other host's lines follow the removal of the first queue id, or come first: clocks differ."""
    begin, log = datetime(2026, 3, 1, 12), MailLog(datetime(2026, 3, 1))
    late = begin + timedelta(seconds=late_s)
    log._leg(
        late, "edge", "4AB12", "<m@x>", "ann@example.test", 5000, 1, "c[192.0.2.1], sasl_username=ann@example.test"
    )
    log._to(late, "edge", "smtp", "4AB12", "bob@example.test", "store[192.0.2.3]:25", "sent (250 Ok: queued as 4CC12)")
    log._removed(late, "edge", "4AB12")
    log._leg(begin, "store", "4CC12", "<m@x>", "ann@example.test", 5300, 1, "edge[192.0.2.2]")
    log._to(begin, "store", "lmtp", "4CC12", "bob@example.test", "store[private/l]", "sent (250 Saved)")
    log._removed(begin, "store", "4CC12")
    files = [stored(tmp_path / host, iso(line for line in log.lines if line[2] == host)) for host in ("edge", "store")]
    traffic = read_logs(files).traffic
    assert sorted((each.sent, each.received) for each in traffic.mailboxes.values()) == [(0, 1), (1, 0)]
    assert (traffic.counts["messages"], traffic.counts["passed_on"], traffic.sizes.total_bytes) == (1, 1, 5000)


def test_a_filter_that_queues_mail_again_with_sendmail_sends_nothing(tmp_path: Path) -> None:
    """`pickup` takes the mail after its first queue id is removed; here, a program then puts it into a mailbox."""
    begin, log = datetime(2026, 3, 1, 12), MailLog(datetime(2026, 3, 1))
    log.message(begin, "x@example.org", ["ann@example.test"])
    log._leg(begin, "mx1", "4FFF1", "<m@x>", "ann@example.test", 700, 1, "c[192.0.2.1], sasl_username=ann@example.test")
    log._to(begin, "mx1", "pipe", "4FFF1", "bob@example.test", "scan", "sent (delivered via scan service)")
    log._removed(begin, "mx1", "4FFF1")
    log.line(begin, "mx1", "postfix/pickup[1]", "4FFF2: uid=120 from=<ann@example.test>")
    log.line(begin, "mx1", "postfix/cleanup[1]", "4FFF2: message-id=<m@x>")
    log.line(begin, "mx1", "postfix/qmgr[1]", "4FFF2: from=<ann@example.test>, size=900, nrcpt=1 (queue active)")
    log._to(begin, "mx1", "pipe", "4FFF2", "bob@example.test", "dovecot", "sent (delivered via dovecot service)")
    log._removed(begin, "mx1", "4FFF2")
    traffic = read_logs([stored(tmp_path / "log", iso(log.lines))]).traffic
    assert sorted((each.sent, each.received) for each in traffic.mailboxes.values()) == [(0, 1), (1, 1)]
    assert (traffic.counts["messages"], traffic.counts["passed_on"], traffic.counts["to_outside"]) == (2, 1, 0)


def test_copies_from_one_client_are_messages_of_their_own(tmp_path: Path) -> None:
    """A list elsewhere sends each member a copy, with the same message id."""
    begin, log = datetime(2026, 3, 1, 12), MailLog(datetime(2026, 3, 1))
    for number in range(3):
        at, queue_id, name = begin + timedelta(seconds=2 * number), f"4FFF{number}", f"user{number}@example.test"
        log._leg(at, "mx1", queue_id, "<m@x>", f"list-{number}@example.org", 700, 1, "list[192.0.2.9]")
        log._to(at, "mx1", "lmtp", queue_id, name, "mx1[private/l]", "sent (250 Saved)")
        log._removed(at, "mx1", queue_id)
    traffic = read_logs([stored(tmp_path / "log", iso(log.lines))]).traffic
    assert (traffic.counts["messages"], traffic.sizes.total_bytes) == (3, 2100)


def test_a_probe_of_an_address_is_no_message(tmp_path: Path) -> None:
    """Postfix verifies recipients by messages that it does not deliver (`reject_unverified_recipient`)."""
    begin, log = datetime(2026, 3, 1, 12), MailLog(datetime(2026, 3, 1))
    log.message(begin, "dave@example.org", ["user1@example.test"])
    for queue_id, status in (("4FFF1", "deliverable (250 2.1.5 Ok)"), ("4FFF2", "undeliverable (550 5.1.1 Unknown)")):
        log.line(begin, "mx1", "postfix/cleanup[1]", f"{queue_id}: message-id=<{queue_id}@mx1>")
        sender = f"{queue_id}: from=<double-bounce@mx1>, size=260, nrcpt=1 (queue active)"
        log.line(begin, "mx1", "postfix/qmgr[1]", sender)
        log._to(begin, "mx1", "lmtp", queue_id, "user2@example.test", "mx1[private/l]", status)
        log._removed(begin, "mx1", queue_id)
    reading = read_logs([stored(tmp_path / "log", iso(log.lines))])
    assert (len(reading.traffic.mailboxes), +reading.traffic.counts) == (1, {"messages": 1})
    assert (reading.traffic.sizes.total_bytes, reading.unknown.lines) == (sum(log.truth.sizes), 0)


def test_words_of_others_in_a_line_change_no_figure(tmp_path: Path) -> None:
    """A subject that a check logs, and the reply of a server, have words of Postfix's own."""
    begin, log = datetime(2026, 3, 1, 12), MailLog(datetime(2026, 3, 1))
    log._leg(begin, "mx1", "4FFF1", "<m@x>", "ann@example.test", 700, 1, "c[192.0.2.1], sasl_username=ann@example.test")
    subject = "4FFF1: warning: header Subject: Re: reject: your offer from c[192.0.2.1]; from=<a> to=<b> proto=ESMTP"
    log.line(begin, "mx1", "postfix/cleanup[1]", subject)
    reply = "sent (250 Ok status=deferred (later))"
    log._to(begin, "mx1", "smtp", "4FFF1", "dave@example.org", "mx.example.org[192.0.2.7]:25", reply)
    log._removed(begin, "mx1", "4FFF1")
    counts = read_logs([stored(tmp_path / "log", iso(log.lines))]).traffic.counts
    assert +counts == {"messages": 1, "authenticated": 1, "to_outside": 1}


def test_the_same_message_id_twice_is_two_messages_if_a_user_sent_both(tmp_path: Path) -> None:
    begin, log = datetime(2026, 3, 1, 12), MailLog(datetime(2026, 3, 1))
    for queue_id in ("4AB12", "4AB13"):
        client = "c[192.0.2.1], sasl_method=PLAIN, sasl_username=ann@example.test"
        log._leg(begin, "mx1", queue_id, "<m@x>", "ann@example.test", 5000, 1, client)
        log._to(begin, "mx1", "lmtp", queue_id, "bob@example.test", "store[private/l]", "sent (250 Saved)")
    for queue_id in ("4AB12", "4AB13"):
        log._removed(begin, "mx1", queue_id)
    traffic = read_logs([stored(tmp_path / "log", iso(log.lines))]).traffic
    assert sorted((each.sent, each.received) for each in traffic.mailboxes.values()) == [(0, 2), (2, 0)]


def test_a_program_that_is_no_mailbox_receives_nothing(tmp_path: Path) -> None:
    begin, log = datetime(2026, 3, 1, 12), MailLog(datetime(2026, 3, 1))
    log.message(begin, "dave@example.org", ["user1@example.test"])
    log._leg(begin, "mx1", "4FFF1", "<n@x>", "dave@example.org", 700, 2, "c[192.0.2.1]")
    log._to(
        begin, "mx1", "pipe", "4FFF1", "staff@lists.example.test", "mailman", "sent (delivered via mailman service)"
    )
    log._to(begin, "mx1", "local", "4FFF1", "root@mx1", "local", "sent (delivered to command: /usr/bin/vacation)")
    log._to(begin, "mx1", "local", "4FFF1", "user2@example.test", "local", "sent (delivered to mailbox)")
    log._removed(begin, "mx1", "4FFF1")
    traffic = read_logs([stored(tmp_path / "log", iso(log.lines))]).traffic
    assert [each.received for each in traffic.mailboxes.values()] == [1, 1]
    assert traffic.counts["to_outside"] == 2


def test_a_message_forwarded_to_another_queue_id_is_delivered_once(tmp_path: Path) -> None:
    begin, log = datetime(2026, 3, 1, 12), MailLog(datetime(2026, 3, 1))
    log._leg(begin, "mx1", "4FFF1", "<n@x>", "dave@example.org", 700, 1, "c[192.0.2.1]")
    log.line(begin, "mx1", "postfix/cleanup[1]", "4FFF2: message-id=<n@x>")
    log._to(begin, "mx1", "local", "4FFF1", "info@mx1", "local", "sent (forwarded as 4FFF2)")
    log.line(begin, "mx1", "postfix/qmgr[1]", "4FFF2: from=<dave@example.org>, size=800, nrcpt=1 (queue active)")
    log._removed(begin, "mx1", "4FFF1")
    log._to(begin, "mx1", "lmtp", "4FFF2", "user2@example.test", "mx1[private/l]", "sent (250 Saved)")
    log._removed(begin, "mx1", "4FFF2")
    traffic = read_logs([stored(tmp_path / "log", iso(log.lines))]).traffic
    assert [each.received for each in traffic.mailboxes.values()] == [1]
    assert (traffic.counts["messages"], traffic.counts["passed_on"], traffic.counts["begun_before"]) == (1, 1, 0)


def test_the_log_begins_and_ends_amid_messages(tmp_path: Path, days: MailLog) -> None:
    """A cut message is not counted as sent, but what was delivered is; what is still queued counts as sent."""
    begin, log = datetime(2026, 3, 1, 12), MailLog(datetime(2026, 3, 1))
    for at in range(3):
        log.message(begin + timedelta(minutes=at), "a@example.test", ["b@example.test"], user="a@example.test")
    lines = log.ordered()
    per_message = len(lines) // 3
    traffic = read_logs([stored(tmp_path / "log", iso(lines[3 : -per_message + 3]))]).traffic
    assert sorted((each.sent, each.received) for each in traffic.mailboxes.values()) == [(0, 2), (2, 0)]
    assert traffic.counts["still_queued"] == 1


def test_torn_and_strange_lines_are_counted_by_shape_without_names(tmp_path: Path, days: MailLog) -> None:
    begin, log = datetime(2026, 3, 1, 12), MailLog(datetime(2026, 3, 1))
    log.message(begin, "a@example.test", ["b@example.test"], user="a@example.test")
    secret = "Zuckertuete"
    torn = [
        f"2026-03-01T12:00:00.1+01:00 mx1 postfix/qmgr[1]: 4A0111: from=<{secret}@exa",
        f"2026-03-01T12:00:00.1+01:00 mx1 postfix/lmtp[1]: 4A0111: to=<{secret}@example.test>, relay=x",
        f"2026-03-01T12:00:00.1+01:00 mx1 dovecot: imap-login: Login: user=<{secret}",
        f"{secret} 12\x00\x00\x07",
        "2026-13-01T12:00:00 mx1 postfix/qmgr[1]: 4A0111: removed",
    ]
    reading = read_logs([stored(tmp_path / "log", iso(log.lines) + "\n".join(torn))])
    assert reading.unknown.lines == len(torn)
    shapes = [shape for shape, _ in reading.unknown.most_common(10)]
    assert len(shapes) == len(torn)
    assert not any(secret.lower() in shape.lower() or "example" in shape for shape in shapes)
    assert len(reading.traffic.mailboxes) == 2


def test_a_repeated_line_counts_as_often_as_it_was_repeated(tmp_path: Path) -> None:
    log = MailLog(datetime(2026, 3, 1))
    at = datetime(2026, 3, 1, 12)
    log.message(at, "a@example.test", ["b@example.test"])
    login = "imap-login: Login: user=<b@example.test>, method=PLAIN, rip=192.0.2.1, lip=192.0.2.2, session=<x>"
    log.line(at, "mx1", "dovecot", login)
    log.line(at, "mx1", "dovecot", f"message repeated 3 times: [ {login}]")
    reading = read_logs([stored(tmp_path / "log", iso(log.lines))])
    assert reading.traffic.clients.log_ons == 4
    assert reading.unknown.lines == 0


def test_many_open_queue_ids_are_closed_early_and_counted() -> None:
    traffic = Traffic()
    log = PostfixLog(traffic, most_open=10)
    for number in range(100):
        queue_id = f"4A{number:04}"
        assert log.line(0, "mx1", "smtpd", "1", f"{queue_id}: client=c[192.0.2.1], sasl_username=ann")
        assert log.line(0, "mx1", "qmgr", "1", f"{queue_id}: from=<ann@example.test>, size=900, nrcpt=1 (queue active)")
    assert traffic.counts["evicted"] == 90
    log.end()
    assert (traffic.counts["messages"], traffic.counts["still_queued"]) == (100, 10)


def test_a_senders_mailbox_may_become_known_later(tmp_path: Path) -> None:
    """Without authentication, the sender counts as a user once mail for them was delivered here."""
    at, log = datetime(2026, 3, 1, 12), MailLog(datetime(2026, 3, 1))
    log.message(at, "a@example.test", ["b@example.test"])
    log.message(at, "stranger@example.org", ["b@example.test"])
    log.message(at, "b@example.test", ["A+news@Example.test"])
    traffic = read_logs([stored(tmp_path / "log", iso(log.lines))]).traffic
    assert sorted((each.sent, each.received) for each in traffic.mailboxes.values()) == [(1, 1), (1, 2)]


def test_a_log_on_name_that_fits_two_addresses_is_nobodys(tmp_path: Path) -> None:
    at, log = datetime(2026, 3, 1, 12), MailLog(datetime(2026, 3, 1))
    log.message(at, "x@example.org", ["a@example.test", "a@example.net", "b@example.net"])
    log.log_on(at, "a")
    log.log_on(at, "b")
    traffic = read_logs([stored(tmp_path / "log", iso(log.lines))]).traffic
    assert sorted((each.received, each.log_ons) for each in traffic.mailboxes.values()) == [
        (0, 1),
        (1, 0),
        (1, 0),
        (1, 1),
    ]
    assert traffic.counts["unmatched"] == 1


def test_the_mail_of_the_machine_itself_does_not_hide_dovecots_deliveries(tmp_path: Path) -> None:
    """The Postfix of a store that receives from elsewhere delivers what cron sends."""
    at, log = datetime(2026, 3, 1, 12), MailLog(datetime(2026, 3, 1))
    log.message(at, "root@mx1", ["root@mx1"])
    for number in range(10):
        log._dovecot(at, "mx1", f"user{number % 2}@example.test", f"<{number}@x>")
    traffic = read_logs([stored(tmp_path / "log", iso(log.lines))]).traffic
    assert sorted(each.received for each in traffic.mailboxes.values()) == [1, 5, 5]
    assert sum(hour.received for hour in traffic.hours.values()) == 11


OWN_LOG = """\
Nov 30 04:00:00 imap-login: Info: Login: user=<ann@example.test>, method=PLAIN, rip=192.0.2.1, lip=192.0.2.2, mpid=7, \
TLS, session=<a>
Nov 30 04:00:01 imap(ann@example.test)<7><a>: Info: ID sent: name=Thunderbird, version=128.0
Nov 30 04:00:02 lmtp(ann@example.test)<8><b>: Info: msgid=<1@x>: saved mail to INBOX
Nov 30 04:00:02 lmtp(ann@example.test)<8><c>: Info: sieve: msgid=<2@x>: stored mail into mailbox 'Junk'
Nov 30 04:00:02 lmtp(ann@example.test)<8><c>: Info: sieve: msgid=<3@x>: discarded duplicate forward
Nov 30 04:00:03 lda(bob)<9><d>: Info: msgid=<1@x>: saved mail to INBOX
Nov 30 04:00:03 lmtp(bob)<9><d>: Info: sieve: msgid=<5@x>: fileinto action: stored mail into mailbox 'Junk'
Nov 30 04:00:03 lmtp(bob)<9><d>: Info: save: box=Junk, uid=5, msgid=<5@x>, size=900
Nov 30 04:00:03 imap(bob)<9><d>: Info: expunge: box=Junk, uid=5, msgid=<5@x>, size=900
Nov 30 04:00:03 lmtp(22587, bob): Info: 5GjrD: msgid=<4@x>: saved mail to INBOX
Nov 30 04:00:04 pop3-login: Info: Logged in: user=<bob>, method=CRAM-MD5, rip=2001:db8::1, lip=::1, mpid=8, session=<e>
Nov 30 04:00:05 imap(ann@example.test)<7><a>: Info: Disconnected: Logged out in=99 out=512 deleted=0 expunged=2 \
trashed=0 hdr_count=3 hdr_bytes=300 body_count=4 body_bytes=9000
Nov 30 04:00:06 imap-login: Info: Disconnected: Connection closed (auth failed, 1 attempts in 2 secs): user=<eve>
Nov 30 04:00:07 auth: Error: passwd-file(eve): no such file
"""


def test_dovecots_own_log_has_log_ons_deliveries_and_programs(tmp_path: Path) -> None:
    reading = read_logs([stored(tmp_path / "dovecot.log", OWN_LOG)])
    found = sorted((each.received, each.log_ons) for each in reading.traffic.mailboxes.values())
    clients = reading.traffic.clients
    assert (found, reading.unknown.lines) == ([(2, 1), (3, 1)], 0)
    assert (dict(clients.services), dict(clients.methods)) == ({"imap": 1, "pop3": 1}, {"PLAIN": 1, "CRAM-MD5": 1})
    assert (clients.encrypted, clients.ipv6, clients.failed) == (1, 1, 1)
    assert (dict(clients.programs), clients.bodies, clients.expunged) == ({"Thunderbird": 1}, 4, 2)


def refused(paths: Iterable[Path]) -> str:
    with pytest.raises(ConfigError) as caught:
        read_logs([*paths])
    assert len(caught.value.lines) == 1
    return str(caught.value)


def test_logs_without_mail_are_refused(tmp_path: Path) -> None:
    log_on = stored(tmp_path / "dovecot.log", OWN_LOG.splitlines(keepends=True)[0])
    assert "expected mail, found log-ons only" in refused([log_on])
    foreign = stored(tmp_path / "syslog", "2026-03-01T12:00:00 host kernel: carol\n")
    assert "found none in 1 lines, 1 of other programs" in refused([foreign])
    text = stored(tmp_path / "secret.txt", "Zuckertuete 12\n")
    line = refused([text])
    assert f"{text}: line 1: expected a line of Postfix or Dovecot" in line
    assert "Zuckertuete" not in line


ADDRESSED = ">, orig_to=<b>, relay=x,"
HOSTILE = {
    "postfix/lmtp[1]: A1: ": ("to=<a" + ADDRESSED, "to=<a>, relay=x, status="),
    "postfix/qmgr[1]: A1: ": ("from=<a>, size=1, nrcpt=1 ", "from=<a>, size=" + "9" * 5000),
    "postfix/smtpd[1]: A1: ": ("client=x, sasl_username=a, sasl_sender=",),
    "dovecot: ": (
        "lmtp(a)<x><y>[z] msgid=",
        "lmtp(a): msgid=a: a action: saved mail to ",
        "imap(a)<x>: expunged=1 body_count=",
        "imap-login: ID sent: , name=a",
    ),
    "postfix/smtp[1]: message repeated ": ("9" * 5000, "1 times: [ "),
}


@pytest.mark.parametrize("begin", HOSTILE)
def test_no_line_takes_more_than_linear_time_or_ends_the_reading(tmp_path: Path, begin: str, days: MailLog) -> None:
    """Pieces of lines, repeated to the longest line: counted as unknown, if they mean anything at all."""
    good = rfc3164(days.ordered())
    bad = [f"Jan  3 23:59:59 mx1 {begin}{(piece * (1 + 65_000 // len(piece)))[:65_000]}" for piece in HOSTILE[begin]]
    reading = read_logs([stored(tmp_path / "mail.log", good + "\n".join(bad) + "\n")])
    assert reading.lines == good.count("\n") + len(bad)
    assert sum(per_user(reading, "sent").elements()) == sum(days.truth.sent.values())
