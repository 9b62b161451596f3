"""Progress in lines, where there is no terminal, and in sight on one."""

import io
from pathlib import Path

import pytest
from compared_runs import write_run
from rich.console import Console
from timing_samples import done

from loadsim.cli import main
from loadsim.cli.live import progress
from loadsim.cli.live.progress import Lines, shown_share, shown_work


@pytest.mark.parametrize(("total", "tenths"), [(100, 10), (5, 5), (0, 1)])
def test_a_phase_has_a_line_at_each_tenth(total: int, tenths: int, capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    for passed in range(total + 1):
        lines.show("inspect", passed, total)
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == tenths
    assert printed[-1] == f"inspect: {total} of {total} accounts"


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    shown = io.StringIO()
    monkeypatch.setattr(progress, "watched_terminal", lambda: Console(file=shown, force_terminal=True, width=80))
    return shown


def test_progress_is_shown_on_a_terminal(screen: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    with shown_share("Planning") as show:
        show(0.5)
        with shown_work("Merging"):
            pass
    assert "Planning" in screen.getvalue()
    assert "Merging" in screen.getvalue()
    assert capsys.readouterr() == ("", "")


def test_progress_is_not_shown_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_share("Planning") as show, shown_work("Merging"):
        show(0.5)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("words", "titles"),
    [
        (("report", "a", "-o", "r.html"), ("Computing the figures", "Drawing the report")),
        (("compare", "--base", "a", "--new", "b", "--report", "r.html"), ("Comparing the runs", "Drawing the report")),
    ],
)
def test_reading_long_logs_shows_progress(
    words: tuple[str, ...],
    titles: tuple[str, ...],
    screen: io.StringIO,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reports and comparisons of many tasks take seconds: a terminal shows that they are at work."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        write_run(tmp_path, name, tasks=[done("READ", 40 * at, 20) for at in range(200)])
    assert main(words) == 0
    assert all(title in screen.getvalue() for title in titles)
