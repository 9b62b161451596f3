"""Assistants on Dovecot and Postfix: their mail by doveadm and imaplib, the start state after it, and a limit."""

import asyncio
import json
from collections import Counter
from dataclasses import replace
from email import message_from_bytes
from email.utils import parseaddr
from pathlib import Path
from typing import Any

import pytest
import yaml
from agreement import differences, mailboxes_by_doveadm, mailboxes_by_log
from imap_script import Ear
from mailservers import StartDovecotPostfix, logged_on
from paths import ROOT
from small_runs import loadsim, on, population_of, written

from loadsim.model.mail_program import load_program
from loadsim.model.ports import INBOX, SearchKey
from loadsim.protocols.imap import open_driver
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import Workload
from loadsim.servers.dovecot_postfix import DovecotPostfix
from loadsim.timinglog.merge import read_logs

pytestmark = [pytest.mark.slow, pytest.mark.system]

USERS = 4
CALLS = {"per_day": 12, "searches": 3, "reads": 2, "draft": "70%", "send": "50%", "pause": "10s"}


def scenario_on(start: StartDovecotPostfix, place: Path, **changes: Any) -> tuple[Path, DovecotPostfix]:
    """A scenario of users with a busy assistant each, and its server."""
    shipped = yaml.safe_load((ROOT / "programs" / "assistant.yaml").read_text(encoding="utf-8"))
    (place / "busy.yaml").write_text(yaml.safe_dump(shipped | {"name": "busy", "calls": CALLS}), encoding="utf-8")
    group = {"profile": "loadsim-5.5/medium", "users": USERS, "program": ["outlook-like", str(place / "busy.yaml")]}
    path = written(place / "assisted.yaml", topology=[group], **changes)
    server = start(*population_of(load_scenario(str(path))))
    return written(path, topology=[group], **on(server.services), **changes), server


def tasks_of(out: Path) -> dict[str, dict[str, Any]]:
    return {task["task"]: task for task in json.loads((out / "score.json").read_text(encoding="utf-8"))["tasks"]}


def test_assistants_leave_accounted_mail(dovecot_postfix: StartDovecotPostfix, tmp_path: Path) -> None:
    """doveadm and the audit find what the log says; `init` and `clean` leave nothing of it."""
    path, server = scenario_on(dovecot_postfix, tmp_path)
    scenario = load_scenario(str(path))
    accounts = [scenario.account(user) for user in range(1, USERS + 1)]
    with logged_on(server, accounts[0]) as client:
        folders = client.list()
    ended = loadsim("run", "--no-report", path, "--out", tmp_path / "out", "--set", "run.audit=yes")
    assert ended.returncode == 0, ended.stderr + ended.stdout
    tasks = tasks_of(tmp_path / "out")
    assert min(tasks[f"ASSISTANT {task}"]["hits"] for task in ("SEARCH", "READ", "DRAFT", "SEND")) > 0
    assert not any(task["failed"] for task in tasks.values())
    assert not any(task["weight"] for name, task in tasks.items() if name.startswith("ASSISTANT"))
    log = read_logs([tmp_path / "out"])
    expected = mailboxes_by_log(Workload(scenario), log)
    assert differences(expected, mailboxes_by_doveadm(accounts, server.doveadm)) == []
    drafts = Counter[str]()
    for account in accounts:
        with logged_on(server, account) as client:
            client.select("Drafts", readonly=True)
            for line in client.fetch("1:*", "(FLAGS)")[1]:
                drafts[str(line).partition("FLAGS (")[2].partition(")")[0]] += 1
    assert drafts == {r"\\Seen \\Draft": sum(expected[user]["Drafts"].total() for user in expected)}
    assert drafts.total() >= tasks["ASSISTANT DRAFT"]["hits"]

    ended = loadsim("init", path)
    assert ended.returncode == 0, ended.stderr
    assert differences(mailboxes_by_doveadm(accounts, server.doveadm), start_of(path)) == []
    assert "nothing to do" in loadsim("init", path).stdout
    assert loadsim("clean", path).returncode == 0
    with logged_on(server, accounts[0]) as client:
        assert client.list() == folders


def start_of(path: Path) -> Any:
    """The mailboxes of the start state: a log without mail."""
    workload = Workload(load_scenario(str(path)))
    return {
        user: {
            folder: Counter(workload.initial(user, folder, at).id for at in range(count))
            for folder, count in workload.start_state(user).items()
            if count
        }
        for user in range(1, USERS + 1)
    }


def test_searches_find_what_imaplib_finds(dovecot_postfix: StartDovecotPostfix, tmp_path: Path) -> None:
    path, server = scenario_on(dovecot_postfix, tmp_path)
    assert loadsim("init", path).returncode == 0
    account = load_scenario(str(path)).account(1)
    with logged_on(server, account) as client:
        client.select(INBOX, readonly=True)
        head = message_from_bytes(client.fetch("1", "(BODY.PEEK[HEADER.FIELDS (FROM SUBJECT)])")[1][0][1])
        sender, subject = parseaddr(head["From"])[1], head["Subject"].split()[0]
        sought = {SearchKey.SENDER: sender, SearchKey.SUBJECT: subject, SearchKey.TEXT: subject}
        expected = {key: client.uid("SEARCH", key, f'"{words}"')[1][0].split() for key, words in sought.items()}

    async def found() -> dict[SearchKey, list[bytes]]:
        services = replace(server.services, program=load_program("assistant"))
        mailbox = open_driver(services).session(account, Ear()).mailbox
        hits = {}
        for key, words in sought.items():
            hits[key] = [str(hit.ref.uid).encode() for hit in await mailbox.search(INBOX, key, words, 50)]
            await mailbox.log_off()
        return hits

    assert asyncio.run(found()) == expected
    assert all(expected.values())


def test_a_limit_of_connections_is_found_before_a_run(dovecot_postfix: StartDovecotPostfix, tmp_path: Path) -> None:
    """A user has one connection and keeps it, so an assistant would have none."""
    path, server = scenario_on(dovecot_postfix, tmp_path)
    conf = server.layout.dovecot_conf
    limit = "mail_max_userip_connections = "
    conf.write_text(conf.read_text(encoding="utf-8").replace(f"{limit}0", f"{limit}1"), encoding="utf-8")
    server.doveadm("reload")
    ended = loadsim("run", "--no-report", path, "--out", tmp_path / "out")
    assert ended.returncode == 2
    assert "found 1 of 2 of a user at once (outlook-like+busy): NO [LIMIT]" in ended.stderr
