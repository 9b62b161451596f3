"""The digits of a figure, from its interval."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadsim.campaign.tables import length_words
from loadsim.findings.formats import known_decimals, percent, rounded


@pytest.mark.parametrize(
    ("figure", "interval", "shown"),
    [
        (47.31, (40.2, 55.4), "47 40 55"),
        (47.31, (46.7, 47.9), "47.3 46.7 47.9"),
        (47.31, (47.3, 47.32), "47.3 47.3 47.3"),
        (47.31, (47.31, 47.31), "47.3 47.3 47.3"),
        (473.1, (400.0, 555.0), "470 400 560"),
        (1996.0, (1500.0, 2500.0), "2,000 1,500 2,500"),
        (0.26, (0.1, 0.3), "0.3 0.1 0.3"),
        (44.4, (25.2, 425.5), "44 25 426"),
    ],
)
def test_figures_have_the_digits_that_are_known(figure: float, interval: tuple[float, float], shown: str) -> None:
    """The last one is the first of half the distance to the nearer end; at most one decimal."""
    decimals = known_decimals(figure, interval)
    assert " ".join(rounded(each, decimals) for each in (figure, *interval)) == shown


@pytest.mark.parametrize(
    ("share", "shown"),
    [(1.0, "100 %"), (0.99999, "99.999 %"), (1 - 1e-9, "99.9999 %"), (1.00001, "100.001 %"), (0.0, "0 %")],
)
def test_all_is_shown_only_for_all(share: float, shown: str) -> None:
    assert percent(share) == shown


@pytest.mark.parametrize(
    ("time_s", "shown"),
    [(59.4, "59 s"), (61.0, "1 min 1 s"), (3599.4, "59 min 59 s"), (3599.5, "1 h 0 min"), (7170.0, "2 h 0 min")],
)
def test_lengths_are_rounded_once(time_s: float, shown: str) -> None:
    assert length_words(time_s) == shown


@given(st.floats(1, 1e6), st.floats(0.4, 1), st.floats(0.4, 1e6))
def test_rounding_is_small_against_the_interval(figure: float, below: float, above: float) -> None:
    """At most a quarter of the distance to the nearer end, so that no figure is rounded to 0."""
    interval = (figure - below * figure, figure + above)
    shown = float(rounded(figure, known_decimals(figure, interval)).replace(",", ""))
    assert shown > 0
    assert abs(shown - figure) <= min(below * figure, above) / 4 + 1e-9
