"""Progress in lines, where there is no terminal."""

from __future__ import annotations

import pytest

from loadsim.cli.progress import Lines


def shown(capsys: pytest.CaptureFixture[str], s_per_account: float, total: int) -> list[str]:
    """Return the lines about accounts that each take so long."""
    clock_s = 0.0
    lines = Lines(lambda: clock_s)
    for done in range(total + 1):
        lines.show("inspect", done, total)
        clock_s += s_per_account
    return capsys.readouterr().err.splitlines()


def test_a_long_phase_tells_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    """By the pace so far; the last line has none."""
    lines = shown(capsys, 9.0, 100)
    assert len(lines) == 10
    assert lines[0] == "inspect: 10 of 100 accounts, about 0:13:30 left"
    assert lines[-1] == "inspect: 100 of 100 accounts"


def test_a_short_phase_tells_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, 0.01, 20)[0] == "inspect: 2 of 20 accounts"


def test_no_accounts_are_done_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, 1.0, 0) == ["inspect: 0 of 0 accounts"]
