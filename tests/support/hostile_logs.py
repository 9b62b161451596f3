"""Timing logs with right checksums and odd contents, made of a sound one by changing one thing."""

import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from timing_samples import START_NS, done, event, ms, skipped, write_sample

from loadsim.timinglog import container
from loadsim.timinglog.records import COMMAND, MAIL, TASK

Blocks = list[tuple[int, bytes | Any]]
"""Kind, and payload: bytes of records, or a document."""

HAND = {"users": 2, "step": 1, "begin": 0, "end": 3}
HEADER: dict[str, Any] = {
    "software": "loadsim 1",
    "server": "mail.example",
    "embedded": False,
    "mode": "canonical",
    "start_state_digest": "d1",
    "profiles": ["medium"],
    "profile_day_s": 28_800.0,
    "night_s": 0.0,
    "duration_s": 100.0,
    "hand": HAND,
    "first_user": 1,
    "event_loop": "asyncio",
    "planned_load": {"duration_s": 100.0, "tasks": {"READ": [1, 0], "SEND": [1, 0]}},
    "machines": [{"client": "c1", "users": 2}],
    "criteria": {"score_ms": {"below": 1000}, "failed_share": None},
    "limits": {"hits": 1, "lost_users": 0.01, "generator_lag_share": None, "window_s": 30},
}
FACTS: dict[str, Any] = {
    "start_ns": START_NS,
    "began_ns": START_NS + 1000,
    "watched_until_ns": ms(101_000),
    "drain_s": 1.0,
    "ended": "completed",
    "lost_users": 0,
    "undelivered": 0,
    "sessions_lost": 0,
    "sessions_restored": 0,
    "silent_activities": 0,
    "companions": {
        **{"count": 1, "tried": 1, "log_ons": 1, "log_ons_failed": 0, "sessions_lost": 0, "failures": 0},
        **{"looks": 0, "listed": 1, "planned_ns": 100, "down_ns": 1},
    },
}
SAMPLE: dict[str, Any] = {
    "at_ns": ms(1000),
    "lags_from_ns": ms(0),
    "lags_us": [1, 2, 3],
    "cpu_share": 0.1,
    "rss_bytes": 1000,
    "open_files": 3,
    "gc_max_ms": 0.0,
    "late_generator_s": 0.0,
}
MACHINE_SAMPLE: dict[str, Any] = {
    "at_ns": ms(1000),
    "core_shares": [0.1, 0.2],
    "cpu_share": 0.15,
    "stolen_share": 0.0,
    "memory_available_bytes": 1 << 30,
    "segments_sent": 10,
    "segments_sent_again": 0,
    "controller_clock": {"at_ns": ms(900), "controller_ns": ms(901), "error_ns": 1000, "ahead_ns": 0},
}
FILE_SYSTEM = {"source": "/dev/x", "type": "ext4", "mounted_at": "/", "options": "rw", "model": None}
MACHINE_FACTS: dict[str, Any] = {
    "start_ns": START_NS,
    "ended": "completed",
    "ended_by": "abort_on",
    "ended_why": "",
    "server_here": True,
    "shares_cpus": False,
    "pinned": True,
    "generator_cpus": [0],
    "server_cpus": [1],
    "imap_greeting": "hello",
    "processor": "x",
    "memory_bytes": 1 << 30,
    "system": "Linux",
    "python": "CPython 3",
    "libraries": {"numpy": "2"},
    "run_file_system": FILE_SYSTEM,
}
TASKS = [
    done("LOGON", -100, 5),
    done("LOGON", -90, 5, user=2),
    done("READ", 1000, 10),
    done("SEND", 2000, 20, user=2, outcome="timeout", error="SMTP DATA"),
    skipped("READ", 99_000),
    done("PROCESS INBOX", 1000, 15),
    done("NO SESSION", 3000, 100, user=2),
]
COMMANDS = [("IMAP NOOP", 1, ms(1000), ms(1010), "ok", 1, 2)]


class Parts:
    """A log taken apart: a header, and blocks of records and documents."""

    def __init__(self, path: Path) -> None:
        self.blocks: list[list[Any]] = []
        with path.open("rb") as file:
            self.header: Any
            self.header, end = container.read_head(str(path), file)
            for block in container.whole_blocks(file, end):
                payload: Any = bytes(block.payload)
                if block.kind in (container.STRINGS, container.FACTS, container.HEALTH):
                    payload = json.loads(payload)
                self.blocks.append([block.kind, payload])

    def of(self, kind: int) -> list[Any]:
        return next(block for block in self.blocks if block[0] == kind)

    def write(self, path: Path, header: bytes | None = None) -> Path:
        """Write it, with checksums that are right; `header` is its text."""
        text = json.dumps(self.header).encode() if header is None else header
        head = struct.pack("<8sHII", container.MAGIC, container.VERSION, len(text), zlib.crc32(text)) + text
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(head + b"".join(_block(*block) for block in self.blocks))
        return path


def _block(kind: int, payload: Any) -> bytes:
    return container.encode_block(kind, payload if isinstance(payload, bytes) else json.dumps(payload).encode())


def write_engine(path: Path, **changes: Any) -> Path:
    made = write_sample(
        path,
        tasks=TASKS,
        mails=[event("accepted", "n1.0", 2, 1100), event("seen", "n1.0", 2, 1200)],
        commands=COMMANDS,
        header={**HEADER, **changes},
        facts=FACTS,
    )
    parts = Parts(made)
    parts.blocks.append([container.HEALTH, [SAMPLE, {**SAMPLE, "at_ns": ms(2000), "lags_from_ns": ms(1000)}]])
    return parts.write(path)


def write_machine(path: Path) -> Path:
    made = write_sample(
        path, header={**HEADER, "engine": "machine", "engine_users": 0, "hand": None}, facts=MACHINE_FACTS
    )
    parts = Parts(made)
    parts.blocks.append([container.HEALTH, [MACHINE_SAMPLE, {**MACHINE_SAMPLE, "at_ns": ms(2000)}]])
    return parts.write(path)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


ODD: Mapping[str, Any] = {
    "null": None,
    "true": True,
    "text": "x",
    "escapes": "a\x1b[2J\u202e\x00\ud800b",
    "zero": 0,
    "negative": -1,
    "fraction": 0.5,
    "tiny": 1e-320,
    "nan": float("nan"),
    "infinity": float("inf"),
    "huge": 10**30,
    "huger": 10**400,
    "large real": 1e300,
    "int64 max": 2**63 - 1,
    "int64 min": -(2**63),
    "list": [],
    "list of numbers": [1, 2, 3],
    "list of odd": [None, "x", {}],
    "mapping": {},
    "odd mapping": {"x": {"y": None}},
    "reversed": [50.0, 10.0],
    "deep": nested(500),
    "long": "x" * 100_000,
}
"""Values that stand in the place of a sound one."""

Change = Callable[[Parts], None]


def _set(document: Any, path: Sequence[str | int], value: Any) -> None:
    for step in path[:-1]:
        document = document[step]
    document[path[-1]] = value


def _delete(document: Any, path: Sequence[str | int]) -> None:
    for step in path[:-1]:
        document = document[step]
    del document[path[-1]]


def paths_in(document: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [at] if at else []
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        found += paths_in(value, (*at, key))
    return found


def changes(choose: Callable[[Parts], Any], path: Sequence[str | int]) -> dict[str, Change]:
    """Return the changes of a value in a document: to each odd value, and to none."""
    found: dict[str, Change] = {"missing": lambda parts: _delete(choose(parts), path)}
    for odd, value in ODD.items():
        found[odd] = partial(_changed, choose, path, value)
    return found


def _changed(choose: Callable[[Parts], Any], path: Sequence[str | int], value: Any, parts: Parts) -> None:
    _set(choose(parts), path, value)


def record(kind: int, number: int, **fields: Any) -> Change:
    """Give some fields of a record other values."""
    dtype = {container.TASKS: TASK, container.MAILS: MAIL, container.COMMANDS: COMMAND}[kind]

    def change(parts: Parts) -> None:
        block = parts.of(kind)
        records = np.frombuffer(block[1], dtype).copy()
        for field, value in fields.items():
            records[field][number] = value
        block[1] = records.tobytes()

    return change
