"""Tasks of plug-ins: done at the profile's rate, recorded and scored like others, and no danger to anything else."""

import json
import math
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from example_plugins import package_of
from virtual_runs import Lived, live, quiet, scenario_of

from loadsim.analysis.summary import summarise
from loadsim.cli import main
from loadsim.cluster.placement import fingerprints
from loadsim.dryrun.plan import make_plan, to_json
from loadsim.errors import ConfigError, LogError
from loadsim.findings.catalogue import Code
from loadsim.findings.formats import Value
from loadsim.scenario.profile import load_profile
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.workload import Workload
from loadsim.timinglog.merge import merge
from loadsim.timinglog.reader import read_each, read_log
from loadsim.users.plugin_tasks import check_plugin_tasks

LOOK = """
async def act(turn):
    "Looks into a folder."
    folder = turn.folders[int(turn.draw("folder") * len(turn.folders))]
    await turn.session.mailbox.headers(folder, None)
"""
"""A task that lists a folder chosen at random."""

TWO = """
import asyncio

from loadsim.errors import ServerRefused

async def act(turn):
    await turn.session.mailbox.headers("INBOX", None)
    if turn.account.number == 1:
        {fault}
"""
"""A task that fails for user 1."""

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a package with a task on this machine, which forgets the one before."""
    apart = [path for path in sys.path if not path.startswith(str(tmp_path))]

    def installed(code: str = LOOK, *, name: str = "LOOK AROUND", version: str = "1") -> Path:
        place = package_of(tmp_path / f"package{version}", code, version, tasks=f"{name} = other:act")
        monkeypatch.delitem(sys.modules, "other", raising=False)
        monkeypatch.setattr(sys, "path", [str(place), *apart])
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        return place

    return installed


def looking(place: Path, per_day: float = 40, users: int = 2, **keys: Any) -> Scenario:
    return scenario_of(place, (quiet(tasks={"LOOK AROUND": {"per_day": per_day}}), users), day="60s", **keys)


def look(tmp_path: Path, **options: Any) -> Lived:
    return live(looking(tmp_path / "scenario"), tmp_path, **options)


def own_failures(lived: Lived) -> list[Value]:
    defects = summarise([lived.log], begin_s=0, end_s=60).verdict.defects
    return [one.values["kinds"] for one in defects if one.code is Code.GENERATOR_FAILED and one.cause]


def test_a_plugin_task_is_done_at_the_profiles_rate(install: Install, tmp_path: Path) -> None:
    """A Poisson process: 2 users, 40 a day each, and a standard deviation of 9."""
    install()
    lived = look(tmp_path)
    done = lived.tasks("LOOK AROUND")
    assert abs(len(done) - 80) < 5 * math.sqrt(80)
    assert {task["outcome"] for task in done} == {"ok"}
    taken_ns = [task["ended_ns"] - task["started_ns"] for task in done]
    assert sum(taken_ns) / len(taken_ns) > 3 * 15_000_000, "its three commands take 20 ms each on average"
    assert all(task["scheduled_ns"] <= task["started_ns"] for task in done)
    assert {command for task in done for command in task["commands"]} >= {"IMAP SELECT"}


def test_draws_of_a_plugin_task_are_reproducible(install: Install, tmp_path: Path) -> None:
    """They depend on seed, user and turn, not on the server's speed."""
    noting = LOOK.replace("    await", "    noted.append((turn.account.number, turn.index, folder))\n    await")
    runs = []
    for service_s in (0.020, 0.300):
        install("noted = []\n" + noting)
        live(looking(tmp_path / "scenario", per_day=20), tmp_path, service_s=service_s)
        runs.append(sorted(sys.modules["other"].noted))
    assert runs[0] == runs[1]
    assert len({folder for _, _, folder in runs[0]}) == 3
    assert len(set(runs[0])) == len(runs[0])


def test_a_plugin_task_begins_in_the_inbox(install: Install, tmp_path: Path) -> None:
    """The task that left it pays for the way back, as loadsim's own do: the server announces mail only there."""
    install()
    lived = look(tmp_path)
    selected = [each["command"] for each in lived.tape.commands if each["command"] == "IMAP SELECT"]
    done = len(lived.tasks("LOOK AROUND"))
    assert len(selected) >= 2 * done


def test_the_log_has_name_and_weight_and_needs_no_plug_in(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The score over the two tasks is the weighted mean of their 95th percentiles, on a machine without the package."""
    install()
    profile = quiet(tasks={"LOOK AROUND": {"per_day": 40}}, browse={"per_day": 40})
    keys = {"weights": {"LOOK AROUND": 3}, "criteria": {"tasks.LOOK AROUND.p95_ms": {"max": 500}}}
    scenario = scenario_of(tmp_path / "scenario", (profile, 2), day="60s", **keys)
    assert "tasks.LOOK AROUND.p95_ms" in scenario.criteria
    assert scenario.weights["LOOK AROUND"] == 3
    terms = {"weights": scenario.weights, "plugins": scenario.plugins, "window_s": [0, 60], "duration_s": 60.0}
    live(scenario, tmp_path, header=terms)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not path.startswith(str(tmp_path))])
    with pytest.raises(ConfigError, match="expected tasks of installed plug-ins"):
        check_plugin_tasks(scenario)

    assert main(["log", "answer", str(tmp_path / "0.tlog"), "--json"]) in (0, 1, 3)
    score = json.loads(capsys.readouterr().out)
    tasks = {task["task"]: task for task in score["by_protocol"]["fake"]["tasks"]}
    assert tasks["LOOK AROUND"]["weight"] == 3
    expected = (3 * tasks["LOOK AROUND"]["p95_ms"] + tasks["BROWSE"]["p95_ms"]) / 4
    assert score["score_ms"] == pytest.approx(expected)
    log = str(tmp_path / "0.tlog")
    for words in (["check", log], ["export", "csv", log]):
        assert main(["log", *words]) == 0, capsys.readouterr().err
    assert main(["log", "answer", log, "--json"]) in (0, 1, 3)
    assert "LOOK AROUND" in capsys.readouterr().out


def test_weights_of_unknown_tasks_are_rejected(install: Install, tmp_path: Path) -> None:
    """A name that neither loadsim nor the profile nor the log has is refused."""
    install()
    with pytest.raises(
        ConfigError, match=r"weights.LOOK AWAY: expected one of the tasks .*, LOOK AROUND, found 'LOOK AWAY'"
    ):
        looking(tmp_path / "scenario", weights={"LOOK AWAY": 1})
    look(tmp_path)
    assert summarise([tmp_path / "0.tlog"], weights={"LOOK AROUND": 1}, begin_s=0, end_s=60).score["score_ms"]
    with pytest.raises(LogError, match=r"^weights: expected tasks of loadsim or of the log .*, found 'LOOK AWAY'$"):
        summarise([tmp_path / "0.tlog"], weights={"LOOK AWAY": 1}, begin_s=0, end_s=60)


def test_a_plan_counts_plugin_tasks_without_importing_them(install: Install, tmp_path: Path) -> None:
    """Its load is known without the plug-in's code, which may open connections."""
    install("raise SystemExit('imported')")
    plan = make_plan(looking(tmp_path / "scenario"))
    figures = to_json(plan)
    assert abs(figures["tasks"]["LOOK AROUND"] - 80) < 5 * math.sqrt(80)
    assert sum(plan.tally.load().tasks["LOOK AROUND"]) == figures["tasks"]["LOOK AROUND"]
    assert sum(hour["tasks"]["LOOK AROUND"] for hour in figures["by_hour"]) == figures["tasks"]["LOOK AROUND"]


def test_another_version_of_a_plug_in_is_another_load(install: Install, tmp_path: Path) -> None:
    """The digest is that of this machine, also for a scenario that another one sent."""
    install(version="1")
    sent = pickle.dumps(looking(tmp_path / "scenario"))
    ours = fingerprints(Workload(pickle.loads(sent)), range(1, 3))
    install(version="2")
    theirs = fingerprints(Workload(pickle.loads(sent)), range(1, 3))
    assert ours.plan == theirs.plan
    with pytest.raises(ConfigError, match=r"^plugins: .*task LOOK AROUND of other 1, found .* of other 2"):
        ours.check(theirs)


def test_logs_of_different_versions_are_not_merged(install: Install, tmp_path: Path) -> None:
    for version in ("1", "2"):
        install(version=version)
        scenario = looking(tmp_path / "scenario", per_day=20)
        header = {"plugins": scenario.plugins, "run": "run-1", "client": f"c{version}"}
        live(scenario, tmp_path, header=header)
    with pytest.raises(LogError, match=r"^merge: plugins\.task LOOK AROUND: expected the same .* found 'other 1'"):
        merge(read_each([tmp_path / "0.tlog", tmp_path / "1.tlog"]))


@pytest.mark.parametrize("name", ["LOAD ATTACHMENT", "NO SESSION", "look", "A.B", "A" * 33, 5])
def test_a_reserved_name_is_rejected_in_one_line(name: object, tmp_path: Path) -> None:
    """Tasks of loadsim, spans, and names that no criterion could state."""
    file = tmp_path / "p.yaml"
    file.write_text(yaml.safe_dump({"name": "p", **quiet(), "tasks": {name: {"per_day": 1}}}))
    with pytest.raises(
        ConfigError, match=rf"p\.yaml: tasks[.\[]{name}\]?: expected words of A-Z and 0-9 .*, found"
    ) as refusal:
        load_profile(str(file))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import nothing_of_this_name", "found ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        (r"raise ValueError('no\x1b[2J\nmore')", r"found ValueError: no\x1b[2J"),
        ("def other(): pass", "found AttributeError: module 'other' has no attribute 'act'"),
        ("def act(turn): pass", "expected other:act to be an async function, found <function act"),
    ],
)
def test_an_unusable_package_is_rejected_in_one_line(code: str, says: str, install: Install, tmp_path: Path) -> None:
    install(code)
    with pytest.raises(ConfigError) as refusal:
        check_plugin_tasks(looking(tmp_path / "scenario"))
    assert str(refusal.value).startswith("task LOOK AROUND: expected ")
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("raise ValueError('s3cret')", "ValueError"),
        ("raise asyncio.CancelledError", "CancelledError"),
        ("raise ConnectionResetError('s3cret')", "ConnectionResetError"),
    ],
)
def test_an_error_in_a_plug_in_fails_its_task(fault: str, kind: str, install: Install, tmp_path: Path) -> None:
    """Of this user: they log on again, the other one never fails, and the run is invalid, for it lacks load."""
    install(TWO.format(fault=fault))
    lived = look(tmp_path)
    assert lived.failure is None
    of_one, of_other = (lived.tasks("LOOK AROUND", user) for user in (1, 2))
    failed = [task for task in of_one if task["outcome"] == "generator"]
    assert {task["error"] for task in failed} == {f"error in the plug-in other: {kind}"}
    assert {task["outcome"] for task in of_one} <= {"generator", "skipped"}, "skipped at the end, for want of a session"
    assert len(lived.tasks("LOGON", 1)) >= len(failed) > 5, "they log on again each time"
    assert {task["outcome"] for task in of_other} == {"ok"}
    assert len(of_other) > 20
    (event, *_) = [event for event in lived.said("failure") if event["task"] == "LOOK AROUND"]
    assert f"other.py:{TWO.format(fault=fault).splitlines().index(f'        {fault}') + 1}" in json.dumps(event)
    assert "s3cret" not in json.dumps(lived.events)
    assert own_failures(lived) == [(f"error in the plug-in other: {kind}",)]


def test_a_refusal_in_a_plug_in_is_the_servers(install: Install, tmp_path: Path) -> None:
    """A plug-in states it by the same exceptions as a driver; the session stays."""
    install(TWO.format(fault="raise ServerRefused('nothing there')"))
    lived = look(tmp_path)
    assert {task["error"] for task in lived.tasks("LOOK AROUND", 1)} == {"nothing there"}
    assert set(lived.outcomes("LOOK AROUND")) == {"ok", "refused"}
    assert lived.engine.counts.sessions_lost == 0
    assert len(lived.tasks("LOGON", 1)) == 1


def test_the_end_of_the_run_cancels_a_plugin_task(install: Install, tmp_path: Path) -> None:
    """A turn that never ends is unfinished, and the run ends all the same."""
    install(TWO.format(fault="await asyncio.sleep(1e6)"))
    lived = look(tmp_path)
    assert lived.failure is None
    outcomes = [task["outcome"] for task in lived.tasks("LOOK AROUND", 1)]
    assert outcomes[0] == "unfinished" or outcomes[-1] == "unfinished"
    assert set(outcomes) == {"unfinished", "skipped"}


SILENT = "try: {}\n        except Exception: pass"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["{}", SILENT], ids=["plain", "silenced"])
def test_a_wrong_report_is_the_failure_of_its_task(form: str, install: Install, tmp_path: Path) -> None:
    """The package is named, the log stays readable, and neither the server nor loadsim is blamed."""
    call = "turn.observer.command('FP', turn.observer.now() + 10**12, 'ok', 1, 1)"
    install(TWO.format(fault=form.format(call)))
    lived = live(looking(tmp_path / "scenario", per_day=30), tmp_path)
    assert lived.failure is None
    of_one = lived.tasks("LOOK AROUND", 1)
    failed = [task for task in of_one if task["outcome"] == "generator"]
    assert {task["error"] for task in failed} == {"error in the plug-in other: wrong report"}
    assert {task["outcome"] for task in of_one} <= {"generator", "skipped"}
    others = [task for task in lived.tape.tasks if task not in of_one]
    assert {task["outcome"] for task in others} == {"ok"}, "the session ends before the next task begins"
    assert lived.engine.counts.sessions_lost == 0
    assert "own_faults" not in lived.tape.told
    assert "FP" not in {each["command"] for each in lived.tape.commands}
    (event, *_) = [event for event in lived.said("failure") if event["task"] == "LOOK AROUND"]
    assert event["line"].startswith("command: expected ")
    assert own_failures(lived) == [("error in the plug-in other: wrong report",)]
    assert read_log(tmp_path / "0.tlog").header.engine_users


def test_a_wrong_report_after_its_task_is_counted(install: Install, tmp_path: Path) -> None:
    """A plug-in may keep the observer; then no task fails by it, and the run is invalid all the same."""
    install(
        TWO.format(
            fault="asyncio.get_running_loop().call_later("
            "0.5, turn.observer.command, 'FP', turn.observer.now() + 10**12, 'ok', 1, 1)"
        )
    )
    lived = live(looking(tmp_path / "scenario", per_day=10), tmp_path)
    assert lived.failure is None
    counted = lived.tape.told.get("own_faults", {})
    failed = [task for task in lived.tasks("LOOK AROUND", 1) if task["outcome"] == "generator"]
    assert set(counted) == {"error in the plug-in other: wrong report"}
    assert counted["error in the plug-in other: wrong report"] + len(failed) > 3
    assert {task["outcome"] for task in lived.tape.tasks} <= {"ok", "generator", "skipped"}
