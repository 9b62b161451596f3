"""Healthy servers pass: runs in virtual time that differ in their seeds alone.

`python -m bench.crimes --healthy 200` makes more of them.
"""

from __future__ import annotations

import pytest

from bench import crimes

RUNS = 20


def test_healthy_runs_pass(capsys: pytest.CaptureFixture[str]) -> None:
    """All of them."""
    assert crimes.main(["--healthy", str(RUNS)]) == 0
    assert f"{RUNS} of {RUNS} healthy runs pass" in capsys.readouterr().out
