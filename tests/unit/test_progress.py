"""Progress in lines, where there is no terminal."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pytest
from compared_runs import write_run
from patience import PATIENCE_S
from rich.console import Console
from timing_samples import done

from loadsim.cli import main, progress
from loadsim.cli.progress import Lines, shown_share, shown_work


def shown(capsys: pytest.CaptureFixture[str], s_per_account: float, total: int) -> list[str]:
    """Return the lines about accounts that each take so long."""
    clock_s = 0.0
    lines = Lines(lambda: clock_s)
    for passed in range(total + 1):
        lines.show("inspect", passed, total)
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


def test_a_share_is_shown_after_a_while_and_then_by_tenths(capsys: pytest.CaptureFixture[str]) -> None:
    """Elsewhere than on a terminal; a short task shows nothing."""
    now_s = iter([0.0, 29.0, 29.9, 30.0, 30.5, 31.0, 33.0])
    with shown_share("Planning", lambda: next(now_s)) as show:
        for share in (0.1, 0.35, 0.38, 0.39, 0.41, 1.0):
            show(share)
    assert capsys.readouterr().err == "Planning: 30 %\nPlanning: 40 %\nPlanning: 100 %\n"


def test_a_long_share_tells_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    """By the pace since the first call: work that began late is not slow."""
    now_s = iter([0.0, 100.0, 102.0, 200.0, 299.5, 300.0])
    with shown_share("Planning", lambda: next(now_s)) as show:
        for share in (0.0, 0.015, 0.5, 0.999, 1.0):
            show(share)
    assert capsys.readouterr().err.splitlines() == [
        "Planning: 50 %, about 0:01:40 left",
        "Planning: 90 %",
        "Planning: 100 %",
    ]


class Screen(io.StringIO):
    """Keeps what is written; `drawn` is set once it has a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.drawn = threading.Event()
        self._text = text

    def write(self, text: str) -> int:
        count = super().write(text)
        if self._text in self.getvalue():
            self.drawn.set()
        return count


@pytest.mark.parametrize(("silent_s", "shown"), [(0.0, True), (1e6, False)])
def test_work_is_shown_on_a_terminal_if_it_lasts(
    silent_s: float, shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And no thread of it is left."""
    screen = Screen("Merging")
    console = Console(file=screen, force_terminal=True, width=80)
    monkeypatch.setattr(progress, "watched_terminal", lambda: console)
    monkeypatch.setattr(progress, "SILENT_S", silent_s)
    before = set(threading.enumerate())
    with shown_work("Merging"):
        assert screen.drawn.wait(PATIENCE_S) if shown else not screen.drawn.is_set()
    assert ("Merging" in screen.getvalue()) == shown
    for thread in set(threading.enumerate()) - before:
        thread.join(10)  # the screen's own ends after its last refresh
        assert not thread.is_alive()
    assert capsys.readouterr() == ("", "")


def test_a_share_is_waited_for_in_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that takes long before its first share has a line, too, which the bar replaces."""
    screen = Screen("Planning")
    console = Console(file=screen, force_terminal=True, width=80)
    monkeypatch.setattr(progress, "watched_terminal", lambda: console)
    monkeypatch.setattr(progress, "SILENT_S", 0.0)
    with shown_share("Planning") as show:
        assert screen.drawn.wait(PATIENCE_S)
        assert "%" not in screen.getvalue()
        show(0.5)
    assert "50%" in screen.getvalue()


def test_a_bar_is_gone_once_all_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows in the block shows progress of its own."""
    screen = Screen("Trying")
    console = Console(file=screen, force_terminal=True, width=80)
    monkeypatch.setattr(progress, "watched_terminal", lambda: console)
    monkeypatch.setattr(progress, "SILENT_S", 0.0)
    with shown_share("Planning") as show:
        show(0.5)
        show(1.0)
        with shown_work("Trying"):
            assert screen.drawn.wait(PATIENCE_S)
    assert "Planning" in screen.getvalue()


def test_work_is_not_shown_elsewhere(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error may be a file."""
    monkeypatch.setattr(progress, "SILENT_S", 0.0)
    with shown_work("Merging"):
        pass
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("words", "title"),
    [
        (("report", "a", "-o", "r.html"), "Computing the figures"),
        (("report", "a", "-o", "r.html"), "Drawing the report"),
        (("compare", "--base", "a", "--new", "b"), "Comparing the runs"),
        (("compare", "--base", "a", "--new", "b", "--report", "r.html"), "Drawing the report"),
    ],
)
def test_long_logs_are_read_in_sight(
    words: tuple[str, ...], title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports and comparisons of many tasks take seconds: a terminal shows that they are at work."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        write_run(tmp_path, name, tasks=[done("READ", 40 * at, 20) for at in range(2000)])
    screen = Screen(title)
    console = Console(file=screen, force_terminal=True, width=80)
    monkeypatch.setattr(progress, "watched_terminal", lambda: console)
    monkeypatch.setattr(progress, "SILENT_S", 0.0)
    assert main(words) == 0
    assert screen.drawn.is_set()
