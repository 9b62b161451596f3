"""Writing an engine's timing log, record by record and block by block.

`TimingLogWriter` implements `model.ports.Recorder`. Adding a record takes about a microsecond and no I/O. `flush`
writes the records so far: `gather` turns them into blocks, and `write`, which may run in a thread, writes the blocks.
`container` describes the bytes, `records` the records; `reader` is the counterpart.
"""

from __future__ import annotations

import os
import stat
import struct
import threading
from collections import deque
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from loadsim.model.records import CommandFields, MailFields, TaskFields
from loadsim.timinglog import container
from loadsim.timinglog.record_limits import LONGEST_NAME, MOST_US
from loadsim.timinglog.records import CLOCK, EVENT, KINDS, MAKERS, NEVER, OUTCOME

MOST_NAMES = 65_535
"""The most names in a log: one fewer than 16 bits can index."""

OTHER = "other"
"""The name that stands for all names that no longer fit into the string table."""

MOST_ERRORS = 1000
"""The most kinds of error in a log. Servers may influence their names, and room must be left for other names."""

_U32 = 0xFFFF_FFFF
_pack_task = struct.Struct("<qqqfffffIIHHHHBB").pack
_pack_mail = struct.Struct("<q20sIIHB").pack
_pack_command = struct.Struct("<qIIIIHB").pack


class _StringTable(dict[str, int]):
    """Assigns numbers to names. A new name gets the next number, or the number of `OTHER` if none is left."""

    def __init__(self) -> None:
        super().__init__({"": 0, OTHER: 1})
        self.new = [OTHER]
        self._errors = 0

    def error(self, name: str) -> int:
        """Return the number of a kind of error; beyond `MOST_ERRORS` kinds, the number of `OTHER`."""
        if name not in self:
            if self._errors >= MOST_ERRORS:
                return self[OTHER]
            self._errors += 1
        return self[name]

    def __missing__(self, name: str) -> int:
        if len(name) > LONGEST_NAME:  # the reader rejects longer names
            return self[name[:LONGEST_NAME]]
        if len(self) >= MOST_NAMES:
            return self[OTHER]
        index = self[name] = len(self)
        self.new.append(name)
        return index


class TimingLogWriter:
    """Writes one engine's timing log. `header` is plain JSON; instants in the file count from `epoch_ns`.

    `out` is the path of a new file, or a blocking stream, such as a pipe, which `close` closes. Raises `OSError` if the
    file exists or cannot be created.
    """

    def __init__(self, out: Path | FileIO, header: Mapping[str, Any], epoch_ns: int) -> None:
        self._file = out.open("xb", buffering=0) if isinstance(out, Path) else out
        self._epoch_ns = epoch_ns
        self._names = _StringTable()
        for key in MAKERS:  # before errors can fill the table
            self._names[str(header.get(key, ""))]
        self._tasks, self._mails, self._commands = bytearray(), bytearray(), bytearray()
        self._facts: list[dict[str, Any]] = []
        self._health: list[dict[str, Any]] = []
        head = container.encode_head({**header, "format": container.VERSION, "epoch_ns": epoch_ns})
        self._unwritten = deque([bytearray(head)])
        self._writing = threading.Lock()
        if failure := self.flush():
            self._file.close()
            raise OSError(f"{self._file.name}: {failure}")

    def task(self, record: TaskFields) -> None:
        epoch_ns, names = self._epoch_ns, self._names
        # fmt: off
        (task, user, profile, protocol, due_ns, started_ns, ended_ns, busy_s, down_s, generator_s, between_s,
         own_s, outcome, error, moved_bytes, clock) = record
        # fmt: on
        self._tasks += _pack_task(
            (due_ns - epoch_ns) // 1000,
            NEVER if started_ns is None else (started_ns - epoch_ns) // 1000,
            NEVER if ended_ns is None else (ended_ns - epoch_ns) // 1000,
            busy_s,
            down_s,
            generator_s,
            between_s,
            own_s,
            user,
            moved_bytes if moved_bytes < _U32 else _U32,
            names[task],
            names[profile],
            names[protocol],
            names.error(error) if error else 0,
            OUTCOME[outcome],
            CLOCK[clock],
        )

    def mail(self, record: MailFields) -> None:
        event, message, user, sender, at_ns, folder = record
        if not (message.isascii() and message.isprintable()) or " " in message:  # the reader rejects the whole log
            raise ValueError("expected an id of printable ASCII")
        self._mails += _pack_mail(
            (at_ns - self._epoch_ns) // 1000, message.encode("ascii"), user, sender, self._names[folder], EVENT[event]
        )

    def command(self, record: CommandFields) -> None:
        command, user, started_ns, ended_ns, outcome, sent_bytes, received_bytes = record
        took_us, started_us = (ended_ns - started_ns) // 1000, (started_ns - self._epoch_ns) // 1000
        if not -MOST_US <= started_us <= MOST_US:  # the reader rejects the whole log
            raise ValueError("expected a command within 35 years of the log's start")
        self._commands += _pack_command(
            started_us,
            took_us if took_us < _U32 else _U32,
            user,
            sent_bytes if sent_bytes < _U32 else _U32,
            received_bytes if received_bytes < _U32 else _U32,
            self._names[command],
            OUTCOME[outcome],
        )

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Add facts about the whole log that were unknown at its start; later values of a key replace earlier ones.

        `LogFacts` lists the keys that are read. Others are carried along.
        """
        self._facts.append(dict(facts))

    def health(self, sample: Mapping[str, Any]) -> None:
        """Add a health sample. If it has `at_ns`, the reader adds `at_s`, in seconds from the common start."""
        self._health.append(dict(sample))

    def flush(self) -> str | None:
        """Gather and write all records. Return the failure, or None."""
        self.gather()
        return self.write()

    def gather(self) -> None:
        """Turn the records so far into blocks, without I/O. Runs in the thread that adds records."""
        blocks = bytearray()
        # Names come first: wherever a log is cut off, it has the names for all its records.
        if self._names.new:
            blocks += container.encode_json(container.STRINGS, self._names.new)
            self._names.new = []
        for kind, gathered in zip(KINDS.values(), (self._tasks, self._mails, self._commands), strict=True):
            if gathered:
                blocks += container.encode_block(kind.number, bytes(gathered))
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
        """Write the blocks. Return None, or the failure if some could not be written (on a full disk, for example).

        Unwritten bytes stay in memory for the next call: while the process runs, no record is lost and the file stays
        intact. Any thread may call this; one writes at a time.
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
        """Flush, sync and close the file. Raises `OSError` if records could not be written and are lost."""
        with self._file:
            if failure := self.flush():
                raise OSError(f"{self._file.name}: {failure} and lost")
            if stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):  # a pipe cannot be synced
                os.fsync(self._file.fileno())
