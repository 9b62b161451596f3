"""The wheel and the source distribution: their files, their description, and an installation of them."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from paths import ROOT
from patience import PATIENCE_S
from small_runs import written

from loadsim.cli.show import KINDS
from loadsim.version import __version__
from tools.package_readme import LINK

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]

FOR_DEVELOPERS = {"dev", "docs", "test"}
"""Extras that users of loadsim do not need."""


def completed(*command: str | Path, cwd: Path) -> str:
    """Return the standard output of a command that finds loadsim only where it is installed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def build(source: Path, place: Path) -> tuple[Path, Path]:
    completed(sys.executable, "-m", "hatchling", "build", "-d", place, cwd=source)
    (wheel,), (sdist,) = place.glob("*.whl"), place.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(ROOT, tmp_path_factory.mktemp("built"))


def environment_with(wheel: Path, place: Path) -> Path:
    """Return the `bin` of a new virtual environment with the wheel, on the libraries of this environment."""
    completed(sys.executable, "-m", "venv", "--without-pip", place, cwd=place.parent)
    python = place / "bin" / "python"
    install = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel)
    completed(*install, cwd=place.parent)
    (libraries,) = place.glob("lib/python3*/site-packages")
    # A directory in a .pth file comes last in the path, and its own .pth files are not read: no loadsim from there.
    (libraries / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin"


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def files_below(directory: Path) -> set[str]:
    files = (path for path in directory.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(directory).as_posix() for path in files}


def test_every_kind_of_shipped_file_reaches_wheel_and_image() -> None:
    included = SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included == {kind: f"loadsim/{kind}" for kind in KINDS}
    assert {f"!{kind}" for kind in KINDS} <= set((ROOT / ".containerignore").read_text().splitlines())


@pytest.mark.nightly(part="package")
def test_the_wheel_has_the_package_and_what_is_shipped(built: tuple[Path, Path]) -> None:
    """Code with its type marker, all that is shipped, the manual page and the licence; nothing for developers."""
    expected = {f"loadsim/{name}" for name in files_below(ROOT / "loadsim")}
    for kind in KINDS:
        expected |= {f"loadsim/{kind}/{name}" for name in files_below(ROOT / kind)}
    assert {"loadsim/py.typed", "loadsim/scenarios/quickstart.yaml", "loadsim/profiles/weights.yaml"} <= expected
    expected.add(f"loadsim-{__version__}.data/data/share/man/man1/loadsim.1")
    information = f"loadsim-{__version__}.dist-info"
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
        assert wheel.read(f"{information}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert {name for name in names if not name.startswith(f"{information}/")} == expected


@pytest.mark.nightly(part="package")
def test_the_source_distribution_builds_the_same_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    """It has licence, documentation and tests, and all that its wheel is made of: byte for byte the same."""
    wheel, sdist = built
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert source.name == f"loadsim-{__version__}"
    for name in ("LICENSE", "README.md", "Makefile", "docs/README.md", "requirements/dev.txt", "tests/unit"):
        assert (source / name).exists(), name
    assert not {".venv", "site", "runs", ".git"} & {path.name for path in source.iterdir()}
    again, _ = build(source, tmp_path / "again")
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


def test_the_extra_all_has_every_extra_for_users() -> None:
    extras = PROJECT["optional-dependencies"]
    (named,) = extras["all"]
    found = re.fullmatch(r"loadsim\[([a-z,]+)\]", named)
    assert found
    assert found[1].split(",") == sorted(extras.keys() - FOR_DEVELOPERS - {"all"})


def test_pages_install_extras_that_exist() -> None:
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "loadsim").rglob("*.py"), ROOT / "Makefile"]
    named = {
        extra
        for file in files
        for extras in re.findall(r"loadsim\[([\w,]+)\]", file.read_text())
        for extra in extras.split(",")
    }
    assert "distributed" in named
    assert named <= PROJECT["optional-dependencies"].keys()


@pytest.mark.nightly(part="package")
def test_the_packages_description_has_no_link(built: tuple[Path, Path]) -> None:
    """Of the README's relative links, only the text is left until the pages have an address."""
    assert LINK.search((ROOT / "README.md").read_text())
    description = metadata(built[0]).get_payload()
    assert isinstance(description, str)
    assert description.startswith("# loadsim\n")
    assert not LINK.search(description)


@pytest.mark.nightly(part="package")
def test_an_installed_wheel_runs(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Without a checkout: shipped files and drivers are found, and a run on the embedded server has its verdict."""
    binaries = environment_with(built[0], tmp_path / "environment")
    origin = completed(binaries / "python", "-c", "import loadsim; print(loadsim.__file__)", cwd=tmp_path)
    assert Path(origin.strip()).is_relative_to(tmp_path / "environment")
    shown = completed(binaries / "loadsim", "show", "scenarios", cwd=tmp_path)
    assert all(path.stem in shown for path in (ROOT / "scenarios").glob("*.yaml"))
    run = {"day_length": "20s", "duration": "2s", "ramp_up": "0s", "warm_up": "0s", "window": "2s"}
    small = written(tmp_path / "small.yaml", run=run, topology=[{"profile": "loadsim-5.5/heavy", "users": 2}])
    answer = completed(binaries / "loadsim", "run", small, "--no-report", cwd=tmp_path)
    assert answer.startswith("Verdict: ")


@pytest.mark.nightly(part="package")
@pytest.mark.parametrize("kind", ["wheel", "source distribution"])
def test_an_installation_from_the_index_runs_the_quickstart(
    built: tuple[Path, Path], kind: str, tmp_path: Path
) -> None:
    """pip gets all dependencies: nothing more is needed for the quickstart and its page. `all` installs, too."""
    package = dict(zip(("wheel", "source distribution"), built, strict=True))[kind]
    completed(sys.executable, "-m", "venv", tmp_path / "environment", cwd=tmp_path)
    binaries = tmp_path / "environment" / "bin"
    completed(binaries / "python", "-m", "pip", "install", "--quiet", package, cwd=tmp_path)
    completed(binaries / "loadsim", "run", "quickstart", "--out", "out", cwd=tmp_path)
    assert "<svg" in (tmp_path / "out" / "report.html").read_text("utf-8")
    completed(binaries / "python", "-m", "pip", "install", "--quiet", f"{package}[all]", cwd=tmp_path)
    modules = "distributed, prometheus_client, uvloop"
    completed(binaries / "python", "-c", f"import {modules}", cwd=tmp_path)
