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


@pytest.mark.parametrize(
    ("line", "whole", "parted"),
    [
        ("(lists.count: 0): loadsim plan says how much", "loadsim plan", "says how"),
        ("no account (loadsim topology export writes all of them)", "loadsim topology", "all of"),
        ("no account (loadsim topology export), or another", "loadsim topology export", ", or"),
        ("; loadsim log answer --wide runs/x-y shows it", "loadsim log answer --wide runs/x-y", "shows it"),
        ("; loadsim report RUN RUN shows both", "loadsim report RUN RUN", "shows both"),
        ("one; loadsim run a.yaml --set run.days=3", "loadsim run a.yaml --set run.days=3", "one; loadsim"),
    ],
)
def test_prose_after_a_command_is_broken(monkeypatch: pytest.MonkeyPatch, line: str, whole: str, parted: str) -> None:
    """A command is kept whole in a line of any width. The words around it are not."""
    lines = []
    for columns in range(5, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines.append(for_terminal(line))
    assert all(whole in wrapped for wrapped in lines)
    assert any(parted not in wrapped for wrapped in lines)


def test_lines_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several lines are wrapped each by itself."""
    monkeypatch.setenv("COLUMNS", "40")
    assert for_terminal("one\ntwo") == "one\ntwo"


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
    on_stdout = Terminal()
    print_line(LINE, on_stdout)
    assert on_stdout.getvalue() == shown.getvalue()
