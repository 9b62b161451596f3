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
    ("took_ms", "words"),
    [
        ([10, 20, 30], "From run to run, they only rise. By chance alone, the scores of 3 equal runs only rise or"),
        (
            [40, 30, 20, 10],
            "they only fall. By chance alone, the scores of 4 equal runs only rise or only fall in 1 of 12",
        ),
        ([10, 30, 20], "is likely (80 %) to find a difference if one score is about 8.86 times the other."),
        ([20, 20, 20], "if one score is about 1.01 times the other."),
        ([10, 10.01, 10.02], "if one score is about 1.01 times the other."),
        ([1, 1000, 30], "With 3 such runs of each of two servers, loadsim compare could hardly show any difference."),
        ([10, 20], "from 10.0 ms to 20.0 ms (100 % more), with a median of 15.0 ms."),
    ],
    ids=["slower", "faster", "up and down", "equal", "shown as equal", "far apart", "two"],
)
def test_repeats_drift_and_show_what_they_can(tmp_path: Path, took_ms: list[float], words: str) -> None:
    """The order is that of the starts of the runs, not of their names. After a drift, the advice is to make more runs.

    The ratios are of 3.927 standard deviations of the logarithms: 79.8 % of 100,000 simulated comparisons by Welch's
    test, with three runs a side, found that distance.
    """
    spread, advice = spread_of(tmp_path, took_ms)
    assert words in spread
    assert ("such runs of each" in spread) == (len(took_ms) > 2)
    assert ("they only" in spread) == advice.startswith("What to do next: make more runs")


def test_a_drift_of_five_runs_is_no_chance(tmp_path: Path) -> None:
    spread, advice = spread_of(tmp_path, [10, 12, 14, 16, 18])
    assert "only rise or only fall in 1 of 60 cases" in spread
    assert advice.startswith("What to do next: find out what changes from run to run, ")


@pytest.mark.parametrize(
    "of_last",
    [{"server": "mail-2"}, {"software": "loadsim 9"}, {"start_state_digest": "other"}],
    ids=lambda one: next(iter(one)),
)
def test_runs_that_differ_are_no_repeats(tmp_path: Path, of_last: dict[str, Any]) -> None:
    """Their range is stated, but neither drift nor what they could show; the advice is to compare them."""
    spread, advice = spread_of(tmp_path, [10, 20, 30], **of_last)
    assert spread.endswith(" with a median of 20.0 ms.")
    assert advice.startswith("What to do next: compare the runs with what differs between them: loadsim compare --base")
