"""Health samples of an engine, as its timing log has them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from timing_samples import ENDED, EPOCH_NS, HEADER, ms, only

from loadsim.timinglog.writer import TimingLogWriter

CALM = [100] * 100
"""The lags of a good second, in microseconds."""


def sample(at_s: float, lags_us: Sequence[int] = CALM, **figures: Any) -> dict[str, Any]:
    """Return an engine's sample of the second before `at_s`, whose first tick was due at its beginning."""
    basic = {
        "at_ns": ms(at_s * 1000),
        "lags_from_ns": ms(at_s * 1000 - 1000),
        "lags_us": list(lags_us),
        "cpu_share": 0.25,
        "rss_bytes": 50_000_000,
        "open_files": 20,
        "gc_max_ms": 2.0,
    }
    return basic | figures


def write_observed_machine(path: Path, header: Mapping[str, Any], until_s: float = 1000) -> Path:
    """The whole log of the engines' machine, without figures: its samples show that it was observed."""
    stated = HEADER | dict(header) | {"engine": "machine", "engine_users": 0}
    writer = TimingLogWriter(path, stated | {"criteria": only(stated["criteria"])}, EPOCH_NS)
    for at_s in range(0, round(until_s), 4):
        writer.health({"at_ns": ms(at_s * 1000)})
    writer.facts(ENDED)
    writer.close()
    return path
