"""Run directories of the slices of one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from timing_samples import done, write_sample

from loadsim.model.partition import Slice


def part_of_sample(place: Path, text: str, header: dict[str, Any] | None = None, **records: Any) -> Path:
    """The run directory of one slice of a run of four users, named by its slice, from a machine of its own."""
    part = Slice.parse(text)
    hand = part.assignment(4)
    client = f"host{part.number}"
    about = {
        "client": client,
        "users": 4,
        "engine_users": len(hand),
        "hand": {"users": 4, "step": hand.step, "begin": hand.begin, "end": hand.end},
        "slice": {"number": part.number, "weights": list(part.weights)},
        "start_at": "2026-01-05T08:00:03Z",
        "start_state_digest": "start",
        "limits": {"hits": 0, "window_s": 0, "done": 0},
        "criteria": {"score_ms": None},
    } | (header or {})
    user = next(iter(hand))
    tasks = [done("LOGON", -1000, 5, user=each) for each in hand]
    tasks += [done("READ", 1000 + each, 10 * each, user=user) for each in range(1, 6)]
    directory = place / f"{text.replace('/', 'of')}-{about['client']}"
    write_sample(directory / "logs" / f"{about['client']}.1.tlog", tasks, header=about, **records)
    return directory
