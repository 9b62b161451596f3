"""Shell completion: the shells themselves complete what the parsers accept."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loadsim.cli import VERBS, main, parser
from loadsim.cli.command_tree import command_tree
from loadsim.cli.completion import SCRIPTS
from loadsim.model.yaml_reader import known

Complete = Callable[[str], set[str]]

BASH = """\
source {script}
complete -p loadsim > /dev/null || exit 9
COMP_WORDS=({words}) COMP_CWORD={last}
_loadsim
printf '%s\\n' "${{COMPREPLY[@]}}"
"""

ZSH = """\
compdef() {{ }}
compadd() {{ shift; print -l -- $@ }}
_describe() {{ [[ $1 == -o ]] && shift; local each; for each in ${{(P)2}}; do print -- ${{each%%:*}}; done }}
_files() {{ [[ $1 == -/ ]] && print -l -- *(/) || print -l -- * }}
_message() {{ }}
compset() {{ PREFIX=${{PREFIX#*=}} }}
source {script}
words=({words}) CURRENT={count} PREFIX={word}
_loadsim | grep -- "^${{PREFIX#*=}}"
"""
"""Runs the function with zsh's own helpers replaced by some that print: these work within the line editor only."""


OTHER_SHELLS = [pytest.param(each, marks=pytest.mark.nightly(part="tools")) for each in ("fish", "zsh")]


@pytest.fixture(params=["bash", *OTHER_SHELLS])
def complete(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """A function that completes the last word of a line in a shell, in a directory with a file and a directory."""
    shell = request.param
    script = tmp_path / "script"
    script.write_text(SCRIPTS[shell](command_tree(parser())), encoding="utf-8")
    (tmp_path / "place" / "runs dir").mkdir(parents=True)
    (tmp_path / "place" / "own.yaml").touch()

    def run(line: str) -> set[str]:
        words = line.split(" ")
        if shell == "fish":
            text = f"source {script}; complete -C {shlex.quote(line)}"
        elif shell == "zsh":
            quoted = " ".join(map(shlex.quote, words))
            text = ZSH.format(script=script, words=quoted, count=len(words), word=shlex.quote(words[-1]))
        else:
            parts = [
                part for word in words for part in (word.replace("=", " = ").split(" ") if "=" in word else [word])
            ]
            quoted = " ".join(map(shlex.quote, parts))
            text = BASH.format(script=script, words=quoted, last=len(parts) - 1)
        command = {"bash": ["bash", "--norc"], "zsh": ["zsh", "-f"], "fish": ["fish", "--no-config"]}[shell]
        done = subprocess.run(
            [*command, "-c", text],
            cwd=tmp_path / "place",
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stderr == "" and done.returncode != 9
        return {row.partition("\t")[0].rstrip("/") for row in done.stdout.splitlines() if row}

    return run


def test_a_shell_completes(complete: Complete) -> None:
    """Commands, their commands, options, choices, shipped files, files and directories; nothing where text is free."""
    assert complete("loadsim ") >= set(VERBS)
    assert complete("loadsim show pro") == {"profiles", "programs"}
    assert complete("loadsim log ") == {"times", "check", "show", "truncate", "merge", "answer", "export"}
    assert complete("loadsim run --trust") == {"--trust-start-state"}
    assert complete("loadsim run mixed --no-r") == {"--no-report"}
    assert complete("loadsim run ") == {*known("scenarios"), "own.yaml", "runs dir"}
    assert complete("loadsim run q") == {"quickstart"}
    assert complete("loadsim show profiles loadsim-5.5/") == {
        f"loadsim-5.5/{kind}" for kind in ("heavy", "light", "medium")
    }
    assert complete("loadsim new own --tls ") == {"none", "starttls", "implicit"}
    assert complete("loadsim run mixed --out ") == {"runs dir"}
    assert complete("loadsim run mixed --junit o") == {"own.yaml"}
    assert complete("loadsim run mixed --engines ") == set()
    assert complete("loadsim log answer o") == {"own.yaml"}
    assert complete("loadsim completion f") == {"fish"}


def test_values_after_an_equals_sign(complete: Complete) -> None:
    """In bash, the sign is a word by itself; fish returns the option, too."""
    assert {each.removeprefix("--tls=") for each in complete("loadsim new own --tls=s")} == {"starttls"}


def parsers(of: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield " ".join(path), of
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from parsers(below, (*path, name))


def flags_of(shell: str, script: str, command: str) -> set[str]:
    """Return the options that a script has for a command."""
    if shell == "fish":
        here = re.escape(rf"complete -c loadsim -n '__loadsim_at \'{command}\'' ")
        each = re.findall(rf"^{here}((?:-[ls] \S+ )+)", script, re.MULTILINE)
        words = "".join(each).split()
        return {f"{'--' if kind == '-l' else '-'}{name}" for kind, name in zip(words[::2], words[1::2], strict=True)}
    opening, closing = {"bash": ("", " words="), "zsh": ("(", ") verbs=")}[shell]
    case = re.escape(f" '{command}') options={opening}")
    (listed,) = re.findall(rf"^ *{case}(.*?){re.escape(closing)}", script, re.MULTILINE)
    items = shlex.split(listed)
    return set(items[0].split()) if shell == "bash" else {item.partition(":")[0] for item in items}


def test_each_command_and_option_is_in_each_script() -> None:
    """As the parsers have them: each command has its own options, and none of another."""
    top = parser()
    tree = {command.name: command for command in command_tree(top).all()}
    scripts = {shell: script(command_tree(top)) for shell, script in SCRIPTS.items()}
    for name, each in parsers(top):
        flags = {flag for action in each._actions for flag in action.option_strings}
        assert {flag for option in tree[name].options for flag in option.flags} == flags
        found = {shell: flags_of(shell, script, name) for shell, script in scripts.items()}
        assert found == dict.fromkeys(scripts, flags), name


@pytest.mark.parametrize("shell", sorted(SCRIPTS))
def test_the_command_prints_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It names where to save it."""
    assert main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert out == SCRIPTS[shell](command_tree(parser()))
    assert "loadsim completion" in out.splitlines()[0] + out.splitlines()[1]
