"""The records of a timing log as readable lines, in time order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge as merge_sorted
from operator import itemgetter

import numpy as np

from loadsim.errors import printable
from loadsim.model.records import EVENTS, OUTCOMES
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import KINDS, NEVER, Records, placed_us
from loadsim.timinglog.streams import EVER, Span

_CHUNK = 8192


def record_lines(
    log: TimingLog,
    kinds: Sequence[str] = tuple(KINDS),
    task: str | None = None,
    user: int | None = None,
    span: Span = EVER,
) -> Iterator[str]:
    """Yield a line for each record of these kinds (keys of `KINDS`) in a span of time, of one task, of one user.

    A line begins with the start of the record in seconds from the common start, or its due time if it never started.
    """
    lines = [_lines(log, kind, task, user, span) for kind in kinds]
    for at_us, line in merge_sorted(*lines, key=itemgetter(0)):
        yield f"{at_us / 1e6:14.6f}  {line}"


def _lines(log: TimingLog, kind: str, task: str | None, user: int | None, span: Span) -> Iterator[tuple[int, str]]:
    describe = _DESCRIBE[kind]
    names = [printable(name) for name in log.strings]
    for records in log.parts(kind, span):
        wanted = np.ones(len(records), np.bool_)
        if user is not None:
            wanted &= records["user"] == user
        if task is not None:
            wanted &= records["task"] == (log.strings.index(task) if task in log.strings else -1)
        chosen = records[wanted]
        for begin in range(0, len(chosen), _CHUNK):
            part = chosen[begin : begin + _CHUNK]
            whose = zip(part["client"].tolist(), part["engine"].tolist(), part["user"].tolist(), strict=True)
            texts = describe(part, names)
            for at_us, (client, engine, of), text in zip(placed_us(part).tolist(), whose, texts, strict=True):
                yield at_us, f"{kind[:-1]:7}  {names[client]}.{names[engine]}  user {of}  {text}"


def _columns(records: Records, *fields: str) -> Iterator[tuple[int, ...]]:
    return zip(*(records[field].tolist() for field in fields), strict=True)


def _tasks(records: Records, names: Sequence[str]) -> Iterator[str]:
    fields = ("task", "outcome", "error", "scheduled_us", "started_us", "ended_us", "bytes")
    for task, outcome, error, due_us, started_us, ended_us, size in _columns(records, *fields):
        if started_us == NEVER:
            took = ", never started"
        elif ended_us == NEVER:
            took = f", due {(started_us - due_us) / 1e3:.3f} ms before"
        else:
            took = f", service {(ended_us - started_us) / 1e3:.3f} ms, response {(ended_us - due_us) / 1e3:.3f} ms"
        yield f"{names[task]} {OUTCOMES[outcome]}{_named(' ', names[error])}{took}, {size} bytes"


def _mails(records: Records, names: Sequence[str]) -> Iterator[str]:
    messages = (printable(message.decode("ascii", "replace")) for message in records["message"].tolist())
    for message, (event, sender, folder) in zip(messages, _columns(records, "event", "sender", "folder"), strict=True):
        yield f"{EVENTS[event]} {message} of user {sender}{_named(' in ', names[folder])}"


def _commands(records: Records, names: Sequence[str]) -> Iterator[str]:
    fields = ("command", "outcome", "took_us", "sent_bytes", "received_bytes")
    for command, outcome, took_us, sent, received in _columns(records, *fields):
        yield f"{names[command]} {OUTCOMES[outcome]}, {took_us / 1e3:.3f} ms, {sent} bytes sent, {received} received"


def _named(before: str, name: str) -> str:
    return f"{before}{name}" if name else ""


_DESCRIBE: dict[str, Callable[[Records, Sequence[str]], Iterator[str]]] = {
    "tasks": _tasks,
    "mails": _mails,
    "commands": _commands,
}
