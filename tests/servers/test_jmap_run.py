"""`loadsim run`, `check` and `clean` with the driver jmap on the JMAP peer, with the ways of several servers."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml
from jmap_dialects import SWITCHES
from losing_proxy import ANSWER, REQUEST, losing_proxy
from mailservers import numbered_accounts, start_jmap_peer
from patience import PATIENT_CRITERIA
from small_runs import loadsim, written
from virtual_runs import EVERYTHING

from loadsim.model.ports import Account, Services

HOURS = {"day_length": "16s", "ramp_up": "1s", "warm_up": "2s", "window": "14s"}

BUSY = EVERYTHING | {
    "name": "busy",
    "start_state": {"inbox": 40, "folders": 2, "messages_per_folder": 70},
    "new_mail": {"per_day": 12, "recipients": 2},
    "after_browsing": {"reply": "15%", "forward": "15%", "move": "20%", "copy": "30%", "delete": "20%"},
}
"""With few folders, many messages are copied and moved to the same one."""

BROKEN = {"james": {"changes-invented", "if-in-state-ignored"}}
"""The rules that a server breaks."""

pytestmark = pytest.mark.slow


def asked(services: Services, account: Account, *calls: Any) -> list[Any]:
    """The answers to method calls, sent without the driver."""
    endpoint = services.endpoint("jmap")
    base = f"http://{endpoint.host}:{endpoint.port}"
    secret = b64encode(f"{account.login}:{account.password}".encode()).decode()
    accepted = "application/json; jmapVersion=rfc-8621"
    headers = {"Authorization": f"Basic {secret}", "Accept": accepted, "Content-Type": "application/json"}
    with urlopen(Request(f"{base}/.well-known/jmap", headers=headers)) as answer:
        session = json.load(answer)
    its_id = session["primaryAccounts"]["urn:ietf:params:jmap:mail"]
    using = ["urn:ietf:params:jmap:core", "urn:ietf:params:jmap:mail"]
    named = [[name, {"accountId": its_id, **arguments}, str(at)] for at, (name, arguments) in enumerate(calls)]
    body = json.dumps({"using": using, "methodCalls": named}).encode()
    url = re.sub(r"^(?!http)", base, session["apiUrl"])
    with urlopen(Request(url, body, headers)) as answer:
        return [arguments for _, arguments, _ in json.load(answer)["methodResponses"]]


@pytest.mark.parametrize(
    "ways", ["plain", *(pytest.param(each, marks=pytest.mark.nightly(part="drivers")) for each in [*SWITCHES][1:])]
)
def test_a_run_has_no_failure_and_leaves_nothing_behind(tmp_path: Path, ways: str) -> None:
    """All mail arrives, and is where the records say; `clean` removes all that `init` and the run have put there."""
    accounts = numbered_accounts(4)
    (tmp_path / "busy.yaml").write_text(yaml.safe_dump(BUSY), encoding="utf-8")
    with start_jmap_peer(accounts, *SWITCHES[ways]) as services:
        endpoint = services.endpoint("jmap")
        own = written(
            tmp_path / "small.yaml",
            domain="example.test",
            server={"jmap": {"host": endpoint.host, "port": endpoint.port}},
            accounts={"user": "user{index}", "password": "secret-of-{index}"},
            topology=[{"profile": "./busy.yaml", "users": 4, "protocol": "jmap"}],
            lists={"count": 0},
            run=HOURS,
            criteria=PATIENT_CRITERIA,
        )
        before = {account.number: mailboxes(services, account) for account in accounts}
        checked = loadsim("check", own)
        assert {*re.findall(r"state: FAILED: (\S+)", checked.stdout)} == BROKEN.get(ways, set()), checked.stdout
        assert checked.returncode == bool(BROKEN.get(ways)), checked.stdout + checked.stderr
        for added in (True, False):
            prepared = loadsim("init", own)
            assert ("nothing to do" in prepared.stdout) != added, prepared.stdout + prepared.stderr
        run = loadsim("run", own, "--out", tmp_path / "run", "--no-report", "--even-invalid")
        assert run.returncode in (0, 1, 3), run.stderr + run.stdout
        cleaned = loadsim("clean", own)
        assert cleaned.returncode == 0, cleaned.stderr
        for account in accounts:
            assert mailboxes(services, account) == before[account.number]
            (found,) = asked(services, account, ("Email/query", {}))
            assert found["ids"] == []
    score = json.loads((tmp_path / "run" / "score.json").read_text(encoding="utf-8"))
    assert [(task["task"], task["failed"]) for task in score["tasks"] if task["failed"]] == []
    assert {task["task"] for task in score["tasks"] if task["hits"]} >= {"BROWSE", "COPY", "SEND", "SEARCH"}
    assert ("not-pushed" in json.dumps(score)) == (ways == "cyrus-3.6")
    delivery = score["delivery"]
    assert (delivery["undelivered_at_end"], delivery["missing"], delivery["duplicates"]) == (0, 0, 0)
    audit = json.loads((tmp_path / "run" / "audit.json").read_text(encoding="utf-8"))
    assert (audit["mailboxes"], audit["counts"]) == (4, {})


def test_lost_submissions_are_unknown_and_no_fault_of_the_server(tmp_path: Path) -> None:
    """Each may have been delivered, and its draft may still be in Drafts."""
    accounts = numbered_accounts(3)
    (tmp_path / "busy.yaml").write_text(yaml.safe_dump(BUSY), encoding="utf-8")
    with (
        start_jmap_peer(accounts, "relative_urls=true") as services,
        losing_proxy(services.endpoint("jmap").port, b"EmailSubmission/set", REQUEST, ANSWER, None, None) as port,
    ):
        own = written(
            tmp_path / "small.yaml",
            domain="example.test",
            server={"jmap": {"host": "127.0.0.1", "port": port}},
            accounts={"user": "user{index}", "password": "secret-of-{index}"},
            topology=[{"profile": "./busy.yaml", "users": 3, "protocol": "jmap"}],
            lists={"count": 0},
            run=HOURS,
            criteria=PATIENT_CRITERIA,
        )
        run = loadsim("run", own, "--out", tmp_path / "run", "--no-report", "--even-invalid")
        assert run.returncode in (0, 1, 3), run.stderr + run.stdout
    score = json.loads((tmp_path / "run" / "score.json").read_text(encoding="utf-8"))
    failed = {task["task"]: task["failed"] for task in score["tasks"] if task["failed"]}
    assert failed.keys() <= {"SEND", "REPLY", "REPLY ALL", "FORWARD"}
    assert sum(failed.values()) > 0
    assert (score["delivery"]["missing"], score["delivery"]["duplicates"]) == (0, 0)
    audit = json.loads((tmp_path / "run" / "audit.json").read_text(encoding="utf-8"))
    assert (audit["mailboxes"], audit["counts"], audit["unknown"] > 0) == (3, {}, True)


def mailboxes(services: Services, account: Account) -> set[tuple[str, str | None]]:
    (found,) = asked(services, account, ("Mailbox/get", {"ids": None}))
    return {(each["name"], each["role"]) for each in found["list"]}
