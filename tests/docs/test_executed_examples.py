"""The commands of pages that need no mail server, executed as they stand in a directory with the files they expect."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from compared_runs import write_run
from examples import alternatives, command_blocks, executed, quick
from finished_searches import capacity
from mail_logs import MailLog, iso
from mailservers import StartEmbedded
from pages import Block, blocks, missing_from, with_outputs
from paths import ROOT
from patience import PATIENCE_S
from sized_runs import busy_run
from small_runs import on, population_of, written
from timing_samples import done

from loadsim.campaign.file import write
from loadsim.capacity.search import Found
from loadsim.scenario.scenario import load_scenario

FILES = re.compile(r"(?:(?<=\s)(?:-o|--out|--report|--junit)\s+|>\s*)(\S+)")
"""The files and directories that a command line names for its output."""

STATUSES = {
    "--max-regression": 1,  # the prepared runs are slower
    "--criteria stricter.yaml": 1,
}
"""The exit statuses, other than 0, of commands with these words."""

RUN = re.compile(r"\bloadsim run\b")

PLACEHOLDERS = {"users=500": "users=5", "SCENARIO": "scenario.yaml", "DIR": "tables"}
"""Commands that are typed instead."""


PROGRAM = f"""#!/bin/sh
if [ "$1" = run ]; then
  set -- "$@" --even-invalid --set run.day_length=4s --set run.ramp_up=0s --set run.warm_up=0s --set run.window=4s
  case "$2" in
  quickstart) set -- "$@" --set topology.0.users=1 --set topology.1.users=1 --set topology.2.users=1 ;;
  medium|dovecot-postfix|nightly.yaml) set -- "$@" --set server=embedded --set topology.0.users=2 ;;
  esac
fi
exec {sys.executable} -m loadsim "$@"
"""
"""`loadsim`, whose runs take seconds: a day of 4 s, and of shipped scenarios few users on the embedded server."""

OTHER_OUTPUTS = ("another-server.md", "watch-a-run.md")
"""Pages that show, after a command, the output on another server, or of a run that ends early."""

PACKAGE = ("extend.md",)
"""Pages whose commands need the example package."""


def pages_with(are_quick: bool) -> list[Path]:
    """Return the pages with command lines that take a moment, or those with others."""
    found = {block.page for block in command_blocks() for line in executed(block) if quick(line) == are_quick}
    return sorted(found)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home directory with `loadsim` on the PATH, scenarios, runs and searches."""
    home = tmp_path_factory.mktemp("home")
    program = home / "bin" / "loadsim"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    python = home / "bin" / "python"  # a link would not find the packages of the virtual environment
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (home / "tests").symlink_to(ROOT / "tests")
    for name in ("scenario", "my", "own", "old", "new"):
        written(home / f"{name}.yaml")
    (home / "own.yaml").unlink()
    written(home / "stricter.yaml", criteria={"failed_share": {"max": "0.5%"}})
    (home / "mail-password").write_text("secret-{index}\n")
    runs = home / "runs"
    for side, slower in (("old", 1.0), ("new", 4.0)):
        for at in (1, 2, 3):
            _write_run(runs, f"{side}-{at}", slower * 1.02**at, hour=2 * at + (at + (side == "new")) % 2)
    for name in ("baseline", "20260105T080000-medium", "capacity/runs/01500-2", "upgrade/runs/007-new-100-2"):
        _write_run(runs / Path(name).parent, Path(name).name)
    for users in (200, 400, 800):
        _write_run(runs, str(users), users / 100)
    _write_run(home / "results", "run")
    write(
        replace(
            capacity(Found(1250, 1500, "criteria"), (1250, "passed"), (1500, "failed")), directory=runs / "capacity"
        )
    )
    busy_run(runs / "sizing")
    _write_mail_logs(home)
    return home


def _write_run(place: Path, name: str, slower: float = 1.0, hour: int = 8) -> Path:
    """Write a run with the tasks of the page on comparisons. LOGOFF takes the same time in all."""
    times = {"READ": 5.0, "DELETE": 5.0, "SEND": 13.0}
    tasks = [done(task, 1000 * at, took * slower) for task, took in times.items() for at in range(1, 20)]
    tasks += [done("LOGOFF", 1000 * at, 90) for at in range(1, 6)]
    if name == "run":
        tasks.append(done("READ", 50, 5, outcome="refused"))
    return write_run(place, name, tasks=tasks, hour=hour, weights={"READ": 10, "DELETE": 1, "SEND": 1})


def _write_mail_logs(home: Path) -> None:
    """Write the logs of two days, of which the first was rotated."""
    log = MailLog(datetime(2026, 3, 2))
    log.days(users=12, days=2, sent=4, from_outside=6, rate=lambda _: 1)
    (place := home / "logs").mkdir()
    lines = iso(log.ordered()).splitlines(keepends=True)
    (place / "mail.log.1.gz").write_bytes(gzip.compress("".join(lines[: len(lines) // 2]).encode()))
    (place / "mail.log").write_text("".join(lines[len(lines) // 2 :]))


@pytest.fixture
def home(prepared: Path, tmp_path: Path) -> Path:
    return shutil.copytree(prepared, tmp_path / "home", symlinks=True)


def execute(line: str, home: Path, package: Path) -> subprocess.CompletedProcess[str]:
    """Execute a command line by a shell, with both outputs in one."""
    for placeholder, value in PLACEHOLDERS.items():
        line = re.sub(rf"\b{placeholder}\b", value, line)
    environment = {
        **os.environ,
        "HOME": str(home),
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{package}",
    }
    finished = subprocess.run(
        ["bash", "-c", line],
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    expected = next((status for words, status in STATUSES.items() if words in line), 0)
    run = RUN.search(line) is not None  # a busy machine may make it invalid, or miss criteria
    assert finished.returncode in ((0, 1, 3) if run else (expected,)), f"{line}: {finished}"
    assert not run or "Verdict: " in finished.stdout, f"{line}: {finished}"
    for name in FILES.findall(line.partition(" #")[0]):
        assert (home / name.replace("~", str(home))).exists(), f"{line}: no {name}"
    return finished


def compare(block: Block, shown: Block | None, output: str) -> None:
    """Compare the output of a block's last command with what its section shows after it."""
    if shown is not None and shown.section == block.section:
        lacking = missing_from(output, shown.text)
        assert not lacking, f"{shown}: {lacking}; found {output}"


@pytest.mark.nightly(part="tutorials")
@pytest.mark.parametrize("page", pages_with(are_quick=True), ids=lambda page: page.name)
def test_commands_of_a_page_have_the_stated_outputs(page: Path, home: Path, example_package: Path) -> None:
    """In their order: later ones find the files of earlier ones."""
    typed = command_blocks()
    for block, shown in with_outputs(blocks(page)):
        for line in filter(quick, executed(block)) if block in typed else ():
            wide = shown is not None and "with `--wide`" in shown.prose
            package = example_package if page.name in PACKAGE else home
            outputs = [execute(one + " --wide" * wide, home, package).stdout for one in alternatives(line)]
            if line == block.commands[-1]:
                compare(block, shown, outputs[-1])


@pytest.mark.nightly(part="tutorials")
@pytest.mark.parametrize("page", pages_with(are_quick=False), ids=lambda page: page.name)
def test_runs_of_a_page_have_the_stated_outputs(page: Path, home: Path, embedded_server: StartEmbedded) -> None:
    """Commands that load a server, with the files that the page has the reader write before them."""
    lists = {"population": 6}  # the scenario's users; with `topology.0.users=5`, the most that a page asks for
    scenario = load_scenario(str(home / "scenario.yaml"), ["topology.0.users=5", f"lists={json.dumps(lists)}"])
    files = on(embedded_server(*population_of(scenario)).services) | {"lists": lists}
    for name in ("scenario", "my-server"):
        written(home / f"{name}.yaml", **files)
    written(home / "own.yaml", **files | {"accounts": {"user": files["accounts"]["user"]}})
    for name in ("results", "runs"):
        shutil.rmtree(home / name)
    typed = command_blocks()
    for block, shown in with_outputs(blocks(page)):
        if block.file is not None:
            (home / block.file).write_text(block.text)
        for line in executed(block) if block in typed else ():
            if quick(line) and ("loadsim" in line or all(map(quick, executed(block)))):
                continue  # another test executes it
            output = execute(line, home, home).stdout
            if (
                shown is not None
                and shown.section == block.section
                and page.name not in OTHER_OUTPUTS
                and line == block.commands[-1]
            ):
                lacking = missing_from(output, shown.text)
                assert not lacking, f"{shown}: {lacking}; found {output}"
