"""The timing log: what an engine writes while it measures, and what everything else reads.

`TimingLogWriter` satisfies `model.ports.Recorder`; adding a record costs about a microsecond and touches no file,
`flush` writes what has gathered (`gather` and `write`, of which the second may run in a thread). `read_log` gives a
`TimingLog`, the one value that truncate, merge, the score and the exports work on; `write_log` makes a file of such a
value again. The bytes are described in `container`.
"""

from __future__ import annotations

import json
import os
import struct
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.errors import LogError
from loadsim.results import container
from loadsim.results.records import COMMAND, EVENT, EVENTS, MAIL, NEVER, OUTCOME, OUTCOMES, TASK

Records = NDArray[np.void]
"""An array of one of the record types below."""

MOST_NAMES = 65_535
"""What 16 bits can number, with one to spare."""

OTHER = "other"
"""The name that stands for every name that found the string table full."""

_U32 = 0xFFFF_FFFF
_TASK = struct.Struct("<qqqfffIIIHHHHB")
_MAIL = struct.Struct("<q20sIIIHB")
_COMMAND = struct.Struct("<qIIIIHB")
_BLOCK_RECORDS = 65_536


MAKERS = ("client", "engine", "run")
"""Who made a record: the string table has their names. One engine of one run writes one log."""


def _named(record: np.dtype[np.void]) -> np.dtype[np.void]:
    return np.dtype([*record.descr, *((name, "<u2") for name in MAKERS)])


NAMED_TASK, NAMED_MAIL, NAMED_COMMAND = _named(TASK), _named(MAIL), _named(COMMAND)
"""The records with who made them: indices into the string table like the other names."""

_KINDS: dict[int, tuple[np.dtype[np.void], np.dtype[np.void], str]] = {
    container.TASKS: (TASK, NAMED_TASK, "scheduled_us"),
    container.MAILS: (MAIL, NAMED_MAIL, "at_us"),
    container.COMMANDS: (COMMAND, NAMED_COMMAND, "started_us"),
}
"""Of each kind of record: as an engine writes it, as it is read, and the instant that places it in time."""

INSTANTS = ("scheduled_us", "started_us", "ended_us", "at_us")
NAMES = ("task", "profile", "protocol", "error", "folder", "command", *MAKERS)
"""The fields that are instants, and those that are indices of names, in whichever record they occur."""


class _NameTable(dict[str, int]):
    """The numbers of names; a new name is given the next number, and `OTHER`'s when there is none left."""

    def __init__(self) -> None:
        super().__init__({"": 0, OTHER: 1})
        self.new = [OTHER]

    def __missing__(self, name: str) -> int:
        if len(self) >= MOST_NAMES:
            return self[OTHER]
        index = self[name] = len(self)
        self.new.append(name)
        return index


class TimingLogWriter:
    """Writes the timing log of one engine. `header` is plain JSON; `epoch_ns` is the instant that the file counts from.

    Raises `OSError` when the file cannot be made; a file that is there already is never overwritten.
    """

    def __init__(self, path: Path, header: Mapping[str, Any], epoch_ns: int) -> None:
        self._file = path.open("xb", buffering=0)
        self._epoch_ns = epoch_ns
        self._sequence = 0
        self._names = _NameTable()
        for key in MAKERS:  # the reader needs their names, even when errors have filled the table
            self._names[str(header.get(key, ""))]
        self._tasks, self._mails, self._commands = bytearray(), bytearray(), bytearray()
        self._facts: list[dict[str, Any]] = []
        self._health: list[dict[str, Any]] = []
        head = container.encode_head({**header, "format": container.VERSION, "epoch_ns": epoch_ns})
        self._unwritten = deque([bytearray(head)])
        self._writing = threading.Lock()
        if failure := self.flush():
            self._file.close()
            raise OSError(f"{path}: {failure}")

    def task(
        self,
        *,
        task: str,
        user: int,
        profile: str,
        protocol: str,
        scheduled_ns: int,
        started_ns: int | None,
        ended_ns: int | None,
        late_busy_s: float,
        late_down_s: float,
        late_generator_s: float,
        outcome: str,
        error: str,
        moved_bytes: int,
    ) -> None:
        """One task has come to an outcome."""
        epoch_ns, names = self._epoch_ns, self._names
        self._tasks += _TASK.pack(
            (scheduled_ns - epoch_ns) // 1000,
            NEVER if started_ns is None else (started_ns - epoch_ns) // 1000,
            NEVER if ended_ns is None else (ended_ns - epoch_ns) // 1000,
            late_busy_s,
            late_down_s,
            late_generator_s,
            user,
            self._sequence,
            moved_bytes if moved_bytes < _U32 else _U32,
            names[task],
            names[profile],
            names[protocol],
            names[error],
            OUTCOME[outcome],
        )
        self._sequence = self._sequence + 1 & _U32

    def mail(self, *, event: str, message: str, user: int, sender: int, at_ns: int, folder: str) -> None:
        """Something happened to a message in a user's mailbox."""
        self._mails += _MAIL.pack(
            (at_ns - self._epoch_ns) // 1000,
            message.encode("ascii", "replace"),
            user,
            sender,
            self._sequence,
            self._names[folder],
            EVENT[event],
        )
        self._sequence = self._sequence + 1 & _U32

    def command(
        self,
        command: str,
        user: int,
        started_ns: int,
        ended_ns: int,
        outcome: str,
        sent_bytes: int,
        received_bytes: int,
    ) -> None:
        """One protocol command has come to an end."""
        took_us = (ended_ns - started_ns) // 1000
        self._commands += _COMMAND.pack(
            (started_ns - self._epoch_ns) // 1000,
            took_us if took_us < _U32 else _U32,
            user,
            sent_bytes if sent_bytes < _U32 else _U32,
            received_bytes if received_bytes < _U32 else _U32,
            self._names[command],
            OUTCOME[outcome],
        )

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Something about the whole log that was not known when it was begun; a later value of a key replaces it.

        Keys that are read: `start_ns` (t = 0, the run's common start), `ended` ("completed" or "early"),
        `lost_users` (users without a session at the end). Any other is carried along.
        """
        self._facts.append(dict(facts))

    def health(self, sample: Mapping[str, Any]) -> None:
        """A sample of how the generator is; with `at_ns`, the reader adds `at_s`, seconds from the common start."""
        self._health.append(dict(sample))

    def flush(self) -> str | None:
        """Gather, and write; see there."""
        self.gather()
        return self.write()

    def gather(self) -> None:
        """Make blocks of the records so far, in the thread that adds them; touches no file."""
        blocks = bytearray()
        # Names first: a log that is cut anywhere then knows the names of all its records.
        if self._names.new:
            blocks += container.encode_json(container.STRINGS, self._names.new)
            self._names.new = []
        for kind, gathered in (
            (container.TASKS, self._tasks),
            (container.MAILS, self._mails),
            (container.COMMANDS, self._commands),
        ):
            if gathered:
                record, _, instant = _KINDS[kind]
                blocks += _record_block(kind, np.frombuffer(bytes(gathered), record), instant)
                gathered.clear()
        if self._health:
            blocks += container.encode_json(container.HEALTH, self._health)
            self._health = []
        if self._facts:
            blocks += container.encode_json(container.FACTS, self._facts)
            self._facts = []
        if blocks:
            self._unwritten.append(blocks)

    def write(self) -> str | None:
        """Write the blocks, in any thread. None when all are in the file; otherwise why not (a full disk, say).

        What could not be written stays in memory and goes out with the next write, from the very byte where this one
        stopped: no record is lost and the file stays whole, as long as the process lives. One thread writes at a time,
        another waits until it has ended.
        """
        with self._writing:
            try:
                while self._unwritten:
                    blocks = self._unwritten[0]
                    while blocks:
                        del blocks[: self._file.write(blocks)]
                    self._unwritten.popleft()
            except OSError as failure:
                left = sum(map(len, tuple(self._unwritten)))
                return f"{failure.strerror or failure}; {left} bytes are kept in memory"
        return None

    def close(self) -> None:
        """Flush, make it durable, and close. Raises `OSError` when something could not be written: that is lost."""
        with self._file:
            if failure := self.flush():
                raise OSError(f"{self._file.name}: {failure} and lost")
            os.fsync(self._file.fileno())


def _record_block(kind: int, records: Records, instant: str) -> bytes:
    at_us = records[instant]
    return container.encode_block(kind, records.tobytes(), len(records), int(at_us.min()), int(at_us.max()))


@dataclass(frozen=True, slots=True)
class Source:
    """One engine that took part, and what it said about itself.

    It ran this many `users`, from `first_user` (0: the log does not say) on.
        `wall_clock_start` (ISO 8601) is the time of day at the instant `epoch_ns` of the engine's clock.
    """

    run: str
    client: str
    engine: str
    users: int
    wall_clock_start: str
    epoch_ns: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    first_user: int = 0

    @property
    def ended(self) -> bool:
        """Whether the engine lived to its end; then its log is whole."""
        return "ended" in self.facts

    @property
    def started(self) -> bool:
        """Whether the common start had come when the log ended."""
        return "start_ns" in self.facts

    @property
    def simulates(self) -> bool:
        """Whether users were simulated; the log of a machine that was only watched has none."""
        return self.users > 0


@dataclass(frozen=True, slots=True)
class TimingLog:
    """The log of one engine or of many: a merged log is a log.

    Instants are microseconds from the common start of the run (t = 0); those of an engine that did not live to see it
    count from its own epoch. `tasks`, `mails` and `commands` are `NAMED_TASK`, `NAMED_MAIL` and `NAMED_COMMAND`.
    `damages` says, file by file, what could not be read.
    """

    header: Mapping[str, Any]
    sources: tuple[Source, ...]
    strings: tuple[str, ...]
    tasks: Records
    mails: Records
    commands: Records
    health: tuple[Mapping[str, Any], ...] = ()
    damages: tuple[str, ...] = ()

    @property
    def facts(self) -> dict[str, Any]:
        """All engines' facts together; where they differ, the last engine's."""
        return {key: value for source in self.sources for key, value in source.facts.items()}

    @property
    def started(self) -> bool:
        """Whether every engine came to the common start."""
        return all(source.started for source in self.sources)

    @property
    def damage(self) -> str | None:
        """What could not be read, or None."""
        return "; ".join(self.damages) or None

    def names(self, records: Records, name: str) -> NDArray[np.str_]:
        """The names that stand in one field of records of this log."""
        named: NDArray[np.str_] = np.array(self.strings, dtype=np.str_)[records[name]]
        return named


def read_log(path: Path) -> TimingLog:
    """Read a timing log up to its last whole block. Raises `LogError` when it is none, or damaged at its head."""
    try:
        data = path.read_bytes()
    except OSError as failure:
        raise LogError(f"{path}: expected a timing log, found none that can be read ({failure.strerror})") from None
    header, end = container.decode_head(str(path), data)
    begin = end
    strings, facts, health = [""], dict[str, Any](), list[dict[str, Any]]()
    gathered: dict[int, list[Records]] = {kind: [] for kind in _KINDS}
    for block in container.whole_blocks(data, begin):
        kind = block.kind & ~container.NAMED
        if kind in _KINDS:
            record = _KINDS[kind][1] if block.kind & container.NAMED else _KINDS[kind][0]
            if len(block.payload) != block.count * record.itemsize:
                raise LogError(f"{path}: byte {end}: expected {block.count} records of {record.itemsize} bytes")
            gathered[kind].append(np.frombuffer(block.payload, record))
        elif kind == container.STRINGS:
            strings += json.loads(bytes(block.payload))
        elif kind == container.FACTS:
            for fact in json.loads(bytes(block.payload)):
                facts.update(fact)
        elif kind == container.HEALTH:
            health += json.loads(bytes(block.payload))
        end = block.end
    damages = list(header.pop("damages", []))
    if end < len(data):
        damages.append(
            f"{path.name}: the last {len(data) - end} of {len(data)} bytes are cut off or damaged, and were not read"
        )
    if "sources" in header:
        sources = _sources_of(path, header.pop("sources"))
        origin_us = 0
    else:
        sources = (_source_of(header, facts),)
        origin_us = (int(facts.get("start_ns", header["epoch_ns"])) - header["epoch_ns"]) // 1000
        strings += dict.fromkeys(made for maker in MAKERS if (made := getattr(sources[0], maker)) not in strings)
        for sample in health:
            if "at_ns" in sample:
                sample["at_s"] = (sample["at_ns"] - header["epoch_ns"]) / 1e9 - origin_us / 1e6
    tasks, mails, commands = (_gathered(gathered[kind], kind, strings, sources[0], origin_us) for kind in _KINDS)
    for records in (tasks, mails, commands):
        _check(path, records, len(strings))
    return TimingLog(header, sources, tuple(strings), tasks, mails, commands, tuple(health), tuple(damages))


def _source_of(header: Mapping[str, Any], facts: Mapping[str, Any]) -> Source:
    return Source(
        run=str(header.get("run", "")),
        client=str(header.get("client", "")),
        engine=str(header.get("engine", "")),
        users=int(header.get("engine_users", header.get("users", 0))),
        wall_clock_start=str(header.get("wall_clock_start", "")),
        epoch_ns=int(header["epoch_ns"]),
        facts=facts,
        first_user=int(header.get("first_user", 0)),
    )


def _sources_of(path: Path, found: object) -> tuple[Source, ...]:
    try:
        sources = tuple(Source(**source) for source in found) if isinstance(found, list) else ()
    except TypeError:
        sources = ()
    if not sources:
        raise LogError(f"{path}: sources: expected the engines of a merged log, found {str(found)[:80]}")
    return sources


def _gathered(blocks: list[Records], kind: int, strings: list[str], source: Source, origin_us: int) -> Records:
    """The records of one kind in one array, with who made them, counted from the common start."""
    plain, named, _ = _KINDS[kind]
    records = np.zeros(sum(map(len, blocks)), named)
    if not blocks:
        return records
    filled = 0
    for block in blocks:
        part = records[filled : filled + len(block)]
        filled += len(block)
        for name in block.dtype.names or ():
            part[name] = block[name]
        if block.dtype == plain:
            for maker in MAKERS:
                part[maker] = strings.index(getattr(source, maker))
    for name in INSTANTS:
        if origin_us and name in (plain.names or ()):
            happened = records[name] != NEVER
            records[name][happened] -= origin_us
    return records


def _check(path: Path, records: Records, names: int) -> None:
    """Refuse numbers that stand for nothing: no writer of ours makes them."""
    for name, most in (*((name, names) for name in NAMES), ("outcome", len(OUTCOMES)), ("event", len(EVENTS))):
        if name in (records.dtype.names or ()) and len(records) and int(records[name].max()) >= most:
            raise LogError(f"{path}: {name}: expected a number below {most}, found {records[name].max()}")


def write_log(log: TimingLog, path: Path) -> None:
    """Write a log that was read, truncated or merged to a new file. Raises `LogError` when there is one already.

    What could be written only in part is removed: it would look like a log that was damaged.
    """
    sources = [asdict(source) for source in log.sources]
    header = {**log.header, "format": container.VERSION, "epoch_ns": 0, "sources": sources, "damages": log.damages}
    made = False
    try:
        with path.open("xb") as file:
            made = True
            file.write(container.encode_head(header))
            file.write(container.encode_json(container.STRINGS, list(log.strings[1:])))
            for kind, records in zip(_KINDS, (log.tasks, log.mails, log.commands), strict=True):
                for begin in range(0, len(records), _BLOCK_RECORDS):
                    part = records[begin : begin + _BLOCK_RECORDS]
                    file.write(_record_block(kind | container.NAMED, part, _KINDS[kind][2]))
            if log.health:
                file.write(container.encode_json(container.HEALTH, list(log.health)))
    except OSError as failure:
        if made:
            path.unlink(missing_ok=True)
        raise LogError(f"{path}: expected to write a new timing log, found: {failure.strerror}") from None
