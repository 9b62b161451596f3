"""The load of the plan: counted and cut to windows, kept in the user's cache, and what a run made of it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from findings_of import codes
from health_samples import write_observed_machine
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE_S
from timing_samples import done, sample_log, skipped
from virtual_runs import live, scenario_of

from loadsim.analysis.summary import Summary, summarise
from loadsim.cli import INTERRUPTED
from loadsim.dryrun import plan_cache, planners
from loadsim.dryrun.plan import make_plan
from loadsim.dryrun.plan_cache import cached, keep, planned_load
from loadsim.dryrun.tally import Tally
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.findings.severity import Severity
from loadsim.model.terms import Window
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.timinglog.documents import read_as
from loadsim.timinglog.header import LogHeader
from loadsim.timinglog.merge import merge
from loadsim.timinglog.planned_load import DAY_PARTS, PlannedLoad
from loadsim.timinglog.reader import TimingLog, read_log

pytestmark = pytest.mark.slow

START_NS = 9_000_000_000


def tallied(duration_us: int, due_us: Mapping[str, Sequence[int]]) -> PlannedLoad:
    tally = Tally(1, 3600 * 10**9, 1, duration_us * 1000, 400)
    tally.facts({"start_ns": START_NS})
    for task, instants in due_us.items():
        for at_us in instants:
            tally.task((task, 1, "", "", START_NS + at_us * 1000, None, None, 0, 0, 0, 0, 0, "ok", "", 0, ""))
    return tally.load()


@given(
    counts=st.lists(st.integers(0, 1000), min_size=1, max_size=50),
    duration_s=st.floats(1, 1e6),
    window=st.tuples(st.floats(-0.5, 1.5), st.floats(-0.5, 1.5)).map(sorted),
)
def test_partly_covered_bins_count_by_their_share(counts: list[int], duration_s: float, window: list[float]) -> None:
    """As numpy interpolates the cumulative counts; nothing is due outside the run."""
    load = PlannedLoad(duration_s, {"READ": tuple(counts)})
    begin, end = np.interp(window, np.linspace(0, 1, len(counts) + 1), np.append(0, np.cumsum(counts)))
    found = load.in_window(Window(window[0] * duration_s, window[1] * duration_s))["READ"]
    assert found == pytest.approx(end - begin, abs=0.6)


def test_spans_and_unplanned_tasks_are_left_out() -> None:
    """So are tasks before the common start and after the end."""
    kinds = ("READ", "SYNC", "LOGON", "LOGOFF", "PROCESS INBOX", "NO SESSION")
    load = tallied(400_000_000, {**{kind: [0, 399_999_999] for kind in kinds}, "SEND": [-1, 400_000_000, 7]})
    assert load.in_window(Window(0, 400)) == {"READ": 2, "SEND": 1}


def virtual(place: Path, seed: int = 1, users: int = 6, **keys: Any) -> Scenario:
    """Return a day in two minutes of Medium users on the in-memory server."""
    run = {"day_length": "120s", "ramp_up": "1s", "warm_up": "12s", "window": "108s", "seed": seed}
    return scenario_of(place, ({"from": "loadsim-5.5/medium"}, users), run=run, **keys)


def test_a_document_is_read_as_it_was_written() -> None:
    load = PlannedLoad(120.0, {"READ": (1, 0, 7), "SEND": (2,)})
    for each in (load, replace(load, received_share=0.34)):
        assert read_as(PlannedLoad, json.loads(json.dumps(asdict(each))), "planned_load") == each


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "loadsim" / "plans"


def said(lines: list[str], scenario: Scenario, software: str = "loadsim 1", **options: Any) -> PlannedLoad | None:
    return planned_load(scenario, software, lambda _: None, lines.append, **options)


def test_a_day_is_planned_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another process, as `make_plan` does it; from then on it is in a file that is the user's alone."""
    scenario, lines = virtual(tmp_path), list[str]()
    expected = make_plan(scenario).tally.load()
    assert said(lines, scenario) == expected
    monkeypatch.setattr(planners, "PLANNER", (sys.executable, "-c", "raise SystemExit(5)"))
    assert said(lines, scenario) == expected
    assert lines == []
    (file,) = cache.iterdir()
    assert file.name == f"{scenario.digest()}.json"
    assert [path.stat().st_mode & 0o777 for path in (file, cache, cache.parent)] == [0o600, 0o700, 0o700]


def test_the_cache_is_keyed_by_program_and_scenario(tmp_path: Path, cache: Path) -> None:
    """An entry of the cache under a wrong name does not count either."""
    scenario, other = virtual(tmp_path), virtual(tmp_path, seed=2)
    keep(scenario, "loadsim 1", PlannedLoad(120.0, {"READ": (1,)}))
    assert cached(scenario, "loadsim 1") is not None
    assert cached(scenario, "loadsim 2") is None
    assert cached(other, "loadsim 1") is None
    (cache / f"{scenario.digest()}.json").rename(cache / f"{other.digest()}.json")
    assert cached(other, "loadsim 1") is None


def test_a_damaged_file_is_planned_again(tmp_path: Path, cache: Path) -> None:
    scenario, lines = virtual(tmp_path), list[str]()
    keep(scenario, "loadsim 1", PlannedLoad(120.0, {"READ": (1,)}))
    file = cache / f"{scenario.digest()}.json"
    document = json.loads(file.read_text())
    without_tasks = json.dumps(document | {"planned_load": {"duration_s": 120}}).encode()
    for damaged in (b"", b"{", b"\xff", b"[]", b"null", b"{}", b"[" * 10**6, without_tasks):
        file.write_bytes(damaged)
        assert cached(scenario, "loadsim 1") is None, damaged[:20]
    assert said(lines, scenario) == cached(scenario, "loadsim 1") == make_plan(scenario).tally.load()
    assert lines == []


def test_a_plan_reports_its_progress(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In growing shares up to the whole; the load is the same."""
    monkeypatch.setattr(plan_cache, "REPORT_AFTER_S", 0.0)
    scenario, shares = virtual(tmp_path), list[float]()
    assert said([], scenario, progress=shares.append) == make_plan(scenario).tally.load()
    assert shares == sorted(set(shares))
    assert len(shares) > 20
    assert 0 < shares[0] < 0.1
    assert shares[-1] > 0.98


def test_stress_mode_has_no_plan(tmp_path: Path, cache: Path) -> None:
    virtual(tmp_path)
    assert said([], load_scenario(str(tmp_path / "scenario.yaml"), ["run.mode=stress"])) is None
    assert not cache.exists()


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import os; os.kill(os.getpid(), 9)", "its process was killed by signal 9"),
        ("raise SystemExit(5)", "its process exited with status 5"),
    ],
)
def test_a_killed_planner_leaves_no_plan(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, program: str, why: str
) -> None:
    monkeypatch.setattr(planners, "PLANNER", (sys.executable, "-c", program))
    lines = list[str]()
    assert said(lines, virtual(tmp_path)) is None
    assert lines == [f"the load was not planned: {why}; the summary cannot state what share of it was achieved"]
    assert not cache.exists()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, INTERRUPTED), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_run_that_ends_during_planning_leaves_nothing(tmp_path: Path, number: int, status: int) -> None:
    """Interrupted or killed: no process, and after Ctrl-C no run directory."""
    run = subprocess.Popen(
        [
            *(sys.executable, "-m", "loadsim", "run", "quickstart", "--out", str(tmp_path / "out")),
            *("--set", "topology=[{profile: loadsim-5.5/heavy, users: 1000}]", "--set", "run={day_length: 8h}"),
        ],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
    )
    assert run.stderr is not None
    assert any(line.startswith("Planning the day of 1000 users once") for line in run.stderr)
    run.send_signal(number)
    _, rest = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == status, rest
    assert "Traceback" not in rest
    assert not (tmp_path / "out").exists() or number == signal.SIGKILL


PLANNED = PlannedLoad(100.0, {"READ": (60, 60), "SEND": (2, 2)})


def logs_of(place: Path, reads: int, header: Mapping[str, Any] | None = None, engines: int = 1) -> Iterator[TimingLog]:
    """Write logs of engines of one run: so many READs, a SEND that failed and one that was not begun, and a SYNC."""
    tasks = [done("READ", 500 * number, 10) for number in range(reads)]
    tasks += [done("SEND", 1000, 5, outcome="refused", error="RCPT"), skipped("SEND", 2000), done("SYNC", 3000, 1)]
    for engine in range(engines):
        own = {"engine": str(engine), "planned_load": asdict(PLANNED), "limits": {"hits": 0, "done": 0.9}}
        yield sample_log(place / f"{engine}.tlog", tasks, header=own | dict(header or {}))


def test_the_achieved_share_counts_started_tasks(tmp_path: Path) -> None:
    """121 of 124: what failed was asked, what was not begun was not, and SYNC is no task of the plan."""
    summary = summarise(list(logs_of(tmp_path, 120)))
    assert summary.score["load"] == {
        "planned": 124,
        "made": 121,
        "share": 121 / 124,
        "tasks": {"READ": {"planned": 120, "made": 120}, "SEND": {"planned": 4, "made": 1}},
    }
    assert summary.score["load_equivalent_users"] == round(2 * 121 / 124)
    values = {"made": 121, "planned": 124, "made_share": 121 / 124, "limit_share": 0.98}
    assert finding(Code.LOAD_MISSING, "", Severity.DEGRADED, **values) in summary.verdict.defects
    assert summary.verdict.validity == "degraded"


def test_too_small_a_load_invalidates_the_run(tmp_path: Path) -> None:
    """The load-equivalent is of what was made."""
    (log,) = logs_of(tmp_path, 99, {"day_s": 288})
    summary = summarise([log])
    values = {"made": 100, "planned": 124, "made_share": 100 / 124, "limit_share": 0.95}
    assert summary.verdict.defects[0] == finding(Code.LOAD_MISSING, **values)
    assert (summary.exit_status, summary.score["load_equivalent_users"]) == (3, round(200 * 100 / 124))


def test_an_unknown_plan_invalidates_the_run(tmp_path: Path) -> None:
    summary = summarise(list(logs_of(tmp_path, 99, {"planned_load": None, "load_unknown": True})))
    assert summary.score["load"] is None
    found = codes(summary.verdict.defects)
    assert (Code.LOAD_UNKNOWN in found, Code.LOAD_MISSING in found) == (True, False)


def test_a_window_too_short_for_the_plan_is_degraded(tmp_path: Path) -> None:
    """Of 400 bins, 20 or a whole number are compared with the plan; with fewer, the plan is not exact enough."""
    limits = {"limits": {"hits": 0, "done": 0, "load": 0, "window_s": 1}}
    limits |= {"planned_load": asdict(PlannedLoad(100.0, {"READ": (1,) * 400}))}
    *held, short = (
        summarise(list(logs_of(tmp_path / f"{end_s}", 120, limits)), begin_s=0.5, end_s=end_s)
        for end_s in (5.6, 5.25, 5.4)
    )
    for one in held:
        assert one.score["load"] is not None
        assert Code.LOAD_UNKNOWN not in codes(one.verdict.defects)
    assert short.score["load"] is None
    assert (short.verdict.validity, Code.LOAD_UNKNOWN in codes(short.verdict.defects)) == ("degraded", True)


def test_a_merged_log_has_the_plan_of_its_logs(tmp_path: Path) -> None:
    """Of one that could not plan the others know it; two different ones, of other programs, are none."""
    one, two, three = logs_of(tmp_path, 9, engines=3)
    unknown = one.header._replace(planned_load=None, load_unknown=True)
    other = one.header._replace(planned_load=replace(PLANNED, duration_s=90.0))

    def merged(*headers: LogHeader) -> tuple[PlannedLoad | None, bool]:
        logs = [replace(log, header=header) for header, log in zip(headers, (one, two, three), strict=False)]
        header = merge(logs).header
        return header.planned_load, header.load_unknown

    assert merged(one.header, one.header) == merged(unknown, one.header, one.header) == (PLANNED, False)
    assert merged(unknown, unknown) == merged(one.header, other) == (None, True)


def answered(scenario: Scenario, place: Path, **options: Any) -> Summary:
    """Run in virtual time, with the header that a run of the scenario would have, and return the answer."""
    header = {
        "users": scenario.users,
        "engine_users": scenario.users,
        "duration_s": scenario.duration_s,
        "window_s": [scenario.run.warm_up_s, scenario.run.warm_up_s + scenario.run.window_s],
        "planned_load": asdict(make_plan(scenario).tally.load()),
    }
    log = live(scenario, place, header=header, **options).log
    return summarise([log, read_log(write_observed_machine(place / "machine.tlog", header))])


def test_each_day_of_a_long_run_has_parts(tmp_path: Path) -> None:
    """A window of half a minute among weeks of days, with or without nights, is held against the plan."""
    for profile, days in (("loadsim-4.0/medium", 7), ("loadsim-5.5/medium", 28)):
        run = {"day_length": "60s", "days": days, "warm_up": "7s", "window": "31s"}
        scenario = scenario_of(tmp_path, ({"from": profile}, 2), run=run)
        plan = make_plan(scenario).tally.load()
        assert not plan.cut_by(Window(7.0, 38.0))
        assert plan.part_s == pytest.approx(scenario.run.duration_s / days / DAY_PARTS)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_healthy_run_makes_the_planned_load(tmp_path: Path, seed: int) -> None:
    """Within a per cent, with 20 ms a command in a day of two minutes; the verdict does not complain."""
    scenario = virtual(tmp_path, seed, users=12)
    summary = answered(scenario, tmp_path)
    assert summary.score["load"]["share"] == pytest.approx(1, abs=0.01)
    assert not summary.verdict.defects and not summary.verdict.missed
