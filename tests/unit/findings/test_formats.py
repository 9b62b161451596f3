"""The digits of shares and lengths."""

import pytest

from loadsim.campaign.tables import length_words
from loadsim.findings.formats import percent


@pytest.mark.parametrize(
    ("share", "shown"),
    [(1.0, "100 %"), (0.99999, "99.999 %"), (1 - 1e-9, "99.9999 %"), (1.00001, "100.001 %"), (0.0, "0 %")],
)
def test_100_percent_is_shown_only_for_all(share: float, shown: str) -> None:
    assert percent(share) == shown


@pytest.mark.parametrize(
    ("time_s", "shown"),
    [(59.4, "59 s"), (61.0, "1 min 1 s"), (3599.4, "59 min 59 s"), (3599.5, "1 h 0 min"), (7170.0, "2 h 0 min")],
)
def test_lengths_are_rounded_once(time_s: float, shown: str) -> None:
    assert length_words(time_s) == shown
