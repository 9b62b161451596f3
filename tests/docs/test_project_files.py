"""Files that newcomers' tools read: make's targets, the hooks before a commit, the site's pages, the test files."""

import ast
import re
import subprocess

import pytest
import yaml
from paths import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()


def prerequisites(target: str) -> list[str]:
    """Return the phony targets that a target of the Makefile runs first."""
    line = re.search(rf"^{target}:([^#\n]*)", MAKEFILE, re.MULTILINE)
    assert line, f"no target {target}"
    return [name for name in line[1].split() if not name.startswith("$")]


def test_help_lists_every_target() -> None:
    phony = re.search(r"^\.PHONY:((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)
    assert phony
    targets = set(phony[1].replace("\\", " ").split())
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert {line.split()[0] for line in shown.splitlines()} == targets
    assert all(len(line.split()) > 1 and len(line) <= 120 for line in shown.splitlines())


def test_hooks_before_a_commit_are_those_of_make_check() -> None:
    configuration = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    called = {hook["entry"] for repository in configuration["repos"] for hook in repository["hooks"]}
    assert called == {f"make {target}" for target in prerequisites("check")}


@pytest.mark.parametrize("folder", ["", "how-to", "reference", "explanation"])
def test_the_site_has_an_entry_for_every_page(folder: str) -> None:
    """mkdocs.yml names the pages of docs; its hook adds those of docs/decisions."""
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs" / folder).glob("*.md")}
    named = set(re.findall(r": (\S+\.md)\b", (ROOT / "mkdocs.yml").read_text()))
    assert pages <= named


def test_the_site_is_built_strictly() -> None:
    """A warning fails the build; with --quiet, MkDocs would not count it."""
    builds = re.findall(r"mkdocs build (.*)", MAKEFILE)
    assert builds
    assert all("--strict" in build and "--quiet" not in build for build in builds)


@pytest.mark.slow
def test_no_test_file_imports_another() -> None:
    """Helpers that several files need are in tests/support."""
    files = [path for directory in ("tests", "bench/tests") for path in (ROOT / directory).rglob("*.py")]
    tests = {each.stem for each in files if each.name.startswith("test_")}
    imported = [
        (path.name, module)
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
        if module.rpartition(".")[2] in tests
    ]
    assert len(files) > 100
    assert imported == []


def test_unit_tests_are_in_the_directory_of_their_package() -> None:
    unit = ROOT / "tests" / "unit"
    directories = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")}
    assert len(directories) > 20
    assert [str(path) for path in directories if not (ROOT / "loadsim" / path / "__init__.py").exists()] == []
