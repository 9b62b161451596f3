"""The readers of the probe `dovecot`: answers of Dovecot's sockets, and what a server may send instead."""

import re
import socket
import threading
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from http_answers import raw_server
from hypothesis import given
from hypothesis import strategies as st
from virtual_runs import NOWHERE

from loadsim.errors import ConfigError
from loadsim.monitor.counter_increase import Increase
from loadsim.monitor.dovecot_probe import (
    COMMANDS,
    DUMP_METRICS,
    MOST_BYTES,
    answer_of,
    counters_of,
    figures_of,
    imap_sessions,
    metrics_of_dump,
    open_probe,
)

SENT = (
    *map(str.upper, COMMANDS),
    *(f"UID {name}" for name in ("FETCH", "STORE", "COPY", "MOVE", "EXPUNGE", "SEARCH")),
    "NOOP",
    "unknown",
)
STATES = ("OK", "NO", "BAD", None)
"""None: the session ended first."""
ENDED = st.lists(st.tuples(st.sampled_from(SENT), st.sampled_from(STATES), st.integers(0, 10**7)), max_size=30)
"""Commands: their names, answers, and durations in microseconds."""

OTHER_METRICS = (
    "imap_command_failed\t900\t900",
    "imap_command_failed_NO\t900\t900",
    "my_imap_command_FETCH_NO\t900\t900",
    "auth_success\t7\t70",
)


def dumped(ended: list[tuple[str, str | None, int]]) -> str:
    """An answer of the stats process after these commands, as Dovecot's client-reader.c writes it."""
    lines = ["VERSION\tstats-reader-server\t2\t0", *OTHER_METRICS]
    counts, sums = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for name, state, took_us in ended:
        for key in {(), (name,), (name, state or "")} - ({(name, "")} if state is None else set()):
            counts[key] += 1
            sums[key] += took_us
    lines.append(f"imap_command\t{counts[()]}\t{sums[()]}")
    lines += [
        f"{'_'.join(('imap_command', *key))}\t{counts[key]}\t{sums[key]}".replace(" ", "_") for key in counts if key
    ]
    return "\n".join([*lines, "", ""])


@given(ENDED)
def test_the_counters_are_those_of_the_commands(ended: list[tuple[str, str | None, int]]) -> None:
    answered = [state for _, state, _ in ended if state]
    if ended and not answered:
        with pytest.raises(ValueError, match="found other groups"):
            counters_of(metrics_of_dump(dumped(ended)))
        return
    found = counters_of(metrics_of_dump(dumped(ended)))
    assert found["command_events"] == len(ended)
    assert found["failed_events"] == sum(state != "OK" for state in answered)
    assert found["logins_events"] == 7
    assert "failed_logins_events" not in found
    for key in COMMANDS:
        of_key = [us for name, _, us in ended if name.removeprefix("UID ").lower() == key]
        assert found[f"{key}_events"] == len(of_key)
        assert found[f"{key}_ms"] == pytest.approx(sum(of_key) / 1000)
    assert found["command_ms"] == pytest.approx(sum(us for *_, us in ended) / 1000)


def test_figures_are_rates_and_means() -> None:
    """Of 2 s with four FETCH of 5 ms, an IDLE of 1000 ms, and ten others of 1 ms."""
    counters = dict.fromkeys(counters_of(metrics_of_dump(dumped([]))), 0.0)
    changes = {"fetch_events": 4, "fetch_ms": 20, "idle_events": 1, "idle_ms": 1000, "command_events": 15}
    figures = figures_of(Increase(counters | changes | {"command_ms": 1030, "failed_events": 3, "logins_events": 5}, 2))
    assert {name: figure for name, figure in figures.items() if figure} == {
        "fetch_per_s": 2,
        "fetch_mean_ms": 5,
        "idle_per_s": 0.5,
        "commands_per_s": 7.5,
        "command_mean_ms": 30 / 14,
        "failed_commands_per_s": 1.5,
        "logins_per_s": 2.5,
    }
    assert {name for name in figures if name.endswith("_ms")} == {"fetch_mean_ms", "command_mean_ms"}
    assert figures["select_per_s"] == 0


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("\n", "expected the metric imap_command with group_by = cmd_name tagged_reply_state, found it not configured"),
        ("imap_command\t5\t5\n\n", "found other groups"),
        ("imap_command\t5\t5\nimap_command_OK\t5\t5\nimap_command_OK_FETCH\t5\t5\n\n", "found other groups"),
        ("imap_command\t5\n\n", "expected lines of name, count and sum, found another"),
        ("imap_command\t5\tx\n\n", "sum: expected a finite number, found something else"),
    ],
)  # fmt: skip
def test_other_metrics_are_a_failed_sample(answer: str, says: str) -> None:
    """With what is missing in Dovecot's configuration."""
    with pytest.raises(ValueError, match=re.escape(says)):
        counters_of(metrics_of_dump(answer))


@given(st.text(st.sampled_from("imap_command\tFETCHOKNOBAD_5 -\n"), max_size=80))
def test_any_answer_is_counters_or_one_line(answer: str) -> None:
    """None of them below 0."""
    try:
        found = counters_of(metrics_of_dump(answer))
    except ValueError as error:
        assert "\n" not in str(error)
    else:
        assert found


USERS = st.text(st.characters(codec="utf-8", exclude_characters="\t\n"), min_size=1, max_size=10)
SERVICES = st.sampled_from(["imap", "lmtp", "pop3", "imap-login", "submission"])


@given(st.lists(st.tuples(SERVICES, USERS, st.integers(1, 100)), max_size=20))
def test_sessions_are_those_of_imap(sessions: list[tuple[str, str, int]]) -> None:
    lines = [f"{service}/127.0.0.1/{user}\t{pid}\t{count}" for pid, (service, user, count) in enumerate(sessions)]
    expected = sum(count for service, _, count in sessions if service == "imap")
    assert imap_sessions("\n".join([*lines, "", ""])) == expected


@pytest.mark.parametrize(
    "line", ["imap/127.0.0.1/a", "imap/127.0.0.1/a\t5\t-1", "imap/a\t5\t", "imap/a\t5\t" + "9" * 30]
)
def test_other_sessions_are_a_failed_sample(line: str) -> None:
    """They would be none, or too many."""
    with pytest.raises(ValueError, match="expected lines of anvil with a number of sessions, found another"):
        imap_sessions(f"{line}\n\n")


@pytest.mark.parametrize("pieces", [[b"\n"], [b"a\t5\t5\n\n"], [b"a\t5", b"\t5\n", b"\n"]])
def test_an_answer_ends_with_a_blank_line(pieces: list[bytes]) -> None:
    """It may come in pieces, and the connection stays open."""
    released = threading.Event()

    def send(connection: socket.socket) -> None:
        for piece in pieces:
            connection.sendall(piece)
        released.wait()

    with TemporaryDirectory() as place:
        path = Path(place) / "stats-reader"
        with raw_server(send, socket.AF_UNIX, str(path)):
            assert answer_of(path, DUMP_METRICS, 60) == b"".join(pieces).decode()
            released.set()


@pytest.mark.parametrize(
    ("answer", "limit_s", "error", "says"),
    [
        (b"", 60, OSError, "stats-reader: expected Dovecot's answer, found: an answer without its end, of 0 bytes"),
        (b"x" * (MOST_BYTES + 1), 60, OSError, "an answer without its end"),
        (None, 0.3, TimeoutError, "stats-reader: expected Dovecot's answer within 0.3 s, found none"),
    ],
)
def test_other_answers_are_a_failed_sample(
    answer: bytes | None, limit_s: float, error: type[Exception], says: str
) -> None:
    """Cut off, endless, or byte by byte."""
    released = threading.Event()

    def send(connection: socket.socket) -> None:
        if answer is not None:
            connection.sendall(answer)
        while answer is None and not released.wait(0.01):
            connection.sendall(b"a")

    with TemporaryDirectory() as place:
        path = Path(place) / "stats-reader"
        with raw_server(send, socket.AF_UNIX, str(path)):
            with pytest.raises(error, match=re.escape(says)):
                answer_of(path, DUMP_METRICS, limit_s)
            released.set()


def test_a_socket_that_is_not_there_is_a_failed_sample(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"^anvil: expected Dovecot's answer, found: No such file or directory$"):
        open_probe(NOWHERE, base_dir=str(tmp_path))()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"base_dir": "/no/such"}, "base_dir: expected the directory of Dovecot's sockets, found none: '/no/such'"),
        ({"base_dir": "/", "metrics": "no"}, "metrics: expected yes or no, found 'no'"),
    ],
)
def test_wrong_settings_are_one_line(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        open_probe(NOWHERE, **settings)
    assert str(refusal.value) == says
