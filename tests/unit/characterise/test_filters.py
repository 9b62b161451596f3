"""A message that passes a filter or an alias list is one message, as real Postfixes with such filters log it."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from mail_logs import MailLog, iso

from loadsim.characterise.reading import read_logs
from loadsim.characterise.traffic import Traffic
from loadsim.characterise.workload import workload_of
from loadsim.findings.catalogue import Code

BEGIN = datetime(2026, 3, 1, 12)
LATER = BEGIN + timedelta(minutes=2)
LOGIN = "c[192.0.2.1], sasl_method=PLAIN, sasl_username="
OWN = "localhost[127.0.0.1]"
STORE = "store[private/l]"
SAVED = "sent (250 2.0.0 Saved)"


def traffic_of(tmp_path: Path, log: MailLog) -> Traffic:
    (tmp_path / "mail.log").write_text(iso(log.lines))
    return read_logs([tmp_path / "mail.log"]).traffic


def counts(traffic: Traffic) -> list[tuple[int, int]]:
    return sorted((each.sent, each.received) for each in traffic.mailboxes.values())


def saved(log: MailLog, queue_id: str, names: Iterable[str], when: datetime = BEGIN) -> None:
    for name in names:
        log._to(when, "mx1", "lmtp", queue_id, name, STORE, SAVED)
    log._removed(when, "mx1", queue_id)


@pytest.mark.parametrize("late", [False, True])
def test_a_before_queue_filter_loses_no_login(tmp_path: Path, late: bool) -> None:
    """The first smtpd has the login and no queue id, the second the reverse; a stranger's HELO names a user."""
    log, smtpd = MailLog(BEGIN), "postfix/smtpd[7]"
    accepted = "proxy-accept: END-OF-MESSAGE: 250 2.0.0 Ok: queued as 4FFF1; from=<ann@elsewhere.test> to=<bob@x.test>"
    log.line(BEGIN, "mx1", smtpd, f"NOQUEUE: client={LOGIN}ann@x.test")
    log.line(BEGIN, "mx1", "postfix/smtpd[8]", "NOQUEUE: client=c[192.0.2.9]")
    log._leg(BEGIN, "mx1", "4FFF1", "<m@x>", "ann@elsewhere.test", 700, 1, OWN)
    log._leg(BEGIN, "mx1", "4FFF2", "<n@x>", "x@example.org", 700, 1, OWN)
    if not late:
        log.line(BEGIN, "mx1", smtpd, accepted)
    saved(log, "4FFF1", ["bob@x.test"])
    saved(log, "4FFF2", ["bob@x.test"])
    if late:  # as on a real server
        log.line(BEGIN, "mx1", smtpd, accepted)
    forged = "from=<x@example.org> to=<bob@x.test> proto=ESMTP helo=<a> sasl_username=<bob@x.test>"
    log.line(BEGIN, "mx1", "postfix/smtpd[8]", f"proxy-accept: END-OF-MESSAGE: 250 Ok: queued as 4FFF2; {forged}")
    log.line(BEGIN, "mx1", smtpd, "proxy-reject: END-OF-MESSAGE: 554 5.7.0 Virus; from=<x@example.org> to=<bob@x.test>")
    traffic = traffic_of(tmp_path, log)
    assert counts(traffic) == [(0, 2), (1, 0)]
    assert +traffic.counts == {"messages": 2, "authenticated": 1, "rejected": 1, "unmatched": 1}


def test_a_before_queue_filter_that_names_no_queue_id_is_told(tmp_path: Path) -> None:
    log = MailLog(BEGIN)
    log.line(BEGIN, "mx1", "postfix/smtpd[7]", f"NOQUEUE: client={LOGIN}ann@x.test")
    log._leg(BEGIN, "mx1", "4FFF1", "<m@x>", "bob@x.test", 700, 1, OWN)
    log.line(BEGIN, "mx1", "postfix/smtpd[7]", "proxy-accept: END-OF-MESSAGE: 250 Thank you; from=<bob@x.test>")
    saved(log, "4FFF1", ["bob@x.test"])
    (tmp_path / "mail.log").write_text(iso(log.lines))
    reading = read_logs([tmp_path / "mail.log"])
    assert counts(reading.traffic) == [(1, 1)]
    untraced = {one.code: one.values for one in workload_of(reading).findings}[Code.FILTERED_MAIL_UNTRACED]
    assert untraced == {"messages": 1}


def content_filter(log: MailLog, daemon: str, reply: str, message_id: str, when: datetime, first: int) -> None:
    """Ann, who has another address, writes to Bob and, outside, to Dave, through a filter on this machine."""
    before, after, names = f"4FF{first:02}", f"4FF{first + 1:02}", ("bob@x.test", "dave@example.org")
    log._leg(when, "mx1", before, message_id, "carol@x.test", 700, 2, f"{LOGIN}ann@x.test")
    made = message_id if message_id != "<>" else f"<20260301.{after}@mx1>"  # Postfix adds it to mail from localhost
    log._leg(when, "mx1", after, made, "carol@x.test", 900, 2, OWN)
    for name in names:
        log._to(when, "mx1", daemon, before, name, "127.0.0.1[127.0.0.1]:10024", reply.format(after))
    log._removed(when, "mx1", before)
    log._to(when, "mx1", "smtp", after, names[1], "mx.example.org[192.0.2.7]:25", "sent (250 Ok: queued as 4FF99)")
    saved(log, after, names[:1], when)


TELLS = "sent (250 2.0.0 from MTA(smtp:[127.0.0.1]:10025): 250 2.0.0 Ok: queued as {})"


@pytest.mark.parametrize("daemon", ["smtp", "lmtp"])
@pytest.mark.parametrize(("reply", "message_id"), [(TELLS, "<m@x>"), (TELLS, "<>"), ("sent (250 Ok)", "<m@x>")])
@pytest.mark.parametrize("own_file", [False, True])
def test_a_content_filter_returns_the_same_message(
    tmp_path: Path, daemon: str, reply: str, message_id: str, own_file: bool
) -> None:
    """By its message id, or else by the queue id in the reply, even if a second host has a file of its own."""
    log = MailLog(BEGIN)
    content_filter(log, daemon, reply, message_id, BEGIN, 10)
    (tmp_path / "mail.log").write_text(iso(log.lines))
    if own_file:  # a filter on another host, with its own file
        for host, queue_id in (("mx1", "4FF10"), ("mx2", "4FF11")):
            lines = [line for line in iso(log.lines).splitlines(keepends=True) if f": {queue_id}: " in line]
            (tmp_path / host).write_text("".join(lines).replace(" mx1 ", f" {host} "))
        (tmp_path / "mail.log").unlink()
    found = workload_of(read_logs([*tmp_path.iterdir()]))
    assert (found.users, found.recipients, found.most_recipients) == (2, 2, 2)
    assert found.sent is not None
    assert found.received is not None
    assert (found.sent.count, found.received.count) == (1, 1)
    assert {name: found.counts[name] for name in ("messages", "passed_on", "to_outside")} == {
        "messages": 1,
        "passed_on": 2,
        "to_outside": 1,
    }
    assert found.sizes is not None
    assert found.sizes.max_bytes == 700


@pytest.mark.parametrize("daemon", ["smtp", "lmtp"])
def test_mail_without_any_trace_through_a_filter_is_told(tmp_path: Path, daemon: str) -> None:
    """After the first message with an id, the filter is known: its copy counts, by the sender."""
    log = MailLog(BEGIN)
    content_filter(log, daemon, "sent (250 Ok)", "<m@x>", BEGIN, 10)
    content_filter(log, daemon, "sent (250 Ok)", "<>", LATER, 20)
    saved(log, "4FF30", ["carol@x.test"], LATER)
    traffic = traffic_of(tmp_path, log)
    assert counts(traffic) == [(0, 2), (1, 0), (1, 1)]
    assert (traffic.counts["messages"], traffic.counts["untraced"]) == (2, 1)


def test_members_of_a_list_over_a_local_lmtp_receive_two_copies(tmp_path: Path) -> None:
    """Bob is addressed directly and by a list, whose copy has the same message id: a mailbox is no filter."""
    log, relay = MailLog(BEGIN), "127.0.0.1[127.0.0.1]:24"
    log._leg(BEGIN, "mx1", "4FF10", "<m@x>", "ann@x.test", 700, 2, f"{LOGIN}ann@x.test")
    log._to(BEGIN, "mx1", "lmtp", "4FF10", "bob@x.test", relay, SAVED)
    log._to(BEGIN, "mx1", "pipe", "4FF10", "all@x.test", "mailman", "sent (delivered via mailman service)")
    log._leg(BEGIN, "mx1", "4FF11", "<m@x>", "all-bounces@x.test", 900, 1, OWN)
    log._removed(BEGIN, "mx1", "4FF10")
    log._to(BEGIN, "mx1", "lmtp", "4FF11", "bob@x.test", relay, SAVED)
    log._removed(BEGIN, "mx1", "4FF11")
    log.message(LATER, "x@example.org", ["bob@x.test"])
    assert counts(traffic_of(tmp_path, log)) == [(0, 3), (1, 0)]


@pytest.mark.parametrize("message_id", ["<m@x>", "<>"])
def test_recipients_are_counted_after_local_aliases(tmp_path: Path, message_id: str) -> None:
    """local(8) delivers to two members of the list `staff`, and forwards to three more; one recipient bounces."""
    log = MailLog(BEGIN)
    log._leg(BEGIN, "mx1", "4FF10", message_id, "ann@x.test", 700, 3, f"{LOGIN}ann@x.test")
    log._to(BEGIN, "mx1", "lmtp", "4FF10", "bob@x.test", STORE, SAVED)
    log._to(BEGIN, "mx1", "smtp", "4FF10", "gone@example.org", "mx.example.org[192.0.2.7]:25", "bounced (550 no)")
    for name in ("carol@mx1", "dave@mx1"):
        log._to(BEGIN, "mx1", "local", "4FF10", name, "local", "sent (delivered to mailbox)")
    made = message_id if message_id != "<>" else "<20260301.4FF11@mx1>"
    log.line(BEGIN, "mx1", "postfix/cleanup[1]", f"4FF11: message-id={made}")
    log.line(BEGIN, "mx1", "postfix/qmgr[1]", "4FF11: from=<ann@x.test>, size=900, nrcpt=3 (queue active)")
    log._to(BEGIN, "mx1", "local", "4FF10", "staff@x.test", "local", "sent (forwarded as 4FF11)")
    log._removed(BEGIN, "mx1", "4FF10")
    saved(log, "4FF11", ["erin@x.test", "frank@x.test", "grace@x.test"])
    traffic = traffic_of(tmp_path, log)
    assert counts(traffic) == [(0, 1)] * 6 + [(1, 0)]
    assert (traffic.recipients, traffic.counts["messages"], traffic.sizes.max_bytes) == (7, 1, 700)


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("postfix/smtpd[1]: NOQUEUE: proxy-reject: END-OF-MESSAGE: 554 5.7.0 Virus; from=<a@x> to=<b@x>", "rejected"),
        ("postfix/smtpd[1]: NOQUEUE: reject_warning: RCPT from c[192.0.2.1]: 554 5.7.1 no; from=<a@x> to=<b@x>", ""),
        ("postfix/lmtp[1]: 4FF10: to=<b@x>, relay=r, delay=1, dsn=4.4.6, status=SOFTBOUNCE (loop)", "deferred"),
        ("postfix/qmgr[1]: 4FF10: status=deferred (bounce failed)", ""),
        ("postfix/bounce[1]: 4FF10: sender delay notification: 4FF11", ""),
        ("postfix/error[1]: 4FF11: to=<b@x>, relay=none, status=undeliverable-but-not-cached (User unknown)", ""),
        ("postfix/smtp[1]: 4FF10: breaking line > 998 bytes with <CR><LF>SPACE", ""),
        ("postfix/policy-spf[1]: 4FF10: SPF none: smtp_comment=SPF: from=<a@x>", ""),
    ],
)
def test_lines_from_public_logs(tmp_path: Path, line: str, counts: str) -> None:
    """None of these is unknown; Solaris puts an id before the same text."""
    for solaris in (False, True):
        log = MailLog(BEGIN)
        log.message(BEGIN, "x@example.org", ["bob@x.test"])
        program, _, text = line.partition(": ")
        log.line(BEGIN, "mx1", program, f"[ID 197553 mail.info] {text}" if solaris else text)
        (tmp_path / "mail.log").write_text(iso(log.lines))
        reading = read_logs([tmp_path / "mail.log"])
        assert +reading.traffic.counts == {"messages": 1} | ({counts: 1} if counts else {})
        assert reading.unknown.lines == 0
