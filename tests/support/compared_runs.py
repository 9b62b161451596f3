"""Run directories to compare, with tasks that take known times."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from timing_samples import done, write_sample

from loadsim.comparison.comparison import Comparison

HEADER: dict[str, Any] = {
    "start_state_digest": "m1",
    "event_loop": "uvloop",
    "duration_s": 200,
    "server": "mail.example",
    "engines": 1,
    "software": "loadsim 0.1.0",
    "criteria": {"score_ms": {"below": 1000}},
}


def write_run(
    place: Path,
    name: str,
    /,
    read_ms: float = 100.0,
    send_ms: float | None = 50.0,
    hour: int = 8,
    facts: Mapping[str, Any] | None = None,
    tasks: list[dict[str, Any]] | None = None,
    mails: Iterable[Mapping[str, Any]] = (),
    health: Iterable[Mapping[str, Any]] = (),
    **header: Any,
) -> Path:
    """A run directory in which each READ and each SEND took the same time; the run has the directory's name."""
    if tasks is None:
        tasks = [done("READ", 1000 * at, read_ms) for at in range(1, 6)]
        tasks += [done("SEND", 1000 * at, send_ms) for at in range(1, 4) if send_ms is not None]
    own = {"run": name, "wall_clock_start": f"2026-01-05T{hour:02d}:00:00+00:00"}
    log = place / name / "logs" / "c1.0.tlog"
    write_sample(log, tasks, mails, header=HEADER | own | header, facts=facts, health=health)
    return place / name


def three(
    place: Path, side: str, middle_ms: float, send_ms: tuple[float, float, float] = (50, 51, 52.02)
) -> list[Path]:
    """Three runs whose READ takes the middle's time, and 2 % less and more; they take turns with the other side's."""
    turn = {"base": 0, "new": 1}[side]
    return [
        write_run(place, f"{side}-{at}", middle_ms * 1.02 ** (at - 2), send_ms[at - 1], hour=2 * at + (turn + at) % 2)
        for at in (1, 2, 3)
    ]


def decided(comparison: Comparison) -> dict[str, str]:
    return {one["name"]: one["decision"] for one in comparison.document["decisions"]}
