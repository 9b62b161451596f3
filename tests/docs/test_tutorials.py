"""The tutorials, typed as they are printed: the embedded part here, all of it by an ordinary user of a fresh Debian."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from fresh_debian import FreshDebian, fresh_debian
from pages import Block, blocks, missing_from
from paths import ROOT
from reader import Reader
from shells import Shell, shell

TUTORIAL = ROOT / "docs" / "tutorial.md"
TWO_MACHINES = ROOT / "docs" / "how-to" / "two-machines.md"
CLUSTER = ROOT / "docs" / "tutorial-cluster.md"
FIRST, LEFT, OWN = "1. The first score", "2. What a run leaves behind", "5. A scenario of your own"

PROGRAM = f"""#!/bin/sh
if [ "$1" = run ]; then
  set -- "$@" --even-invalid --set 'run={{day_length: 4s, ramp_up: 0s, warm_up: 0s, window: 4s}}' \\
    --set topology.0.users=1 --set topology.1.users=1 --set topology.2.users=1
fi
PYTHONPATH={ROOT} exec {sys.executable} -m loadsim "$@"
"""
"""`loadsim` of a virtual environment; a run has 3 users, and a day of 4 s."""


def chosen(page: Path, *sections: str, without: str = "sudo |git ") -> list[Block]:
    """Return the blocks of some sections, without those with commands that begin so."""
    begins = tuple(without.split("|"))
    found = [block for block in blocks(page) if block.section in sections]
    return [block for block in found if not any(command.startswith(begins) for command in block.commands)]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A home directory with what `make run` needs of a clone, already installed."""
    place = tmp_path / "loadsim"
    programs = place / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, place)
    (programs / "loadsim").write_text(PROGRAM)
    (programs / "python").symlink_to(sys.executable)
    (programs / "loadsim").chmod(0o755)
    (programs / "activate").write_text(f"PATH={programs}:$PATH\n")
    (place / ".venv" / ".installed").touch()
    return place


@pytest.mark.nightly(part="tutorials")
def test_the_parts_without_root_or_network(clone: Path) -> None:
    """`make run`, all about the run directory, and the own scenario: each command does what the page says.

    A run of 4 s has other figures and a window of other seconds. The commands hold if `make run` is typed twice.
    """
    env = {"HOME": str(clone.parent), "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"], "LANG": "C.UTF-8"}
    with Reader(lambda: shell(["sh"], env, clone)) as reader:
        (make,) = [block for block in blocks(TUTORIAL) if "make run" in block.commands]
        (made,) = reader.read([replace(make, text="make run\n")])
        assert "Run directory: runs/" in made.output
        reader.read([replace(make, text="make run\n")])
        assert len(list((clone / "runs").iterdir())) == 2
        left = [
            replace(block, text=block.text.replace("--begin 20 --end 50", "--begin 1 --end 3"))
            for block in chosen(TUTORIAL, LEFT)
        ]
        assert len(reader.read(left, compare=False)) == 7
        own = [block for block in chosen(TUTORIAL, OWN) if "loadsim run office.yaml" not in block.commands]
        assert len(reader.read(own)) == 2
    assert (clone / "tasks.csv").stat().st_size > 1000


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[FreshDebian]:
    """A fresh Debian, whose user has a bare clone in the home directory, by the name that the tutorials print."""
    subprocess.run(["git", "clone", "-q", "--bare", ROOT, tmp_path / "bare"], check=True)
    (tmp_path / "mounted").mkdir()
    with fresh_debian(tmp_path / "mounted") as machine:
        machine.put(tmp_path / "bare", "REPOSITORY")
        yield machine


@pytest.mark.nightly(part="tutorials")
def test_the_tutorial_in_a_fresh_debian(fresh: FreshDebian) -> None:
    """An ordinary user types every command of docs/tutorial.md; `sudo` is the only way to be root. It takes 30 minutes.

    The machine shows what the page shows. When the page is done, nothing of the servers is left, and nothing in the run
    directories is root's.
    """
    with Reader(fresh.terminal) as reader:
        page = blocks(TUTORIAL)
        (servers,) = [number for number, block in enumerate(page) if "install-mail-servers.sh" in block.text]
        reader.read(page[: servers + 1])
        fresh.unplug(*reader.terminals)
        reader.read(page[servers + 1 :])
        reader.interrupt()
    assert list((fresh.root / "tmp").glob("loadsim*")) == []
    assert not [line for line in fresh.processes().values() if "dovecot" in line or "postfix" in line]
    assert not [path for path in (fresh.home / "loadsim" / "runs").rglob("*") if path.stat().st_uid == 0]


@pytest.mark.nightly(part="tutorials")
def test_the_installation_of_a_cluster(fresh: FreshDebian) -> None:
    """The first section of docs/tutorial-cluster.md, on a machine with what the first tutorial installs."""
    with Reader(fresh.terminal) as reader:
        reader.read(blocks(TUTORIAL)[:1])
        reader.read([block for block in blocks(CLUSTER) if block.section == "1. Install"])
        (version,) = reader.read([replace(blocks(TUTORIAL)[0], text="loadsim --version\n")])
    assert version.output.startswith("loadsim ")


@pytest.mark.nightly(part="tutorials")
def test_a_cluster_on_one_machine(fresh: FreshDebian) -> None:
    """The first section of docs/how-to/two-machines.md, in terminals in the clone with its virtual environment."""
    with Reader(fresh.terminal) as reader:
        reader.read(blocks(TUTORIAL)[:1])
        reader.read([block for block in blocks(CLUSTER) if block.section == "1. Install"])

    @contextmanager
    def terminal() -> Iterator[Shell]:
        with fresh.terminal() as opened:
            assert opened.type("cd loadsim; . .venv/bin/activate").status == 0
            yield opened

    with Reader(terminal) as reader:
        reader.read([block for block in blocks(TUTORIAL) if "install-mail-servers.sh" in block.text])
        fresh.unplug(*reader.terminals)
        done = reader.read([block for block in blocks(TWO_MACHINES) if block.section == "Try it on one machine"])
        reader.interrupt()
    assert "40 users (40 sessions), from 2 clients" in done[-1].output


@pytest.mark.parametrize(
    ("output", "page", "lacking"),
    [
        ("Users: 20\nDone: 3,394 in 12.3 s\n", "Users: 7\nDone: 1 in 900 ms\n", []),
        ("Users: 20\nDone: 3,394\n", "Users: 7\n", ["not shown: Done: N"]),
        ("Users: 20\nDone: 3,394\n", "Users: 7\n...\n", []),
        ("Users: 20\nDone: 3,394\n", "Done: 1\n...\nUsers: 7\n", ["Users: N"]),
        ("Users: 20\n", "Persons: 20\n...\n", ["Persons: N"]),
        ("inspect: 2 of 20 accounts\nDone: 1\n", "Done: 1\n", []),
        ("Load: 20 users (20 sessions), from 1\n  client\n", "Load: 7 users (7\n  sessions), from 1 client\n", []),
        ("READ  10  969  6.5  87.5  1,343  0\n", "READ  10  9  6.5  never  0\n", []),
        ("Category  Weight  Hits  50th  95th  Failed\n", "Category  Hits  95th  Mean  Std. Dev.  Failed\n", []),
        ("Verdict: invalid, criteria missed\nWhy: x\n", "Verdict: valid, criteria met\n", []),
        ("Verdict: invalid, criteria not judged\n", "Verdict: valid, criteria met\n", []),
    ],
)
def test_shown_outputs_are_compared_without_figures(output: str, page: str, lacking: list[str]) -> None:
    """Numbers, verdicts, wrapping and columns may differ; statements may not."""
    assert missing_from(output, page) == lacking
