"""Every command that a page shows: typed or executed by a test, or marked as untested with the reason."""

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from examples import MOST_PARSED_ONLY, PARSED_ONLY, TYPED, arguments, command_blocks, parsed_only, typed_by
from pages import Block, blocks
from paths import ROOT

from loadsim.cli import parser

ORDINARY = ("cd", "ls", "head", "mkdir", "chmod", "export", ".")
"""Commands of each Unix, which need no test."""

NOT_TAKEN = "not taken"
PLACEHOLDERS = {"SCENARIO": "quickstart", "DIR": "directory", "RUN": "run"}


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
        elsewhere = (ROOT / "tests" / rest[1], (ROOT / "docs" / "examples") / "plugin" / rest[1])
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


@pytest.mark.slow
@pytest.mark.parametrize("block", command_blocks(), ids=str)
def test_each_command_is_executed_parsed_or_marked(block: Block) -> None:
    """A block that no test types has commands that the program takes, or `<!-- untested: reason -->` before it."""
    assert block.commands, "a block of commands without any"
    typed = typed_by(block) is not None
    if block.untested is not None:
        assert not typed, "marked as untested, but a test types it"
        assert len(block.untested.split()) >= 4, "no reason"
        return
    rejected = {line: why for line in block.commands for words in arguments(line) if (why := rejection(words))}
    assert not {line: why for line, why in rejected.items() if not typed or why.startswith(NOT_TAKEN)}


def test_commands_that_are_only_parsed_are_listed() -> None:
    """Each entry has a command and a test of the like, and there are no more such commands than before."""
    used, count = set(), 0
    for block in command_blocks():
        page = str(block.page.relative_to(ROOT))
        if typed_by(block) is None and block.untested is None:
            found = [why for line in block.commands if (why := parsed_only(page, line)) is not None]
            used |= set(found)
            count += len(found)
    reasons = {why for entries in PARSED_ONLY.values() for why in entries.values()}
    assert reasons == used
    assert count == MOST_PARSED_ONLY
    for why in reasons:
        reason, _, test = why.rpartition(": ")
        assert reason
        assert (ROOT / test).is_file(), why


def test_the_tests_that_type_pages_exist() -> None:
    for page, tests in TYPED.items():
        sections = {block.section for block in blocks(ROOT / page)}
        for pattern, test in tests.items():
            path, _, name = test.partition("::")
            text = (ROOT / path).read_text()
            assert f"def {name}(" in text
            assert Path(page).name in text
            assert any(re.fullmatch(pattern, section) for section in sections), f"{page}: no section {pattern}"
