"""Suites in the working directory whose runs are finished: their logs are written, and no run is made."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from compared_runs import write_run

from loadsim.campaign.file import write
from loadsim.scenario.suite import Suite, load_suite
from loadsim.suite.cells import scenarios_of, terms_of
from loadsim.suite.runs import run_name
from loadsim.suite.suite import SuiteFigures

OUT = Path("out")
SERVERS = [{"name": "old"}, {"name": "new"}]


def suite(**keys: Any) -> Suite:
    Path("suite.yaml").write_text(yaml.safe_dump({"scenario": "small.yaml"} | keys), encoding="utf-8")
    return load_suite("suite.yaml")


def crashed(found: Suite) -> None:
    """The directory of a suite that a crash ended before any run was recorded."""
    OUT.mkdir()
    write(SuiteFigures(OUT, terms_of(found, scenarios_of(found, passwords=False))))


def with_runs(found: Suite, read_ms: Callable[[str, int], float] = lambda *_: 100.0) -> None:
    """As `crashed`, with the finished runs of all places, whose READ takes this time by cell and repeat."""
    crashed(found)
    for slot in found.slots:
        write_run(OUT / "runs", run_name(found, slot, 1), read_ms(slot.cell.name, slot.repeat), hour=slot.number)


def compared_suite(read_ms: float, max_regression: str | None = None) -> Suite:
    """Five repeats of two servers, of which the new one takes this time for a READ; runs vary by 1 %."""
    limit = {"max_regression": max_regression} if max_regression else {}
    found = suite(servers=SERVERS, repeats=5, compare=[{"base": {"server": "old"}, "new": {"server": "new"}, **limit}])
    with_runs(found, lambda cell, repeat: (100.0 if cell == "old" else read_ms) * (1 + 0.01 * (repeat - 3)))
    return found
