"""The verdicts on a real server that is down, or stops, for 25 seconds: Dovecot and Postfix behind a proxy."""

from __future__ import annotations

import pytest

from bench.crimes import Row
from bench.misdeeds import DROPPED, LASTING, REFUSED
from bench.real_crimes import SHORT, judged

pytestmark = pytest.mark.nightly(part="runs")

LENGTH_S = 25.0


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """Rows of the answers, by the crimes' names; the runs are made at the same time."""
    crimes = [make(LENGTH_S) for make in LASTING.values()]
    return {row.crime.name: row for row in judged(crimes, SHORT, tmp_path_factory.mktemp("crimes"))}


@pytest.mark.parametrize("name", LASTING)
def test_an_outage_of_a_real_server_does_not_pass(rows: dict[str, Row], name: str) -> None:
    """Users waited far longer than is allowed, and where sessions were ended, they had none for a while."""
    row = rows[name]
    missed = {criterion["name"] for criterion in row.score["verdict"]["criteria"] if not criterion["passed"]}
    assert not row.passes
    assert "response_score_ms" in missed
    assert ("down_share" in missed) == (name in (REFUSED, DROPPED))
