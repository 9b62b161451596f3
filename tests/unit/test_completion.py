"""Shell completion: bash completes what the parsers accept, and each shell has a script."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from loadsim.cli import VERBS, main
from loadsim.cli.completion import SHELLS, script

BASH = """\
source {script}
for line in {lines}; do
    COMP_WORDS=($line)
    [[ $line == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)) COMPREPLY=()
    _shtab_loadsim
    echo "${{COMPREPLY[*]}}"
done
"""
"""A process, since only bash knows what it makes of the script."""


def test_bash_completes(tmp_path: Path) -> None:
    """Commands, their commands, options, choices, files and directories; nothing where text is free."""
    expected = {
        "loadsim ": set(VERBS),
        "loadsim show pro": {"profiles", "programs"},
        "loadsim run --trust": {"--trust-start-state"},
        "loadsim new own --tls ": {"none", "starttls", "implicit"},
        "loadsim run mixed --out ": {"runs"},
        "loadsim run mixed --junit ": {"own.yaml", "runs"},
        "loadsim run ": {"own.yaml", "runs"},
        "loadsim run mixed --engines ": set(),
        "loadsim log answer o": {"own.yaml"},
        "loadsim completion f": {"fish"},
    }
    (tmp_path / "script").write_text(script("bash"), encoding="utf-8")
    place = tmp_path / "place"
    (place / "runs").mkdir(parents=True)
    (place / "own.yaml").touch()
    text = BASH.format(script=tmp_path / "script", lines=" ".join(map(shlex.quote, expected)))
    done = subprocess.run(
        ["bash", "--norc", "-c", text],
        cwd=place,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert {line: {*found.split()} for line, found in zip(expected, done.stdout.split("\n"), strict=False)} == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == script(shell)
