"""The time of day of a machine, by which the files of monitors are placed."""

import ctypes
import subprocess
import time
from pathlib import Path

import pytest

from loadsim.monitor.system.wall_clock import _Timex, wall_clock_error_ns, wall_clock_sample

IN_C = """
#include <stddef.h>
#include <stdio.h>
#include <sys/timex.h>
int main(void) {
    printf("%zu %zu %zu\\n", offsetof(struct timex, maxerror), offsetof(struct timex, status), sizeof(struct timex));
    return 0;
}
"""


@pytest.mark.system
def test_the_structure_has_the_kernels_layout(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(IN_C)
    subprocess.run(["cc", "-o", tmp_path / "a", tmp_path / "a.c"], check=True)
    output = subprocess.run([tmp_path / "a"], check=True, capture_output=True, text=True).stdout
    max_error, status, size_bytes = map(int, output.split())
    assert (_Timex.maxerror.offset, _Timex.status.offset) == (max_error, status)
    assert ctypes.sizeof(_Timex) >= size_bytes


def test_both_clocks_are_read_together() -> None:
    """Between two readings of each; the error is stated only if a service keeps the clock."""
    before_ns, wall_before_ns = time.monotonic_ns(), time.time_ns()
    sample = wall_clock_sample()
    wall_after_ns, after_ns = time.time_ns(), time.monotonic_ns()
    assert before_ns <= sample["at_ns"] <= after_ns
    assert wall_before_ns <= sample["wall_clock_ns"] <= wall_after_ns
    assert ("wall_clock_error_ns" in sample) == (wall_clock_error_ns() is not None)
