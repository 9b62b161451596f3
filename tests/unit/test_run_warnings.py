"""Reports on several runs, and comparisons: their words on repeats, and the warnings of single runs.

Seen from outside, this could be wrong so: who sees only the page on all runs does not learn of a warning, or not of
the worst; each run adds a line of its own to a list that nobody reads; warnings of one side look like those of both;
runs of two servers are taken for repeats of one; three runs in a row are taken for a drift.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compared_runs import write_run

from loadsim.analysis.compare_runs import compare_runs
from loadsim.analysis.run_warnings import SharedWarning, shared_warnings
from loadsim.cli.report import document_of
from loadsim.report.document import Listing
from loadsim.report.markdown import to_markdown

CLEAR = "passwords cross the network in the clear"


@pytest.mark.parametrize(
    ("warnings", "found"),
    [
        ([[], []], []),
        ([["slow"], []], [((0,), "slow")]),
        ([["slow"], [], ["slow"]], [((0, 2), "slow")]),
        ([["1,024 lost"], ["7.5 lost"]], [((0, 1), "7.5 to 1,024 lost")]),
        ([["1 lost", "2 lost"], ["1 lost"]], [((0, 1), "1 to 2 lost")]),
        ([["late"], ["slow"], ["slow"]], [((1, 2), "slow"), ((0,), "late")]),
        ([["a\0 1 b"], ["a\0 2 b"]], [((0, 1), "a\\x00 1 to 2 b")]),
        ([["12% of mail1"], ["40% of mail2"]], [((0,), "12% of mail1"), ((1,), "40% of mail2")]),
    ],
    ids=["none", "one run", "the same", "other numbers", "twice in a run", "two kinds", "hostile", "numbers in names"],
)
def test_each_kind_is_found_once(warnings: list[list[str]], found: list[tuple[tuple[int, ...], str]]) -> None:
    """With the range of its numbers; those of most runs are the first."""
    assert shared_warnings(warnings) == [SharedWarning(*one) for one in found]


def test_runs_with_warnings_are_reported_and_compared_with_them(tmp_path: Path) -> None:
    """On the page, the warnings stand before the advice on what to do next; a comparison has those of each side."""
    took_turns = [("a", [CLEAR], 8), ("b", [], 9), ("c", [CLEAR], 10), ("d", [CLEAR], 11)]
    paths = [
        str(write_run(tmp_path, name, 100 + hour, hour=hour, in_the_clear=found)) for name, found, hour in took_turns
    ]
    document = document_of(paths, {})
    (listing,) = (block for block in document.sections[0].blocks if isinstance(block, Listing))
    assert listing == Listing("Warnings", (f"3 of 4 runs: {CLEAR}",))
    page = to_markdown(document)
    assert page.index(CLEAR) < page.index("What to do next")
    compared = compare_runs([paths[0], paths[2]], [paths[1], paths[3]]).figures
    assert f"2 of 2 runs of base, 1 of 2 of new: {CLEAR}" in compared.warnings
    assert CLEAR not in " ".join(compared.unequal_conditions)
    alone = compare_runs([paths[1]], [paths[3]]).figures
    assert f"{paths[3]}: {CLEAR}" in alone.warnings


def spread_of(place: Path, took_ms: list[float], **of_last: Any) -> tuple[str, str]:
    """Return what the report says of the scores of runs made one hour after another, and its advice.

    The names of the directories are in another order. `of_last` are keys of the last run's header.
    """
    paths = []
    for at, one_ms in enumerate(took_ms):
        header = {"run": f"20260105T{at + 8:02d}0000Z-x"} | (of_last if at == len(took_ms) - 1 else {})
        paths.append(str(write_run(place, f"dir-{9 - at}", one_ms, None, hour=at + 8, **header)))
    blocks = [str(block) for block in document_of(sorted(paths), {}).sections[0].blocks]
    return next(block for block in blocks if " have scores from " in block), blocks[-1]


@pytest.mark.parametrize(
    ("took_ms", "drifts"),
    [([10, 20, 30], True), ([40, 30, 20, 10], True), ([10, 30, 20], False), ([10, 10.01, 10.02], False)],
    ids=["slower", "faster", "up and down", "shown as equal"],
)
def test_after_a_drift_the_advice_is_to_make_more_runs(tmp_path: Path, took_ms: list[float], drifts: bool) -> None:
    """The order is that of the starts of the runs, not of their names."""
    _, advice = spread_of(tmp_path, took_ms)
    assert advice.startswith("What to do next: make more runs") == drifts


def test_two_runs_have_a_spread(tmp_path: Path) -> None:
    spread, _ = spread_of(tmp_path, [10, 20])
    assert "from 10.0 ms to 20.0 ms (100 % more); geometric mean 14.1 ms, 95 % interval too wide" in spread


def test_a_drift_of_five_runs_is_no_chance(tmp_path: Path) -> None:
    _, advice = spread_of(tmp_path, [10, 12, 14, 16, 18])
    assert advice.startswith("What to do next: find out what changes from run to run")


@pytest.mark.parametrize(
    "of_last",
    [{"server": "mail-2"}, {"software": "loadsim 9"}, {"start_state_digest": "other"}],
    ids=lambda one: next(iter(one)),
)
def test_runs_that_differ_are_no_repeats(tmp_path: Path, of_last: dict[str, Any]) -> None:
    """Their range is stated; the advice is to compare them."""
    spread, advice = spread_of(tmp_path, [10, 20, 30], **of_last)
    assert "; geometric mean 18.2 ms, 95 % interval " in spread
    assert advice.startswith("What to do next: compare the runs with what differs between them: loadsim compare --base")
