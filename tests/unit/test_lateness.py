"""The 95th percentile of how late tasks began is numpy's, of all tasks and in parts."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.analysis.generator.lateness import Late

NUMBERS = st.floats(0, 1e6, width=32) | st.sampled_from([0.0, -0.0, 1.0])


@settings(deadline=None)
@given(parts=st.lists(st.lists(NUMBERS, max_size=60), max_size=6))
def test_the_percentile_is_that_of_all_tasks(parts: list[list[float]]) -> None:
    """Nearest rank by numpy; None without tasks."""
    late = Late()
    for part in parts:
        late.add(np.array(part, np.float32))
    every = [number for part in parts for number in part]
    expected = round(1000 * float(np.percentile(every, 95, method="inverted_cdf")), 3) if every else None
    assert late.p95_ms() == expected
