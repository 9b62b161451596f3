"""The tutorials, typed as they are printed, by an ordinary user of a fresh Debian."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from examples import typed_by
from fresh_debian import STABLE, FreshDebian, fresh_debian
from pages import blocks, missing_from
from paths import ROOT
from reader import Reader
from shells import Shell

FIRST = ROOT / "docs" / "README.md"
CLUSTER = ROOT / "docs" / "tutorial-cluster.md"


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[FreshDebian]:
    with fresh_debian(STABLE, tmp_path) as machine:
        yield machine


@pytest.mark.nightly(part="tutorials")
def test_the_first_page_runs_in_a_fresh_debian(fresh: FreshDebian) -> None:
    """An ordinary user types the session of docs/README.md; `sudo` is the only way to be root. It takes 15 minutes.

    The machine shows what the page shows. When the page is done, nothing of the servers is left, and nothing in the run
    directories is root's.
    """
    with Reader(fresh.terminal) as reader:
        page = [block for block in blocks(FIRST) if typed_by(block)]
        (servers,) = [number for number, block in enumerate(page) if "install-mail-servers.sh" in block.text]
        reader.read(page[: servers + 1])
        fresh.unplug(*reader.terminals)
        reader.read(page[servers + 1 :])
        reader.interrupt()
    assert list((fresh.root / "tmp").glob("loadsim*")) == []
    assert not [line for line in fresh.processes().values() if "dovecot" in line or "postfix" in line]
    assert not [path for path in (fresh.home / "loadsim" / "runs").rglob("*") if path.stat().st_uid == 0]


@pytest.mark.nightly(part="tutorials")
def test_the_cluster_tutorial_runs_on_one_machine(fresh: FreshDebian) -> None:
    """The first section of docs/how-to/two-machines.md, in terminals in the clone with its virtual environment."""
    with Reader(fresh.terminal) as reader:
        reader.read(blocks(FIRST)[:1])
        reader.read([block for block in blocks(CLUSTER) if block.section == "1. Install"])

    @contextmanager
    def terminal() -> Iterator[Shell]:
        with fresh.terminal() as opened:
            assert opened.type("cd loadsim; . .venv/bin/activate").status == 0
            yield opened

    with Reader(terminal) as reader:
        reader.read([block for block in blocks(FIRST) if "install-mail-servers.sh" in block.text])
        fresh.unplug(*reader.terminals)
        done = reader.read(
            [
                block
                for block in blocks(ROOT / "docs" / "how-to" / "two-machines.md")
                if block.section == "Try it on one machine"
            ]
        )
        reader.interrupt()
    assert "Load: 40 users; " in done[-1].output


@pytest.mark.parametrize(
    ("output", "page", "lacking"),
    [
        ("Users: 20\nDone: 3,394 in 12.3 s\n", "Users: 7\nDone: 1 in 900 ms\n", []),
        ("Users: 20\nDone: 3,394\n", "Users: 7\n", ["not shown: Done: N"]),
        ("Users: 20\nDone: 3,394\n", "Done: 1\n...\nUsers: 7\n", ["Users: N"]),
        ("Verdict: invalid, criteria missed\nWhy: x\n", "Verdict: valid, criteria met\n", []),
    ],
)
def test_shown_outputs_are_compared_without_figures(output: str, page: str, lacking: list[str]) -> None:
    """Numbers, verdicts, wrapping and columns may differ; statements may not."""
    assert missing_from(output, page) == lacking
