"""Requests to go, by Ctrl-C, SIGTERM or a closed terminal: the first one ends a command, the others find it leaving.

Whoever is impatient asks twice, and `timeout` signals a process and its group. A second request that broke into the
clearing up would leave behind what the first one had it take away: so it is without effect, unless somebody hears it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

Hearer = Callable[[bool], None]
"""Told of a request, in the middle of anything, and whether it is the first."""


class _Requests:
    """Of this process; a handler of signals."""

    def __init__(self) -> None:
        self.any = False
        self.hearer: Hearer | None = None

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        first, self.any = not self.any, True
        if self.hearer is not None:
            self.hearer(first)
        elif first:
            raise KeyboardInterrupt


_requests = _Requests()


@contextmanager
def requests_end_it() -> Iterator[None]:
    """While the block lasts, the first request raises `KeyboardInterrupt`, or is for whoever hears it.

    Once there was one, all are ignored afterwards: the process is on its way out, and Python with it.
    """
    _requests.any = False
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    taken = {number: handler for number, handler in usual.items() if signal.getsignal(number) is handler}  # not nohup's
    for number in taken:
        signal.signal(number, _requests)
    try:
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, signal.SIG_IGN if _requests.any else handler)


@contextmanager
def heard_by(hearer: Hearer) -> Iterator[None]:
    """While the block lasts, every request is for `hearer`, and raises nothing. Requests come to the main thread."""
    if current_thread() is not main_thread():
        yield
        return
    before, _requests.hearer = _requests.hearer, hearer
    try:
        yield
    finally:
        _requests.hearer = before


@contextmanager
def never_ignored() -> Iterator[None]:
    """While the block lasts, SIGINT and SIGTERM are requests, also where they were ignored (a script's `&` does)."""
    if current_thread() is not main_thread():  # only the main thread may set handlers
        yield
        return
    before = {number: signal.signal(number, _requests) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
