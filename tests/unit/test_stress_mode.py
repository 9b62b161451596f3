"""Stress mode: a closed loop of the plan's own activities, its throughput, and that it is never called a score."""

import json
import math
from collections import defaultdict
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from documents import full_answer
from findings_of import codes
from small_runs import written
from timing_samples import done, event, sample_log
from virtual_runs import Lived, live, quiet, scenario_of

from loadsim.analysis.summary import summarise
from loadsim.cli import BAD_INPUT, main
from loadsim.errors import LogError
from loadsim.findings.catalogue import Code
from loadsim.model.records import CommandFields
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import BROWSE, NEW_MAIL, SCHEDULE, Workload
from loadsim.timinglog.merge import merge

BUSY = {"new_mail": {"per_day": 20}, "browse": {"per_day": 30}, "schedule": {"per_day": 10}}
READS = {"process_inbox": {"per_day": 40}, "after_reading": {"reply": 0.2, "move": 0.2, "copy": 0.1, "delete": 0.2}}
UNTIMED = "IMAP IDLE"
"""The one command that the in-memory mail system answers at once."""


def stressed(place: Path, *groups: tuple[dict[str, Any], int], day: str = "60s", **options: Any) -> Lived:
    run = {"day_length": day, "ramp_up": "1s", "warm_up": "0s", "window": day, "mode": "stress"}
    return live(scenario_of(place, *groups, run=run), place, **options)


def since_start(lived: Lived, user: int) -> list[dict[str, Any]]:
    first_ns = lived.engine.start_ns
    last_ns = first_ns + lived.engine.workload.duration_us * 1000
    return [task for task in lived.tasks(user=user) if first_ns <= task["scheduled_ns"] < last_ns]


@pytest.mark.slow
def test_n_users_keep_n_commands_in_progress(tmp_path: Path) -> None:
    """Without think time and with a mean service time of s, N users get N/s commands a second: the operational law.

    The number in 20 s varies by its root (service times are exponential): five times that is allowed.
    """
    users, service_s, length_s = 8, 0.02, 20
    lived = stressed(tmp_path, (quiet(**BUSY, **READS), users), day=f"{length_s}s", service_s=service_s)
    begin_ns, end_ns = lived.engine.start_ns, lived.engine.start_ns + length_s * 10**9
    served = [
        command
        for command in lived.tape.commands
        if begin_ns <= command["started_ns"] < end_ns and command["command"] != UNTIMED
    ]
    expected = users * length_s / service_s
    assert abs(len(served) - expected) < 5 * math.sqrt(expected)


def test_activities_follow_the_plan_and_go_on_after_its_end(tmp_path: Path) -> None:
    """Each user does their planned activities, one after the other; further ones come from the same processes."""
    names = {NEW_MAIL: "SEND", BROWSE: "BROWSE", SCHEDULE: "SCHEDULE"}
    lived = stressed(tmp_path, (quiet(**BUSY), 2), day="20s")
    workload = Workload(lived.scenario)
    for user in (1, 2):
        acts = [task["task"] for task in since_start(lived, user) if task["task"] in names.values()]
        plan = islice(workload.activities(user, endless=True), len(acts))
        assert acts == [names[activity.kind] for activity in plan]
        assert len(acts) > 2 * len(list(workload.activities(user)))


def test_users_do_not_wait_between_tasks(tmp_path: Path) -> None:
    """A task begins when the one before it has ended, with no time to look at a message; nothing is left at the end."""
    lived = stressed(tmp_path, (quiet(**BUSY, **READS), 4), day="15s")
    for user in range(1, 5):
        tasks = since_start(lived, user)
        assert len(tasks) > 50
        assert {task["outcome"] for task in tasks} == {"ok"}
        for before, after in pairwise(tasks):
            assert after["started_ns"] == before["ended_ns"]
    assert not [task for task in lived.tasks() if task["outcome"] in ("skipped", "unfinished")]


@pytest.mark.slow
def test_a_messages_outcome_does_not_depend_on_speed(tmp_path: Path) -> None:
    """Moved, copied, deleted or left alone: a function of the message and its reader, at any speed."""
    profile = quiet(**BUSY, **READS)
    fates = []
    for lived in (
        stressed(tmp_path / "stress", (profile, 4), day="120s", service_s=0.1),
        live(scenario_of(tmp_path / "canonical", (profile, 4), day="120s"), tmp_path / "canonical"),
    ):
        fate: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        for mail in lived.tape.mails:
            if mail["event"] in ("read", "moved", "copied", "deleted") and not mail["message"].startswith("i"):
                fate[mail["message"], mail["user"]].add(f"{mail['event']} {mail['folder']}")
        fates.append(fate)
    common = fates[0].keys() & fates[1].keys()
    assert len(common) > 20
    assert {key: fates[0][key] for key in common} == {key: fates[1][key] for key in common}


def test_users_without_work_pause(tmp_path: Path) -> None:
    """An empty Inbox is processed without a command: after sixteen turns of that there is a pause of 0.1 s."""
    lived = stressed(tmp_path, (quiet(process_inbox={"per_day": 40}), 2), day="10s")
    turns = 2 * 10 * 16 / 0.1
    assert turns - 32 <= lived.tape.told["silent_activities"] <= turns + 32
    assert {task["task"] for task in lived.tasks()} == {"LOGON", "LOGOFF"}


def test_mail_ends_a_pause(tmp_path: Path) -> None:
    """Pausing users read new mail as soon as it is shown."""
    writer = quiet(new_mail={"per_day": 40, "save_sent": False})
    lived = stressed(tmp_path, (writer, 1), (quiet(process_inbox={"per_day": 40}), 1), day="20s", service_s=0.05)
    tasks = since_start(lived, lived.tasks("READ")[0]["user"])
    shown = [(sync, read) for sync, read in pairwise(tasks) if (sync["task"], read["task"]) == ("SYNC", "READ")]
    assert len(shown) > 20
    assert all(read["started_ns"] == sync["ended_ns"] for sync, read in shown)


def test_the_mode_is_part_of_the_load_only_where_it_is_stress() -> None:
    """Digests of canonical scenarios are what they were before there was a mode."""
    assert load_scenario("mixed", ["run.mode=canonical"]) == load_scenario("mixed")
    assert load_scenario("mixed", ["run.mode=stress"]).digest() != load_scenario("mixed").digest()


def test_a_closed_loop_has_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(written(tmp_path / "s.yaml")), "--set", "run.mode=stress"]) == BAD_INPUT
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("loadsim: small: run.mode: expected canonical") and said.err.count("\n") == 1


def command(name: str, at_ms: float, outcome: str = "ok") -> CommandFields:
    at_ns = done("READ", at_ms, 1)["started_ns"]
    return name, 1, at_ns, at_ns + 1000, outcome, 1, 1


def closed_loop(path: Path, **header: Any) -> Any:
    """A log of a stress run with a window of 10 s: 30 READs, 20 SENDs, one of them refused, in one message to two."""
    return sample_log(
        path,
        tasks=[
            *(done("READ", number * 100, 50) for number in range(30)),
            *(done("SEND", number * 100, 20) for number in range(19)),
            done("SEND", 1900, 20, outcome="refused", error="550 RCPT"),
            done("LOGON", -100, 20),
            done("READ", 10_001, 20),
        ],
        mails=[event(name, "n1.0", user, 20) for name in ("accepted", "seen") for user in (1, 2)],
        commands=[command("IMAP NOOP", at_ms) for at_ms in range(40)]
        + [command("SMTP DATA", 1), command("SMTP DATA", 2, "refused"), command("IMAP NOOP", 10_000)],
        header={"mode": "stress", "window_s": [0, 10], "limits": {"hits": 1, "window_s": 1}} | header,
        facts={"start_ns": done("READ", 0, 1)["started_ns"], "ended": "completed", "silent_activities": 7},
    )


def test_a_closed_loop_has_a_throughput_and_no_score(tmp_path: Path) -> None:
    """Rates found by hand; no weight, no score, nothing that was planned or late."""
    summary = summarise([closed_loop(tmp_path / "c1.1.tlog")])
    score = summary.score
    assert (score["mode"], score["score_ms"], score["load_equivalent_users"]) == ("stress", None, None)
    assert score["by_protocol"]["imap"]["score_ms"] is None
    assert {task["weight"] for task in score["tasks"]} == {0}
    assert set(score["lateness_p95_ms"].values()) == {None}
    assert score["throughput"] == {
        "tasks_per_s": pytest.approx(4.9),
        "messages_per_s": pytest.approx(0.1),
        "deliveries_per_s": pytest.approx(0.2),
        "by_task": {"READ": pytest.approx(3.0), "SEND": pytest.approx(1.9)},
        "commands": {"IMAP": pytest.approx(4.0), "SMTP": pytest.approx(0.1)},
        "silent_activities": 7,
    }
    assert "Mode: stress: throughput, no LoadSim score\n" in full_answer(summary)
    assert "Score, weighted" not in full_answer(summary)
    assert json.dumps(score)


def test_the_verdict_does_not_need_a_score(tmp_path: Path) -> None:
    """No hit of a scored task, no share of a plan and no lateness is missed; failures are."""
    summary = summarise([closed_loop(tmp_path / "c1.1.tlog")])
    assert (summary.verdict.validity, summary.verdict.passed) == ("valid", False)
    assert [one.where for one in summary.verdict.missed] == ["failed_share", "tasks.SEND.failed_share"]
    assert [one.name for one in summary.criteria] == [
        *("failed_share", "down_share", "logon_failed_share"),
        *("delivery.undelivered_at_end", "delivery.duplicates", "delivery.missing", "delivery.p95_ms"),
        *("tasks.READ.failed_share", "tasks.SEND.failed_share"),
    ]


def test_a_closed_loop_without_tasks_is_invalid(tmp_path: Path) -> None:
    log = sample_log(tmp_path / "c1.1.tlog", [done("LOGON", -100, 20)], header={"mode": "stress"})
    verdict = summarise([log]).verdict
    assert (codes(verdict.defects), verdict.passed) == ([Code.NO_THROUGHPUT], False)
    assert [(one.code, one.where) for one in verdict.missed] == [
        (Code.CRITERION_NOT_MEASURED, "failed_share"),
        (Code.CRITERION_NOT_MEASURED, "delivery.p95_ms"),
    ]


def test_modes_are_never_mixed(tmp_path: Path) -> None:
    """Logs of a closed loop and of a plan have nothing to say together."""
    stress = closed_loop(tmp_path / "a.tlog")
    canonical = sample_log(tmp_path / "b.tlog", [done("READ", 1, 1)], header={"client": "c2"})
    with pytest.raises(LogError, match="merge: mode: expected the same in all logs"):
        merge([stress, canonical])


def test_a_stress_run_rejects_weights(tmp_path: Path) -> None:
    """Weights are for a score, which a closed loop does not have."""
    with pytest.raises(LogError, match="weights: expected a log of a canonical run"):
        summarise([closed_loop(tmp_path / "c1.1.tlog")], weights={"READ": 1})
