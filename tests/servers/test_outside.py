"""Mail from outside on real servers: submitted without a log-on, refused to unknown recipients, found by imaplib."""

import json
from collections import Counter
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
from mailservers import StartDovecotPostfix, logged_on
from small_runs import loadsim, on, population_of, written
from virtual_runs import quiet

from loadsim.model.message_tag import HEADER, OUTSIDE_DOMAIN, MessageTag
from loadsim.runs.local import run_locally
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.workload import Workload
from loadsim.servers.dovecot_postfix import DovecotPostfix, check_machine
from loadsim.servers.private import free_port
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.records import EVENTS

SENDERS = 5
HALF = {"mailbox": False, "new_mail": {"per_day": 20}, "message_sizes": {"median": "4K", "mean": "8K"}}
MIXED = {"name": "mixed", **HALF, "unknown_recipients": "30%"}
READING = {"process_inbox": {"per_day": 20}, "after_reading": {"reply": "20%"}}


def scenario_in(place: Path, profile: dict[str, Any], recipients: int = 1, **changes: Any) -> Path:
    """Four users of a profile, and senders, a third of whose messages go to unknown recipients."""
    mixed = {**MIXED, "new_mail": {"per_day": 20, "recipients": recipients}}
    for name, rows in (("users", {"name": "users", **profile}), ("mixed", mixed)):
        (place / f"{name}.yaml").write_text(json.dumps(rows))
    topology = [
        {"profile": str(place / "users.yaml"), "users": 4},
        {"profile": str(place / "mixed.yaml"), "users": SENDERS},
    ]
    return written(place / "outside.yaml", topology=topology, lists={"count": 0}, **changes)


def planned(scenario: Scenario) -> tuple[dict[str, int], int]:
    """The recipient of each message from outside, by its id, and the number of those to unknown recipients."""
    load = Workload(scenario)
    to: dict[str, int] = {}
    unknown = 0
    for sender in load.senders:
        for activity in load.activities(sender):
            if load.unknown_recipient(sender, activity.number):
                unknown += 1
            else:
                found = load.addressing(sender, load.sender_profile(sender), activity.kind, activity.number)
                (to[f"n{sender}.{activity.number}"],) = found.users
    return to, unknown


def inboxes(server: DovecotPostfix, scenario: Scenario) -> Counter[tuple[str, int]]:
    """The messages from outside that imaplib finds, with their users; no Inbox has others."""
    found = Counter[tuple[str, int]]()
    for user in range(1, 5):
        with logged_on(server, scenario.account(user)) as client:
            client.select("INBOX", readonly=True)
            for number in client.search(None, "ALL")[1][0].split():
                message = message_from_bytes(client.fetch(number, "(BODY.PEEK[])")[1][0][1])
                tag = MessageTag.parse(message[HEADER])
                assert tag is not None
                assert message["From"].endswith(f"@{OUTSIDE_DOMAIN}")
                found[tag.id, user] += 1
    return found


@pytest.mark.slow
def test_a_run_on_the_embedded_server_accounts_for_mail_from_outside(tmp_path: Path) -> None:
    scenario = load_scenario(str(scenario_in(tmp_path, quiet(**READING))))
    _, unknown = planned(scenario)
    result = run_locally(scenario, tmp_path / "out", engines=2)
    score = json.loads((tmp_path / "out" / "score.json").read_text())
    assert (score["users"], score["outside_senders"]) == (4, SENDERS)
    assert (score["outside_unknown_refused"], score["outside_unknown_accepted"]) == (unknown, 0)
    inject = score["load"]["tasks"]["INJECT"]
    assert inject["planned"] > 50
    assert inject["made"] == pytest.approx(inject["planned"], abs=5)
    assert score["delivery"]["undelivered_at_end"] == score["delivery"]["duplicates"] == 0
    codes = [one["code"] for one in score["findings"]]
    assert "unknown-accepted" not in codes
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["counts"] == {}
    assert result.exit_status == 0, codes


@pytest.mark.slow
@pytest.mark.system
def test_every_message_from_outside_is_in_its_mailbox_once(
    dovecot_postfix: StartDovecotPostfix, tmp_path: Path
) -> None:
    """Users leave their Inbox as it is. imaplib finds what the plan says, and Postfix has refused the rest.

    `clean` removes it like all of loadsim's mail.
    """
    path = scenario_in(tmp_path, quiet())
    server = dovecot_postfix(*population_of(load_scenario(str(path))))
    scenario = load_scenario(str(scenario_in(tmp_path, quiet(), **on(server.services))))
    to, unknown = planned(scenario)
    run_locally(scenario, tmp_path / "out")
    found = inboxes(server, scenario)
    assert found == Counter(to.items())
    assert len(found) > 40
    log = server.postfix.log.read_text()
    refused = {line.partition("<unknown-")[2].partition("@")[0] for line in log.splitlines() if "550 5.1.1" in line}
    assert len(refused) == unknown > 10
    score = json.loads((tmp_path / "out" / "score.json").read_text())
    assert (score["outside_unknown_refused"], score["outside_unknown_accepted"]) == (unknown, 0)
    assert server.queue() == []
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["counts"] == {}
    assert loadsim("clean", path).returncode == 0
    for user in range(1, 5):
        with logged_on(server, scenario.account(user)) as client:
            assert client.select("INBOX", readonly=True)[1] == [b"0"]


def lmtp_with_room(port: int, messages: int) -> str:
    """Return settings of Dovecot by which it speaks LMTP at a port, and stores so many messages for each user."""
    listener = f"service lmtp {{\n  inet_listener lmtp {{\n    port = {port}\n  }}\n}}\n"
    if check_machine()[0].version:
        return listener + f"mail_plugins {{\n  quota = yes\n}}\nquota User {{\n  quota_message_count = {messages}\n}}\n"
    rules = f"quota = count:User\n  quota_vsizes = yes\n  quota_rule = *:messages={messages}"
    return listener + f"mail_plugins = quota\nplugin {{\n  {rules}\n}}\n"


@pytest.mark.slow
@pytest.mark.system
def test_lmtp_accounts_for_each_recipient(dovecot_postfix: StartDovecotPostfix, tmp_path: Path) -> None:
    """Each message goes to three of four users, whose mailboxes fill up: Dovecot answers for each recipient.

    imaplib finds what was accepted, and nothing else; users' own mail goes through Postfix, which gets none of this.
    """
    path = scenario_in(tmp_path, quiet(), recipients=3)
    port = free_port()
    server = dovecot_postfix(*population_of(load_scenario(str(path))), extra=lmtp_with_room(port, 30))
    changes = on(server.services)
    changes["server"]["outside"] = {"host": "127.0.0.1", "port": port, "protocol": "lmtp"}
    scenario = load_scenario(str(scenario_in(tmp_path, quiet(), recipients=3, **changes)))
    unknown = sum(
        Workload(scenario).unknown_recipient(sender, activity.number) is not None
        for sender in Workload(scenario).senders
        for activity in Workload(scenario).activities(sender)
    )
    run_locally(scenario, tmp_path / "out")
    found = inboxes(server, scenario)
    log = read_logs([tmp_path / "out"])
    recorded = {"accepted": Counter[tuple[str, int]](), "unsure": Counter[tuple[str, int]]()}
    for mail in log.mails:
        if EVENTS[mail["event"]] in recorded:
            recorded[EVENTS[mail["event"]]][mail["message"].decode(), int(mail["user"])] += 1
    assert found == recorded["accepted"]
    partly = {message for message, _ in recorded["accepted"]} & {message for message, _ in recorded["unsure"]}
    assert partly
    assert len(found) > 40
    score = json.loads((tmp_path / "out" / "score.json").read_text())
    assert (score["outside_unknown_refused"], score["outside_unknown_accepted"]) == (unknown, 0)
    assert "LMTP DATA" in log.strings
    assert "outside.test" not in server.postfix.log.read_text()
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["counts"] == {}
    assert any(one["code"] == "task-refused" and "552 DATA" in str(one) for one in score["findings"])
