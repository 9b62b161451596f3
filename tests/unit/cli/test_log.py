"""`loadsim log`: what each verb prints, writes and returns, and its one line for bad input."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from named_records import MailRecord
from paths import GOLDEN_FILES
from patience import PATIENCE_S
from timing_samples import (
    DELIVERED,
    ENDED,
    EPOCH_NS,
    HEADER,
    LOGGED_ON,
    done,
    event,
    ms,
    sample_log,
    skipped,
    write_sample,
    write_two_clients,
)

from loadsim.cli import parser
from loadsim.cli.log import instant_s
from loadsim.errors import ConfigError, LogError
from loadsim.timinglog.writer import TimingLogWriter

CSV_HEADER = "scheduled_s,started_s,service_ms,response_ms,client,engine,user,profile,protocol,task,outcome,error,bytes"
CSV_HEADER += ",late_busy_ms,late_down_ms,late_generator_ms,late_between_ms,late_own_ms,clock"


def run_log(*arguments: str | Path) -> int:
    args = parser("log").parse_args(["log", *map(str, arguments)])
    status: int = args.run(args)
    return status


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1:00", 3600), ("0:05", 300), ("0:00:30", 30), ("12:34:56.5", 45296.5), ("90", 90), ("1.5", 1.5)],
)
def test_instants_are_times_of_day_or_seconds(text: str, expected: float) -> None:
    """h:mm as LsLog has it, h:mm:ss, or seconds from the start."""
    assert instant_s(text) == expected


@pytest.mark.parametrize("text", ["1:60", "1:0", "-5", "1:00:60", "4h", "", "nan", "1:00:00:00"])
def test_malformed_instants_are_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2, and what was expected."""
    with pytest.raises(SystemExit) as ended:
        run_log("answer", tmp_path, f"--begin={text}")
    assert ended.value.code == 2
    assert f"expected h:mm, h:mm:ss or seconds, found {text!r}" in capsys.readouterr().err


def test_answer_prints_the_table_and_returns_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run directory, its files and a pattern all mean the same logs."""
    directory = write_two_clients(tmp_path / "run")
    for arguments in (
        [directory],
        [directory / "logs"],
        sorted((directory / "logs").iterdir()),
        [directory / "logs" / "c*.tlog"],
        [directory, directory / "logs" / "c1.0.tlog"],
    ):
        assert run_log("answer", *arguments) == 3
        assert capsys.readouterr().out == (GOLDEN_FILES / "short-answer.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("took_ms", "limits", "expected"), [(10, {"hits": 1}, 0), (1500, {"hits": 1}, 1), (1500, {"hits": 2}, 3)]
)
def test_answer_has_its_exit_statuses(tmp_path: Path, took_ms: float, limits: dict[str, int], expected: int) -> None:
    write_sample(tmp_path / "a.tlog", [LOGGED_ON, done("READ", 0, took_ms)], DELIVERED, header={"limits": limits})
    assert run_log("answer", tmp_path) == expected


def test_answer_as_json_with_weights_and_a_window(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The output is score.json's content, for the given weights and window."""
    write_sample(tmp_path / "a.tlog", [done("READ", 500, 10), done("READ", 70_000, 30), done("SEND", 70_000, 90)])
    (tmp_path / "weights.yaml").write_text("{READ: 1, SEND: 3}", encoding="utf-8")
    weights = ("--weights", tmp_path / "weights.yaml")
    run_log("answer", "--json", *weights, "--begin", "0:01", "--end", "100", "--commands", tmp_path / "a.tlog")
    score = json.loads(capsys.readouterr().out)
    assert score["score_ms"] == (30 + 3 * 90) / 4
    assert score["window_s"] == [60, 100]
    assert score["commands"] == []
    run_log("answer", "--json", tmp_path / "a.tlog")
    assert json.loads(capsys.readouterr().out)["score_ms"] == pytest.approx((10 * 30 + 90) / 11)


def test_weights_of_tasks_that_no_log_has_are_refused(tmp_path: Path) -> None:
    """The name may be that of a plug-in's task, so the logs decide."""
    write_sample(tmp_path / "a.tlog", [done("READ", 0, 1)])
    (tmp_path / "w.yaml").write_text("REED: 1", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^weights: expected tasks .*\(ASSISTANT DRAFT, .*, found 'REED'$"):
        run_log("answer", "--weights", tmp_path / "w.yaml", tmp_path / "a.tlog")


@pytest.mark.parametrize("verb", ["answer", "export csv"])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("none.tlog", "expected a timing log or a run directory with logs/*.tlog, found no such file or"),
        ("none*.tlog", "expected a timing log or a run directory with logs/*.tlog, found none"),
        ("empty-directory", "expected a timing log or a run directory with logs/*.tlog, found none"),
        ("empty.tlog", "expected a timing log, found an empty file"),
        ("text.tlog", "expected a timing log, found another kind of file"),
    ],
)
def test_anything_but_a_log_is_refused_in_one_line(tmp_path: Path, verb: str, name: str, says: str) -> None:
    (tmp_path / "empty-directory").mkdir()
    (tmp_path / "empty.tlog").write_bytes(b"")
    (tmp_path / "text.tlog").write_text("no log\n", encoding="utf-8")
    with pytest.raises(LogError) as refused:
        run_log(*verb.split(), tmp_path / name)
    assert str(refused.value).startswith(f"{tmp_path / name}: {says}") and "\n" not in str(refused.value)


@pytest.mark.parametrize(("kept", "facts", "status"), [(None, {}, 0), (-1, {}, 1), (None, {"start_ns": 9}, 1)])
def test_an_export_of_an_incomplete_log_has_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: int | None, facts: dict[str, int], status: int
) -> None:
    path = write_sample(tmp_path / "a.tlog", [done("READ", 0, 10)], **({"facts": facts} if facts else {}))
    path.write_bytes(path.read_bytes()[:kept])
    assert run_log("export", "csv", path) == status
    assert bool(capsys.readouterr().err) == bool(status)


def test_csv_has_the_columns_that_scripts_rely_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The header line exactly; microseconds; empty cells for what never happened; commas and quotes in errors."""
    write_sample(
        tmp_path / "c1.0.tlog",
        [
            done("READ", 1234.567, 10.001, late_ms=0.5, user=7, late_between_s=0.0125, clock="kernel"),
            done("SEND", 2000, 0, ended_ns=None, outcome="unfinished", clock=""),
            done("SEND", 3000, 20, outcome="refused", error='NO "quota", full'),
            skipped("MOVE", 9_000),
            done("LOGON", -1500.25, 1),
        ],
    )
    assert run_log("export", "csv", tmp_path / "c1.0.tlog") == 0
    out = capsys.readouterr().out
    assert out.splitlines() == [
        CSV_HEADER,
        "1.234567,1.235067,10.001,10.501,c1,0,7,medium,imap,READ,ok,,1000,0.500,0.000,0.000,12.500,0.000,kernel",
        "2.000000,2.000000,,,c1,0,1,medium,imap,SEND,unfinished,,1000,0.000,0.000,0.000,0.000,0.000,",
        '3.000000,3.000000,20.000,20.000,c1,0,1,medium,imap,SEND,refused,"NO ""quota"", full",1000'
        ",0.000,0.000,0.000,0.000,0.000,loop",
        "9.000000,,,,c1,0,1,medium,imap,MOVE,skipped,,1000,0.000,0.000,0.000,0.000,0.000,",
        "-1.500250,-1.500250,1.000,1.000,c1,0,1,medium,imap,LOGON,ok,,1000,0.000,0.000,0.000,0.000,0.000,loop",
    ]


def test_csv_has_mails_commands_and_samples_of_health_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each kind with columns of its own; lists have spaces between their numbers."""
    path = tmp_path / "c1.0.tlog"
    writer = TimingLogWriter(path, HEADER, EPOCH_NS)
    writer.mail(MailRecord(event="seen", message="n1.0", user=2, sender=1, at_ns=ms(1250.5), folder="INBOX"))
    writer.command(("SMTP DATA", 1, ms(100), ms(107.25), "ok", 20, 2000))
    writer.health({"at_ns": ms(1000), "lags_from_ns": ms(980), "lags_us": [10, 2000], "cpu_share": 0.25})
    writer.facts(ENDED)
    writer.close()
    found = {}
    for kind in ("mails", "commands", "health"):
        assert run_log("export", "csv", "--kind", kind, path) == 0
        found[kind] = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    mail = {"at_s": "1.250500", "message": "n1.0", "user": "2", "sender": "1", "event": "seen", "folder": "INBOX"}
    whose = {"client": "c1", "engine": "0"}
    assert found["mails"] == [mail | whose]
    command = {"started_s": "0.100000", "took_ms": "7.250", "user": "1", "command": "SMTP DATA", "outcome": "ok"}
    assert found["commands"] == [command | whose | {"sent_bytes": "20", "received_bytes": "2000"}]
    (sample,) = found["health"]
    found_of_health = [sample[name] for name in ("at_s", "lags_us", "cpu_share", "client")]
    assert found_of_health == ["1.0", "10 2000", "0.25", "c1"]


@pytest.mark.slow
def test_a_closed_output_pipe_is_no_error(tmp_path: Path) -> None:
    """`loadsim log export csv ... | head -1` ends quietly, with status 0."""
    write_sample(tmp_path / "a.tlog", [done("READ", number, 1) for number in range(20_000)])
    code = "import sys; from loadsim.cli import main; sys.exit(main())"
    read_end, write_end = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", code, "log", "export", "csv", str(tmp_path / "a.tlog")],
        stdout=write_end,
        stderr=subprocess.PIPE,
    ) as exporting:
        os.close(write_end)
        with os.fdopen(read_end, "rb") as reading:
            assert reading.readline().decode().strip() == CSV_HEADER
        _, errors = exporting.communicate(timeout=PATIENCE_S)
    assert (exporting.returncode, errors) == (0, b"")


def test_a_window_that_ends_before_it_begins_is_refused(tmp_path: Path) -> None:
    log = write_sample(tmp_path / "a.tlog", [done("READ", 0, 1)])
    with pytest.raises(LogError, match="expected a start before its end, found 200 s to 100 s"):
        run_log("answer", log, "--begin", "200")


def test_csv_of_a_run_has_the_records_of_all_its_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_log("export", "csv", write_two_clients(tmp_path / "run"))
    clients = [row["client"] for row in csv.DictReader(io.StringIO(capsys.readouterr().out))]
    assert (clients.count("c1"), clients.count("c2"), len(clients)) == (16, 13, 29)


def test_an_empty_run_has_an_answer_without_a_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An engine that died at once leaves a log that can be read: invalid, and no score."""
    sample_log(tmp_path / "a.tlog", facts={})
    assert run_log("answer", tmp_path) == 3
    assert "the logs hold no task: there is no score" in capsys.readouterr().out


def test_check_counts_the_records_of_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mails = [event("accepted", "n1.0", 2, 2000)]
    path = write_sample(tmp_path / "a.tlog", [done("LOGON", -500, 1), done("READ", 1000, 250)], mails)
    size = path.stat().st_size
    assert run_log("check", path) == 0
    assert capsys.readouterr().out == (
        f"{path}: whole; format 5, 5 blocks, {size} bytes, 2 tasks, 1 mail events, 0 commands\n"
    )


def test_check_names_damage_and_missing_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A flipped bit, an engine without an end, no log: each has its line."""
    whole = write_sample(tmp_path / "a.tlog", [done("READ", 1000, 250)])
    data = bytearray(whole.read_bytes())
    data[-1] ^= 1
    (tmp_path / "b.tlog").write_bytes(data)
    write_sample(tmp_path / "c.tlog", facts={"start_ns": 0})
    assert run_log("check", tmp_path) == 1
    of_a, of_b, damage, of_c = capsys.readouterr().out.splitlines()
    assert of_a.startswith(f"{whole}: whole; ") and of_c.startswith(f"{tmp_path / 'c.tlog'}: without an end; ")
    place = int(of_b.partition("damaged at byte ")[2].partition(";")[0])
    assert damage == (
        f"  b.tlog: the last {len(data) - place} of {len(data)} bytes are cut off or damaged, and were not read"
    )
    (tmp_path / "d.tlog").write_text("no log\n")
    assert run_log("check", tmp_path / "d.tlog", whole) == 2
    output = capsys.readouterr()
    assert output.out.startswith(f"{whole}: whole") and output.err.startswith(
        f"loadsim: {tmp_path / 'd.tlog'}: expected a timing log"
    )
