"""Quotas of the processor: a group that is full at half a core, on a machine with cores to spare."""

import os
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from loadsim.monitor.system.processor_quotas import FIND_EACH_NS, ProcessorQuotas, QuotaUse, quota_figures

SECOND_NS = 10**9


def clock() -> Callable[[], int]:
    return partial(next, count(SECOND_NS, SECOND_NS))


def written(group: Path, **texts: str) -> None:
    group.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (group / f"cpu.{name}").write_text(text)


def stat(used_s: float, periods: int = 0, throttled: int = 0, throttled_s: float = 0) -> str:
    return (
        f"usage_usec {used_s * 1e6:.0f}\nuser_usec 1\nsystem_usec 2\nnr_periods {periods}\n"
        f"nr_throttled {throttled}\nthrottled_usec {throttled_s * 1e6:.0f}\n"
    )


def here() -> str:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return next(line for line in lines if line.startswith("0::")).removeprefix("0::").lstrip("/")


def test_use_is_a_share_of_the_allowed_time(tmp_path: Path) -> None:
    """1.5 s of CPU time in a second at a quota of two cores is three quarters, on any machine."""
    group = tmp_path / here()
    written(group, max="200000 100000", stat=stat(10, 100, 20, 3))
    quotas = ProcessorQuotas(tmp_path, clock())
    assert quotas.take({os.getpid()}) == {}
    written(group, stat=stat(11.5, 110, 25, 3.25))
    assert quotas.take({os.getpid()}) == pytest.approx(
        {"quota_cores": 2, "quota_busy_share": 0.75, "quota_throttled_share": 0.5, "quota_throttled_cores": 0.25}
    )


def test_without_a_quota_there_are_no_figures(tmp_path: Path) -> None:
    """There are none for ended processes either, nor where no group is mounted."""
    written(tmp_path / here(), max="max 100000", stat=stat(1))
    quotas = ProcessorQuotas(tmp_path, clock())
    assert [quotas.take({os.getpid()}) for _ in range(3)] == [{}, {}, {}]
    assert ProcessorQuotas(tmp_path / "none").take({os.getpid()}) == {}
    assert ProcessorQuotas(tmp_path).take({2**22 + 1}) == {}


def test_a_quota_that_is_set_later_is_found(tmp_path: Path) -> None:
    """Within half a minute: the groups are not looked for each second."""
    group = tmp_path / here()
    written(group, max="max 100000", stat=stat(1))
    quotas = ProcessorQuotas(tmp_path, clock())
    quotas.take({os.getpid()})
    written(group, max="100000 100000")
    seconds = [second for second in range(FIND_EACH_NS // SECOND_NS + 3) if quotas.take({os.getpid()})]
    assert seconds
    assert seconds[0] == FIND_EACH_NS // SECOND_NS


@pytest.mark.parametrize(
    "reset", [{"periods": 5}, {"throttled_periods": 1}, {"throttled_s": 0.5}, {"used_s": 2}, {"at_ns": 0}]
)
def test_reset_counters_have_no_figures(reset: dict[str, float]) -> None:
    before = QuotaUse(0, 1, 10, 5, 1, 3)
    grown = {"at_ns": 10**9, "cores": 1, "periods": 20, "throttled_periods": 6, "throttled_s": 2, "used_s": 4}
    assert quota_figures(before, QuotaUse(**grown))["quota_busy_share"] == 1  # type: ignore[arg-type]
    assert quota_figures(before, QuotaUse(**grown | reset)) == {}  # type: ignore[arg-type]
