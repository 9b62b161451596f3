"""The name of this program in the commands that it suggests: what a reader types calls the same program."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import loadsim
from loadsim.servers.program_name import program_name

MODULE = str(Path(loadsim.__file__).with_name("__main__.py"))


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with programs in `b in`, which no shell searches."""
    programs = tmp_path / "b in"
    programs.mkdir()
    for name in ("loadsim", "elsewhere.py"):
        (programs / name).write_text("#!/bin/sh\necho this one\n")
        (programs / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return tmp_path


def typed(line: str) -> str:
    return subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True).stdout


def test_a_program_outside_path_keeps_its_path(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["b in/loadsim", "run"])
    assert program_name() == "'b in/loadsim'"
    assert program_name(for_root=True) == shlex.quote(str(environment / "b in" / "loadsim"))
    assert typed(program_name()) == typed(program_name(for_root=True)) == "this one\n"


def test_a_program_in_path_has_its_name(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not for root: sudo searches its own directories."""
    program = str(environment / "b in" / "loadsim")
    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.setenv("PATH", f"{environment}/b in")
    assert program_name() == "loadsim"
    assert program_name(for_root=True) == shlex.quote(program)


def test_a_module_is_called_with_its_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [MODULE])
    assert program_name() == program_name(for_root=True) == f"{shlex.quote(sys.executable)} -m loadsim"


@pytest.mark.parametrize("called", ["b in/elsewhere.py", "b in/absent/loadsim", "pytest/__main__.py", "-c", ""])
def test_another_program_shows_the_plain_name(called: str, environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [called])
    assert program_name() == program_name(for_root=True) == "loadsim"
