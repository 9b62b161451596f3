"""`loadsim run` as a user meets it: in a process of its own, on servers that really answer."""

import html
import json
import os
import re
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import recomputed
import yaml
from agreement import deleted_items_emptied, differences, mailboxes_by_doveadm, mailboxes_by_log
from findings_of import findings_in
from mailservers import StartDovecotPostfix
from patience import PATIENCE_S, PATIENT_CRITERIA
from recompute import recompute
from recomputed import exports_of, printed, status_of
from small_runs import AFTER_TEN_S, AT_WORK, await_line, loadsim, on, population_of, written

from loadsim.cli.live.run_view import Warnings
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.runs.result import write_whole
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import Workload, plan_digest
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.records import GIVEN_UP

WIDE = {
    "done_share": {"min": 0},
    "tasks.scored.failed_share": {"max": 0.05},
    "tasks.scored.done_share": {"min": 0},
    "tasks.SEND.p99_ms": {"min": 0, "max": 60_000},
}
"""Criteria of each shape that a busy machine keeps."""


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    place = tmp_path_factory.mktemp("small")
    hours = {"day_length": "16s", "ramp_up": "1s", "warm_up": "2s", "window": "14s"}  # a profile's hour takes 2 s
    small = written(place / "small.yaml", criteria=PATIENT_CRITERIA | WIDE, run=hours)
    return place / "out", loadsim("run", small, "--out", place / "out", "--engines", "2")


def test_a_run_on_the_embedded_server_passes(small_run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    out, run = small_run
    assert run.returncode == 0, run.stderr + run.stdout
    assert "Score, weighted" in run.stdout
    assert f"Run directory: {out}" in run.stdout
    assert f"\nReport: {out / 'report.html'}\n" in run.stdout


def test_every_figure_is_recomputed(small_run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    out, _ = small_run
    score = json.loads((out / "score.json").read_text(encoding="utf-8"))
    resolved = yaml.safe_load((out / "scenario.yaml").read_text(encoding="utf-8"))
    figures = recompute(exports_of(out, resolved, out / "scenario.yaml"))
    answer = json.loads(printed("log", "answer", out, "--commands", "--json", statuses=[status_of(figures)]))
    assert recomputed.differences(answer, figures) == []
    assert {key: value for key, value in answer.items() if key != "commands"} == score
    assert len(figures["covers"]["scored"]) >= 8
    assert len(figures["machines"]) == 1


def test_the_run_directory_is_complete(small_run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Scenario, score, answer, audit, events, the logs of engines, machine and server are there, and nothing else."""
    out, run = small_run
    found = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    logs = [name for name in found if name.startswith("logs/")]
    assert [name.split(".", 1)[1] for name in logs] == ["1.tlog", "2.tlog", "machine.tlog"]
    assert set(found) - set(logs) == {
        "answer.txt",
        "audit.csv",
        "audit.json",
        "embedded-server.log",
        "events.jsonl",
        "report.html",
        "scenario.yaml",
        "score.json",
    }
    planned = plan_digest(Workload(load_scenario(str(out / "scenario.yaml"))))
    assert json.loads((out / "score.json").read_text())["plan_digest"] == planned
    verdict, _, rest = (out / "answer.txt").read_text().partition("\n")
    assert run.stdout.startswith(f"{verdict}\n")
    shown = run.stdout.partition("\n\nRun directory:")[0]
    assert max(map(len, shown.splitlines())) <= 80 < max(map(len, rest.splitlines()))


def test_mail_is_audited_before_the_embedded_server_ends(
    small_run: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    audit = json.loads((small_run[0] / "audit.json").read_text())
    assert (audit["mailboxes"], audit["unread"], audit["unknown"], audit["findings"]) == (6, 0, 0, [])
    assert audit["messages"] > 100


def test_samples_of_the_machine_are_recorded(small_run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Its samples are placed on the run's time, and it is known that the embedded server is on it."""
    out, _ = small_run
    log = read_logs([*(out / "logs").glob("*.machine.tlog")])
    placed_s = [sample["at_s"] for sample in log.health]
    assert all(before < after for before, after in pairwise(placed_s))
    assert any(0 <= at_s < 20 for at_s in placed_s)
    (machine,) = json.loads((out / "score.json").read_text())["machines"]
    assert (machine["server_here"], machine["shares_cpus"], machine["pinned"]) == (True, True, False)
    assert machine["cores"] == os.cpu_count()
    assert f"Machine {machine['name']}: " in (out / "answer.txt").read_text("utf-8")


@pytest.mark.nightly(part="runs")
def test_server_and_load_run_on_separate_cores(tmp_path: Path) -> None:
    """With --pin: it says what it did, the log has it, and the cores of the two are different ones."""
    run = {"day_length": "5s", "ramp_up": "1s", "warm_up": "0s", "window": "5s"}
    told = loadsim("run", "--no-report", written(tmp_path / "small.yaml", run=run), "--pin", "--out", tmp_path / "out")
    assert "Pinned: the generator to core" in told.stderr, told.stderr + told.stdout
    facts = read_logs([*(tmp_path / "out" / "logs").glob("*.machine.tlog")]).sources[0].facts
    assert facts.pinned and not facts.shares_cpus
    assert not set(facts.generator_cpus) & set(facts.server_cpus)
    assert facts.generator_cpus and facts.server_cpus


def test_the_log_has_the_servers_greetings(small_run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Greetings and capabilities of the embedded server are in the machine's log, and in the report."""
    out, _ = small_run
    facts = read_logs([*(out / "logs").glob("*.machine.tlog")]).sources[0].facts
    assert facts.imap_greeting.startswith("OK ")
    assert facts.smtp_greeting
    assert facts.memory_bytes > 2**20
    assert facts.smtp_greeting in html.unescape((out / "report.html").read_text())


def test_events_are_in_the_order_of_the_run(small_run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """Each line is JSON; of each engine ready, log-on, start, end, drained and over come in this order."""
    out, _ = small_run
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    for engine in "12":
        told = [event["event"] for event in events if event["engine"] == engine]
        assert [event for event in told if not event.startswith("failure")] == [
            "engine ready",
            "log-on",
            "start",
            "end",
            "drained",
            "over",
        ]


def test_each_engines_log_states_its_users(small_run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """All users of a log's tasks are in its assignment, and each user is in one; the machine's log has none."""
    out, _ = small_run
    told: list[int] = []
    for engine, users in (("1", 3), ("2", 3), ("machine", 0)):
        log = read_logs([*(out / "logs").glob(f"*.{engine}.tlog")])
        (source,) = log.sources
        own = list(source.assignment or ())
        assert (source.users, len(own)) == (users, users)
        assert sorted(set(log.tasks["user"].tolist())) == own
        told += own
    assert sorted(told) == [1, 2, 3, 4, 5, 6]


def test_log_answer_repeats_the_answer(small_run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """`log answer` over the run directory prints what the run did, or answer.txt, and exits as the run did."""
    out, run = small_run
    assert loadsim("log", "answer", out).stdout.rstrip() == run.stdout.partition("\n\nRun directory:")[0]
    again = loadsim("log", "answer", "--wide", out)
    assert again.returncode == run.returncode
    assert again.stdout.strip() == (out / "answer.txt").read_text().strip()


@pytest.mark.system
def test_mailboxes_on_dovecot_agree_with_the_log(dovecot_postfix: StartDovecotPostfix, tmp_path: Path) -> None:
    """Read by doveadm, every mailbox holds what the log says, by both drivers and pipelined submission."""
    groups = [
        {"profile": "loadsim-5.5/medium", "users": 4, "protocol": "aioimaplib"},
        {"profile": "loadsim-5.5/heavy", "users": 6, "protocol": "imap"},
    ]
    changes: dict[str, Any] = {
        "topology": groups,
        "run": {"day_length": "10s", "ramp_up": "1s", "warm_up": "1s", "window": "9s"},
    }
    path = written(tmp_path / "small.yaml", **changes)
    server = dovecot_postfix(*population_of(load_scenario(str(path))))
    written(path, client={"submission": "pipelining"}, **changes, **on(server.services))
    assert_agreement(path, tmp_path / "out", lambda accounts: mailboxes_by_doveadm(accounts, server.doveadm))
    assert server.queue() == []
    assert json.loads((tmp_path / "out" / "score.json").read_text())["submission"] == "pipelining"


def assert_agreement(path: Path, out: Path, read: Any) -> None:
    """Run, then compare what the log says with what lies in the mailboxes; nothing may have failed."""
    run = loadsim("run", "--no-report", path, "--out", out)
    assert run.returncode == 0, run.stderr + run.stdout
    scenario = load_scenario(str(path))
    log = read_logs([out])
    assert not [task for task in json.loads((out / "score.json").read_text())["tasks"] if task["failed"]]
    held = read([scenario.account(user) for user in range(1, scenario.users + 1)])
    assert differences(mailboxes_by_log(Workload(scenario), log), held) == []
    assert deleted_items_emptied(held)
    assert sum(ids.total() for folders in held.values() for ids in folders.values()) > 100


def test_ctrl_c_ends_the_run_early_with_log_and_score(tmp_path: Path) -> None:
    path = written(tmp_path / "small.yaml", run={"day_length": "10m", "ramp_up": "1s"})
    out = tmp_path / "out"
    with subprocess.Popen(
        [sys.executable, "-m", "loadsim", "run", "--no-report", str(path), "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        await_line(process, AFTER_TEN_S)  # ten seconds into the work
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3
    score = json.loads((out / "score.json").read_text())
    assert finding(Code.STOPPED) in findings_in(score)
    assert f"[{Code.STOPPED.id}]" in printed
    log = read_logs([out])
    assert {source.facts.ended for source in log.sources if source.simulates} == {"early"}
    assert len(log.tasks)


@pytest.mark.nightly(part="runs")
def test_the_engines_of_a_killed_run_end_by_themselves(tmp_path: Path) -> None:
    """After SIGKILL to `loadsim run` its engines stop the load, and their logs hold all measurements and an end."""
    path = written(tmp_path / "small.yaml", run={"day_length": "10m", "ramp_up": "1s"})
    out = tmp_path / "out"
    with subprocess.Popen(
        [sys.executable, "-m", "loadsim", "run", str(path), "--out", str(out), "--engines", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        await_line(process, AFTER_TEN_S)
        process.kill()
        assert process.stderr is not None
        process.stderr.read()  # to its end, which comes when the last engine has let go of it
    answer = loadsim("log", "answer", "--json", out)
    assert answer.returncode == 3
    given_up = [one for one in findings_in(json.loads(answer.stdout)) if one.code is Code.ENGINE_GIVEN_UP]
    assert [one.where.rpartition(".")[2] for one in given_up] == ["1", "2"]
    assert {one.values["why"] for one in given_up} == {"the process that kept it in step is gone"}
    assert sum(one.values["users"] for one in given_up) == 6
    log = read_logs([out])
    assert [source.facts.ended for source in log.sources if source.simulates] == [GIVEN_UP, GIVEN_UP]
    assert len(log.tasks)


@pytest.mark.nightly(part="runs")
def test_a_report_that_cannot_be_written_is_no_success(tmp_path: Path) -> None:
    """The verdict is printed and stays; the name is a directory's here."""
    path, out = written(tmp_path / "small.yaml", criteria=PATIENT_CRITERIA), tmp_path / "out"
    with subprocess.Popen(
        [sys.executable, "-m", "loadsim", "run", str(path), "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if re.match(AT_WORK, line):
                (out / "report.html").mkdir(exist_ok=True)
        assert process.wait(PATIENCE_S) == 2
    assert any(line.startswith("No report.html: ") for line in lines)
    assert json.loads((out / "score.json").read_text())["verdict"]["passed"]


@pytest.mark.nightly(part="runs")
def test_a_run_goes_on_after_its_output_is_closed(tmp_path: Path) -> None:
    """With the other end of both outputs gone after the first line, score and verdict are there."""
    path = written(tmp_path / "small.yaml")
    with subprocess.Popen(
        [sys.executable, "-m", "loadsim", "run", str(path), "--out", str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if re.match(AT_WORK, line):
                break
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0
    assert json.loads((tmp_path / "out" / "score.json").read_text())["verdict"]["passed"]


@pytest.mark.nightly(part="runs")
def test_a_run_on_a_full_disk_reports_its_lost_records(tmp_path: Path) -> None:
    """Where files cannot grow beyond 40 KiB, the run goes on to its end; exit status 3, and what is lost is said."""
    path = written(tmp_path / "small.yaml")
    run = subprocess.run(
        [
            "bash",
            "-c",
            'ulimit -f 40; exec "$0" -m loadsim run "$1" --out "$2" --engines 1',
            sys.executable,
            path,
            tmp_path / "out",
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert run.returncode == 3, run.stderr
    assert "Traceback" not in run.stderr
    assert "timing log incomplete" in run.stderr
    assert "[log-without-end]" in run.stdout
    events = [json.loads(line)["event"] for line in (tmp_path / "out" / "events.jsonl").read_text().splitlines()]
    assert "log not written" in events
    assert len(read_logs([tmp_path / "out"]).commands)


def test_too_few_open_files_are_refused_with_a_remedy(tmp_path: Path) -> None:
    """Under `ulimit -n 70` six users are refused: one line, exit status 2, and no directory left behind."""
    path = written(tmp_path / "small.yaml")
    limited = 'ulimit -n 70; exec "$0" -m loadsim run "$1" --out "$2" --engines 1'
    run = subprocess.run(
        ["sh", "-c", limited, sys.executable, path, tmp_path / "out"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert run.returncode == 2
    assert run.stderr == (
        "loadsim: open files: expected a limit of at least 76 for 6 users an engine, found 70:"
        " take more --engines, or raise it as root with `ulimit -n 76`\n"
    )
    assert not (tmp_path / "out").exists()


def test_a_soft_limit_of_open_files_is_raised() -> None:
    """As far as the users need it and the hard limit allows; never lowered."""
    asked = (
        "import resource; from loadsim.processes.rlimits import raise_open_file_limit;"
        "raise_open_file_limit(3); few = resource.getrlimit(resource.RLIMIT_NOFILE);"
        "raise_open_file_limit(40); print(few, resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    limited = f'ulimit -Sn 75; ulimit -Hn 200; exec "$0" -c "{asked}"'
    done = subprocess.run(["bash", "-c", limited, sys.executable], capture_output=True, text=True, check=False)
    assert done.stdout == "(75, 200) (144, 200)\n", done.stderr


def test_results_that_do_not_fit_on_the_disk_are_not_left_half_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader of `score.json` finds the whole or nothing; the name is a full device's here."""
    file = tmp_path / "score.json"
    file.symlink_to("/dev/full")
    write_whole(file, "{}", Warnings())
    assert not file.is_symlink()
    assert capsys.readouterr().err == f"loadsim: {file} not written: No space left on device\n"
