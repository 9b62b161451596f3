"""The examples for CI services: what their jobs execute, and that a slower server fails them."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from mailservers import StartEmbedded
from paths import ROOT
from patience import PATIENCE_S
from small_runs import written

from bench.delay import delayed
from loadsim.comparison.run_order import alternate, stretch
from loadsim.scenario.population import distribution_lists
from loadsim.scenario.scenario import load_scenario

EXAMPLES = ROOT / "docs" / "examples" / "ci"
VERSIONS = ("old", "new")


def github() -> tuple[dict[str, Any], list[str]]:
    """Return the job of GitHub's example, and the scripts of its steps."""
    job = yaml.safe_load((EXAMPLES / "github-actions.yml").read_text())["jobs"]["gate"]
    return job, [step["run"] for step in job["steps"] if "run" in step]


def gitlab() -> tuple[dict[str, Any], list[str]]:
    """Return the job of GitLab's example, and its scripts."""
    job = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text())["mail-server-regression"]
    return job, list(job["script"])


def test_both_ci_files_run_the_same_commands() -> None:
    """The scripts of one are those of the other: the test below executes both."""
    assert [script.strip() for script in github()[1]] == [script.strip() for script in gitlab()[1]]


def test_names_in_the_ci_example_match() -> None:
    """Services have the names of the servers that the scenario allows; results are kept if a step fails."""
    job, scripts = github()
    assert tuple(job["services"]) == VERSIONS
    assert job["steps"][-1]["if"] == "always()"
    assert "results" in job["steps"][-1]["with"]["path"]
    other, _ = gitlab()
    assert tuple(service["alias"] for service in other["services"]) == VERSIONS
    assert other["artifacts"]["when"] == "always"
    assert set(load_scenario(str(EXAMPLES / "gate.yaml"), []).allow_hosts) == set(VERSIONS)
    assert f"for version in {' '.join(VERSIONS)}; do" in scripts[1]


def test_the_ci_example_orders_its_runs_by_blocks() -> None:
    """Of runs that do, the comparison decides nothing."""
    (names,) = re.findall("for run in (.*); do", github()[1][2])
    order = [name.partition("/")[0] for name in names.split()]
    began = [[f"{at}" for at, each in enumerate(order) if each == version] for version in VERSIONS]
    assert [*map(len, began)] == [5, 5] and stretch(began) == 1 and not alternate(began)


SHORT = {
    "topology": [{"profile": "loadsim-5.5/medium", "users": 30}],
    "run": {"day_length": "60s", "duration": "18s", "ramp_up": "1s", "warm_up": "1s", "window": "16s"},
}
"""Changes of gate.yaml for a run of seconds."""

STUB = """#!/bin/sh
case "$*" in
*host=old*) exec {python} -m loadsim "$@" {old} ;;
*host=new*) exec {python} -m loadsim "$@" {new} ;;
*) exec {python} -m loadsim "$@" ;;
esac
"""
"""A `loadsim` that finds the two servers on this machine, where no name service knows them."""


@pytest.mark.nightly(part="package")
@pytest.mark.parametrize(
    ("example", "delay_s", "statuses"), [(github, 0.0, {0, 4}), (gitlab, 0.2, {1})], ids=["equal", "slower"]
)
def test_a_slower_server_fails_the_job(
    example: Callable[[], tuple[Any, list[str]]],
    delay_s: float,
    statuses: set[int],
    embedded_server: StartEmbedded,
    tmp_path: Path,
) -> None:
    """The example's lines, as typed, on two servers: two equal ones never fail the comparison, a slower one does."""
    document = yaml.safe_load((EXAMPLES / "gate.yaml").read_text())
    gate = written(
        tmp_path / "gate.yaml", **{key: document[key] for key in ("server", "allow_hosts", "accounts")}, **SHORT
    )
    scenario = load_scenario(str(gate), [])
    accounts = [scenario.account(user) for user in range(1, scenario.users + 1)]
    lists = dict(distribution_lists(scenario))
    with ExitStack() as stack:
        changes = {}
        for version, added_s in zip(VERSIONS, (0.0, delay_s), strict=True):
            services = embedded_server(accounts, lists).services
            imap, smtp = (stack.enter_context(delayed(each.port, added_s)) for each in (services.imap, services.smtp))
            here = ("imap.host=127.0.0.1", "smtp.host=127.0.0.1", f"imap.port={imap}", f"smtp.port={smtp}")
            changes[version] = " ".join(f"--set server.{change}" for change in here)
        stub = tmp_path / "bin" / "loadsim"
        stub.parent.mkdir()
        stub.write_text(STUB.format(python=sys.executable, **changes))
        stub.chmod(0o755)
        install, *scripts = example()[1]
        assert "pip install" in install  # tests of the package do that
        *before, last = (executed(script, stub.parent, tmp_path) for script in scripts)
    assert [step.returncode for step in before] == [0] * (len(scripts) - 1), before
    assert last.returncode in statuses, last
    assert (tmp_path / "results" / "compare.xml").exists()


def executed(script: str, binaries: Path, place: Path) -> subprocess.CompletedProcess[str]:
    """Execute a script as both services do: with a shell that ends at the first command that fails."""
    environment = os.environ | {"PATH": os.pathsep.join((str(binaries), os.environ["PATH"])), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["sh", "-e", "-c", script],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,  # ten runs
        check=False,
    )
