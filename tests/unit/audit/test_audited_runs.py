"""The audit in a run directory: it decides with the verdict, and what loadsim does not write is rejected."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compared_runs import decided, write_run
from documents import all_tables, listed
from junit_rules import cases_of
from small_runs import written
from timing_samples import ENDED, event
from virtual_runs import quiet, scenario_of

from loadsim.analysis.recorded_run import read_run
from loadsim.analysis.summary import summarise
from loadsim.campaign.runs import PASSED, judge_run
from loadsim.cli import main
from loadsim.comparison.comparison import compare_runs
from loadsim.errors import LogError
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.report.answer import describe_answer, verdict_words
from loadsim.report.audit import audit_blocks, describe_audit
from loadsim.report.document import Table
from loadsim.report.junit import verdict_junit
from loadsim.report.one_run import describe_run
from loadsim.runs.log_header import is_audited
from loadsim.runs.result import write_summary
from loadsim.runs.watcher import SILENT
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import Workload
from loadsim.timinglog.audited import AuditRecord, audit_in, write_audit
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.planned_load import PlannedLoad

LOST = finding(Code.MAIL_LOST, "user00002", message_id="<n1.0.r@loadsim.test>", user=2, folder="INBOX")
EMPTY = {"deleted_items": 0, "folders": 1, "messages_per_folder": 0}
LOAD = PlannedLoad(100.0, {"SEND": (100, 100), "REPLY": (100, 0)})
UNREAD = finding(Code.MAILBOX_UNREAD, "account user00003", why="refused")


def of_run(place: Path, **changes: Any) -> AuditRecord:
    """The audit of the run in a directory, which it is written to."""
    run = read_logs([place]).sources[0].run
    record = AuditRecord(run=run, mailboxes=9, unread=0, unjudged=0, messages=900, unknown=0, counts={}, findings=())
    record = record._replace(**changes)
    write_audit(place, record)
    return record


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_run(tmp_path, "run")
    assert summarise([tmp_path / "run"]).exit_status == 0
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("changes", "status", "codes"),
    [
        ({}, 0, set()),
        ({"unknown": 9}, 0, {Code.MAIL_UNKNOWN}),
        ({"bounces": {"5.1.1": 1, "automatic reply": 50}}, 0, {Code.AUTOMATIC_REPLIES}),
        ({"unknown": 10}, 1, {Code.MAIL_UNKNOWN}),
        ({"unjudged": 1}, 3, {Code.AUDIT_INCOMPLETE}),
        ({"unjudged": 1, "mailboxes": 100}, 0, {Code.AUDIT_INCOMPLETE}),
        ({"unjudged": 2, "mailboxes": 100}, 3, {Code.AUDIT_INCOMPLETE}),
        ({"unjudged": 9, "by_plugins": 9}, 0, {Code.AUDIT_INCOMPLETE}),
        ({"unjudged": 9, "by_plugins": 8}, 3, {Code.AUDIT_INCOMPLETE}),
        ({"unjudged": 1, "mailboxes": 100, "counts": {"mail-lost": 1}}, 1, {Code.AUDIT_INCOMPLETE, Code.MAIL_FAULTS}),
        ({"mailboxes": 0, "unread": 9, "messages": 0}, 3, {Code.AUDIT_INCOMPLETE}),
        ({"counts": {"mail-lost": 1}, "findings": (LOST,)}, 1, {Code.MAIL_FAULTS}),
        ({"counts": {"flag-lost": 1}}, 1, {Code.MAIL_FAULTS}),
        ({"unread": 1, "findings": (UNREAD,)}, 3, {Code.AUDIT_INCOMPLETE}),
        ({"unread": 1, "counts": {"mail-lost": 1}}, 3, {Code.AUDIT_INCOMPLETE, Code.MAIL_FAULTS}),
    ],
)
def test_the_audit_decides_with_the_verdict(place: Path, changes: Any, status: int, codes: set[Code]) -> None:
    """Of `loadsim run` and its answer; `loadsim audit` ends with the same status."""
    before = {one.code for one in summarise([place]).verdict.findings}
    record = of_run(place, **changes)
    verdict = summarise([place]).verdict
    assert {one.code for one in verdict.findings} - before == codes
    assert verdict.exit_status == record.exit_status(0.01) == status
    facts = {row[0] for table in all_tables(describe_answer(summarise([place]))) for row in table.rows}
    assert ("Audit" in facts) == (codes <= {Code.AUTOMATIC_REPLIES})
    assert audit_in([place], record.run) == record


@pytest.mark.parametrize(("unlisted", "audited", "measured"), [(1, False, True), (2, False, False), (2, True, True)])
def test_criteria_on_stored_mail_need_looks_or_an_audit(
    tmp_path: Path, unlisted: int, audited: bool, measured: bool
) -> None:
    """With more than 1 % of 100 stored messages unlisted, the criteria are missed, and no fault is stated."""
    events = [("saved", number) for number in range(100)] + [("unlisted", number) for number in range(unlisted)]
    mails = [event(name, f"n1.{number}", 1, number) | {"folder": "Sent Items"} for name, number in events]
    criteria = {name: {"max": 0} for name in ("delivery.missing", "delivery.duplicates", "sessions_lost")}
    place = write_run(tmp_path, "run", mails=mails, criteria=criteria, facts=ENDED | {"sessions_lost": 0})
    if audited:
        of_run(place)
    summary = summarise([place])
    unmeasured = {one.name for one in summary.criteria if one.figure is None}
    assert unmeasured == (set() if measured else {"delivery.missing"})
    assert {one.code for one in summary.verdict.missed} == ({Code.CRITERION_NOT_MEASURED} if unmeasured else set())
    assert summary.verdict.validity == ("valid" if audited else "degraded")
    assert summary.exit_status == (0 if measured else 1)
    assert ("not judged in full" in verdict_words(summary)) == bool(unmeasured)
    assert (judge_run(summary.verdict, summary.criteria) == PASSED) == audited
    (tmp_path / "junit.xml").write_text(verdict_junit(summary), encoding="utf-8")
    cases = cases_of(tmp_path / "junit.xml")
    assert {cases[f"loadsim.criteria/{name}"][0] for name in unmeasured} <= {"failure"}


def test_mail_named_by_the_audit_is_not_named_again(tmp_path: Path) -> None:
    """Of 60 messages that no user had sent, 51 were automatic replies and bounces."""
    place = write_run(tmp_path, "run", facts=ENDED | {"foreign": 60})
    for bounces, left in (({}, 60), ({"5.1.1": 1, "automatic reply": 50}, 9), ({"automatic reply": 60}, None)):
        of_run(place, bounces=bounces)
        found = [one.values for one in summarise([place]).verdict.findings if one.code is Code.FOREIGN_MAIL]
        assert found == ([{"messages": left}] if left else [])


def test_allowed_faults_are_counted_and_shown_but_miss_no_criterion(tmp_path: Path, capsys: Any) -> None:
    place = write_run(tmp_path, "run", audit_allow=["mail-altered", "flag-lost"])
    for counts, status, words in (
        ({}, 0, ("0 altered", "0 flag lost")),
        ({"mail-altered": 1200}, 0, ("1,200 altered", "0 flag lost")),
        ({"mail-altered": 1200, "mail-lost": 1}, 1, ("1,200 altered", "0 flag lost")),
    ):
        record = of_run(place, counts=counts, allowed=("mail-altered", "flag-lost"))
        summary = summarise([place])
        assert (summary.exit_status, summary.tone) == (status, "bad" if status else "doubtful")
        assert (record.exit_status(0.01), describe_audit(record, 0.01).tone) == (summary.exit_status, summary.tone)
        of_code = {one.code: one.values for one in summary.verdict.findings}
        assert of_code[Code.MAIL_FAULTS_ALLOWED]["faults"] == words
        assert of_code.get(Code.MAIL_FAULTS, {}).get("faults", ()) == (("1 lost",) if status else ())
        assert ("some faults allowed" in verdict_words(summary)) == (not status)
        table = next(block for block in audit_blocks(record) if isinstance(block, Table))
        assert {name: number for name, number in table.rows if name in counts} == counts
        assert ("allow" in describe_audit(record, 0.01).verdict) == (counts.keys() == {"mail-altered"})


def test_only_the_log_states_allowed_faults(place: Path, tmp_path: Path) -> None:
    """Not `audit.json`; and it allows no lost mail."""
    of_run(place, counts={"mail-altered": 1}, allowed=("mail-altered",))
    assert summarise([place]).exit_status == 1
    write_run(tmp_path, "other", audit_allow=["mail-lost"])
    with pytest.raises(LogError, match=r"audit_allow.*mail-lost"):
        summarise([tmp_path / "other"])


def test_lost_users_degrade_an_audited_run_up_to_the_limit_of_lost_users(place: Path) -> None:
    for users, validity in ((100, "degraded"), (99, "invalid")):
        of_run(place, unjudged=1, mailboxes=users)
        assert summarise([place]).verdict.validity == validity


SUBMITTED = {"user": 2, "sender": 1, "message": "n1.1", "folder": "INBOX"}


@pytest.mark.parametrize(
    ("mails", "criterion"),
    [
        ([SUBMITTED | {"event": "accepted", "at_ns": 10**9}], "delivery.undelivered_at_end"),
        ([SUBMITTED | {"event": "missing", "at_ns": 10**9}], "delivery.missing"),
        ([SUBMITTED | {"event": "doubled", "at_ns": 10**9}], "delivery.duplicates"),
    ],
)
def test_an_audit_adds_to_the_users_findings(tmp_path: Path, mails: Any, criterion: str) -> None:
    """A fault that is gone at the end of the run was one."""
    place = write_run(tmp_path, "run", mails=mails, criteria={criterion: {"max": 0}})
    assert [one.where for one in summarise([place]).verdict.missed] == [criterion]
    of_run(place)
    found = summarise([place])
    assert (found.exit_status, [one.passed for one in found.criteria]) == (1, [False, True, True])
    of_run(place, counts={"mail-lost": 1}, findings=(LOST,))
    missed = [one.code for one in summarise([place]).verdict.missed]
    assert missed == [found.verdict.missed[0].code, Code.MAIL_FAULTS]


def test_lost_mail_fails_the_junit_file(place: Path) -> None:
    """Its JUnit XML agrees with the exit status."""
    report = place / "junit.xml"
    for lost, outcome in ((0, "passed"), (1, "failure")):
        of_run(place, counts={"mail-lost": lost})
        report.write_text(verdict_junit(summarise([place])))
        assert cases_of(report)["loadsim.criteria/audit.faults"][0] == outcome


def test_audit_faults_decide_a_comparison(tmp_path: Path) -> None:
    """Lost mail fails it; so does what users of new have not seen, though the audit has."""
    unseen = [SUBMITTED | {"event": "missing", "message": f"n1.{at}", "at_ns": 10**9} for at in range(9)]
    base, new = (
        [
            write_run(
                tmp_path,
                f"{name}-{at}",
                hour=2 * at + (turn + at) % 2,
                mails=mails,
                criteria={"delivery.missing": {"max": 0}},
            )
            for at in range(5)
        ]
        for turn, (name, mails) in enumerate((("base", []), ("new", unseen)))
    )
    for lost, decision in ((0, "passed"), (100, "failed")):
        for run in (*base, *new):
            of_run(run, counts={"mail-lost": lost if run in new else 0})
        found = compare_runs(base, new, max_regression=0.05)
        assert (found.figures.decision, decided(found)["audit.faults"]) == ("failed", decision)
        assert found.document["missed_more"] == ["delivery.missing", *["audit.faults"] * (lost > 0)]


@pytest.mark.parametrize("lost", [0, 100])
@pytest.mark.parametrize("audited", [{"base"}, {"new"}, {"base", "new", "but one"}])
def test_a_comparison_with_unaudited_runs_does_not_pass(tmp_path: Path, audited: set[str], lost: int) -> None:
    """Some runs were not checked for lost mail; lost mail of the others still fails."""
    base, new = (
        [write_run(tmp_path, f"{name}-{at}", hour=2 * at + (turn + at) % 2) for at in range(1, 4)]
        for turn, name in enumerate(("base", "new"))
    )
    for run in (*base, *new)[: 5 if "but one" in audited else 6]:
        if run.name.partition("-")[0] in audited:
            of_run(run, counts={"mail-lost": lost if run in new else 0})
    found = compare_runs(base, new, max_regression=0.05)
    fails = lost and audited != {"base"}
    assert found.figures.decision == ("failed" if fails else "undecided")
    assert decided(found)["audit.faults"] == ("failed" if fails and "base" in audited else "undecided")


def test_the_audit_is_found_by_any_path_to_the_logs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_run(place, counts={"mail-lost": 1}, findings=(LOST,))
    monkeypatch.chdir(place / "logs")
    (place.parent / "linked.tlog").symlink_to(place / "logs" / "c1.0.tlog")
    for path in (place, place / "logs", place / "logs" / "c1.0.tlog", Path("c1.0.tlog"), place.parent / "linked.tlog"):
        assert summarise([path]).exit_status == 1


def test_logs_of_an_audited_run_without_its_audit_are_invalid(tmp_path: Path) -> None:
    """As after an audit that was killed, or if the logs alone were copied; a run that ended early has no audit."""
    write_run(tmp_path, "killed", audited=True)
    verdict = summarise([tmp_path / "killed"]).verdict
    assert (verdict.exit_status, Code.AUDIT_INCOMPLETE in {one.code for one in verdict.findings}) == (3, True)
    of_run(tmp_path / "killed")
    assert summarise([tmp_path / "killed"]).exit_status == 0
    write_run(tmp_path, "stopped", audited=True, facts=ENDED | {"ended": "early"})
    verdict = summarise([tmp_path / "stopped"]).verdict
    assert (verdict.exit_status, Code.AUDIT_INCOMPLETE in {one.code for one in verdict.findings}) == (3, False)


@pytest.mark.parametrize(
    ("wanted", "load", "most", "expected"),
    [
        (None, LOAD, 10_000, True),
        (None, LOAD, 1_000, False),
        (None, None, 10_000, False),
        (True, None, 0, True),
        (False, LOAD, 10_000, False),
    ],
)
def test_runs_are_audited_by_setting_or_number_of_planned_messages(
    tmp_path: Path, wanted: bool | None, load: PlannedLoad | None, most: int, expected: bool
) -> None:
    workload = Workload(replace(load_scenario(str(written(tmp_path / "small.yaml"))), audit=wanted))
    assert is_audited(workload, load, most) is expected


def test_a_notice_to_all_users_has_a_copy_for_each(tmp_path: Path) -> None:
    notices = {"mailbox": False, "new_mail": {"per_day": 1, "recipients": "all"}, "messages": {"ups1K": 1}}
    workload = Workload(scenario_of(tmp_path, (quiet(start_state=EMPTY), 9), (notices, 1)))
    notice = PlannedLoad(60.0, {"INJECT": (100,)})
    assert [is_audited(workload, notice, most) for most in (999, 1000)] == [False, True]


def test_posts_are_messages(tmp_path: Path) -> None:
    public = {"folders": {"public": "Notices"}, "mailbox": {"public": 200}}
    workload = Workload(scenario_of(tmp_path, (quiet(start_state=EMPTY), 2), **public))
    posts = PlannedLoad(60.0, {"POST": (50, 50)})
    assert [is_audited(workload, posts, most) for most in (299, 300)] == [False, True]


def test_an_unaudited_run_has_a_warning(tmp_path: Path) -> None:
    write_run(tmp_path, "run", audited=False)
    """By a warning, which comparisons, searches, suites and JUnit XML list, too."""
    verdict = summarise([tmp_path / "run"]).verdict
    assert (verdict.exit_status, Code.MAIL_NOT_AUDITED in {one.code for one in verdict.warnings}) == (0, True)
    of_run(tmp_path / "run")
    assert Code.MAIL_NOT_AUDITED not in {one.code for one in summarise([tmp_path / "run"]).verdict.findings}


def test_each_result_of_an_audit_has_its_sentence(place: Path) -> None:
    some: tuple[dict[str, int], ...] = ({}, {"unknown": 1}, {"unjudged": 1}, {"unjudged": 1, "mailboxes": 100})
    assert len({describe_audit(of_run(place, **changes), 0.01).verdict for changes in some}) == 4


def test_report_and_answer_list_the_faults(place: Path) -> None:
    record = of_run(place, counts={"mail-lost": 30}, findings=(LOST,))
    for document in (describe_audit(record, 0.01), describe_run(read_run(str(place)))):
        assert listed(document, "The first of each kind of 30 faults") == (LOST.text,)


@pytest.mark.parametrize(
    "damage",
    [
        lambda document: document | {"run": "another"},
        lambda document: document | {"messages": -1},
        lambda document: document | {"counts": {"short-window": 1}},
        lambda document: document | {"bounces": {"a reason": 1}},
        lambda document: document | {"findings": [{"code": "mail-lost"}]},
        lambda document: document | {"findings": [LOST.document | {"severity": "note"}]},
        lambda document: document | {"findings": [finding(Code.ONE_RUN).document]},
        lambda document: [document],
    ],
)
def test_a_malformed_audit_file_is_rejected(place: Path, damage: Any) -> None:
    document = of_run(place, findings=(LOST,)).document
    (place / "audit.json").write_text(json.dumps(damage(document)))
    with pytest.raises(LogError, match=r"audit\.json: .*expected"):
        summarise([place])


def test_an_audit_file_of_an_older_version_names_the_remedy(place: Path) -> None:
    """As before there were mailboxes that are not judged."""
    document = of_run(place).document
    del document["unjudged"]
    (place / "audit.json").write_text(json.dumps(document))
    with pytest.raises(LogError, match=r"audit\.json: unjudged: .*; if another version .* delete it, and audit again"):
        summarise([place])


def test_a_scenario_without_a_password_names_the_sources(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run directory has none; on the embedded server, there is nothing to read any more."""
    server = {"imap": {"host": "127.0.0.1", "port": 1}, "smtp": {"host": "127.0.0.1", "port": 1}}
    group = {"profile": "loadsim-5.5/medium", "users": 1}
    for scenario, said in (
        ({"server": server, "accounts": {"user": "u{index}", "password": "***"}}, "set LOADSIM_PASSWORD, or use --set"),
        (
            {"server": "embedded", "accounts": {"user": "u{index}", "password": "***"}},
            "found embedded, which runs only during loadsim run",
        ),
    ):
        (place / "scenario.yaml").write_text(json.dumps({"name": "x", "topology": [group], **scenario}))
        assert main(["audit", str(place)]) == 2
        assert said in capsys.readouterr().err


def without_a_server(place: Path) -> Path:
    """The directory of a run of three users, whose server is not there any more."""
    nowhere = {"server": {name: {"host": "127.0.0.1", "port": 1} for name in ("imap", "smtp")}}
    own = {"accounts": {"user": "u{index}", "password": "secret"}}
    document = {"name": "small", **nowhere, **own, "topology": [{"profile": "loadsim-5.5/medium", "users": 3}]}
    path = place / "small.json"
    path.write_text(json.dumps(document))
    run = write_run(place, "run", scenario_digest=load_scenario(str(path)).digest(), audited=True)
    path.rename(run / "scenario.yaml")
    return run


@pytest.mark.parametrize(
    "change",
    [
        *("topology.0.users=2", "topology.0.protocol=fake", "run.seed=2", "initialise=never", "mailbox.inbox=0"),
        "run.audit_allow=[mail-altered]",
    ],
)
def test_only_the_scenario_of_a_run_can_be_audited(tmp_path: Path, change: str) -> None:
    """Others have fewer mailboxes, or another start state: what is lost would not be missed."""
    place = without_a_server(tmp_path)
    assert main(["audit", str(place), "--set", change]) == 2
    assert not [*place.glob("audit.*")]
    assert main(["audit", str(place), "--set", "accounts.password=another"]) == 3  # no server answers


@pytest.mark.slow
def test_an_audit_renews_the_results_of_its_run(tmp_path: Path) -> None:
    """As after a run without one, whose files say that all criteria are met."""
    place = without_a_server(tmp_path)
    names = ("score.json", "answer.txt", "report.html")
    for name in names:
        (place / name).write_text("valid, criteria met")
    assert main(["audit", str(place), "--set", "accounts.password=another"]) == 3
    assert all(Code.AUDIT_INCOMPLETE.id in (place / name).read_text() for name in names)


@pytest.mark.parametrize(
    ("taken", "criteria", "expected"),
    [(None, {}, 0), ("score.json", {}, 2), ("answer.txt", {}, 2), ("score.json", {"score_ms": {"max": 1}}, 2)],
)
def test_a_result_that_cannot_be_written_is_no_success(
    tmp_path: Path, taken: str | None, criteria: dict[str, Any], expected: int
) -> None:
    """A script that reads the status alone must not take an old score, or none, for this one."""
    run = write_run(tmp_path, "run", criteria=criteria)
    if taken:
        (run / taken).mkdir()
    assert write_summary(run, SILENT).exit_status == expected
