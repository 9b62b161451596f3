"""The example package of plug-ins, installed as its users install it, into a directory of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from paths import ROOT
from patience import PATIENCE_S

SOURCE = ROOT / "docs" / "examples" / "plugin"

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def example_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory into which pip installed the package."""
    place = tmp_path_factory.mktemp("plugin")
    shutil.copytree(SOURCE, place / "source")
    install = ["install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--no-compile"]
    subprocess.run(
        [sys.executable, "-m", "pip", *install, "--target", place / "installed", place / "source"],
        env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        check=True,
        timeout=PATIENCE_S,
    )
    return place / "installed"


def python_with(package: Path, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python where the packages in this directory are installed."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=os.environ | with_package(package) | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def with_package(package: Path) -> Mapping[str, str]:
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))}


def package_of(place: Path, code: str, version: str = "1", **groups: str) -> Path:
    """A package `other` of one module, with an entry point in each group, as `protocols="name = other:object"`."""
    metadata = place / "other-1.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: other\nVersion: {version}\n")
    lines = [f"[loadsim.{group}]\n{entry}\n" for group, entry in groups.items()]
    (metadata / "entry_points.txt").write_text("".join(lines))
    (place / "other.py").write_text(code)
    return place
