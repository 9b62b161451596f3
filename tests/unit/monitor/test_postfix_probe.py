"""The readers of the probe `postfix`: listings of a queue, and logs that are written, rotated and cut meanwhile."""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_runs import NOWHERE

from loadsim.errors import ConfigError
from loadsim.monitor.log_tail import LogTail
from loadsim.monitor.postfix_probe import (
    LONGEST_MESSAGE_BYTES,
    QUEUES,
    LogCounter,
    LogRates,
    QueueListing,
    lines_of,
    open_probe,
    queue_figures,
    sample_of,
)

NOW_S = 1_795_450_000

MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "queue_name": st.sampled_from(QUEUES),
            "queue_id": st.just("4T1"),
            "arrival_time": st.integers(0, NOW_S + 10),
            "message_size": st.integers(0, 10**9),
            "sender": st.text(max_size=5),
            "recipients": st.lists(st.fixed_dictionaries({"address": st.text(max_size=5)}), max_size=3),
        }
    ),
    max_size=20,
)


@settings(max_examples=30)
@given(MESSAGES, st.integers(1, 50))
def test_a_listing_is_read_in_any_pieces(messages: list[dict[str, object]], piece: int) -> None:
    """The figures are those of the messages; an arrival in the future has the age 0."""
    listing = "".join(f"{json.dumps(message)}\n" for message in messages).encode()
    pieces = [listing[at : at + piece] for at in range(0, len(listing), piece)]
    found = queue_figures(lines_of(pieces), NOW_S)
    # An administrator sends what is held: its age says nothing about the server.
    to_send = [message for message in messages if message["queue_name"] != "hold"]
    ages = [max(0, NOW_S - int(str(message["arrival_time"]))) for message in to_send]
    of_queue = Counter(message["queue_name"] for message in messages)
    assert found == {f"{queue}_messages": of_queue[queue] for queue in QUEUES} | {
        "send_queue_messages": len(to_send),
        "send_queue_recipients": sum(len(list(message["recipients"])) for message in to_send),  # type: ignore[call-overload]
        "recipients": sum(len(list(message["recipients"])) for message in messages),  # type: ignore[call-overload]
        "queue_bytes": sum(int(str(message["message_size"])) for message in messages),
        "oldest_message_s": max(ages, default=0),
    }


GOOD = {"queue_name": "hold", "arrival_time": 1, "message_size": 1, "recipients": []}


@pytest.mark.parametrize(
    "line",
    [
        "-Queue ID-  --Size--",
        "[" * 100_000,
        *(json.dumps({name: value for name, value in GOOD.items() if name != missing}) for missing in GOOD),
        json.dumps(GOOD | {"queue_name": []}),
        json.dumps(GOOD | {"arrival_time": float("nan")}),
        json.dumps(GOOD | {"message_size": True}),
        json.dumps(GOOD | {"recipients": 5}),
    ],
    ids=range(10),
)
def test_a_malformed_listing_is_a_failed_sample(line: str) -> None:
    """It shows nothing of the addresses that it may have."""
    assert queue_figures([json.dumps(GOOD).encode()], NOW_S)["hold_messages"] == 1
    with pytest.raises(ValueError, match=r"^expected .* as postqueue -j prints them, found something else$"):
        queue_figures([line.encode()], NOW_S)


def test_a_listing_is_followed_by_a_pause() -> None:
    """Without figures, and also after a listing that failed: neither takes the server's time again at once."""
    line = json.dumps(GOOD | {"recipients": [{}, {}]})
    command = [sys.executable, "-Sc", f"print({line!r})"]
    without = QueueListing(command, pause_s=0)
    assert [without.sample()["recipients"] for _ in range(2)] == [2, 2]
    having = QueueListing(command, pause_s=1e9)
    assert having.sample()["recipients"] == 2
    assert [having.sample() for _ in range(3)] == [{}, {}, {}]
    failing = QueueListing(["false"], pause_s=1e9)
    with pytest.raises(OSError, match="exit status 1"):
        failing.sample()
    assert failing.sample() == {}


def test_a_listing_that_fails_loses_no_deliveries(tmp_path: Path) -> None:
    failing, log = tmp_path / "failing", tmp_path / "mail.log"
    log.touch()
    listing = QueueListing(["sh", "-c", f"! test -e {failing}"], pause_s=0)
    sample = sample_of(listing, LogRates(log, "postfix"))
    assert "sent_per_s" not in sample()
    log.write_text(f"{SENT}\n" * 10)
    failing.touch()
    with pytest.raises(OSError, match="exit status 1"):
        sample()
    failing.unlink()
    figures = sample()
    assert figures["sent_per_s"] > 0
    assert figures["active_messages"] == 0


def test_a_line_has_a_limit() -> None:
    """A program that prints one endless line does not fill the memory."""
    with pytest.raises(ValueError, match="expected lines of at most"):
        list(lines_of(b"x" * (1 << 20) for _ in range((LONGEST_MESSAGE_BYTES >> 20) + 1)))


SENT = (
    "Nov  3 06:23:01 mail postfix/lmtp[7516]: 2E44B9A03F7: to=<a@b.test>, relay=mail[/run/lmtp], delay=0.07,"
    " delays=0/0.02/0.02/0.03, dsn=2.0.0, status=sent (250 2.0.0 <a@b.test> Saved)"
)


def counted(*lines: str, name: str = "postfix") -> dict[str, int]:
    return dict(LogCounter(name).counts("".join(f"{line}\n" for line in lines).encode()))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (SENT, "sent"),
        (SENT.replace("Nov  3 06:23:01", "2026-11-23T16:23:01.123456+01:00"), "sent"),
        (f"2026-11-23T15:23:01.123456789Z {SENT}", "sent"),  # docker logs -t
        (SENT.replace("[7516]:", " 7516 - -"), "sent"),  # RFC 5424
        (SENT.replace("Nov  3 06:23:01", "<22>1 2026-11-23T16:23:01Z").replace("[7516]:", " 7516 - - "), "sent"),
        (SENT.replace(" mail ", "  mail  ", 1), "sent"),
        (SENT.replace("06:23:01", "06:23:01.123456"), "sent"),  # journalctl -o short-precise
        (SENT.replace("<a@b.test>, r", "<a@b.test>, orig_to=<list@b.test>, r"), "sent"),
        (SENT.replace("delay=", "conn_use=5, delay="), "sent"),
        (SENT.replace("dsn=", "tls=none, dsn="), "sent"),  # Postfix 3.11
        (SENT.replace("a@b.test", '"a> b, c"@b.test', 1), "sent"),
        (SENT.replace("lmtp[7516]", "submission/smtp[1]"), "sent"),
        (SENT.replace("2E44B9A03F7", "4Sbqp51Q3nz1v5H"), "sent"),
        (SENT.replace("status=sent (250", "status=deferred (450, status=sent (250"), "deferred"),
        (SENT.replace("status=sent", "status=bounced").replace("lmtp", "error"), "bounced"),
        (SENT.replace("relay=mail[/run/lmtp]", "relay=none"), "sent"),
        (SENT.replace("status=sent", "status=undeliverable"), None),
        (SENT.replace("postfix/", "postfix-out/"), None),
        (SENT.replace("postfix/", "dovecot/"), None),
        # Texts of clients within other lines, and within addresses.
        (f"Nov  3 06:23:01 mail postfix/smtpd[1]: NOQUEUE: reject: RCPT from x: 550; helo=<{SENT}>", None),
        (
            SENT.replace("a@b.test", '"x>, relay=x, dsn=2.0.0, status=sent ("@b.test', 1).replace(
                "sent (250", "bounced (250"
            ),
            "bounced",
        ),
        ("Nov  3 06:23:01 mail postfix/cleanup[7]: 2E44B9A03F7: message-id=<a@b>", "queued"),
        ("Nov  3 06:23:01 mail postfix/cleanup[7]: 2E44B9A03F7: message-id=<>", "queued"),
        ("Nov  3 06:23:01 mail postfix/cleanup[7]: 2E44B9A03F7: resent-message-id=<a@b>", None),
        ("Nov  3 06:23:01 mail postfix/qmgr[7]: 2E44B9A03F7: from=<a@b>, size=5, nrcpt=1 (queue active)", None),
        ("Nov  3 06:23:01 mail postfix/qmgr[7]: 2E44B9A03F7: from=<a@b>, status=expired, returned to sender", None),
    ],
)
def test_each_line_counts_as_its_event(line: str, expected: str | None) -> None:
    assert counted(line) == ({expected: 1} if expected else {})
    between = Counter(counted(SENT, line, SENT))
    between.subtract({"sent": 2})
    assert +between == ({expected: 1} if expected else {})


@pytest.mark.parametrize(
    "line",
    [
        "Nov  3 06:23:01",
        SENT.replace(" mail ", " ", 1),
        SENT.replace("Nov  3 ", ""),
        f"mail-1  | {SENT}",
        f"Nov  3 06:23:01 host docker/9f1c[812]: {SENT}",
        json.dumps({"host": "mail", "ident": "postfix/lmtp", "message": SENT[35:]}),
    ],
    ids=range(6),
)
def test_deliveries_in_another_format_are_unmeasured(line: str, tmp_path: Path) -> None:
    """A sample with such a line fails, and the next rates begin after it."""
    (log := tmp_path / "mail.log").touch()
    rates = LogRates(log, "postfix")

    def sample(text: str) -> dict[str, float]:
        with log.open("a") as file:
            file.write(text)
        return rates.sample()

    assert sample("") == {}
    assert sample(f"{SENT}\n")["sent_per_s"] > 0
    assert sample("Nov  3 06:23:01 mail dovecot: imap(a): Logged out\n")["sent_per_s"] == 0
    with pytest.raises(ValueError, match="expected lines of a syslog"):
        sample(f"{line}\n" * 9)
    assert sample(f"{SENT}\n") == {}
    assert sample(f"{SENT}\n")["sent_per_s"] > 0


def test_a_message_with_several_ids_counts_once() -> None:
    """Postfix logs each Message-ID header. Another process may work on another message meanwhile."""
    first = "Nov  3 06:23:01 mail postfix/cleanup[7]: AAAA: message-id=<a@b>"
    second = first.replace("[7]: AAAA", "[8]: BBBB")
    counter = LogCounter("postfix")
    assert counter.counts(f"{first}\n{second}\n{first}\n".encode()) == {"queued": 2}
    assert counter.counts(f"{first}\n{first.replace('AAAA', 'CCCC')}\n".encode()) == {"queued": 1}


@settings(max_examples=30)
@given(st.text(st.sampled_from(f'{SENT}\n"\\'), max_size=200), st.integers(0, len(SENT)))
def test_any_log_has_at_most_one_event_in_a_line(noise: str, at: int) -> None:
    text = SENT[:at] + noise + SENT[at:]
    try:
        assert sum(LogCounter("postfix").counts(text.encode()).values()) <= text.count("\n") + 1
    except ValueError:
        assert not text.startswith(SENT[: SENT.index("2E44")])


STEP = st.one_of(
    st.tuples(st.just("write"), st.binary(max_size=30)),
    st.tuples(st.sampled_from(["rename", "truncate", "read"]), st.just(b"")),
)


@settings(max_examples=30)
@given(steps=st.lists(STEP, max_size=30))
def test_no_line_is_lost_or_read_twice(
    steps: list[tuple[str, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A file that is renamed is read to its end first. One that is cut is read before, as by copytruncate."""
    path = tmp_path_factory.mktemp("log") / "mail.log"
    path.write_bytes(b"before\nbegun")
    tail = LogTail(path, "log", 1 << 20)
    expected, found = b"", b""
    for number, (step, data) in enumerate(steps):
        if step == "write":
            with path.open("ab") as log:
                log.write(data)
            expected += data
        elif step == "rename":
            found += tail.new_lines()  # a rotation is seen before the next one
            path.rename(path.with_name(f"mail.log.{number}"))
            path.touch()
            expected += b"\n"
        elif step == "truncate":
            found += tail.new_lines()
            path.write_bytes(b"")
            found += tail.new_lines()  # before it is longer again
            expected = expected[: expected.rfind(b"\n") + 1]  # a line without its end is gone
        else:
            found += tail.new_lines()
    found += tail.new_lines()
    complete = expected[: expected.rfind(b"\n") + 1]
    assert [line for line in found.split(b"\n") if line] == [line for line in complete.split(b"\n") if line]
    assert tail.skips == 0


def test_a_missing_log_is_a_failed_sample_and_loses_nothing(tmp_path: Path) -> None:
    """Between the two steps of a rotation, and for good."""
    path = tmp_path / "mail.log"
    path.touch()
    tail = LogTail(path, "log", 1000)
    path.write_bytes(b"a\n")
    path.rename(tmp_path / "mail.log.1")
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            tail.new_lines()
    path.write_bytes(b"b\n")
    assert tail.new_lines().split() == [b"a", b"b"]


def test_too_many_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    """A part of them would be a rate that is too low."""
    path = tmp_path / "mail.log"
    path.touch()
    tail = LogTail(path, "log", 100)
    path.write_bytes(b"x\n" * 100_000)
    with pytest.raises(OSError, match="expected at most 100 new bytes in the log, found more, and left them out"):
        tail.new_lines()
    assert tail.skips == 1
    with path.open("ab") as log:
        log.write(b"y\n")
    assert tail.new_lines() == b"y\n"


@pytest.mark.system
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"config_directory": 5}, "config_directory: expected the directory of Postfix's main.cf, found 5"),
        (
            {"config_directory": "/no/such"},
            "config_directory: expected a main.cf that postconf can read, found that it failed",
        ),
    ],
)
def test_wrong_settings_are_rejected_in_one_line(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        open_probe(NOWHERE, **settings)
    assert str(refusal.value) == says
