"""A capacity search around its runs: its directory, what it resumes and refuses, its answers and exit statuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compared_runs import write_run
from findings_of import codes
from finished_searches import capacity
from hypothesis import given
from hypothesis import strategies as st
from judged_runs import Finished, all_finished, summary
from small_runs import written
from timing_samples import ENDED, START_NS
from watched_campaigns import Watching, stop

from loadsim.campaign.file import finished_summary, read_campaign, write
from loadsim.campaign.runner import Interrupted
from loadsim.campaign.runs import CampaignRun
from loadsim.capacity.capacity import Capacity
from loadsim.capacity.document import describe_capacity
from loadsim.capacity.runs import Overridden, Wanted, find_capacity
from loadsim.capacity.search import Found
from loadsim.cli import main
from loadsim.errors import ConfigError, RunInvalid
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.figures import MachineHealth, ProbeStatistics
from loadsim.report.text import to_text
from loadsim.runs.result import RunResult
from loadsim.scenario.population import shared
from loadsim.scenario.scenario import Scenario, load_scenario

WANTED = Wanted(first=4, most=64)

FOUR_AND_EIGHT = ("--from", "4", "--most", "8", "--width", "100%")
"""The options of a search that measures these numbers only."""


def reader(path: Path) -> Overridden:
    def read(settings: Sequence[str]) -> Scenario:
        return load_scenario(str(path), settings)

    return read


def begun(path: Path, out: Path, wanted: Wanted = WANTED) -> None:
    """Begin a search that ends before its first run, as by Ctrl-C."""
    with pytest.raises(KeyboardInterrupt):
        find_capacity(reader(path), wanted, out, watcher=Watching(stop))


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=6), st.integers(0, 10_000))
def test_users_are_shared_by_proportion(sizes: list[int], more: int) -> None:
    users = len(sizes) + more
    found = shared(users, sizes)
    assert (sum(found), min(found) >= 1) == (users, True)
    if all(users * size >= sum(sizes) for size in sizes):
        assert all(abs(one - users * size / sum(sizes)) <= 1 for one, size in zip(found, sizes, strict=True))


def test_the_scenarios_own_number_has_its_own_groups() -> None:
    assert shared(20, [7, 7, 6]) == [7, 7, 6]
    assert shared(3, [7, 7, 6]) == [1, 1, 1]
    assert shared(100, [1]) == [100]


@pytest.mark.slow
def test_finished_runs_are_read_and_not_repeated(tmp_path: Path) -> None:
    out = tmp_path / "out"
    path = written(tmp_path / "small.yaml")
    begun(path, out)
    finished = all_finished(out, capacity=20)
    watching = Watching()
    capacity = find_capacity(reader(path), WANTED, out, watcher=watching, finished=finished)
    made = [step.users for step in capacity.runs]
    assert (made[:7], {*made[7:]}) == ([4, 8, 16, 32, 32, 24, 24], {20, 24})
    assert tuple(watching.runs) == capacity.runs
    assert capacity.found == Found(20, 24, "criteria")
    assert capacity.exit_status == 0
    document = json.loads((out / "campaign.json").read_text())
    assert document == capacity.document
    assert (document["users"], document["failed_users"], document["interval"]) == (20, 24, [18, 26])
    assert document["not_measured"] == [[3, 3], [5, 7], [9, 15], [17, 19]]
    assert document["stopped_by"] == "criteria"
    of_four = document["runs"][0]
    assert (of_four["validity"], of_four["delivered_per_min"]) == ("valid", 20.0)
    assert (of_four["nearest"], of_four["broken"]) == (None, False)
    assert (document["tasks_per_s"], document["load_equivalent_users"], document["certain"]) == (2.0, 80, True)
    assert [(step["users"], step["result"], step["score_ms"], step["run"]) for step in document["runs"][2:4]] == [
        (16, "passed", 160.0, "runs/00016-1"),
        (32, "failed", 320.0, "runs/00032-1"),
    ]
    assert find_capacity(reader(path), WANTED, out) == capacity


@pytest.mark.parametrize(
    ("facts", "kept"),
    [(ENDED, True), (ENDED | {"ended": "early"}, False), ({"start_ns": START_NS}, False)],
    ids=["ended", "interrupted", "crashed"],
)
def test_only_a_run_that_ended_by_itself_is_kept(tmp_path: Path, facts: dict[str, Any], kept: bool) -> None:
    """Its summary is computed from its logs: a crash may have kept or damaged score.json."""
    place = write_run(tmp_path, "run", facts=facts)
    (place / "score.json").write_text("{")
    assert (finished_summary(place) is not None) is kept


def test_the_cores_that_others_took_make_a_run_contended() -> None:
    """By hand: 0.5 of 2 cores, and 10 % that other virtual machines took."""
    means = {"server_cores": 2.0, "server_cores_taken_by_others": 0.5, "server_cores_steal_share": 0.1}
    probes = {"host": {figure: ProbeStatistics(60, 1.0, *[mean] * 5) for figure, mean in means.items()}}
    run = CampaignRun("runs/x", "x", 4).with_summary(summary(4, True, probes=probes))
    assert (run.taken_share, run.contended) == (pytest.approx(0.35), True)


@pytest.mark.parametrize(
    ("machine", "contended"),
    [
        ({"shares_cpus": True}, True),
        ({"server_here": True, "stolen_share": 0.06}, True),
        ({"server_here": True, "stolen_share": 0.05}, False),
        ({"server_here": False, "stolen_share": 0.9}, False),
    ],
)
def test_shared_cores_make_a_run_contended(machine: dict[str, Any], contended: bool) -> None:
    machines = (MachineHealth("c1", 2, **machine),)
    run = CampaignRun("runs/x", "x", 4)
    assert run.with_summary(summary(4, True, machines=machines, embedded=False)).contended is contended
    assert not run.with_summary(summary(4, True, machines=machines, embedded=True)).contended


@pytest.mark.slow
def test_a_search_resumes_from_any_step(tmp_path: Path) -> None:
    """campaign.json as it was after every fourth step, then the same end."""
    out, path = tmp_path / "out", written(tmp_path / "small.yaml")
    begun(path, out)
    finished = all_finished(out, capacity=20)
    states: list[bytes] = []
    keeping = Watching(ended=lambda _: states.append((out / "campaign.json").read_bytes()))
    whole = find_capacity(reader(path), WANTED, out, watcher=keeping, finished=finished)
    for length, state in [*enumerate(states, 1)][::4]:
        (out / "campaign.json").write_bytes(state)
        again = Watching()
        assert find_capacity(reader(path), WANTED, out, watcher=again, finished=finished) == whole
        assert len(again.runs) == len(whole.runs) - length


@pytest.mark.parametrize(
    ("wanted", "settings", "changed"),
    [
        (Wanted(first=5, most=64), (), "settings.first"),
        (Wanted(first=4, most=65), (), "settings.most"),
        (Wanted(first=4, most=64, width=0.1), (), "settings.width"),
        (Wanted(first=4, most=64, pin=True), (), "pin"),
        (Wanted(first=4, most=64, engines=1), (), "engines"),
        (Wanted(first=4, most=64, clients=2), (), "clients, pause_s"),
        (WANTED, ("limits.hits=5",), "scenario"),
        (WANTED, ("criteria.score_ms.max=5",), "scenario, score_limit_ms"),
    ],
)
def test_another_search_in_the_directory_is_refused(
    tmp_path: Path, wanted: Wanted, settings: Sequence[str], changed: str
) -> None:
    out, path = tmp_path / "out", written(tmp_path / "small.yaml")
    begun(path, out)
    (out / "runs" / "00004-1").mkdir(parents=True)

    def read(more: Sequence[str]) -> Scenario:
        return load_scenario(str(path), [*settings, *more])

    with pytest.raises(ConfigError, match=f"found changed: {changed} \\(") as refused:
        find_capacity(read, wanted, out)
    assert len(refused.value.lines) == 1


def test_a_search_without_a_step_may_change_its_terms(tmp_path: Path) -> None:
    """As after a wrong address of the server: nothing was measured."""
    out, path = tmp_path / "out", written(tmp_path / "small.yaml")
    begun(path, out, Wanted(first=10, most=20))
    begun(path, out)
    finished = all_finished(out, capacity=20)
    assert find_capacity(reader(path), WANTED, out, finished=finished).found == Found(20, 24, "criteria")


def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    path, out = written(tmp_path / "small.yaml"), tmp_path / "out"
    out.mkdir()
    (out / "letter").touch()
    with pytest.raises(ConfigError, match="expected a new or empty directory"):
        find_capacity(reader(path), WANTED, out)
    (out / "campaign.new").touch()
    with pytest.raises(ConfigError, match="expected a new or empty directory"):
        find_capacity(reader(path), WANTED, out)
    assert sorted(each.name for each in out.iterdir()) == ["campaign.new", "letter"]
    (out / "campaign.json").write_text("[]")
    with pytest.raises(ConfigError, match="expected a campaign of loadsim"):
        find_capacity(reader(path), WANTED, out)


@pytest.mark.parametrize("begun", [False, True])
def test_a_run_that_a_signal_ended_is_set_aside(tmp_path: Path, begun: bool) -> None:
    """It is no result: the search repeats it."""
    out = tmp_path / "out"

    def ended(*_: Any, out: Path, **__: Any) -> RunResult:
        if begun:
            out.mkdir(parents=True)
        return RunResult(out, summary(4, True, "ended"))

    with pytest.raises(Interrupted) as interrupted:
        find_capacity(reader(written(tmp_path / "small.yaml")), WANTED, out, runner=ended)
    assert (read_campaign(out, Capacity).runs, interrupted.value.kept) == ((), False)
    assert [each.name for each in out.glob("runs/*")] == ["00004-1.incomplete-1"] * begun


def test_a_search_ended_by_void_runs_is_resumed(tmp_path: Path) -> None:
    """As after a full disk. Void runs are kept, and the number is measured again."""
    path, out = written(tmp_path / "small.yaml"), tmp_path / "out"
    begun(path, out)
    finished = all_finished(out, capacity=20)
    for number in (2, 4, 5):  # the second is void, and the third passes: that ends nothing
        finished.put(20, number, True, "fault")
    with pytest.raises(RunInvalid, match=r"20 users were invalid twice: .*\[no-end\]"):
        find_capacity(reader(path), WANTED, out, finished=finished)
    before = json.loads((out / "campaign.json").read_text())
    assert {key: before[key] for key in ANSWER} == dict.fromkeys(ANSWER)  # not the server's failure
    whole = find_capacity(reader(path), WANTED, out, finished=finished)
    assert (whole.found, whole.exit_status) == (Found(20, 24, "criteria"), 0)
    results = [run.result for run in whole.runs if run.users == 20]
    assert results == ["passed", "void", "passed", "void", "void", "passed", "passed", "passed"]
    assert find_capacity(reader(path), WANTED, out, finished=finished) == whole


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (Wanted(first=2, most=64), "--from: expected a number from 3 to 64 users, found 2"),
        (Wanted(first=65, most=64), "--from: expected a number from 3 to 64 users, found 65"),
        (Wanted(most=2), "--most: expected a number from 3 to"),
        (Wanted(most=4, engines=5), "--engines: expected a number from 1 to 4, found 5"),
    ],
)
def test_unsuitable_numbers_are_refused(tmp_path: Path, wanted: Wanted, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        find_capacity(reader(written(tmp_path / "small.yaml")), wanted, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_closed_loop_has_no_capacity(tmp_path: Path) -> None:
    path = written(tmp_path / "small.yaml", run={"day_length": "20s", "mode": "stress"}, criteria={})
    with pytest.raises(ConfigError, match=r"run\.mode: expected canonical"):
        find_capacity(reader(path), WANTED, tmp_path / "out")


def test_a_criterion_on_an_undeclared_monitor_is_refused(tmp_path: Path) -> None:
    """Its file is there after the run: each step would miss it. That of a declared monitor is collected before."""
    criteria: dict[str, Any] = {"probes.host@mx1.cpu_busy_share.mean": {"max": 0.8}}
    path = written(tmp_path / "small.yaml", criteria=criteria)
    with pytest.raises(
        ConfigError, match=r"criteria: expected figures .* end of each run, found those of the monitor mx1"
    ):
        find_capacity(reader(path), WANTED, tmp_path / "out")
    written(path, criteria=criteria, monitors={"mx1": {"command": "ssh mx1"}})
    begun(path, tmp_path / "out")


@pytest.mark.slow  # plans in another process
def test_numbers_whose_runs_cannot_be_valid_are_refused_before_the_first_run(tmp_path: Path) -> None:
    path = written(tmp_path / "small.yaml", limits={"window": "60s"})
    with pytest.raises(ConfigError, match=r"4 users: .*\[short-window\]"):
        find_capacity(reader(path), WANTED, tmp_path / "out")


@pytest.mark.slow  # plans in other processes
def test_a_number_refused_later_ends_the_search_with_its_results(tmp_path: Path) -> None:
    """Five users fail, and fewer cannot be measured: the answer states both. No other number is measured."""
    path, out = written(tmp_path / "small.yaml", limits={"window": "60s"}), tmp_path / "out"
    wanted = Wanted(first=5, most=5)
    begun(path, out, wanted)
    finished = Finished(out)
    for number in range(1, 6):
        finished.put(5, number, False)
    found = find_capacity(reader(path), wanted, out, finished=finished)
    assert (found.found, found.exit_status) == (Found(None, 5, "refused"), 4)
    assert found.document["interval"] == [None, 5]
    why = found.refused[0].values["why"]
    assert finding(Code.SHORT_WINDOW, window_s=18.0, limit_s=60.0).words in str(why)
    assert found.refused == tuple(finding(Code.NUMBER_REFUSED, users=users, why=why) for users in (3, 4))
    assert codes(found.answer) == [Code.CAPACITY_NONE, Code.NOT_MEASURABLE]
    assert found.doubts[:2] == found.refused
    assert read_campaign(out, Capacity) == found
    assert main(["report", str(out), "-o", str(tmp_path / "report.md")]) == 0
    assert "4 users cannot be measured" in (tmp_path / "report.md").read_text()
    assert find_capacity(reader(path), wanted, out) == found


@pytest.mark.slow
def test_an_error_in_a_step_keeps_earlier_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of a server that does not answer any more: in a search what is known, after it the answer."""
    path = written(
        tmp_path / "small.yaml",
        server={"imap": {"host": "127.0.0.1", "port": 1}, "smtp": {"host": "127.0.0.1", "port": 1}},
        accounts={"user": "user{index:05d}", "password": "secret"},
        limits={"hits": 0},
    )
    out = tmp_path / "out"
    begun(path, out, Wanted(4, 8, width=1.0, quick=True, pause_s=0.0))
    for number in (1, 2):
        write_run(out / "runs", f"00004-{number}")
    command = ("capacity", str(path), *FOUR_AND_EIGHT, "--quick", "--pause", "0", "--quiet", "--out", str(out))
    assert main([*command]) == 2
    captured = capsys.readouterr()
    assert f"the same command with --out {out} resumes these runs" in captured.err
    assert "Capacity" not in captured.out
    for number in (1, 2):
        write_run(out / "runs", f"00008-{number}", 2000.0)
    assert main([*command]) == 4


def test_each_engine_has_a_user_in_all_steps(tmp_path: Path) -> None:
    """A search with four engines does not fall to three users."""
    path, out = written(tmp_path / "small.yaml"), tmp_path / "out"
    wanted = Wanted(first=6, most=64, engines=4)
    begun(path, out, wanted)
    found = find_capacity(reader(path), wanted, out, finished=all_finished(out, capacity=0))
    assert (found.found, found.exit_status) == (Found(None, 4, "criteria"), 1)
    with pytest.raises(ConfigError, match=r"--from: expected .* from 4 .*one for each of 4 --engines\), found 3"):
        find_capacity(reader(path), replace(wanted, first=3), tmp_path / "other")


ANSWER = ("users", "failed_users", "interval", "stopped_by", "certain")
"""The keys of the answer, without those of its throughput and resources."""


CAPACITY = [finding(Code.CAPACITY_FOUND, users=1000, low=925, high=1297, failed=1200)]
AT_LEAST = finding(Code.CAPACITY_AT_LEAST, users=1000)


@pytest.mark.parametrize(
    ("found", "status", "answer"),
    [
        (Found(1000, 1200, "criteria"), 0, CAPACITY),
        (Found(None, 500, "criteria"), 1, [finding(Code.CAPACITY_NONE, failed=500)]),
        (Found(1000, None, "generator"), 4, [AT_LEAST, finding(Code.GENERATOR_TOO_SLOW)]),
        (Found(None, None, "generator"), 4, [finding(Code.CAPACITY_UNKNOWN), finding(Code.GENERATOR_TOO_SLOW)]),
        (Found(1000, None, "limit"), 4, [AT_LEAST, finding(Code.MOST_MEASURED, most=4000)]),
        (Found(1000, None, "refused"), 4, [AT_LEAST, finding(Code.NOT_MEASURABLE, which="more")]),
        (
            Found(None, 500, "refused"),
            4,
            [finding(Code.CAPACITY_NONE, failed=500), finding(Code.NOT_MEASURABLE, which="fewer")],
        ),
        *(
            (
                Found(low, high, ended),
                4,
                [finding(Code.CAPACITY_UNDECIDED, low=low or 0, high=high or 4000), finding(why)],
            )
            for ended, why in (
                ("noise", Code.RESULTS_DIFFER),
                ("order", Code.ORDER_MATTERS),
                ("broken", Code.MUST_NEVER_HAPPEN),
            )
            for low, high in ((1000, 2000), (1000, None), (None, 2000))
        ),
    ],
)
def test_each_end_has_its_verdict_and_exit_status(found: Found, status: int, answer: list[Finding]) -> None:
    ends = [(found.low, "passed"), (found.high, "failed")]
    ended = capacity(found, *((users, result) for users, result in ends if users))
    lines = to_text(describe_capacity(ended, ()), 80).splitlines()
    assert (ended.exit_status, list(ended.answer)) == (status, answer)
    assert ended.document["findings"][: len(answer)] == [one.document for one in answer]
    assert ended.next_step in [one.code.remedy for one in answer]
    assert max(map(len, lines)) <= 80
    ends_found = (found.low is not None or found.high is not None) and found.stopped_by not in ("order", "broken")
    stated = [925, 1297] if found.high == 1200 else [found.low, found.high]  # near ends of results alone
    assert ended.document["interval"] == (stated if ends_found else None)
    assert ended.certain == ends_found
    assert "Interval: ;" not in "\n".join(lines) and "too few" not in "\n".join(lines)


@pytest.mark.parametrize("answer", [{"users": 1100}, {"failed_users": 1000}, {"failed_users": None}])
def test_an_answer_that_contradicts_its_runs_is_refused(tmp_path: Path, answer: dict[str, Any]) -> None:
    ended = replace(capacity(Found(1000, 1200, "criteria"), (1000, "passed"), (1200, "failed")), directory=tmp_path)
    write(ended)
    assert read_campaign(tmp_path, Capacity).found == ended.found
    (tmp_path / "campaign.json").write_text(json.dumps(ended.document | answer))
    with pytest.raises(ConfigError):
        read_campaign(tmp_path, Capacity)


@pytest.mark.parametrize("found", [Found(1000, 1200, "criteria"), Found(None, 1200, "criteria")])
def test_too_few_results_at_an_end_state_no_interval(found: Found) -> None:
    """A search with --quick: also a missing capacity is not certain then."""
    ended = capacity(found, (1000, "passed"), (1200, "failed"), runs=2)
    assert (ended.exit_status, ended.certain, ended.document["interval"]) == (4, False, None)
    assert ended.document["failed_users"] == 1200
    text = to_text(describe_capacity(ended, ()), 80)
    assert codes(ended.answer) == [Code.CAPACITY_ABOUT if found.low else Code.CAPACITY_NONE]
    assert "confidence" not in text
    if found.low:
        seen = "1,000 users passed 2 times, 1,200 users failed 2 times"
        assert f"Interval: not stated: {seen}; an end needs 5 equal results and no other" in " ".join(text.split())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--clients", "2"), "--clients: expected --cluster as well, found none"),
        (("--cluster", "127.0.0.1:1", "--clients", "2", "--pin"), "--pin: expected a run on one machine"),
        (("--cluster", "127.0.0.1:1", "--clients", "0"), "--clients: expected a number of at least 1, found 0"),
        (("--cluster", "127.0.0.1:1"), "--clients: expected the number of clients, which all runs share"),
        (("--cluster", "127.0.0.1:1", "--clients", "2", "--from", "9", "--most", "8"), "--from: expected a number"),
    ],
)
def test_a_search_on_a_cluster_needs_its_clients(
    options: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["capacity", "medium", *options]) == 2
    assert says in capsys.readouterr().err


Printed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        status = main([*map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_the_command_reads_a_finished_search(tmp_path: Path, printed: Printed) -> None:
    out, path = tmp_path / "out", written(tmp_path / "small.yaml")
    begun(path, out, Wanted(4, 8, width=1.0))
    for number in range(1, 6):
        write_run(out / "runs", f"00004-{number}")
        write_run(out / "runs", f"00008-{number}", 2000.0)
    command = ("capacity", path, "--out", out, *FOUR_AND_EIGHT)
    status, shown, progress = printed(*command)
    assert status == 0
    assert "Capacity: 4 users, interval 4 to 8: 8 users miss the criteria\n" in shown
    assert "\nInterval: 4 to 8 users with 90 % confidence" in shown
    assert "4 users, repeat 1: passed, score " in shown
    assert ": 8 users\n" in progress
    status, shown, progress = printed(*command, "--quiet")
    assert (status, json.loads((out / "campaign.json").read_text())["users"], progress) == (0, 4, "")
