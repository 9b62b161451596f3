"""`loadsim characterise`: its files, its answer, and that no name leaves the logs."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from mail_logs import MailLog, iso

from loadsim.characterise import reading
from loadsim.cli import BAD_INPUT, main
from loadsim.scenario.profile import load_profile
from loadsim.scenario.scenario import load_scenario

Capture = pytest.CaptureFixture[str]
FILES = ["profile.yaml", "report.html", "scenario.yaml", "workload.json"]
BEGIN = datetime(2026, 3, 2)


@pytest.fixture
def log(tmp_path: Path) -> MailLog:
    log = MailLog(BEGIN, domain="zuckertuete.test")
    log.days(users=12, days=2, sent=4, from_outside=6, rate=lambda _: 1)
    for at in (BEGIN, BEGIN + timedelta(days=2, seconds=-1)):
        log.line(at, "mx1", "postfix/master[1]", "daemon started")
    log.line(BEGIN, "mx1", "postfix/qmgr[1]", "4A0111: from=<user1@zuckertuete.te")
    (tmp_path / "mail.log").write_text(iso(log.ordered()))
    return log


def test_all_files_are_written_and_no_name_is_in_them(tmp_path: Path, log: MailLog, capsys: Capture) -> None:
    out = tmp_path / "measured"
    assert main(["characterise", str(tmp_path / "mail.log"), "--out", str(out), "--wide"]) == 0
    shown, told = capsys.readouterr()
    assert told == ""
    assert sorted(path.name for path in out.iterdir()) == FILES
    everything = shown + "".join(path.read_text() for path in out.iterdir())
    for name in ("zuckertuete", "user1", "carol", "dave", "mx1", "example.org"):
        assert name not in everything.lower()
    figures = json.loads((out / "workload.json").read_text())
    assert (figures["users"], figures["lines"]["unknown"]) == (12, 1)
    assert figures["sent"]["count"] == log.truth.sent.total()
    assert shown.startswith(f"Workload: {figures['verdict']}")
    assert "log-lines-unknown" in [one["code"] for one in figures["findings"]]
    profile = load_profile(str(out / "profile.yaml"))
    assert profile.calculated is not None
    assert profile.calculated.sent == pytest.approx(figures["sent"]["per_day"], rel=1e-3)
    (group,) = load_scenario(str(out / "scenario.yaml")).topology
    assert (group.users, group.profile) == (12, profile)
    page = (out / "report.html").read_text()
    assert page.count("<svg") >= 2


def test_names_are_hashed_with_a_key_of_the_reading(tmp_path: Path, log: MailLog) -> None:
    """Two readings have the same counts under different hashes."""
    first, second = (reading.read_logs([tmp_path / "mail.log"]).traffic.mailboxes for _ in range(2))
    assert not first.keys() & second.keys()
    assert sorted(each.received for each in first.values()) == sorted(each.received for each in second.values())


def refused(capsys: Capture, *arguments: str) -> str:
    assert main(["characterise", *arguments]) == BAD_INPUT
    out, line = capsys.readouterr()
    assert (out, line.count("\n")) == ("", 1)
    return line


def test_bad_input_is_one_line_and_writes_nothing(tmp_path: Path, log: MailLog, capsys: Capture) -> None:
    path, out = tmp_path / "mail.log", tmp_path / "out"
    assert f"--out {tmp_path}: expected a new directory" in refused(capsys, str(path), "--out", str(tmp_path))
    assert "no.log: expected a log" in refused(capsys, str(tmp_path / "no.log"), "--out", str(out))
    (tmp_path / "text").write_text("x\n")
    assert "text: line 1: expected" in refused(capsys, str(path), str(tmp_path / "text"), "--out", str(out))
    assert not out.exists()
    (tmp_path / "file").write_text("")
    assert "expected a directory to write" in refused(capsys, str(path), "--out", str(tmp_path / "file" / "x"))
