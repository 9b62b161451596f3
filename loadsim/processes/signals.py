"""Signals that end a command: Ctrl-C, SIGTERM, a closed terminal. The first ends it; further ones have no effect.

Users often press Ctrl-C twice, and `timeout` signals both a process and its group. A second signal must not interrupt
the clean-up after the first: it is ignored unless there is a handler for it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

Handler = Callable[[bool], None]
"""Called on a signal, at any point in the program; the argument is true for the first signal."""


class _Signals:
    """The signals that this process has received so far, and their handler."""

    def __init__(self) -> None:
        self.any = False
        self.count = 0
        self.handler: Handler | None = None

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        first, self.any = not self.any, True
        self.count += 1
        self.act(first)

    def act(self, first: bool) -> None:
        """React to a signal now."""
        if self.handler is not None:
            self.handler(first)
        elif first:
            raise KeyboardInterrupt


_signals = _Signals()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Make the first signal in the block raise `KeyboardInterrupt`, or call the handler set by `handled_by`.

    Once there has been a signal, further ones are ignored after the block: the process is exiting.
    """
    _signals.any = False
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    taken = {number: handler for number, handler in usual.items() if signal.getsignal(number) is handler}  # not nohup's
    for number in taken:
        signal.signal(number, _signals)
    try:
        yield
    finally:
        for number, usual_handler in taken.items():
            signal.signal(number, signal.SIG_IGN if _signals.any else usual_handler)


def noticed_signals() -> Callable[[], bool]:
    """Return a function that tells whether a signal has arrived since this call, even one that a handler received.

    A run that has done its work ends as usual after a signal. A sequence of runs checks this before the next run.
    """
    before = _signals.count
    return lambda: _signals.count > before


@contextmanager
def handled_by(handler: Handler, *, even_if_ignored: bool = False) -> Iterator[None]:
    """Make each signal in the block call `handler` instead of raising. Signals arrive only in the main thread.

    `even_if_ignored` includes SIGINT and SIGTERM that the process was ignoring, as after `&` in a script.
    """
    if current_thread() is not main_thread():
        yield
        return
    before, _signals.handler = _signals.handler, handler
    wanted = (signal.SIGINT, signal.SIGTERM) if even_if_ignored else ()
    replaced = {number: signal.signal(number, _signals) for number in wanted}
    try:
        yield
    finally:
        _signals.handler = before
        for number, former in replaced.items():
            signal.signal(number, former)


@contextmanager
def delayed_signals() -> Iterator[None]:
    """Delay the effect of signals until the end of the block."""
    delayed: list[bool] = []
    with handled_by(delayed.append):
        yield
    for first in delayed:
        _signals.act(first)
