"""Recordings of storage tests with stated times, as the workers tell them, and damage of stored files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from loadsim.storage.recording import Recording, TestedTerms
from loadsim.storage.scenario import StorageScenario
from loadsim.storage.store import Io

SCENARIO = StorageScenario(mailboxes=4000, mailbox_size=3 << 30, iops_per_mailbox=0.1, headroom=0.0, databases=1)

GOOD: Mapping[Io, tuple[float, float]] = {Io.READ: (400.0, 15.0), Io.WRITE: (200.0, 1.5), Io.LOG_WRITE: (200.0, 0.3)}
"""By kind: how many a second, and how many milliseconds each takes."""


def io(rates: Mapping[Io, tuple[float, float]], sample_s: float) -> dict[str, dict[str, int]]:
    return {
        kind.value: {
            "count": round(per_s * sample_s),
            "bytes": round(per_s * sample_s) * 32768,
            "total_ns": round(round(per_s * sample_s) * mean_ms * 1e6),
            "slowest_ns": round(mean_ms * 2e6),
        }
        for kind, (per_s, mean_ms) in rates.items()
    }


def sample(rates: Mapping[Io, tuple[float, float]] = GOOD, sample_s: float = 15.0, **other: Any) -> dict[str, Any]:
    """Return a sample of a database that did as many operations as reads."""
    reads = round(rates.get(Io.READ, (0.0, 0.0))[0] * sample_s)
    return {
        "operations": {"read": reads} if reads else {},
        "failures": {},
        "damaged": 0,
        "damages": [],
        "lag": {"0.1": 100},
        "cpu_s": 0.2 * sample_s,
        "io": io(rates, sample_s),
        "warm_share": 1.0,
        **other,
    }


def recording(
    samples: Sequence[Sequence[Mapping[str, Any]]],
    *,
    test: str = "performance",
    scenario: StorageScenario = SCENARIO,
    warm: bool = True,
    sample_s: float = 15.0,
    end: tuple[bool, bool, str | None] | None = (False, False, None),
) -> Recording:
    """Return a recording of databases with these samples, all of which count; its length is theirs."""
    length_s = len(samples[0]) * sample_s if scenario is SCENARIO else scenario.duration_s
    scenario = replace(scenario, databases=len(samples), duration_s=length_s)
    names = [(f"db-{number:03}", "/disk") for number in range(1, len(samples) + 1)]
    made = Recording(
        TestedTerms(
            "0.1.0",
            test,
            "2026-11-27T12:00:00+00:00",
            "vm",
            asdict(scenario),
            names,
            ["ext4 on /dev/sda"],
            True,
            sample_s,
        )
    )
    for (name, _), of_database in zip(names, samples, strict=True):
        for one in of_database:
            made.add("sample", {"database": name, "sample": one})
    made.add("window", (0, warm))
    for kind in ("checked", "proved"):
        made.add(kind, [{"bytes": 10**9, "took_s": 2.0}] * len(names))
    if end is not None:
        made.add("end", end)
    return made


def flip(path: Path, offset: int, bit: int = 4) -> None:
    """Change a bit of a byte of a file; an offset below 0 counts from its end."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 1 << bit
    path.write_bytes(content)
