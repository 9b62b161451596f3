"""A file with the records of a run by mailbox, and its audit's results so far: neither need fit into memory.

A million messages make about six million records, or 400 MB. An interrupted audit can continue from the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from loadsim.analysis.delivery import left_out, of_sender
from loadsim.audit.expected import MailEvent
from loadsim.audit.judged import Fault, Judged
from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.model.message_tag import INITIAL
from loadsim.model.ports import INBOX
from loadsim.model.records import EVENTS
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import EVENT

NAME = "audit.sqlite"

_SCHEMA = """
CREATE TABLE mail (user INTEGER, event INTEGER, message BLOB, folder TEXT, sender INTEGER);
CREATE TABLE box (user INTEGER PRIMARY KEY, messages INTEGER, unknown INTEGER, complete INTEGER, why TEXT);
CREATE TABLE bounce (user INTEGER, status TEXT, times INTEGER);
CREATE TABLE fault (user INTEGER, code TEXT, message BLOB, folder TEXT, wanted TEXT, sender INTEGER, under_way INTEGER);
"""

_USED = [
    event not in ("missing", "doubled", "unlisted", "altered") for event in EVENTS
]  # the audit reads the mailbox itself


class AuditTotals(NamedTuple):
    """The numbers of mailboxes read, unread and unjudged, and of messages and unknown messages."""

    mailboxes: int
    unread: int
    unjudged: int
    messages: int
    unknown: int


class AuditFile:
    """An open audit file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = connection

    def events(self, user: int) -> Iterator[MailEvent]:
        """Yield the events of a mailbox, first the acceptances, which other users have recorded."""
        rows = self._sql.execute(
            "SELECT event, message, folder, sender FROM mail WHERE user = ? ORDER BY event != ?, rowid",
            (user, EVENT["accepted"]),
        )
        for event, message, folder, sender in rows:
            yield MailEvent(EVENTS[event], message.decode("ascii"), folder, sender)

    def take(self, user: int, judged: Judged) -> None:
        """Keep the result of a mailbox, replacing any earlier one."""
        with self._sql:
            self._sql.execute("DELETE FROM fault WHERE user = ?", (user,))
            self._sql.execute(
                "REPLACE INTO box VALUES (?, ?, ?, ?, NULL)", (user, judged.messages, judged.unknown, judged.complete)
            )
            self._sql.executemany(
                "INSERT INTO fault VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(user, fault.code.id, fault.message.encode(), fault.folder, *fault[3:]) for fault in judged.faults],
            )

    def bounced(self, user: int, bounces: Mapping[str, int]) -> None:
        """Keep the number of bounces in a mailbox by status, replacing any earlier ones."""
        with self._sql:
            self._sql.execute("DELETE FROM bounce WHERE user = ?", (user,))
            rows = [(user, status, times) for status, times in bounces.items()]
            self._sql.executemany("INSERT INTO bounce VALUES (?, ?, ?)", rows)

    def bounces(self) -> dict[str, int]:
        """Return the number of bounces by status."""
        return dict(self._sql.execute("SELECT status, sum(times) FROM bounce GROUP BY status ORDER BY status"))

    def unread(self, user: int, why: str) -> None:
        with self._sql:
            self._sql.execute("REPLACE INTO box VALUES (?, 0, 0, 1, ?)", (user, why))

    def is_read(self, user: int) -> bool:
        rows = self._sql.execute("SELECT 1 FROM box WHERE user = ? AND why IS NULL", (user,))
        return rows.fetchone() is not None

    def forget(self) -> None:
        """Forget that mailboxes were read."""
        with self._sql:
            self._sql.execute("DELETE FROM box")

    def waits(self) -> list[int]:
        """Return the users to whom accepted mail may still be under way."""
        return [user for (user,) in self._sql.execute("SELECT DISTINCT user FROM fault WHERE under_way ORDER BY user")]

    def settle(self, unsure_senders: Iterable[int]) -> AuditTotals:
        """Combine the faults of all mailboxes for `faults`. Return the totals.

        A stray message does not belong in its mailbox. It was misdelivered if the records name it, or if it is missing
        from another mailbox; the two faults then count as one. It is not judged if its sender's records are incomplete.
        """
        sql = self._sql
        misdelivered = Code.MAIL_MISDELIVERED.id
        with sql:
            sql.executescript(_SETTLED)
            # 1. Strays that are missing from another mailbox.
            pairs = sql.execute(_PAIRS, (Code.MAIL_LOST.id,)).fetchall()
            sql.executemany("DELETE FROM settled WHERE at = ?", [(missing,) for _, missing in pairs])
            sql.executemany(
                "UPDATE settled SET code = ?, stray = 0 WHERE at = ?", [(misdelivered, stray) for stray, _ in pairs]
            )
            # 2. Strays whose senders have incomplete records.
            sql.executemany("INSERT INTO unsure VALUES (?)", [(user,) for user in unsure_senders])
            sql.execute("DELETE FROM settled WHERE stray AND sender IN (SELECT user FROM unsure)")
            # 3. Strays of another user's start state, and those that the records name, in one pass over the records:
            # some may have been delivered although the server did not answer.
            sql.execute(
                "UPDATE settled SET code = ?, stray = 0 WHERE stray AND (substr(message, 1, 1) = ? OR message IN"
                " (SELECT message FROM mail WHERE event IN (?, ?, ?)))",
                (misdelivered, INITIAL.encode(), EVENT["accepted"], EVENT["saved"], EVENT["unsure"]),
            )
        boxes = sql.execute(
            "SELECT sum(user AND why IS NULL), sum(why IS NOT NULL), sum(user AND NOT complete), sum(messages),"
            " sum(unknown) FROM box"
        )
        return AuditTotals(*(number or 0 for number in boxes.fetchone()))

    def counts(self) -> dict[Code, int]:
        """Return the number of faults by code, in the catalogue's order."""
        counts = dict(self._sql.execute("SELECT code, count(*) FROM settled GROUP BY code"))
        return {code: counts[code.id] for code in Code if code.id in counts}

    def faults(self, most: int = -1) -> Iterator[tuple[int, Fault]]:
        """Yield users and faults, ordered by code, then by user; at most this many of each code."""
        for code in self.counts():
            rows = self._sql.execute(
                "SELECT user, message, folder, wanted FROM settled WHERE code = ? ORDER BY user, at LIMIT ?",
                (code.id, most),
            )
            for user, message, folder, wanted in rows:
                yield user, Fault(code, message.decode("ascii"), folder, wanted)

    def failures(self, most: int) -> list[tuple[int, str]]:
        """Return the first users whose mailboxes could not be read, with the reasons."""
        return self._sql.execute(
            "SELECT user, why FROM box WHERE why IS NOT NULL ORDER BY user LIMIT ?", (most,)
        ).fetchall()


_SETTLED = """
DROP TABLE IF EXISTS temp.settled;
DROP TABLE IF EXISTS temp.unsure;
CREATE TEMP TABLE settled AS
    SELECT rowid AS at, *, code = 'mail-unexpected' AND sender > 0 AS stray FROM fault;
CREATE INDEX temp.by_message ON settled (message);
CREATE UNIQUE INDEX temp.by_at ON settled (at);
CREATE TEMP TABLE unsure (user INTEGER PRIMARY KEY);
"""

_PAIRS = """
SELECT strays.at, missing.at FROM
    (SELECT at, message, row_number() OVER (PARTITION BY message ORDER BY at) AS nth FROM settled WHERE stray) AS strays
JOIN
    (SELECT at, message, row_number() OVER (PARTITION BY message ORDER BY at) AS nth FROM settled WHERE code = ?)
    AS missing
USING (message, nth)
"""
"""Strays, each paired with the same message missing from another mailbox."""


@contextmanager
def open_audit_file(path: Path, log: TimingLog) -> Iterator[AuditFile]:
    """Open the file that an interrupted audit has left, or make a new one from the log.

    Raises `ConfigError` if the file cannot be written.
    """
    try:
        connection = sqlite3.connect(path)
        try:
            path.chmod(0o600)
            connection.execute("PRAGMA synchronous = OFF")
            if connection.execute("PRAGMA user_version").fetchone() != (_version(log),):
                _fill(connection, log)
            yield AuditFile(connection)
        finally:
            connection.close()
    except sqlite3.Error as failure:
        raise ConfigError(f"{path}: expected to keep the audit's records there, found: {failure}") from None


def _version(log: TimingLog) -> int:
    """Return the `user_version` of a file that has all records: `loadsim cluster collect` may add logs to a run."""
    return 1 + sum(stream.count for stream in log.streams["mails"]) % (1 << 30)


def _fill(connection: sqlite3.Connection, log: TimingLog) -> None:
    """Write the records of a log. If lists seem to leave out their senders, the senders' copies are unsure."""
    connection.executescript(
        "DROP TABLE IF EXISTS mail; DROP TABLE IF EXISTS box; DROP TABLE IF EXISTS bounce;"
        "DROP TABLE IF EXISTS fault;" + _SCHEMA
    )
    leaves_out = left_out(log) > 0
    used = np.array(_USED)
    with connection:
        for mails in log.pieces("mails"):
            some = mails.kept(used[mails["event"]])
            folders = np.array(log.strings, dtype=object)[some["folder"]]
            events = some["event"]
            if leaves_out:
                own = of_sender(log, some)
                events, folders = np.where(own, EVENT["unsure"], events), np.where(own, INBOX, folders)
            columns = [column.tolist() for column in (some["user"], events, some["message"], some["sender"], folders)]
            connection.executemany(
                "INSERT INTO mail (user, event, message, sender, folder) VALUES (?, ?, ?, ?, ?)",
                zip(*columns, strict=True),
            )
        connection.execute("CREATE INDEX mail_of_user ON mail (user)")
        connection.execute(f"PRAGMA user_version = {_version(log)}")
