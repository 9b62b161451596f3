"""Lines of Dovecot 2.4, and of other delivery formats, as real servers write them."""

from datetime import datetime
from pathlib import Path

import pytest
from mail_logs import MailLog, iso

from loadsim.characterise.reading import LogReading, read_logs

SESSION = "<348><C6aaGqBjDWtcAQAA>"
LOG_2_4 = f"""\
Nov 30 04:00:00 imap-login: Info: Logged in: user=<ann@x.test>, method=PLAIN, rip=127.0.0.1, lip=127.0.0.1, mpid=3, \
secured, session=<ASh3>
Nov 30 04:00:00 imap-login: Info: Logged in: user=<Ann@x.test>, method=CRAM-MD5, rip=::1, lip=::1, mpid=3, TLS, \
session=<Dr93>
Nov 30 04:00:01 imap-login: Debug: Pre-login ID sent: name=Early, Bird, version=1: user=<>, rip=127.0.0.1, secured
Nov 30 04:00:01 imap-login: Debug: Pre-login ID sent: name=Only a name: user=<>, rip=127.0.0.1, session=<KxwgE>
Nov 30 04:00:01 imap(ann@x.test)<11><DVjW>: Debug: ID sent: name=Thunderbird
Nov 30 04:00:01 imap(ann@x.test)<11><DVjW>: Info: Mailbox INBOX: expunge: uid=1, msgid=<d1@x>, size=221
Nov 30 04:00:01 imap(ann@x.test)<11><DVjW>: Info: Disconnected: Logged out in=157 out=1984 deleted=7 expunged=1 \
trashed=0 hdr_count=0 hdr_bytes=0 body_count=3 body_bytes=690
Nov 30 04:00:02 imap-login: Info: Login aborted: Connection closed (auth failed, 1 attempts in 2 secs) (auth_failed): \
user=<ann@x.test>, method=PLAIN, rip=127.0.0.1, lip=127.0.0.1, secured, session=<r3V6>
Nov 30 04:00:02 imap-login: Info: Login aborted: Connection closed (no auth attempts in 0 secs) (no_auth_attempts): \
user=<>, rip=127.0.0.1, lip=127.0.0.1, secured, session=<swDX>
Nov 30 04:00:03 pop3-login: Info: Logged in: user=<bob@x.test>, method=PLAIN, rip=127.0.0.1, lip=127.0.0.1, mpid=4
Nov 30 04:00:03 pop3(bob@x.test)<400><FufW>: Info: Disconnected: Logged out top=0/0, retr=2/246, del=1/230, size=460
Nov 30 04:00:04 lmtp(348): Info: Connect from 127.0.0.1
Nov 30 04:00:04 lmtp(ann@x.test){SESSION}: Info: msgid=unspecified: saved mail to INBOX
Nov 30 04:00:04 lmtp(bob@x.test)<348><C6aaGqBjDWtcAQAA:R2>: Info: msgid=unspecified: saved mail to INBOX
Nov 30 04:00:04 lmtp(348): Info: Disconnect from 127.0.0.1: Logged out (state=READY)
"""


def of_bob(tmp_path: Path, *lines: str) -> tuple[int, int]:
    """Return what Bob received, and the unknown lines; Ann received one message."""
    at, log = datetime(2026, 3, 1, 12), MailLog(datetime(2026, 3, 1))
    log._dovecot(at, "mx1", "ann@x.test", "<first@x>")
    for line in lines:
        log.line(at, "mx1", "dovecot", line)
    (tmp_path / "log").write_text(iso(log.lines))
    reading = read_logs([tmp_path / "log"])
    return sum(each.received for each in reading.traffic.mailboxes.values()) - 1, reading.unknown.lines


def test_dovecot_2_4_is_read(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG_2_4)
    reading: LogReading = read_logs([tmp_path / "log"])
    clients = reading.traffic.clients
    found = sorted((each.received, each.log_ons) for each in reading.traffic.mailboxes.values())
    assert (found, reading.unknown.lines) == ([(1, 1), (1, 2)], 0)
    assert (clients.encrypted, clients.ipv6, clients.failed, clients.sessions_ended) == (1, 1, 1, 2)
    assert (clients.bodies, clients.expunged) == (3 + 2, 1 + 1)
    assert dict(clients.programs) == {"Early": 1, "Only a name": 1, "Thunderbird": 1}


def test_a_message_that_sieve_stores_in_two_folders_is_received_once(tmp_path: Path) -> None:
    copies = [
        f"lmtp(bob@x.test){session}: sieve: msgid=<d12@x>: {stored}"
        for session in (SESSION, "<348><C6aaGqBjDWtcAQAA:T2>")
        for stored in ("fileinto action: stored mail into mailbox 'Two'", "stored mail into mailbox 'INBOX'")
    ]
    assert of_bob(tmp_path, *copies) == (2, 0)
    without_session = "lmtp(348, bob@x.test): msgid=<d12@x>: saved mail to INBOX"
    assert of_bob(tmp_path, without_session, without_session) == (2, 0)


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("from=<x@x>, subject=Re: you, size=9, msgid=<d1@x>, delivery_time=29ms, saved mail to INBOX", (1, 0)),
        ("sieve: msgid=<d1@x>, size=9: stored mail into mailbox 'Lists: all, old'", (1, 0)),
        ("msgid=<a: saved mail to INBOX@x>: save failed to open mailbox INBOX: Quota exceeded", (0, 1)),
        ("sieve: msgid=<a: stored mail into mailbox 'INBOX'@x>: marked message to be discarded", (0, 1)),
    ],
)
def test_the_words_of_others_in_a_delivery_are_no_delivery(tmp_path: Path, text: str, counted: tuple[int, int]) -> None:
    assert of_bob(tmp_path, f"lmtp(bob@x.test){SESSION}: {text}") == counted
