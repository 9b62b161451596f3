"""Every command that a page shows: typed by a test, or taken by the program, or marked as untested with the reason."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pages import PAGES, SHELL, Block, blocks
from paths import ROOT

from loadsim.cli import parser

EXAMPLES = ROOT / "docs" / "examples"

ALL = ".*"
TYPED: Mapping[str, Mapping[str, str]] = {
    "docs/tutorial.md": {ALL: "tests/docs/test_tutorials.py::test_the_tutorial_in_a_fresh_debian"},
    "docs/how-to/two-machines.md": {
        "Try it on one machine": "tests/docs/test_tutorials.py::test_a_cluster_on_one_machine",
    },
    "docs/tutorial-cluster.md": {
        "1. Install": "tests/docs/test_tutorials.py::test_the_installation_of_a_cluster",
        "5. Twelve machines": "tests/cluster/test_tutorial_cluster.py::test_twelve_machines",
        ALL: "tests/cluster/test_tutorial_cluster.py::test_the_tutorial_does_what_it_says",
    },
}
"""The tests that type all commands of a page's sections, whose titles match a pattern."""

ORDINARY = ("cd", "ls", "head", "chmod", ".")
"""Commands of each Unix, which need no test."""

CHOICE = re.compile(r"(?<![\w|-])[\w-]+(?:\|[\w-]+)+")
"""Alternatives, of which the reader types one."""

NOT_TAKEN = "not taken"
PLACEHOLDERS = {"SCENARIO": "quickstart", "DIR": "directory", "RUN": "run"}


def typed_by(block: Block) -> str | None:
    """Return the test that types a block."""
    tests = TYPED.get(str(block.page.relative_to(ROOT)), {})
    return next((test for pattern, test in tests.items() if re.fullmatch(pattern, block.section)), None)


def arguments(line: str) -> list[list[str]]:
    """Split a command line into its commands and their words, without comments and redirections.

    One with alternatives is as many commands.
    """
    if choice := CHOICE.search(line):
        return [words for one in choice[0].split("|") for words in arguments(line.replace(choice[0], one))]
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set(";&|()"):
            found.append([])
        elif set(word) <= set("<>"):
            next(lexer)
        else:
            found[-1].append(word)
    return [words for words in found if words]


def rejection(words: list[str]) -> str | None:
    """Return why a command cannot work, or cannot be judged; None if it is taken."""
    if words[0] == "sudo":
        words = words[1:]
    while words and "=" in words[0] and not words[0].startswith(("-", ".", "/")):
        words = words[1:]  # a variable of the environment
    if not words:
        return None  # a variable of the shell
    program, rest = words[0].removeprefix(".venv/bin/"), words[1:]
    if program == "loadsim":
        return _rejected_by_parser(rest)
    if program == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        asked = {word for word in rest if "=" not in word}
        return f"no such targets: {asked - targets}" if asked - targets else None
    if program in ("pip", "python") and rest[:1] == ["install"]:
        return _rejected_by_extras(rest[1:])
    if program == "python" and rest[:1] == ["-m"]:
        module = ROOT.joinpath(*rest[1].split("."))
        elsewhere = (ROOT / "tests" / rest[1], EXAMPLES / "plugin" / rest[1])
        there = any(place.exists() for place in (module, module.with_suffix(".py"), *elsewhere))
        return None if there else f"no module {rest[1]}"
    if program in ("sh", "bash"):
        program = rest[0]
    if program in ORDINARY:
        return None
    if program.startswith("tests/"):
        return None if (ROOT / program).is_file() else f"no file {program}"
    return f"neither typed by a test nor a command of this repository: {program}"


def _rejected_by_parser(words: list[str]) -> str | None:
    argv = [PLACEHOLDERS.get(word, word) for word in words]
    try:
        parser().parse_args(argv)
    except SystemExit:
        return f"{NOT_TAKEN}: loadsim {shlex.join(argv)}"
    return None


def _rejected_by_extras(words: list[str]) -> str | None:
    (wanted,) = [word for word in words if not word.startswith("-")]
    if "/" in wanted and (ROOT / wanted / "pyproject.toml").is_file():
        return None
    extras = re.findall(r"[\w-]+", wanted.partition("[")[2])
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    unknown = set(extras) - set(project["optional-dependencies"])
    if wanted.partition("[")[0] not in ("loadsim", "./loadsim", "."):
        return f"no package of ours: {wanted}"
    return f"no such extras: {unknown}" if unknown else None


def command_blocks() -> list[Block]:
    """Return the blocks of all pages that a reader types.

    The synopses of docs/reference/commands.md are none: test_docs.py compares their options with the program's.
    """
    found = [block for page in PAGES for block in blocks(page) if block.commands or block.language in SHELL]
    synopses = ROOT / "docs" / "reference" / "commands.md"
    return [
        block for block in found if block.page != synopses or not block.prose.rstrip().endswith(f"## {block.section}")
    ]


@pytest.mark.parametrize("block", command_blocks(), ids=str)
def test_each_command_is_typed_or_taken_or_marked(block: Block) -> None:
    """A block that no test types has commands that the program takes, or `<!-- untested: reason -->` before it.

    The program takes those that a nightly test types, too.
    """
    assert block.commands, "a block of commands without any"
    typed = typed_by(block) is not None
    if block.untested is not None:
        assert not typed, "marked as untested, but a test types it"
        assert len(block.untested.split()) >= 4, "no reason"
        return
    rejected = {line: why for line in block.commands for words in arguments(line) if (why := rejection(words))}
    assert not {line: why for line, why in rejected.items() if not typed or why.startswith(NOT_TAKEN)}


def test_the_tests_that_type_pages_exist() -> None:
    """Each named test is in its file, which names the page; each page has the sections."""
    for page, tests in TYPED.items():
        sections = {block.section for block in blocks(ROOT / page)}
        for pattern, test in tests.items():
            path, _, name = test.partition("::")
            text = (ROOT / path).read_text()
            assert f"def {name}(" in text
            assert Path(page).name in text
            assert any(re.fullmatch(pattern, section) for section in sections), f"{page}: no section {pattern}"


def test_examples_are_found() -> None:
    """The pages have many blocks of commands: the patterns find them."""
    assert len(command_blocks()) > 60


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("loadsim run SCENARIO --pinn", "not taken"),
        ("sudo .venv/bin/loadsim serve x", "not taken"),
        ("make nothing", "no such targets"),
        ("pip install 'loadsim[nothing]'", "no such extras"),
        ("sudo tests/nothing.sh", "no file"),
        ("python -m nothing", "no module"),
        ("kubectl apply -f x", "neither"),
        ("loadsim plan quickstart | less", "neither"),
    ],
)
def test_wrong_commands_are_rejected(line: str, why: str) -> None:
    """A verb, option, target, extra, file or module that does not exist, and any other program."""
    rejected = [reason for words in arguments(line) if (reason := rejection(words))]
    assert rejected
    assert why in rejected[0]
