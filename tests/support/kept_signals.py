"""Signals in the process of the tests."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_signals() -> Iterator[None]:
    """Restore the handlers of signals after the block: a command that one has ended ignores all until its exit."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
