"""Tests on a machine that lacks what some of them need: no C compiler is in PATH."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT
from patience import PATIENCE_S

pytestmark = pytest.mark.slow

TWO_TESTS = """
import pytest

def test_anywhere():
    pass

@pytest.mark.system
def test_system():
    raise AssertionError("not without a compiler")
"""


@pytest.mark.parametrize("processes", ["0", "2"])
@pytest.mark.parametrize(("selected", "status"), [("not system", 0), ("system or not system", 4)])
def test_a_missing_program_is_one_line_if_a_selected_test_needs_it(
    tmp_path: Path, processes: str, selected: str, status: int
) -> None:
    """No test runs then. The status 4 is pytest's for a usage error."""
    (tmp_path / "test_two.py").write_text(TWO_TESTS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-n", processes, "-m", selected, tmp_path]
    environment = {key: value for key, value in os.environ.items() if key not in ("CC", "PYTEST_ADDOPTS")}
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        env={**environment, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == status, ended.stdout + ended.stderr
    assert ("1 passed" if status == 0 else "no tests ran") in ended.stdout
    errors = [line for line in ended.stderr.splitlines() if line]
    assert [line.partition(":")[0] for line in errors] == ["ERROR"] * (status != 0)
