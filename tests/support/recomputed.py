"""Every figure of `score.json`, held against those of `recompute`, which knows only documentation and CSV exports.

A new key of `score.json` is a difference until `recompute` has it, or `LEFT_OUT` with a reason.
"""

import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from recompute import Exports
from recompute_numbers import Figures, rows_of

from loadsim.cli import main

TEXT = "a text"
FACT = "a fact of the log that no export has"
LEFT_OUT = {
    "verdict.criteria.*.found": TEXT,
    "verdict.criteria.*.wanted": TEXT,
    "findings.*": "verdict.causes are those of the findings",
    "next_step": TEXT,
    "run": TEXT,
    "name": TEXT,
    "mode": TEXT,
    "server": TEXT,
    "submission": TEXT,
    "acknowledgements": TEXT,
    "plan_digest": TEXT,
    "tasks.*.no_interval": TEXT,
    "by_protocol.*.no_interval": TEXT,
    "score_interval_ms": "intervals are held by a simulation",
    "tasks.*.interval_ms": "as the score's",
    "by_protocol.*.score_interval_ms": "as the score's",
    "by_protocol.*.interval_ms": "as the score's",
    "embedded": FACT,
    "throughput": "null but in stress mode",
    "per_client": "empty but for several machines",
    "machines.*.server_here": FACT,
    "machines.*.shares_cpus": FACT,
    "machines.*.generator_cores": FACT,
    "machines.*.pinned": FACT,
    "machines.*.unobserved_s": "of samples of the engines; held by analysis/generator/test_failures.py",
}
"""Keys of `score.json` that `recompute` leaves out, as patterns, and why."""

PROFILE_DAY_S = 8 * 3600
"""The day of all profiles that are used here."""

KINDS = ("tasks", "mails", "commands", "health")

NAMED_BY = ("task", "command", "name", "code")
"""Elements of lists in `score.json` are told apart by one of these."""


def normal(value: Any) -> Any:
    """Return a value of `score.json` as `recompute` has it: elements of lists by their names, infinity as a number."""
    if isinstance(value, dict):
        return {key: normal(each) for key, each in value.items()}
    if isinstance(value, list):
        if value and isinstance(value[0], dict):
            if "outcome" in value[0]:
                return {f"{each['outcome']} {each['kind']}": each["times"] for each in value}
            (name,) = [key for key in NAMED_BY if key in value[0]]
            return {each[name]: normal(each) for each in value}
        return set(value) if value and isinstance(value[0], str) else value
    return math.inf if value == "inf" else value


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the figures of nested dictionaries with their paths; what is empty has none."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, f"{path}.{key}" if path else key)
    elif value not in ([], set()):
        yield path, value


def same(path: str, told: Any, found: Any) -> bool:
    """Return whether two figures agree: counts exactly, times to a millionth or the microsecond of the exports."""
    if isinstance(told, bool) or not isinstance(told, int | float) or not isinstance(found, int | float):
        return bool(told == found)
    if isinstance(told, int) and isinstance(found, int):
        return told == found
    return math.isclose(told, found, rel_tol=1e-6, abs_tol=0.0011 if "lateness" in path else 0)


def differences(score: Mapping[str, Any], figures: Figures) -> list[str]:
    """Return what `score.json` and the recomputation do not agree on."""
    told, found = dict(leaves(normal(score))), dict(leaves(figures))
    left_out = {path for path in told if any(fnmatchcase(path, pattern) for pattern in LEFT_OUT)}
    missing = object()
    return [
        f"{path}: score.json has {told.get(path, 'nothing')}, recomputed {found.get(path, 'nothing')}"
        for path in told.keys() - left_out | found.keys()
        if not same(path, told.get(path, missing), found.get(path, missing))
    ]


def printed(*arguments: str | Path, statuses: Sequence[int] = (0,)) -> str:
    """Execute a command in this process, and return what it prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        status = main([*map(str, arguments)])
    assert status in statuses
    return out.getvalue()


def exports_of(log: Path, scenario: Mapping[str, Any], path: Path) -> Exports:
    tables = {kind: rows_of(printed("log", "export", "csv", log, "--kind", kind)) for kind in KINDS}
    plan = json.loads(printed("plan", path, "--json"))
    at = log / "audit.json"
    audit = json.loads(at.read_text(encoding="utf-8")) if at.exists() else None
    return Exports(**tables, scenario=scenario, plan=plan, audit=audit, profile_day_s=PROFILE_DAY_S)


def status_of(figures: Figures) -> int:
    """Return the exit status that the documentation has for a verdict."""
    verdict = figures["verdict"]
    return 3 if verdict["validity"] == "invalid" else int(not verdict["passed"])
