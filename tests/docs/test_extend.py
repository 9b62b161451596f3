"""The page on plug-ins shows or links the files of the example package, which other tests install and run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from example_plugins import SOURCE
from paths import ROOT

PAGE = ROOT / "docs" / "how-to" / "extend.md"
SHOWN = ("loadsim_example/task.py", "loadsim_example/office.yaml")
LINKED = ("pyproject.toml", "loadsim_example/driver.py", "loadsim_example/probe.py")
LINES = 45
"""The most lines of code of an example, without blank ones."""


@pytest.mark.parametrize("name", SHOWN)
def test_the_page_shows_the_file(name: str) -> None:
    shown = re.findall(r"^```\w+\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert (SOURCE / name).read_text() in shown, f"expected {name} in {PAGE.name} as it is in {SOURCE}"


@pytest.mark.parametrize("name", LINKED)
def test_the_page_links_the_file(name: str) -> None:
    assert f"](../examples/plugin/{name})" in PAGE.read_text()


@pytest.mark.parametrize("name", (*SHOWN, *LINKED))
def test_examples_are_short(name: str) -> None:
    assert len([line for line in (SOURCE / name).read_text().splitlines() if line.strip()]) <= LINES


def errors_of_types(place: Path, *names: str) -> list[str]:
    """The errors that mypy --strict finds in modules of the package below this directory."""
    options = ("--strict", "--config-file", "", "--cache-dir", place / "cache")
    made = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *(place / "loadsim_example" / name for name in names)],
        cwd=place,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode in (0, 1), made.stderr
    return [line for line in made.stdout.splitlines() if ": error: " in line]


@pytest.mark.nightly(part="runs")
def test_a_type_checker_holds_plug_ins_to_the_ports(tmp_path: Path) -> None:
    """The example fits; a driver that does not is an error, at the line of its entry point."""
    shutil.copytree(SOURCE / "loadsim_example", tmp_path / "loadsim_example")
    modules = ("driver.py", "task.py", "probe.py")
    assert errors_of_types(tmp_path, *modules) == []
    driver = tmp_path / "loadsim_example" / "driver.py"
    driver.write_text(driver.read_text().replace("def session(", "def sessions("))
    (error, *_) = errors_of_types(tmp_path, *modules)
    at = 1 + [each.strip() for each in driver.read_text().splitlines()].index("return SendmailDriver(services)")
    assert f"driver.py:{at}: error" in error


def test_every_file_of_the_package_is_shown_or_linked() -> None:
    """But those that only make it a package."""
    found = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.*") if "__" not in path.as_posix()}
    assert found == {*SHOWN, *LINKED}
