"""Without the extra `distributed`: all that one machine does works, and a cluster's commands say what is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S
from small_runs import written

from loadsim.cli import BAD_INPUT

WITHOUT = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {packages} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""
"""A `sitecustomize` that hides these packages from every Python process that finds it."""


def typed(place: Path, packages: tuple[str, ...], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command, to its end, on a machine that lacks these packages; processes that it starts lack them, too."""
    (place / "sitecustomize.py").write_text(WITHOUT.format(packages=set(packages)))
    path = os.pathsep.join(filter(None, (str(place), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", "loadsim", *map(str, arguments)],
        cwd=place,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.slow
def test_one_machine_runs_without_dask(tmp_path: Path) -> None:
    """A run with its engines, and what is done before and afterwards."""
    packages = (*("dask", "distributed", "tornado"), "cryptography")
    run = {"day_length": "4s", "ramp_up": "0s", "warm_up": "0s", "window": "4s"}
    small = written(
        tmp_path / "small.yaml", run=run, topology=[{"profile": "loadsim-5.5/light", "users": 2, "protocol": "fake"}]
    )
    out = tmp_path / "out"
    for arguments in (
        ("plan", small),
        ("run", small, "--out", out, "--no-report"),
        ("log", "export", "csv", out),
        ("report", out),
    ):
        done = typed(tmp_path, packages, *arguments)
        assert done.returncode in (0, 1, 3, 4), (arguments, done.stderr)  # all but bad input and faults of ours
        assert "Traceback" not in done.stderr
        assert done.stdout, arguments


@pytest.mark.slow
def test_a_database_store_needs_the_extra(tmp_path: Path) -> None:
    refused = typed(tmp_path, ("apsw",), "storage", "run", "storage-quickstart")
    assert refused.returncode == BAD_INPUT
    assert refused.stderr == "loadsim: store: expected the package apsw, found none; pip install 'loadsim[storage]'\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("distributed", "cluster up"),
        ("distributed", "run {small} --cluster 127.0.0.1:1"),
        ("cryptography", "cluster up"),
        ("cryptography", "cluster certs x"),
    ],
)
def test_a_cluster_needs_the_extra(package: str, command: str, tmp_path: Path) -> None:
    small = written(
        tmp_path / "small.yaml",
        server={service: {"host": "127.0.0.1"} for service in ("imap", "smtp")},
        accounts={"user": "user{index}", "password": "secret-{index}"},
    )
    refused = typed(tmp_path, (package,), *command.format(small=small).split())
    assert refused.returncode == BAD_INPUT
    assert refused.stderr == (
        f"loadsim: cluster: expected the package {package}, found none; pip install 'loadsim[distributed]'\n"
    )
