"""The public API: what it loads, what it prints, and the example of its page."""

from __future__ import annotations

import ast
import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import ROOT
from small_runs import on, written
from timing_samples import done, write_sample

import loadsim
from loadsim.engine.snapshot import PHASES
from loadsim.model.ports import Endpoint, Services

PAGE = ROOT / "docs" / "how-to" / "use-as-a-library.md"
HEAVY = ("argparse", "asyncio", "multiprocessing", "numpy", "rich", "subprocess", "yaml")


def _python(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False)


def test_importing_the_package_loads_nothing_else(tmp_path: Path) -> None:
    """An engine's process imports the package: none of the API's modules, nor any library."""
    code = f"import sys, loadsim; print([name for name in sys.modules if name in {HEAVY!r} or name > 'loadsim.'"
    made = _python(code + " and name.startswith('loadsim.')])", tmp_path)
    assert (made.stdout, made.stderr) == ("['loadsim.version']\n", "")


def test_every_name_of_the_api_is_there() -> None:
    """`__all__` is what the package has, what an editor completes, and what the page names."""
    for name in loadsim.__all__:
        assert getattr(loadsim, name) is not None
        assert name in dir(loadsim)
    functions = ("analyse", "compare", "load_scenario", "plan", "run")
    assert all(f"| `{name}(" in PAGE.read_text() for name in functions)
    with pytest.raises(AttributeError, match="module 'loadsim' has no attribute 'nothing'"):
        _ = loadsim.nothing  # type: ignore[attr-defined]


def test_the_package_is_typed() -> None:
    """PEP 561, and the imports for type checkers are those of `__getattr__`."""
    package = Path(loadsim.__file__).parent
    assert (package / "py.typed").is_file()
    checked = {
        alias.name
        for node in ast.walk(ast.parse((package / "__init__.py").read_text()))
        if isinstance(node, ast.If)
        for each in node.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }
    assert checked == {name for names in loadsim._MODULES.values() for name in names}
    assert checked | {"__version__"} == set(loadsim.__all__)


@pytest.mark.nightly(part="runs")
def test_the_example_of_the_page_makes_a_run_and_prints_its_score(tmp_path: Path) -> None:
    """In an empty directory: nothing is printed but the example's own line, and no argument parser is loaded."""
    example = PAGE.read_text().split("```python\n")[1].split("```")[0]
    made = _python(f"{example}\nimport sys\nassert 'argparse' not in sys.modules\n", tmp_path)
    assert made.stderr == ""
    assert made.returncode == 0
    (line,) = made.stdout.splitlines()
    score = json.loads((tmp_path / "my-run" / "score.json").read_text())
    status = loadsim.analyse(tmp_path / "my-run").exit_status  # 3 on a machine that is busy with other things
    assert f"score {score['score_ms']:.1f} ms, exit status {status}, logs in my-run" in line
    assert [each.name for each in tmp_path.iterdir()] == ["my-run"]


class _Notes(loadsim.Watcher):
    def __init__(self) -> None:
        self.stages: list[str] = []
        self.warnings: list[str] = []
        self.snapshots: list[loadsim.LiveSnapshot] = []
        self.samples: list[tuple[str, dict[str, float]]] = []

    def stage(self, stage: str) -> None:
        self.stages.append(stage)

    def warning(self, line: str) -> None:
        self.warnings.append(line)

    def snapshot(self, snapshot: loadsim.LiveSnapshot, clients: Any) -> None:
        self.snapshots.append(snapshot)

    def sampled(self, probe: str, figures: Mapping[str, float]) -> None:
        self.samples.append((probe, dict(figures)))


@pytest.mark.nightly(part="runs")
def test_a_watcher_sees_a_run_in_another_thread(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A program with an event loop runs loadsim in a thread; the stages come in order, and nothing is printed."""
    scenario = loadsim.load_scenario(
        written(tmp_path / "small.yaml", probes={"command/one": {"run": "echo 1"}}),
        {"name": "in-a-thread", "criteria": {"score_ms": {"max": 60000}}},
    )
    notes, results = _Notes(), []
    thread = threading.Thread(
        target=lambda: results.append(loadsim.run(scenario, tmp_path / "out", engines=1, watcher=notes))
    )
    thread.start()
    thread.join()
    (result,) = results
    assert notes.stages == ["plan", "prepare", "load", "audit", "analyse"]
    phases = list(dict.fromkeys(each.phase for each in notes.snapshots))
    assert phases == [phase for phase in PHASES if phase in phases]
    assert "work" in phases  # the others may be over before a snapshot is taken
    assert {(probe, *figures.values()) for probe, figures in notes.samples} == {("command/one", 1.0)}
    assert result.directory == tmp_path / "out"
    assert yaml.safe_load((result.directory / "scenario.yaml").read_text())["name"] == "in-a-thread"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"weights": {"READ": "much"}}, "weights: READ: expected a weight of at least 0, found 'much'"),
        ({"begin_s": -1}, "begin_s: expected a number of at least 0, found -1"),
        ({"begin_s": float("nan")}, "window: expected finite instants, found nan s to 100 s"),
    ],
)
def test_analyse_rejects_what_the_command_rejects(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    write_sample(tmp_path / "a.tlog", [done("READ", 1, 10)])
    with pytest.raises(loadsim.ConfigError) as refused:
        loadsim.analyse(tmp_path, **options)
    assert str(refused.value) == says


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"looks": 0}, "looks: expected a whole number from 1 to 100, found 0"),
        ({"max_regression": -5}, "max_regression: expected a share from 0 to 1, found -5"),
        ({"base": []}, "runs: expected at least one, found none"),
    ],
)
def test_compare_rejects_what_the_command_rejects(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    write_sample(tmp_path / "a.tlog", [done("READ", 1, 10)])
    with pytest.raises(loadsim.ConfigError) as refused:
        loadsim.compare(**{"base": tmp_path, "new": tmp_path, **options})
    assert str(refused.value) == says


@pytest.mark.parametrize("function", [loadsim.run, loadsim.plan, loadsim.find_capacity])
def test_an_event_loop_is_not_blocked(function: Any) -> None:
    """The error comes before any work, and says what to call."""

    async def program() -> None:
        function("quickstart")

    with pytest.raises(RuntimeError, match=rf"await asyncio.to_thread\(loadsim.{function.__name__}, ...\)"):
        asyncio.run(program())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"pause_s": -1}, "pause_s: expected a number from 0 to inf, found -1"),
        ({"first": 1}, "--from: expected a number from 3 to 6 users, found 1"),
        ({"width": 0}, "width: expected a number from 0.01 to 1, found 0"),
    ],
)
def test_a_search_rejects_what_the_command_rejects(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(loadsim.ConfigError) as refused:
        loadsim.find_capacity(written(tmp_path / "small.yaml"), tmp_path / "out", **options)
    assert says in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_warnings_of_a_scenario_come_before_its_errors(tmp_path: Path) -> None:
    """Each function reads a file by itself, and gives the warnings of the scenario to the watcher."""
    nowhere = on(Services(Endpoint("127.0.0.1", 1), Endpoint("127.0.0.1", 1)))
    path = written(tmp_path / "small.yaml", initialise="never", **nowhere)
    for call in (partial(loadsim.run, engines=9), partial(loadsim.find_capacity, first=9)):
        notes = _Notes()
        with pytest.raises(loadsim.ConfigError):
            call(path, tmp_path / "out", watcher=notes)
        assert notes.warnings == [one.text for one in loadsim.load_scenario(path).findings] != []
    assert loadsim.plan(path).scenario.users == 6
    assert not (tmp_path / "out").exists()


def test_errors_are_raised_and_not_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    small = loadsim.load_scenario(written(tmp_path / "small.yaml"))
    with pytest.raises(loadsim.ConfigError, match="expected one of"):
        loadsim.load_scenario("nothing")
    with pytest.raises(loadsim.ConfigError, match=r"^--set topology\.0\.users: "):
        loadsim.load_scenario("quickstart", {"topology.0.users": -1})
    with pytest.raises(loadsim.ConfigError, match="expected a number from 1"):
        loadsim.run(small, tmp_path / "out", engines=0)
    with pytest.raises(loadsim.LogError):
        loadsim.analyse(tmp_path)
    with pytest.raises(loadsim.ConfigError):
        loadsim.compare([tmp_path], [tmp_path / "other"])
    assert capfd.readouterr() == ("", "")
    assert not (tmp_path / "out").exists()
