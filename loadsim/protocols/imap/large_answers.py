"""A limit on all large answers that arrive in a process at the same time.

Each answer has a limit of its own. A server that floods thousands of users at once must not take all memory either.
Above the common limit, the session with the largest answer ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from loadsim.errors import ProtocolError

LARGE_BYTES = 4 << 20
"""Smaller answers are not counted: those of 1,000 headers and of most attachments."""

_MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
LARGEST_TOGETHER_BYTES = max(1 << 30, _MEMORY_BYTES // 2 // (os.cpu_count() or 1))
"""Half of the machine's memory, divided among as many engines as it has cores; but at least 1 GiB."""


class LargeAnswers:
    """The sizes of the large answers that arrive, by the function that ends the connection of each."""

    def __init__(self) -> None:
        self._taken_bytes: dict[Callable[[ProtocolError], None], int] = {}
        self._together_bytes = 0

    def weigh(self, end: Callable[[ProtocolError], None], taken_bytes: int) -> None:
        """Note the present size of a connection's answer; above the limit, the connection with the largest ends."""
        if taken_bytes < LARGE_BYTES:
            if self._taken_bytes:
                self._together_bytes -= self._taken_bytes.pop(end, 0)
            return
        self._together_bytes += taken_bytes - self._taken_bytes.get(end, 0)
        self._taken_bytes[end] = taken_bytes
        if self._together_bytes > LARGEST_TOGETHER_BYTES:
            largest = max(self._taken_bytes, key=self._taken_bytes.__getitem__)
            largest(ProtocolError("IMAP answers too large", f"together above {LARGEST_TOGETHER_BYTES} bytes"))
