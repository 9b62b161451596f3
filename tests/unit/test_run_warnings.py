"""Reports on several runs, and comparisons: the warnings of single runs.

Seen from outside, this could be wrong so: who sees only the page on all runs does not learn of a warning, or not of
the worst; each run adds a line of its own to a list that nobody reads; warnings of one side look like those of both.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from compared_runs import write_run

from loadsim.analysis.run_warnings import SharedWarning, shared_warnings
from loadsim.cli.report import document_of
from loadsim.comparison.comparison import compare_runs
from loadsim.report.document import Listing

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
    """A comparison has those of each side."""
    took_turns = [("a", [CLEAR], 8), ("b", [], 9), ("c", [CLEAR], 10), ("d", [CLEAR], 11)]
    paths = [
        str(write_run(tmp_path, name, 100 + hour, hour=hour, in_the_clear=found)) for name, found, hour in took_turns
    ]
    document = document_of(paths, {})
    (listing,) = (block for block in document.sections[0].blocks if isinstance(block, Listing))
    assert listing == Listing("Warnings", (f"3 of 4 runs: {CLEAR}",))
    compared = compare_runs([paths[0], paths[2]], [paths[1], paths[3]]).figures
    assert f"2 of 2 runs of base, 1 of 2 of new: {CLEAR}" in compared.warnings
    assert CLEAR not in " ".join(compared.unequal_conditions)
    alone = compare_runs([paths[1]], [paths[3]]).figures
    assert f"{paths[3]}: {CLEAR}" in alone.warnings
