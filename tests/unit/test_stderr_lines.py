"""Lines on a terminal: at words, and never within what users copy."""

from __future__ import annotations

import io
import sys

import pytest

from loadsim.cli.stderr_lines import for_terminal, print_line

LINE = (
    "loadsim: warning: this run cannot become valid: planned in its window are 17 REPLY, and each scored task needs 20"
    " hits (limits.hits); loadsim topology export my-server.yaml --format csv --out accounts; --set run.day_length=5m"
)


@pytest.mark.parametrize("columns", [40, 80, 100])
def test_a_line_is_broken_at_words(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """Nothing is lost, and commands are whole, even if they are longer than a line."""
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = for_terminal(LINE).splitlines()
    assert " ".join(line.strip() for line in lines) == LINE
    command = "loadsim topology export my-server.yaml --format csv --out accounts"
    assert sum(command in line for line in lines) == 1
    assert sum("--set run.day_length=5m" in line for line in lines) == 1
    assert all(len(line) <= columns for line in lines if command not in line)


def test_elsewhere_it_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(LINE)
    assert capsys.readouterr().err == f"{LINE}\n"


def test_a_terminal_gets_it_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "60")
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    print_line(LINE)
    assert shown.getvalue() == f"{for_terminal(LINE)}\n"
