"""The probe `dovecot`: sessions, log-ins and IMAP commands of a Dovecot 2.3.

The counters are metrics of its configuration, by the names in Debian's conf.d/10-metrics.conf. They come from the
socket `stats-reader`, as for `doveadm stats dump`, and the sessions from the socket `anvil`, as for `doveadm who`. Its
OpenMetrics listener is for the probe `prometheus`.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from loadsim.errors import ConfigError
from loadsim.model.documents.typed import show
from loadsim.model.ports import Probe, Services
from loadsim.monitor.counter_increase import Increase, RisingCounters
from loadsim.monitor.probe_values import finite_number, text_of

BASE_DIR = "/run/dovecot"
LIMIT_S = 5.0
MOST_BYTES = 32 << 20
"""The longest answer: that of 500,000 sessions."""

DUMP_METRICS = b"VERSION\tstats-reader-client\t2\t0\nDUMP\tcount\tsum\n"
DUMP_SESSIONS = b"VERSION\tanvil\t1\t0\nCONNECT-DUMP\n"

COMMANDS = ("append", "copy", "expunge", "fetch", "idle", "list", "move", "search", "select", "store")
"""The commands with figures of their own. UID FETCH counts as FETCH, and so on."""
IMAP_COMMAND = "imap_command"
LOG_INS = {"logins": "auth_success", "failed_logins": "auth_failures"}
"""Metrics of log-ins by their figures."""

_COMMAND = re.compile(rf"{IMAP_COMMAND}_(?:UID_)?([A-Z0-9-]+(?:_[A-Z0-9-]+)*?|unknown)(?:_(OK|NO|BAD))?")
"""An IMAP command, and its tagged answer. A metric of another name has small letters."""


class Total(NamedTuple):
    """Events since the start of the stats process, and the sum of their durations."""

    events: float
    duration_ms: float


Metrics = Mapping[str, Total]
"""Totals by the names of `doveadm stats dump`, such as `imap_command_UID_FETCH_OK`."""


def open_probe(services: Services, base_dir: object = BASE_DIR, metrics: object = True) -> Probe:
    """Return a function that asks Dovecot by its sockets in `base_dir`; without `metrics`, for the sessions only.

    Raises `ConfigError`.
    """
    if not isinstance(metrics, bool):
        raise ConfigError(f"metrics: expected yes or no, found {show(metrics)}")
    sockets = Path(text_of("base_dir", base_dir, "Dovecot's base_dir"))
    if not sockets.is_dir():
        raise ConfigError(f"base_dir: expected the directory of Dovecot's sockets, found none: {str(sockets)!r:.100}")
    counters = RisingCounters()

    def sample() -> dict[str, float]:
        figures: dict[str, float] = {"imap_sessions": imap_sessions(answer_of(sockets / "anvil", DUMP_SESSIONS))}
        if metrics:
            found = metrics_of_dump(answer_of(sockets / "stats-reader", DUMP_METRICS))
            increase = counters.increase(counters_of(found), time.monotonic())
            figures |= figures_of(increase) if increase else {}
        return figures

    return sample


def answer_of(path: Path, request: bytes, limit_s: float = LIMIT_S) -> str:
    """Return the lines with which a process of Dovecot answers a request, up to a blank one.

    A new connection for each request: after `doveadm reload`, an open one would have the counters of the old process.
    Raises `OSError`, also for an answer that is too long or late.
    """
    until = time.monotonic() + limit_s
    received = bytearray()
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(limit_s)
            connection.connect(str(path))
            connection.sendall(request)
            while received[-2:] != b"\n\n" and received != b"\n":
                connection.settimeout(max(0.001, until - time.monotonic()))
                chunk = connection.recv(1 << 16)
                received += chunk
                if not chunk or len(received) > MOST_BYTES:
                    raise OSError(0, f"an answer without its end, of {len(received)} bytes")
                if time.monotonic() > until:
                    raise TimeoutError
    except TimeoutError:
        raise TimeoutError(f"{path.name}: expected Dovecot's answer within {limit_s:g} s, found none") from None
    except OSError as error:
        raise OSError(f"{path.name}: expected Dovecot's answer, found: {error.strerror}") from None
    return received.decode("utf-8", "replace")


def imap_sessions(answer: str) -> int:
    """Return the IMAP sessions in an answer of the anvil process: lines of `imap/ADDRESS/USER`, process and sessions.

    Raises `ValueError` for another format.
    """
    counts = [line.rpartition("\t")[2] for line in answer.split("\n") if line.startswith("imap/")]
    if not all(count.isascii() and count.isdigit() and len(count) < 10 for count in counts):
        raise ValueError("expected lines of anvil with a number of sessions, found another")
    return sum(map(int, counts))


def metrics_of_dump(answer: str) -> dict[str, Total]:
    """Return the metrics of an answer of the stats process: lines of name, count and sum in microseconds.

    Raises `ValueError` for another format.
    """
    found: dict[str, Total] = {}
    for line in filter(None, answer.split("\n")):
        name, *values = line.split("\t")
        if name == "VERSION":
            continue
        if len(values) < 2:
            raise ValueError("expected lines of name, count and sum, found another")
        found[name] = Total(finite_number(values[0], "count"), finite_number(values[1], "sum") / 1e3)
    return found


def counters_of(metrics: Metrics) -> dict[str, float]:
    """Return the counters of the figures; those of log-ins only if their metrics are configured.

    Raises `ValueError` if the metric of the commands is not there, or has not the groups that it should have.
    """
    expected = f"expected the metric {IMAP_COMMAND} with group_by = cmd_name tagged_reply_state"
    if IMAP_COMMAND not in metrics:
        raise ValueError(f"{expected}, found it not configured in Dovecot")
    events = dict.fromkeys(COMMANDS, 0.0)
    durations_ms = dict.fromkeys(COMMANDS, 0.0)
    failed, states = 0.0, 0
    for name, total in metrics.items():
        if (command := _COMMAND.fullmatch(name)) is None:
            continue
        if command[2] is not None:
            states += 1
            failed += total.events if command[2] != "OK" else 0
        elif (key := command[1].lower()) in events:
            events[key] += total.events
            durations_ms[key] += total.duration_ms
    every = metrics[IMAP_COMMAND]
    if every.events and not states:
        raise ValueError(f"{expected}, found other groups")
    return (
        {f"{key}_events": count for key, count in events.items()}
        | {f"{key}_ms": duration_ms for key, duration_ms in durations_ms.items()}
        | {"command_events": every.events, "command_ms": every.duration_ms, "failed_events": failed}
        | {f"{figure}_events": metrics[name].events for figure, name in LOG_INS.items() if name in metrics}
    )


def figures_of(increase: Increase) -> dict[str, float]:
    """Return rates, and mean durations of the commands that ended. IDLE has none: its duration is the user's."""
    counts = increase.counts
    rates = increase.rates()
    figures = {f"{figure}_per_s": rates[f"{figure}_events"] for figure in LOG_INS if f"{figure}_events" in rates}
    figures |= {"commands_per_s": rates["command_events"], "failed_commands_per_s": rates["failed_events"]}
    figures |= {f"{key}_per_s": rates[f"{key}_events"] for key in COMMANDS}
    events = {key: counts[f"{key}_events"] for key in COMMANDS if key != "idle"}
    durations_ms = {key: counts[f"{key}_ms"] for key in events}
    events["command"] = counts["command_events"] - counts["idle_events"]
    durations_ms["command"] = counts["command_ms"] - counts["idle_ms"]
    return figures | {
        f"{key}_mean_ms": max(0.0, durations_ms[key] / count) for key, count in events.items() if count > 0
    }
