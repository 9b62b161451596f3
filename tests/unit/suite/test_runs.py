"""A suite around its runs: commands, failures, retries, its directory, what it resumes and refuses."""

import json
import os
import select
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compared_runs import write_run
from documents import listed, section, tables
from finished_suites import OUT, SERVERS, compared_suite, crashed, suite, with_runs
from kept_signals import kept_signals
from patience import PATIENCE_S
from small_runs import written
from timing_samples import ENDED, done, skipped
from watched_campaigns import Watching

from loadsim.campaign.hooks import run_hook
from loadsim.campaign.quiet_down import QuietDown
from loadsim.cli import INTERRUPTED, main
from loadsim.cli.report import document_of
from loadsim.comparison.comparison import compare_runs
from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.report.answer import NO_MEASUREMENT
from loadsim.report.document import Listing
from loadsim.report.html import to_html
from loadsim.scenario.suite import Hook, load_suite
from loadsim.suite.document import describe_suite, headline, measured_runs, tone
from loadsim.suite.runs import run_name, run_suite
from loadsim.suite.suite import SuiteFigures

Capture = pytest.CaptureFixture[str]
FAILS: dict[str, Any] = {"before": [{"run": ["false"]}]}
ABORTED = {**ENDED, "ended": "early", "ended_by": "abort_on", "ended_why": "half of all tasks failed"}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "small.yaml", topology=[{"profile": "loadsim-5.5/light", "users": 2}])
    return tmp_path


def state() -> dict[str, Any]:
    return dict(json.loads((OUT / "campaign.json").read_text()))


def no_run(*_: Any) -> None:
    pytest.fail("a run was begun")


def test_finished_runs_are_read_and_not_repeated() -> None:
    """A crash may come between the end of a run and its record; the commands before it are not repeated, either."""
    found = suite(servers=SERVERS, repeats=2, before=[{"run": ["false"]}])
    with_runs(found)
    figures = run_suite(found, OUT)
    assert [run.result for run in figures.runs] == ["passed"] * 4
    assert figures.complete
    before = state()
    again = run_suite(found, OUT, watcher=Watching(began=no_run))
    assert again.runs == figures.runs
    assert state() == before


def test_an_incomplete_run_is_set_aside() -> None:
    """Its directory stays for diagnosis, and its place gets another run: here one that fails by its command."""
    found = suite(repeats=1, retries=0, **FAILS)
    crashed(found)
    incomplete = OUT / "runs" / "001-all-1"
    (incomplete / "logs").mkdir(parents=True)
    (incomplete / "logs" / "c.0.tlog").write_bytes(b"half")
    (earlier := OUT / "runs" / "001-all-1.incomplete-1").mkdir()
    (earlier / "earlier").touch()
    figures = run_suite(found, OUT)
    assert (OUT / "runs" / "001-all-1.incomplete-2" / "logs" / "c.0.tlog").read_bytes() == b"half"
    assert (earlier / "earlier").exists()
    assert [(run.run, run.result) for run in figures.runs] == [("runs/001-all-1", "void")]


def test_another_suite_or_a_damaged_file_is_refused_in_one_line(capsys: Capture) -> None:
    """A changed file, the file of something else, and the state of another suite's runs."""
    found = suite(servers=SERVERS, repeats=1)
    with_runs(found)
    run_suite(found, OUT)
    good = state()

    def refused() -> str:
        capsys.readouterr()
        assert main(["suite", "suite.yaml", "--out", "out"]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        return said

    suite(servers=[{"name": "old"}, {"name": "new", "set": {"run.seed": 5}}], repeats=1, seed=2)
    assert "expected the terms of the campaign that it holds, found changed: cells.new, seed (" in refused()
    suite(servers=SERVERS, repeats=1, compare=[{"base": {"server": "old"}, "new": {"server": "new"}}])
    assert "expected the terms of the campaign that it holds, found changed: compare (" in refused()
    suite(servers=SERVERS, repeats=1)
    (OUT / "campaign.json").write_text("[]")
    assert "out/campaign.json: expected a campaign of loadsim (suite), found something else" in refused()
    for damage in ({"run": "../../etc"}, {"cell": "other"}):
        damaged = good | {"runs": [good["runs"][0] | damage, *good["runs"][1:]]}
        (OUT / "campaign.json").write_text(json.dumps(damaged))
        assert "out/campaign.json: expected a campaign of loadsim (suite), found something else" in refused()
        assert state() == damaged


def test_two_suites_that_begin_together_do_not_share_a_directory() -> None:
    """The second is refused: else the first would take the runs of the second for its own."""
    found = suite(repeats=1, retries=0, **FAILS)

    def begin_another(_: object) -> None:
        with pytest.raises(ConfigError, match="of its own, found another search or suite at work"):
            run_suite(found, OUT)

    assert len(run_suite(found, OUT, watcher=Watching(begin_another)).runs) == 1


def test_a_suite_that_cannot_start_leaves_nothing(capsys: Capture) -> None:
    """A scenario whose runs cannot become valid is refused before the first run."""
    written(Path("short.yaml"), limits={"window": "1h"})
    suite(scenario="short.yaml")
    assert main(["suite", "suite.yaml", "--out", "out"]) == 2
    assert "suite.yaml: cell all: this run cannot become valid: the window is 18 s long" in capsys.readouterr().err
    assert not OUT.exists()


def test_failed_runs_are_retried_and_recorded() -> None:
    """The other cell is measured. Each attempt has its own directory and output."""
    servers = [{"name": "old", "before": [{"run": ["sh", "-c", "echo broken; exit 3"]}]}, {"name": "new"}]
    found = suite(servers=servers, repeats=2, retries=2, stop_after=99)
    crashed(found)
    for slot in found.slots:
        if slot.cell.name == "new":
            write_run(OUT / "runs", run_name(found, slot, 1))
    figures = run_suite(found, OUT)
    of_old = [run for run in figures.runs if run.cell == "old"]
    assert [(run.repeat, run.attempt) for run in of_old] == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
    assert {run.validity for run in of_old} == {None}
    assert of_old[1].run.endswith("-old-1.retry-1")
    assert of_old[0].reasons == ("command before the run failed: sh: exit status 3: broken",)
    assert [(cell.name, cell.measured, cell.failed) for cell in figures.cells] == [("old", 0, 6), ("new", 2, 0)]
    assert (figures.complete, figures.exit_status) == (True, 3)
    assert not any(OUT.glob("runs/*-old-*"))
    assert len(list(OUT.glob("hooks/*-old-*"))) == 6


@pytest.mark.parametrize(
    "overloaded",
    [
        {"tasks": [skipped("READ", 1000 * at) for at in range(1, 6)]},
        {"facts": ABORTED},
        {"facts": ABORTED, "tasks": [done("READ", -1000, 10, outcome="refused", error="NO")] * 60},
    ],
    ids=["load", "aborted", "aborted before the window"],
)
def test_a_run_in_which_the_server_failed_is_an_answer_and_not_repeated(overloaded: dict[str, Any]) -> None:
    """Its cell misses its criteria: repeating such runs would choose those in which the server kept up."""
    pair = {"base": {"server": "old"}, "new": {"server": "new"}}
    found = suite(servers=SERVERS, repeats=2, retries=5, stop_after=1, compare=[pair])
    with_runs(found)
    slot = next(slot for slot in found.slots if (slot.cell.name, slot.repeat) == ("new", 1))
    shutil.rmtree(OUT / "runs" / run_name(found, slot, 1))
    write_run(OUT / "runs", run_name(found, slot, 1), **overloaded)
    figures = run_suite(found, OUT)
    assert Counter(run.result for run in figures.runs) == {"passed": 3, "failed": 1}
    assert [(cell.name, cell.verdict, cell.measured, cell.overloaded) for cell in figures.cells] == [
        ("old", "met", 2, 0),
        ("new", "missed", 1, 1),
    ]
    assert (figures.complete, figures.exit_status) == (True, 1)
    refused = finding(Code.CELL_OVERLOADED, "new", overloaded=1, answered=2)
    assert (figures.cells[1].score_ms, figures.comparisons[0].refused) == (None, (refused,))
    assert refused in figures.findings
    assert "complete; 3 of 4 runs measured, in 2 cells; criteria missed in 1 of them" in headline(figures)


def test_a_suite_ends_early_after_failures_in_a_row_and_goes_on_when_asked_again(capsys: Capture) -> None:
    """A server that is down costs no night. The same command makes the runs that are left."""
    suite(repeats=5, retries=0, stop_after=2, **FAILS)
    assert main(["suite", "suite.yaml", "--out", "out", "--quiet"]) == 3
    assert "\nNext: fix the cause, and repeat the command" in capsys.readouterr().out
    assert state()["findings"][0] == finding(Code.SUITE_ENDED, runs=2).document
    reported = document_of([str(OUT)])
    assert reported.verdict.startswith(f"ended early: {finding(Code.SUITE_ENDED, runs=2).words}")
    assert f"Next: {Code.SUITE_ENDED.remedy}." in section(reported, "Summary")
    assert (state()["left"], len(state()["runs"])) == (3, 2)
    assert main(["suite", "suite.yaml", "--out", "out", "--quiet"]) == 3
    assert (state()["left"], len(state()["runs"])) == (1, 4)
    suite(repeats=5, retries=1, stop_after=99, **FAILS)
    assert main(["suite", "suite.yaml", "--out", "out", "--quiet"]) == 3
    numbers = [run["number"] for run in state()["runs"]]
    assert (state()["left"], {number: numbers.count(number) for number in numbers}) == (
        0,
        dict.fromkeys(range(1, 6), 2),
    )


def test_commands_after_a_run_are_always_executed() -> None:
    """All of them, in the order from variant to suite; a failure among them changes no figure."""
    found = suite(
        repeats=1,
        servers=[{"name": "old", "after": [{"run": ["sh", "-c", "echo server >> order; exit 1"]}]}],
        settings=[{"name": "a", "after": [{"run": ["sh", "-c", "echo settings >> order"]}]}],
        after=[{"run": ["sh", "-c", 'echo "suite $LOADSIM_CELL $LOADSIM_REPEAT $LOADSIM_RUN" >> order']}],
    )
    with_runs(found)
    figures = run_suite(found, OUT)
    place = OUT.absolute() / "runs" / "001-old-a-1"
    assert Path("order").read_text().splitlines() == ["settings", "server", f"suite old/a 1 {place}"]
    (run,) = figures.runs
    assert (run.result, run.failed_after, figures.exit_status) == ("passed", ("sh: exit status 1",), 0)
    (failed,) = (each for each in section(describe_suite(figures, ()), "Results") if isinstance(each, Listing))
    assert failed.items == ("old/a, repeat 1: sh: exit status 1",)


def test_a_signal_in_a_command_after_a_run_ends_the_suite_after_all_of_them(capsys: Capture) -> None:
    """The run has been measured: it is recorded. A second signal does not end the commands, either."""
    after = [
        {"run": ["sh", "-c", "kill -TERM $PPID; kill -INT $PPID; echo first >> order"]},
        {"run": ["sh", "-c", "echo second >> order"]},
    ]
    with_runs(suite(repeats=2, after=after))
    with kept_signals():
        assert main(["suite", "suite.yaml", "--out", "out", "--quiet"]) == 3
    said = "loadsim: interrupted after a run, which is kept; the same command with --out out continues\n"
    assert capsys.readouterr().err == said
    assert Path("order").read_text().split() == ["first", "second"]
    assert ([run["result"] for run in state()["runs"]], state()["left"]) == (["passed"], 1)
    assert state()["runs"][0]["after"][0]["failure"] is None
    with kept_signals():
        assert main(["suite", "suite.yaml", "--out", "out", "--quiet"]) == 0, "no run was left after the last signal"
    assert state()["complete"]


def test_a_signal_in_a_command_before_a_run_ends_the_suite_which_repeats_it(capsys: Capture) -> None:
    """The run has not begun, and is in no figure. The commands after it are executed; a line names the directory."""
    suite(before=[{"run": ["sh", "-c", "kill -INT $PPID; exit 1"]}], after=[{"run": ["touch", "after"]}], repeats=1)
    with kept_signals():
        assert main(["suite", "suite.yaml", "--out", "out", "--quiet"]) == INTERRUPTED
    assert (state()["runs"], state()["left"], state()["complete"]) == ([], 1, False)
    assert Path("after").exists()
    assert "--out out " in capsys.readouterr().err


def test_pauses_are_between_runs_only() -> None:
    slept: list[float] = []
    run_suite(suite(repeats=3, pause="7s", retries=0, **FAILS), OUT, quiet_down=QuietDown(slept.append))
    assert slept == [7.0, 7.0]


def hook(tmp_path: Path, shell: str, limit_s: float = 60.0) -> str | None:
    return run_hook(Hook(("sh", "-c", shell), limit_s), tmp_path, {}, tmp_path / "output").failure


@pytest.mark.parametrize(
    ("ending", "limit_s", "failed"),
    [
        ("wait", 0.5, "expected it to end within 0.5 s, found it still at work"),
        ("exit 1", 60.0, "exit status 1"),
        ("kill -9 $$", 60.0, "signal 9"),
    ],
)
def test_a_command_that_fails_is_killed_with_its_children(
    tmp_path: Path, ending: str, limit_s: float, failed: str
) -> None:
    """However it fails: what it leaves at work would disturb the next attempt."""
    assert hook(tmp_path, f"sleep 1000 & echo $! > child; {ending}", limit_s) == f"sh: {failed}"
    child = int((tmp_path / "child").read_text())
    with suppress(ProcessLookupError):  # init has waited for it
        exited = os.pidfd_open(child)
        exiting = select.poll()
        exiting.register(exited, select.POLLIN)
        assert exiting.poll(PATIENCE_S * 1000), "the child goes on"
        os.close(exited)


def test_output_of_commands_is_kept_and_escaped(tmp_path: Path) -> None:
    """Errors have its last line without control sequences, and cut; the file has all of it."""
    failure = hook(tmp_path, r"echo first; printf '\033[31mred\033]0;title\007\n'; exit 1")
    assert failure == r"sh: exit status 1: \x1b[31mred\x1b]0;title\x07"
    assert (tmp_path / "output").read_bytes().startswith(b"first\n\x1b[31mred")
    long = hook(tmp_path, "head -c 100000 /dev/zero | tr '\\0' x; exit 1")
    assert long is not None and len(long) < 500
    assert hook(tmp_path, "kill -9 $$") == "sh: signal 9"
    missing = run_hook(Hook(run=("./none",)), tmp_path, {}, tmp_path / "output").failure
    assert missing == "none: expected a program that can be run, found: No such file or directory"
    with pytest.raises(ConfigError, match="expected to write it, found: No such file"):
        run_hook(Hook(run=("true",)), tmp_path, {}, tmp_path / "no" / "output")


def test_no_password_is_in_the_state_or_the_report(capsys: Capture) -> None:
    """Neither those of settings nor those in the words of commands."""
    found = suite(
        set={"accounts.user": "user{index}", "accounts.password": "hunter2-{index}"},
        before=[{"run": ["false", "--password=hunter2"]}],
        retries=0,
        repeats=1,
    )
    assert main(["suite", "suite.yaml", "--out", "out"]) == 3
    assert main(["report", "out", "-o", "r.html"]) == 0
    said = capsys.readouterr()
    texts = [*said, Path("r.html").read_text(), *(path.read_text() for path in OUT.rglob("*") if path.is_file())]
    assert found.cells[0].set[0]["accounts.password"] == "hunter2-{index}"
    assert not any("hunter2" in text for text in texts)


def test_a_comparison_is_that_of_loadsim_compare() -> None:
    figures = run_suite(compared_suite(130.0), OUT)
    (one,) = figures.comparisons
    sides = [[OUT / run for run in cell.runs] for cell in figures.cells]
    assert one.comparison is not None
    assert one.comparison.document == compare_runs(*sides).document
    (score,) = state()["comparisons"][0]["comparison"]["scores"]
    assert score["change"] == "slower"
    # The score is (10 READ + 1 SEND of 50 ms) / 11; runs vary by 1.5 %, and t is about 2.3.
    assert score["ratio"] == pytest.approx(1350 / 1050, rel=1e-3)
    assert 1.25 < score["low"] < score["ratio"] < score["high"] < 1.32


MORE_USERS: dict[str, Any] = {"users": 9, "engine_users": 9}
"""The header of a run that is not compared with the others."""

INVALID: dict[str, Any] = {"limits": {"hits": 10}}
UNMADE: dict[str, Any] = {"tasks": [skipped("READ", 1000 * at) for at in range(1, 6)]}
"""The server did not take the load."""


def compared(old_ms: float, new_ms: float, limit: str | None, **last_new: Any) -> SuiteFigures:
    """The figures of `compared_suite` by the times of READ; the header or tasks of the last new run may differ."""
    pair = {"base": {"server": "old"}, "new": {"server": "new"}} | ({"max_regression": limit} if limit else {})
    found = suite(servers=SERVERS, repeats=5, retries=0, compare=[pair])
    crashed(found)
    for slot in found.slots:
        read_ms = (old_ms if slot.cell.name == "old" else new_ms) * (1 + 0.01 * (slot.repeat - 3))
        own = last_new if (slot.cell.name, slot.repeat) == ("new", 5) else {}
        write_run(OUT / "runs", run_name(found, slot, 1), read_ms, hour=slot.number, **own)
    figures = run_suite(found, OUT)
    return replace(figures, terms=replace(figures.terms, embedded=False))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "status", "rating", "state"),
    [
        ((100, 100, "5%", {}), 0, "good", "criteria met in all"),
        ((100, 130, None, {}), 0, "doubtful", "in all; comparisons: 1 worse (without a limit)"),
        ((100, 130, "5%", {}), 1, "bad", "criteria met in all; comparisons: 1 failed"),
        ((100, 105.3, "5%", {}), 4, "doubtful", "criteria met in all; comparisons: 1 undecided"),
        ((100, 100, None, MORE_USERS), 4, "doubtful", "criteria met in all; comparisons: 1 refused"),
        ((2000, 2600, "5%", {}), 1, "bad", "criteria missed in 2 of them; comparisons: 1 failed"),
        ((100, 100, "5%", UNMADE), 1, "bad", "criteria missed in 1 of them; comparisons: 1 refused"),
        (
            (100, 100, "5%", INVALID),
            3,
            "bad",
            "complete with gaps; 9 of 10 runs measured, in 2 cells; comparisons: 1 undecided",
        ),
        ((100, 130, "5%", INVALID), 3, "bad", "in 2 cells; comparisons: 1 failed"),
    ],
)
def test_headline_status_and_tone_agree(
    made: tuple[float, float, str | None, dict[str, Any]], status: int, rating: str, state: str
) -> None:
    """A suite that exceeded a limit must not read as one that met everything."""
    old_ms, new_ms, limit, last_new = made
    figures = compared(old_ms, new_ms, limit, **last_new)
    assert (figures.exit_status, tone(figures)) == (status, rating)
    assert headline(figures).endswith(state), headline(figures)
    embedded = replace(figures, terms=replace(figures.terms, embedded=True))
    assert headline(embedded) == f"{headline(figures)}{NO_MEASUREMENT}"
    assert (embedded.exit_status, tone(embedded)) == (status, "doubtful" if rating == "good" else rating)


def test_a_suite_has_not_passed_before_its_comparisons() -> None:
    """A script that reads the file after the last run, or during a resumption, must not take it for a pass."""
    found = compared_suite(130.0, "5%")
    statuses: list[object] = []
    run_suite(
        found, OUT, watcher=Watching(ended=lambda figures: statuses.append((figures.left, state()["exit_status"])))
    )
    assert (statuses[-1], state()["exit_status"]) == ((0, None), 1)
    run_suite(found, OUT, watcher=Watching(lambda _: statuses.append(state()["exit_status"])))
    assert (statuses[-1], state()["exit_status"]) == (1, 1)


def test_missed_criteria_and_a_missing_side_have_their_status() -> None:
    """A comparison without runs of a side is none, with its reason."""
    found = suite(
        servers=[{"name": "old", **FAILS}, {"name": "new"}],
        repeats=1,
        retries=0,
        compare=[{"base": {"server": "old"}, "new": {"server": "new"}}],
    )
    crashed(found)
    for slot in found.slots:
        if slot.cell.name == "new":
            write_run(OUT / "runs", run_name(found, slot, 1), 2000.0)
    figures = run_suite(found, OUT)
    assert figures.comparisons[0].refused == (finding(Code.CELL_NOT_MEASURED, "old"),)
    assert [(cell.verdict, cell.passed) for cell in figures.cells] == [("incomplete", 0), ("missed", 0)]
    assert figures.exit_status == 3


def test_the_report_names_unaudited_runs() -> None:
    found = suite(repeats=2)
    crashed(found)
    for slot in found.slots:
        write_run(OUT / "runs", run_name(found, slot, 1), audited=False, hour=slot.number)
    document = describe_suite(run_suite(found, OUT), ())
    (told,) = (one for one in listed(document, "What limits these figures") if "not audited" in one)
    assert told.startswith("In 2 of 2 runs: ")


def test_the_report_has_cells_comparisons_runs_and_differences(capsys: Capture) -> None:
    compared_suite(130.0)
    assert main(["suite", "suite.yaml", "--out", "out", "--quiet"]) == main(["report", "out", "-o", "r.md"]) == 0
    out = capsys.readouterr().out
    assert out.count(", repeat ") == 10
    assert "new against old: new is slower: 1.2" in " ".join(out.split())
    figures = run_suite(load_suite("suite.yaml"), OUT)
    document = describe_suite(figures, measured_runs(figures))
    assert [section.title for section in document.sections] == [
        *("Summary", "new against old", "Runs", "What differs between the cells", "Disclosure")
    ]
    (cells,) = tables(document.sections[0].blocks)
    assert [row[:2] for row in cells.rows] == [("old", "5/5"), ("new", "5/5")]
    assert listed(document, "Comparisons")[0].startswith("new against old: new is slower: 1.2")
    assert len(tables(document.sections[2].blocks)[0].rows) == 10
    assert "<script" not in to_html(describe_suite(figures, measured_runs(figures)))
    assert Path("r.md").read_text().startswith("# Suite suite: 2 cells")


def test_list_creates_nothing(capsys: Capture) -> None:
    found = suite(servers=SERVERS, repeats=2, pause="1m", before=[{"run": ["sync"]}])
    assert main(["suite", "suite.yaml", "--list", "--out", "out"]) == 0
    out = capsys.readouterr().out
    assert "Suite suite: 4 runs: 2 cells, 2 repeats each; random order, seed 1" in out
    assert "Time left: at least 4 min 24 s" in out  # 4 runs of 21 s, and 3 pauses
    assert not OUT.exists()
    with_runs(found)
    run_suite(found, OUT)
    capsys.readouterr()
    assert main(["suite", "suite.yaml", "--list", "--out", "out"]) == 0
    rows = [line.split()[-1] for line in capsys.readouterr().out.splitlines()[-4:]]
    assert rows == ["passed"] * 4
