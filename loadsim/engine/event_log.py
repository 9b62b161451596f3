"""The events of a run, one JSON object per line: LoadSim's loadsim.out.

Each kind of error is written when it first occurs, with the server's text, and again at the end with its count. A line
is in the file as soon as its event has happened.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from loadsim.errors import TaskFailed


@contextmanager
def closed_at_last(out: TextIO) -> Iterator[TextIO]:
    """Close a file at the end of the block, even on a full disk: `Events.unwritten` counts the lost lines."""
    try:
        yield out
    finally:
        with suppress(OSError):
            out.close()


class Events:
    """Writes events to the file `out`, if there is one, and passes them to `send`.

    `seconds` returns the time since the common start, None before it.
    """

    def __init__(self, out: TextIO | None, send: Callable[[Mapping[str, Any]], None] = lambda _: None) -> None:
        self._out = out
        self._send = send
        self._failures: Counter[tuple[str, str, str]] = Counter()
        self._shown: set[str] = set()  # the kinds of failure already written with lines
        self.seconds: Callable[[], float | None] = lambda: None
        self.unwritten = 0

    def write(self, event: str, **facts: Any) -> None:
        """Write an event. A full disk does not end the run: `unwritten` counts the lost events."""
        at_s = self.seconds()
        self.forward({"at_s": None if at_s is None else round(at_s, 3), "event": event, **facts})

    def forward(self, line: Mapping[str, Any]) -> None:
        self._send(line)
        if self._out is None:
            return
        try:
            self._out.write(json.dumps(line) + "\n")
            self._out.flush()
        except OSError:
            self.unwritten += 1

    def failed(self, task: str, user: int, failure: TaskFailed, lines: Callable[[], Sequence[str]] = tuple) -> None:
        """Count a failure; write an event for the first of each task, outcome and kind.

        The first of each kind from a user who keeps `lines` is written too, with these lines.
        """
        outcome, kind = failure.outcome, failure.kind
        shown = () if kind in self._shown else lines()
        self._failures[task, outcome, kind] += 1
        if shown or self._failures[task, outcome, kind] == 1:
            self.write("failure", task=task, outcome=outcome, kind=kind, line=failure.line, user=user, lines=shown)
        if shown:
            self._shown.add(kind)

    def report_failures(self) -> None:
        for (task, outcome, kind), times in self._failures.most_common():
            self.write("failures", task=task, outcome=outcome, kind=kind, times=times)
