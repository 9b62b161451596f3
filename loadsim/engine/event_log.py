"""What happened in a run, a JSON object a line: LoadSim's loadsim.out.

Every kind of error is written when it is met first, with what the server said, and again at the end with how often
it came. A line is in the file as soon as it is said.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from loadsim.errors import TaskFailed


@contextmanager
def closed_at_last(out: TextIO) -> Iterator[TextIO]:
    """Close it at the end of the block. What a full disk did not take until then was counted (`Events.unwritten`)."""
    try:
        yield out
    finally:
        with suppress(OSError):
            out.close()


class Events:
    """Writes events to a text stream; `seconds` tells the time of the run (from the common start, None before it).

    `hear` is told each event, too.
    """

    def __init__(
        self,
        out: TextIO,
        seconds: Callable[[], float | None] = lambda: None,
        hear: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> None:
        self._out = out
        self._hear = hear
        self._failures: Counter[tuple[str, str, str]] = Counter()
        self.seconds = seconds
        self.unwritten = 0

    def say(self, event: str, **facts: Any) -> None:
        """Something happened. A full disk does not end the run: what could not be said is counted in `unwritten`."""
        at_s = self.seconds()
        self.pass_on({"at_s": None if at_s is None else round(at_s, 3), "event": event, **facts})

    def pass_on(self, line: Mapping[str, Any]) -> None:
        """Write what was said by somebody else."""
        self._hear(line)
        try:
            self._out.write(json.dumps(line) + "\n")
            self._out.flush()
        except OSError:
            self.unwritten += 1

    def failed(self, task: str, user: int, failure: TaskFailed) -> None:
        """A task failed: told once for each task, outcome and kind of failure, and counted."""
        key = (task, failure.outcome, failure.kind)
        self._failures[key] += 1
        if self._failures[key] == 1:
            self.say("failure", task=task, outcome=failure.outcome, kind=failure.kind, line=failure.line, user=user)

    def report_failures(self) -> None:
        """How often each kind of failure came."""
        for (task, outcome, kind), times in self._failures.most_common():
            self.say("failures", task=task, outcome=outcome, kind=kind, times=times)
