"""The 95th percentile of how late tasks began is numpy's, of all tasks and in parts."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.analysis.generator.lateness import Upper

NUMBERS = st.floats(0, 1e6, width=32) | st.sampled_from([0.0, -0.0, 1.0])


@settings(deadline=None)
@given(parts=st.lists(st.lists(NUMBERS, max_size=60), max_size=6), more=st.integers(0, 1000))
def test_the_percentile_of_parts_is_that_of_all_tasks(parts: list[list[float]], more: int) -> None:
    """Nearest rank by numpy, also if there could have been more tasks; None without tasks."""
    every = [number for part in parts for number in part]
    late_s = Upper(len(every) + more)
    for part in parts:
        late_s.add(np.array(part, np.float32))
    expected = round(1000 * float(np.percentile(every, 95, method="inverted_cdf")), 3) if every else None
    assert late_s.p95_ms() == expected
