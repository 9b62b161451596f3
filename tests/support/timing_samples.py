"""Small timing logs for tests, written by the real writer; all instants are given from the common start."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from named_records import MailRecord, TaskRecord

from loadsim.model.records import LOOP, NO_CLOCK, CommandFields
from loadsim.scenario.criteria import DEFAULT, documents
from loadsim.timinglog.reader import TimingLog, read_log
from loadsim.timinglog.records import NAMES
from loadsim.timinglog.writer import TimingLogWriter

EPOCH_NS = 77_000_000_000
START_NS = EPOCH_NS + 3_000_000_000
ENDED = {"start_ns": START_NS, "ended": "completed"}

HEADER: dict[str, Any] = {
    "run": "run-1",
    "name": "sample",
    "scenario_digest": "s1",
    "plan_digest": "p1",
    "client": "c1",
    "engine": "0",
    "users": 2,
    "engine_users": 2,
    "day_s": 28_800,
    "compression": 1.0,
    "window_s": [0.0, 100.0],
    "weights": {"READ": 10, "SEND": 1, "MOVE": 1, "COPY": 1},
    "criteria": documents(DEFAULT),
    "limits": {"hits": 1},
    "submission": "sequential",
    "wall_clock_start": "2026-01-05T08:00:00+00:00",
}


def only(criteria: Mapping[str, Any]) -> dict[str, Any]:
    """The criteria of a header, with those that are not given off."""
    return {**criteria, **{name: None for name in DEFAULT if name not in criteria}}


def ms(at_ms: float) -> int:
    """The instant so many milliseconds after the common start, on the engine's clock."""
    return START_NS + round(at_ms * 1_000_000)


def done(task: str, due_ms: float, took_ms: float, late_ms: float = 0, **fields: Any) -> dict[str, Any]:
    """A task that was due, began `late_ms` later because its user was busy, took so long, and was timed by the loop."""
    basic: dict[str, Any] = {
        "task": task,
        "user": 1,
        "profile": "medium",
        "protocol": "imap",
        "scheduled_ns": ms(due_ms),
        "started_ns": ms(due_ms + late_ms),
        "ended_ns": ms(due_ms + late_ms + took_ms),
        "late_busy_s": late_ms / 1000,
        "late_down_s": 0.0,
        "late_generator_s": 0.0,
        "late_between_s": 0.0,
        "late_own_s": fields.get("late_generator_s", 0.0),
        "outcome": "ok",
        "error": "",
        "moved_bytes": 1000,
        "clock": LOOP,
    }
    return basic | fields


def skipped(task: str, due_ms: float, **fields: Any) -> dict[str, Any]:
    """A task that had not begun when the run ended."""
    return done(task, due_ms, 0, started_ns=None, ended_ns=None, outcome="skipped", clock=NO_CLOCK, **fields)


def event(name: str, message: str, user: int, at_ms: float, folder: str = "INBOX") -> dict[str, Any]:
    """Something that happened to a message of user 1 for a user."""
    return {"event": name, "message": message, "user": user, "sender": 1, "at_ns": ms(at_ms), "folder": folder}


LOGGED_ON = done("LOGON", -100, 5)
DELIVERED = [event("accepted", "n1.0", 2, 100), event("seen", "n1.0", 2, 120)]
"""A log-on and a message: without any, two of the default criteria have no figure, and are missed."""


def write_sample(
    path: Path,
    tasks: Iterable[Mapping[str, Any]] = (),
    mails: Iterable[Mapping[str, Any]] = (),
    commands: Iterable[CommandFields] = (),
    header: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    flush_every: int = 0,
    health: Iterable[Mapping[str, Any]] = (),
) -> Path:
    """Write one engine's log; `header` adds to or replaces keys of `HEADER`, `facts` are `ENDED` unless given.

    Built-in criteria that given ones lack are off. With `flush_every`, blocks have at most so many records.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    stated = HEADER | dict(header or {})
    writer = TimingLogWriter(path, stated | {"criteria": only(stated["criteria"])}, EPOCH_NS)
    for add, records in (
        (writer.task, [TaskRecord(**task) for task in tasks]),
        (writer.mail, [MailRecord(**mail) for mail in mails]),
        (writer.command, commands),
    ):
        for number, record in enumerate(records, 1):
            add(record)
            if flush_every and number % flush_every == 0:
                assert writer.flush() is None
    for sample in health:
        writer.health(sample)
    writer.facts(ENDED if facts is None else facts)
    writer.close()
    return path


def sample_log(path: Path, *args: Any, **kwargs: Any) -> TimingLog:
    return read_log(write_sample(path, *args, **kwargs))


def decoded(log: TimingLog) -> list[tuple[Any, ...]]:
    """All that a log's records say, free of how names are numbered, kind by kind in the log's order."""
    rows: list[tuple[Any, ...]] = []
    for records in (log.tasks, log.mails, log.commands):
        columns = [
            log.names(records, name).tolist() if name in NAMES else records[name].tolist()
            for name in records.dtype.names or ()
        ]
        rows += zip(*columns, strict=True)
    return rows


def write_two_clients(directory: Path) -> Path:
    """A run directory with the logs of two clients; `analysis/test_score.py` says what the answer must be, and why."""
    reads = [done("READ", 1000 + number, 10 * (number + 1)) for number in range(20)]
    write_sample(
        directory / "logs" / "c1.0.tlog",
        tasks=[
            done("LOGON", -2000, 5),
            *reads[::2],
            done("READ", 999, 9000),  # due before the window
            done("READ", 2000, 9000),  # due at the window's end, which is not in it
            done("SEND", 1200, 30, late_ms=8),
            done("SEND", 1400, 50),
            skipped("MOVE", 1999),
        ],
        mails=[
            event("accepted", "n1.0", 2, 1230, "individual"),
            event("accepted", "n1.1", 2, 1450, "list"),
            event("accepted", "n1.2", 2, 1500, "individual"),
            event("accepted", "n1.3", 2, 2500, "list"),  # after the window, and never seen
        ],
        commands=[_command("IMAP UID FETCH", 1100, 7), _command("IMAP UID FETCH", 2100, 7000)],
        header=TWO_CLIENTS,
    )
    write_sample(
        directory / "logs" / "c2.0.tlog",
        tasks=[
            done("LOGON", -1000, 15, user=2),
            *(read | {"user": 2} for read in reads[1::2]),
            done("SEND", 1600, 40, user=2),
            done("SEND", 1700, 60_000, user=2, outcome="timeout", error="SMTP DATA"),
        ],
        mails=[event("seen", "n1.0", 2, 1250), event("seen", "n1.1", 2, 1490), event("found", "n1.2", 2, 3000)],
        commands=[_command("SMTP DATA", 1700, 60_000, outcome="timeout"), _command("IMAP UID FETCH", 1101, 9)],
        header=TWO_CLIENTS | {"client": "c2"},
    )
    return directory


TWO_CLIENTS: dict[str, Any] = {
    "name": "two clients",
    "users": 2,
    "engine_users": 1,
    "day_s": 100,
    "compression": 288.0,
    "window_s": [1.0, 2.0],
    "server": "mail.example (no greeting)",
    "limits": {"hits": 1, "done": 0.9, "window_s": 1},
    "planned_load": {"duration_s": 4.0, "tasks": {"READ": [0, 20, 0, 0], "SEND": [0, 4, 0, 0]}},
}


def _command(name: str, at_ms: float, took_ms: float, outcome: str = "ok") -> CommandFields:
    return name, 1, ms(at_ms), ms(at_ms + took_ms), outcome, 20, 2000
