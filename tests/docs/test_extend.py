"""The page on plug-ins shows the files of the example package, which other tests install and run."""

from __future__ import annotations

import re

import pytest
from example_plugins import SOURCE
from paths import ROOT

PAGE = ROOT / "docs" / "how-to" / "extend.md"
FILES = ("pyproject.toml", *(f"loadsim_example/{name}" for name in ("driver.py", "task.py", "probe.py", "office.yaml")))
LINES = 45
"""The most lines of code of an example, without blank ones."""


@pytest.mark.parametrize("name", FILES)
def test_the_page_shows_the_file(name: str) -> None:
    """It is there to the letter, and short."""
    code = (SOURCE / name).read_text()
    shown = re.findall(r"^```\w+\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert code in shown, f"expected {name} in {PAGE.name} as it is in {SOURCE}"
    assert len([line for line in code.splitlines() if line.strip()]) <= LINES


def test_every_file_of_the_package_is_shown() -> None:
    """But those that only make it a package."""
    found = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.*") if "__" not in path.as_posix()}
    assert found == set(FILES)
