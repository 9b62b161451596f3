"""The page on the architecture: its picture is that of the imports, and the functions that it names exist."""

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from paths import ROOT

PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
STOPS = re.findall(r"^\| \d+ \| `(\S+\.py)` `(\S+)` \|", PAGE, re.MULTILINE)


def drawing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_architecture", ROOT / "tools" / "draw_architecture.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_shows_the_imports() -> None:
    """The committed picture is what `make architecture` draws."""
    module = drawing()
    assert module.PICTURE.read_text() == module.picture(), "make architecture draws it again"


def named_modules(file: Path) -> set[str]:
    """Return the packages of the modules that a file names in strings, such as those of child processes."""
    texts = [node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)]
    named = [each.split(".") for each in texts if isinstance(each, str) and re.fullmatch(r"loadsim(\.[a-z_]+)+", each)]
    return {parts[1] for parts in named if ROOT.joinpath(*parts).with_suffix(".py").is_file()}


def test_names_of_modules_lead_downwards_as_imports_do() -> None:
    rows = drawing().layers()
    named = {
        (file.relative_to(ROOT / "loadsim").parts[0], package)
        for file in ROOT.glob("loadsim/*/**/*.py")
        for package in named_modules(file)
    }
    assert ("cli", "storage") in named
    assert [(above, below) for above, below in named if above != below and rows[above] >= rows[below]] == []


def test_a_task_has_at_most_15_stops() -> None:
    """They are numbered, as those of a search, and each names a file and a function."""
    numbers = [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)]
    of_task = numbers.index(1, 1)
    assert numbers == [*range(1, of_task + 1), *range(1, len(STOPS) - of_task + 1)]
    assert 10 <= of_task <= 15


@pytest.mark.parametrize(("file", "name"), STOPS)
def test_each_named_function_exists(file: str, name: str) -> None:
    body: list[ast.stmt] = ast.parse((ROOT / "loadsim" / file).read_text()).body
    for part in name.split("."):
        found = [
            node
            for node in body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == part
        ]
        assert found, f"{file}: no {part}"
        body = found[0].body


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:[a-z_]+/)+[a-z_]*(?:\.[a-z]+)?)`", PAGE))))
def test_each_named_path_exists(path: str) -> None:
    assert (ROOT / path).exists() or (ROOT / "loadsim" / path).exists()
