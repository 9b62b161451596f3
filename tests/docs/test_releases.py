"""Today's releases of Debian: the README's commands, and a checked and audited day on their Dovecot and Postfix."""

import json
import re
from pathlib import Path

import pytest
from fresh_debian import NEXT, STABLE, fresh_debian
from pages import blocks
from paths import ROOT
from reader import Reader

pytestmark = pytest.mark.nightly(part="releases")

OPTIONS = "dovecot-postfix --set topology.0.users=40"
RUN = f"loadsim run {OPTIONS} --set run.day_length=100s --set client.check_state=100% --out day"

RELEASES = [
    STABLE,
    pytest.param(NEXT, marks=pytest.mark.xfail(reason="what will be stable is only reported", strict=False)),
]


@pytest.mark.parametrize("release", RELEASES)
def test_an_ordinary_user_runs_the_readme_on_a_release(release: str, tmp_path: Path) -> None:
    """No test is skipped, and no finding accuses the servers. A busy machine may make the run invalid or slow."""
    with fresh_debian(release, tmp_path) as machine, Reader(machine.terminal) as reader:
        reader.read([block for block in blocks(ROOT / "docs" / "README.md") if block.section == "A first run"])
        passed = reader.type("sudo make test").output.splitlines()[-1]
        assert re.search(r"[1-9]\d* passed\b", passed)  # in colour, a letter stands before
        assert not re.search("skipped|failed|error|warning", passed)
        machine.unplug(*reader.terminals)
        reader.type(f"sudo .venv/bin/loadsim server dovecot-postfix {OPTIONS}")
        for command in ("cd loadsim", ". .venv/bin/activate", f"loadsim check {OPTIONS}", RUN):
            reader.type(command)
        reader.interrupt()
        score = json.loads((machine.home / "loadsim" / "day" / "score.json").read_text())
    codes = {one["code"] for one in score["findings"]}
    assert not [code for code in codes if code.startswith(("mail-", "audit-")) or code == "server-state-wrong"]
