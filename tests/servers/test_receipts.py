"""Delivery and read receipts of Postfix and Dovecot, with imaplib as the oracle."""

import asyncio
import json
import smtplib
import time
from collections import Counter
from contextlib import suppress
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
import yaml
from mailservers import StartDovecotPostfix, logged_on
from patience import PATIENCE_S
from recompute import recompute
from recomputed import differences, exports_of, printed, status_of
from small_runs import loadsim, on, population_of, written
from virtual_runs import quiet

from loadsim.findings.catalogue import Code
from loadsim.model.terms import RECEIPT_TASKS
from loadsim.provisioning.server_check import check_server
from loadsim.provisioning.server_report import ServerReport
from loadsim.runs.local import run_locally
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import Workload
from loadsim.servers.command import run
from loadsim.servers.running import RunningServer

PROFILE = quiet(
    new_mail={"per_day": 20, "recipients": 2, "list_chance": "30%"},
    process_inbox={"per_day": 20},
    after_reading={"reply": "20%"},
    receipts={"delivery": "40%", "read": "40%", "returned": "70%"},
)


def scenario_in(place: Path, **changes: object) -> Path:
    (place / "asking.yaml").write_text(json.dumps({"name": "asking", **PROFILE}))
    topology = [{"profile": str(place / "asking.yaml"), "users": 5}]
    lists = {"count": 1, "size": {"min": 2, "average": 2, "max": 2}}
    hours = {"day_length": "16s", "ramp_up": "1s", "warm_up": "2s", "window": "14s"}  # a profile's hour takes 2 s
    return written(place / "receipts.yaml", topology=topology, lists=lists, run=hours, **changes)


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.parametrize("submission", ["pipelining", "aiosmtplib"])
def test_every_receipt_is_in_its_mailbox(dovecot_postfix: StartDovecotPostfix, tmp_path: Path, submission: str) -> None:
    """Postfix sends one report for each message; readers return receipts for what imaplib shows to request them.

    No mail is foreign, lost or doubled; all figures are recomputed; `clean` removes everything.
    """
    server = dovecot_postfix(*population_of(load_scenario(str(scenario_in(tmp_path)))))
    path = scenario_in(tmp_path, client={"submission": submission}, **on(server.services))
    scenario, out = load_scenario(str(path)), tmp_path / "out"
    result = run_locally(scenario, out, engines=2)

    # What the run says.
    score = json.loads((out / "score.json").read_text())
    found = score["receipts"]
    assert found["planned"] == found["requested"] == found["arrived"] > 5
    codes = {one["code"] for one in score["findings"]}
    assert not codes & {"foreign-mail", "receipts-not-offered"}
    assert score["delivery"]["undelivered_at_end"] == score["delivery"]["duplicates"] == 0
    audit = json.loads((out / "audit.json").read_text())
    assert audit["counts"] == {}
    assert result.exit_status == 0, codes
    resolved = yaml.safe_load((out / "scenario.yaml").read_text())
    figures = recompute(exports_of(out, resolved, path))
    answer = printed("log", "answer", out, "--commands", "--json", statuses=[status_of(figures)])
    assert differences(json.loads(answer), figures) == []

    # What the mailboxes hold.
    mail: dict[str, list[Message]] = {}
    for user in range(1, scenario.users + 1):
        account = scenario.account(user)
        with logged_on(server, account) as client:
            client.select("INBOX", readonly=True)
            (numbers,) = client.search(None, "ALL")[1]
            fetched = [client.fetch(number.decode(), "(BODY.PEEK[])")[1][0] for number in numbers.split()]
            mail[account.address] = [message_from_bytes(one[1]) for one in fetched if isinstance(one, tuple)]
    kinds = Counter(str(one.get_param("report-type")) for held in mail.values() for one in held)
    assert kinds["delivery-status"] == audit["bounces"]["2.0.0"] >= found["arrived"]
    asking = {
        (reader, one["Message-ID"]): one["Disposition-Notification-To"]
        for reader, held in mail.items()
        for one in held
        if one["Disposition-Notification-To"]
    }
    returned = Counter[tuple[str, str]]()
    for asker, held in mail.items():
        for one in held:
            if one.get_param("report-type") == "disposition-notification":
                fields = one.get_payload()[1].get_payload()[0]
                key = fields["Final-Recipient"].removeprefix("rfc822;"), fields["Original-Message-ID"]
                assert (one["Return-Path"], asking[key]) == ("<>", asker)
                returned[key] += 1
    assert set(returned.values()) == {1}
    assert 0 < len(returned) < len(asking)

    # Afterwards.
    cleaned = loadsim("clean", path)
    assert "; 0 messages not created by loadsim were left" in cleaned.stdout, cleaned.stdout


@pytest.mark.slow
@pytest.mark.system
def test_a_server_may_refuse_the_null_return_path(dovecot_postfix: StartDovecotPostfix, tmp_path: Path) -> None:
    """The check tries both receipts, leaves nothing, and names a Postfix that rejects `MAIL FROM:<>`. A run goes on.

    Delivery receipts still arrive, as Postfix hands its own reports to Dovecot.
    """
    server = dovecot_postfix(*population_of(load_scenario(str(scenario_in(tmp_path)))))
    keys = on(server.services)
    keys["server"]["smtp"]["connection"] = "kept"
    path = scenario_in(tmp_path, **keys)
    scenario = load_scenario(str(path))

    def checked() -> ServerReport:
        report = asyncio.run(check_server(Workload(scenario), server.services, lambda _: None))
        for user in range(1, scenario.users + 1):
            with logged_on(server, scenario.account(user)) as client:
                assert client.select("INBOX", readonly=True)[1] == [b"0"]
        return report

    report = checked()
    assert (report.lacks, report.wrong, report.leftovers) == ([], [], ())
    assert {task.task for task in report.tasks} >= {*RECEIPT_TASKS}
    assert {one.subject: one.seen for one in report.mail}["delivery receipts"] == "2 of 2 arrived"

    main = server.postfix.conf / "main.cf"
    with main.open("a") as file:
        file.write("smtpd_sender_restrictions = check_sender_access inline:{{<> = REJECT no null path}}\n")
    run("postfix", ("-c", str(main.parent), "reload"))
    wait_until_refused(server, scenario.account(1).address)
    report = checked()
    assert [one.code for one in report.lacks] == [Code.NULL_PATH_REFUSED]
    assert {one.subject: one.seen for one in report.mail}["delivery receipts"] == "2 of 2 arrived"

    run_locally(scenario, tmp_path / "out", engines=2)
    score = json.loads((tmp_path / "out" / "score.json").read_text())
    (refused,) = [one["values"] for one in score["findings"] if one["code"] == "null-path-refused"]
    returned = next(one for one in score["tasks"] if one["task"] == "RETURN RECEIPT")
    assert refused["refused"] == returned["refused"] == returned["done"] > 0
    assert sum(one["failed_share"] > 0 for one in score["tasks"]) == 1
    assert score["receipts"]["requested"] == score["receipts"]["arrived"] > 5
    assert "sessions-lost" not in {one["code"] for one in score["findings"]}
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["counts"] == {}


def wait_until_refused(server: RunningServer, recipient: str) -> None:
    """Wait until Postfix has reloaded."""
    deadline = time.monotonic() + PATIENCE_S
    smtp = server.services.endpoint("smtp")
    while True:
        with suppress(OSError, smtplib.SMTPException), smtplib.SMTP(smtp.host, smtp.port) as client:
            client.ehlo()
            if (client.mail("")[0], client.rcpt(recipient)[0])[1] == 554:
                return
        assert time.monotonic() < deadline
