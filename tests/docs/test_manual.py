"""The pages of commands: up to date and complete; the manual page is free of warnings of the programs that show it."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from paths import ROOT

from loadsim.cli import parser
from tools.command_tree import command_tree
from tools.make_commands import PAGE, page
from tools.make_manual import MANUAL, manual


def plain(text: str) -> str:
    """The page without roff's escapes."""
    for sign, escape in (("-", r"\-"), ("'", r"\(aq"), ("`", r"\(ga"), ("~", r"\(ti"), ("", r"\&")):
        text = text.replace(escape, sign)
    return re.sub(r"\\f[BIP]", "", text)


@pytest.mark.parametrize(("file", "made"), [(MANUAL, manual), (PAGE, page)])
def test_the_manual_is_generated_from_the_parsers(file: Path, made: Callable[[], str]) -> None:
    """`make reference` writes it again. No path of the machine that wrote it is in it."""
    text = file.read_text(encoding="utf-8")
    assert text == made()
    assert str(ROOT) not in text and "/home/" not in text and "/root" not in text


def test_each_command_and_option_has_an_entry() -> None:
    sections = dict(re.findall(r"^\.SS (.*)\n((?:(?!\.S[SH] ).*\n)*)", plain(MANUAL.read_text(encoding="utf-8")), re.M))
    commands = [command for command in command_tree(parser()).all() if command.path and not command.verbs]
    assert list(sections) == [f"loadsim {command.name}" for command in commands]
    for command in commands:
        entries = re.findall(r"^\.TP\n(.*)$", sections[f"loadsim {command.name}"], re.M)
        expected = [" ".join(filter(None, (", ".join(each.flags), each.value))) for each in command.arguments]
        assert sorted(entries) == sorted(each for each in expected if each != "-h, --help")


@pytest.mark.nightly(part="tools")
@pytest.mark.parametrize(
    ("program", "options", "allowed"),
    [
        ("mandoc", ["-T", "lint", "-W", "warning"], r'WARNING: missing date, using "": TH'),
        ("groff", ["-man", "-ww", "-z", "-T", "utf8"], r"$^"),
        ("man", ["--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l"], r"$^"),
    ],
)
def test_a_formatter_accepts_the_manual(program: str, options: list[str], allowed: str) -> None:
    """No warning, but for the date: the page has a version."""
    done = subprocess.run([program, *options, str(MANUAL)], capture_output=True, text=True, timeout=60, check=False)
    complaints = done.stderr + (done.stdout if program == "mandoc" else "")
    assert [line for line in complaints.splitlines() if not re.search(allowed, line)] == []
