"""The warnings of single runs in the reports on several, and in comparisons.

Seen from outside, this could be wrong so: who sees only the page on all runs does not learn of a warning; each run adds
a line of its own to a list that nobody reads; a line has the figures of one run as those of all.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from compared_runs import write_run

from loadsim.analysis.compare_runs import compare_runs
from loadsim.analysis.run_warnings import warnings_of_runs
from loadsim.cli.report import document_of
from loadsim.report.document import Listing
from loadsim.report.markdown import to_markdown


@pytest.mark.parametrize(
    ("warnings", "lines"),
    [
        ([("a", []), ("b", [])], []),
        ([("a", ["slow"]), ("b", [])], ["a: slow"]),
        ([("a", ["slow"]), ("b", ["slow"]), ("c", [])], ["2 of 3 runs: slow"]),
        ([("a", ["1,024 lost"]), ("b", ["7.5 lost"])], ["2 of 2 runs, here a: 1,024 lost"]),
        ([("a", ["1 lost", "2 lost"]), ("b", ["1 lost"])], ["2 of 2 runs: 1 lost"]),
        ([("a", ["late", "slow"]), ("b", ["slow"])], ["a: late", "2 of 2 runs: slow"]),
    ],
    ids=["none", "one run", "the same", "other numbers", "twice in a run", "two kinds"],
)
def test_each_kind_has_a_line(warnings: list[tuple[str, list[str]]], lines: list[str]) -> None:
    assert warnings_of_runs(warnings) == lines


def test_runs_with_warnings_are_reported_and_compared_with_them(tmp_path: Path) -> None:
    """On the page, the warnings stand before the advice on what to do next."""
    clear = ["passwords cross the network in the clear"]
    paths = [str(write_run(tmp_path, name, at, in_the_clear=clear)) for at, name in enumerate("abc", 100)]
    line = "3 of 3 runs: passwords cross the network in the clear"
    document = document_of(paths, {})
    (listing,) = (block for block in document.sections[0].blocks if isinstance(block, Listing))
    assert listing.caption == "Warnings" and listing.items == (line,)
    page = to_markdown(document)
    assert page.index(line) < page.index("What to do next")
    assert line in compare_runs(paths[:1], paths[1:], force=True).figures.warnings


@pytest.mark.parametrize(
    ("took_ms", "words"),
    [
        ([10, 20, 30], "Each is higher than that of the run before."),
        ([30, 20, 10], "Each is lower than that of the run before."),
        ([10, 30, 20], ""),
        ([20, 20, 20], ""),
        ([10, 20], ""),
    ],
    ids=["slower", "faster", "up and down", "equal", "two"],
)
def test_a_drift_of_repeats_is_named(tmp_path: Path, took_ms: list[int], words: str) -> None:
    """In the order in which they were made, whatever the order of the command."""
    paths = [str(write_run(tmp_path, f"run-{at}", one_ms)) for at, one_ms in enumerate(took_ms)]
    blocks = map(str, document_of(paths[::-1], {}).sections[0].blocks)
    spread = next(block for block in blocks if " have scores from " in block)
    assert words in spread
    assert bool(words) == ("than that of the run before" in spread)
    assert (len(took_ms) >= 3) == ("loadsim compare would probably" in spread)
