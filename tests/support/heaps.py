"""Garbage collections that look at the objects of one test only."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def small_heap() -> Iterator[None]:
    """Let collections within the block look only at objects made in it: those of all tests take 0.2 s of CPU time.

    What is frozen at the end, such as by an engine, is released with the rest.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.freeze()  # sets the counts to zero that would have the next collection look at everything
        gc.unfreeze()
