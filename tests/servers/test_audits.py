"""Audits of runs on Dovecot and Postfix: healthy runs have no finding, and each tampering is named by id and folder."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lying_proxy import altered, lying_proxy, stores_nothing
from maildirs import DOMAIN, stored
from mailservers import StartDovecotPostfix, logged_on
from provisioning import delivery_report, own_message
from small_runs import loadsim, on, population_of, written

from loadsim.audit.audit import audit
from loadsim.model.ports import Account
from loadsim.model.scenario import load_scenario
from loadsim.provisioning.sessions import services_of
from loadsim.runs.local import run_locally
from loadsim.runs.watcher import Stage, Watcher
from loadsim.servers.dovecot_postfix import DovecotPostfix
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.records import EVENT

pytestmark = pytest.mark.system

PASSWORD = "accounts.password=secret-{index}"


def audited(out: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    ended = loadsim("audit", out, "--json", "--set", PASSWORD, *options)
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout), ended.stderr


def found(document: dict[str, Any]) -> set[tuple[str, str, int, str]]:
    return {
        (one["code"], one["values"]["message_id"], one["values"]["user"], one["values"]["folder"])
        for one in document["findings"]
    }


@dataclass(frozen=True)
class Ended:
    """A run that has ended, on a server that still runs."""

    server: DovecotPostfix
    out: Path

    @property
    def mail(self) -> Path:
        return self.server.layout.mail


@pytest.fixture(scope="module")
def ended(dovecot_postfix: StartDovecotPostfix, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    place = tmp_path_factory.mktemp("audited")
    path = written(place / "small.yaml")
    server = dovecot_postfix(*population_of(load_scenario(str(path))))
    written(path, **on(server.services))
    ran = loadsim("run", "--no-report", path, "--out", place / "out")
    assert ran.returncode == 0, ran.stderr + ran.stdout
    return Ended(server, place / "out")


def test_a_run_is_audited_and_nothing_is_found(ended: Ended) -> None:
    """By itself before its verdict, and again by the verb, which sees as many messages as lie there."""
    by_itself = json.loads((ended.out / "audit.json").read_text())
    status, document, _ = audited(ended.out)
    assert (status, document["findings"], document["unknown"]) == (0, [], 0)
    assert document == by_itself
    calendars = len(list(ended.mail.glob("user*/Maildir/.Calendar/cur/*")))
    assert document["messages"] == len(list(stored(ended.mail))) + calendars > 100
    assert document["mailboxes"] == 6
    assert (ended.out / "audit.csv").read_text() == "code,message_id,user,folder,wanted\n"


def holders(mail: Path) -> list[bytes]:
    """The work of those who hold the first account, by its manifests."""
    manifests = (mail / "user00001" / "Maildir").glob(".LoadSim/[cn]*/*")
    return [work for each in manifests for work in re.findall(rb'"work": "(\w+)"', each.read_bytes())]


def test_an_audit_holds_the_accounts(ended: Ended) -> None:
    """Nobody else may begin meanwhile; afterwards they are free, and before, nobody else may be at work."""
    scenario = load_scenario(str(ended.out / "scenario.yaml"), [PASSWORD])
    held = list[bytes]()

    def progress(*_: object) -> None:
        held.extend(holders(ended.mail))

    asyncio.run(audit(ended.out, read_logs([ended.out]), scenario, services_of(scenario), progress))
    assert {*held} == {b"audit"}
    assert holders(ended.mail) == []


def test_an_audit_that_reads_nothing_leaves_the_result_of_the_one_before(ended: Ended) -> None:
    before = [(ended.out / name).read_bytes() for name in ("audit.json", "audit.csv")]
    status, document, _ = audited(ended.out, "--set", "server.imap.port=1")
    assert (status, document["mailboxes"], document["unread"]) == (3, 0, 6)
    assert [(ended.out / name).read_bytes() for name in ("audit.json", "audit.csv")] == before
    assert audited(ended.out)[0] == 0


def test_a_run_has_its_result_if_its_audit_is_stopped(dovecot_postfix: StartDovecotPostfix, tmp_path: Path) -> None:
    """Ctrl-C ends the audit, not the run, which holds its accounts until then. A later audit makes up for it."""
    path = written(tmp_path / "small.yaml")
    server = dovecot_postfix(*population_of(load_scenario(str(path))))
    written(path, **on(server.services))
    seen = list[tuple[object, ...]]()

    class Stopping(Watcher):
        def stage(self, stage: Stage) -> None:
            if stage == "audit":
                seen.append((*holders(server.layout.mail), loadsim("init", path).returncode))

        def prepared(self, phase: str, done: int, total: int) -> None:
            if phase == "audit" and not done:
                seen.append((*holders(server.layout.mail), loadsim("init", path).returncode))
                signal.raise_signal(signal.SIGINT)

    assert run_locally(load_scenario(str(path)), tmp_path / "out", watcher=Stopping()).exit_status == 3
    assert seen == [(b"run", 2), (b"audit", 2)]
    codes = [one["code"] for one in json.loads((tmp_path / "out" / "score.json").read_text())["findings"]]
    assert "audit-incomplete" in codes
    assert loadsim("log", "answer", tmp_path / "out" / "logs").returncode == 3
    assert holders(server.layout.mail) == []
    assert audited(tmp_path / "out")[0] == 0
    assert loadsim("log", "answer", tmp_path / "out" / "logs").returncode == 0


def test_each_tampering_is_named_by_id_and_folder(ended: Ended) -> None:
    """Files of a Maildir are changed as a fault of a disk or of an administrator would."""
    mail = list(stored(ended.mail))
    log = read_logs([ended.out])
    expunged = {
        (int(record["user"]), record["message"].decode())
        for record in log.mails[log.mails["event"] == EVENT["expunged"]]
    }
    saved = {each.id: each for each in mail if each.folder == "Sent Items"}
    own = (each for each in mail if each.folder.startswith("Folder") and ":2,S" in each.path.name)
    deleted, doubled, unflagged, moved, marked = (next(own) for _ in range(5))
    altered = next(each for each in mail if each.kind in ("ups10Kat", "upsWDatt") and each.folder == "INBOX")
    back_user, back = next((user, saved[message]) for user, message in sorted(expunged) if message in saved)
    renamed = next(each for each in saved.values() if each is not back)
    other = 1 + moved.user % 6

    deleted.path.unlink()
    shutil.copy2(doubled.path, doubled.path.with_name(f"1{doubled.path.name}"))
    unflagged.path.rename(unflagged.path.with_name(unflagged.path.name.replace(":2,S", ":2,")))
    raw = altered.path.read_bytes()
    at = raw.rindex(b"base64")
    at = raw.index(b"\n", raw.index(b"\n\n", at) + 40) - 9
    marked.path.rename(marked.path.with_name(marked.path.name.replace(":2,S", ":2,ST")))
    header = renamed.path.read_bytes()
    at_id = header.index(b"<", header.lower().index(b"message-id:")) + 1
    renamed.path.write_bytes(header[:at_id] + b"0" + header[at_id + 1 :])
    renamed.path.rename(renamed.path.with_name(f"2{renamed.path.name}"))  # it has another UID, so nothing is cached
    altered.path.write_bytes(raw[:at] + (b"A" if raw[at : at + 1] != b"A" else b"B") + raw[at + 1 :])
    moved.path.rename(ended.mail / f"user{other:05d}" / "Maildir" / "cur" / moved.path.name)
    trash = ended.mail / f"user{back_user:05d}" / "Maildir" / ".Deleted Items" / "cur"
    shutil.copy2(back.path, trash / back.path.name)
    shutil.chown(trash / back.path.name, "dovecot", "dovecot")
    shutil.chown(doubled.path.with_name(f"1{doubled.path.name}"), "dovecot", "dovecot")

    status, document, _ = audited(ended.out)
    assert status == 1
    assert found(document) == {
        ("mail-lost", deleted.message_id, deleted.user, deleted.folder),
        ("mail-lost", marked.message_id, marked.user, marked.folder),
        ("mail-altered", renamed.message_id, renamed.user, renamed.folder),
        ("mail-duplicated", doubled.message_id, doubled.user, doubled.folder),
        ("mail-altered", altered.message_id, altered.user, altered.folder),
        ("mail-misdelivered", moved.message_id, other, "INBOX"),
        ("flag-lost", unflagged.message_id, unflagged.user, unflagged.folder),
        ("mail-unexpected", back.message_id, back_user, "Deleted Items"),
    }
    assert sum(document["counts"].values()) == 8
    lines = (ended.out / "audit.csv").read_text().splitlines()
    assert len(lines) == 1 + 8

    # The verdict of the run has it, computed again.
    answer = loadsim("log", "answer", ended.out, "--json")
    assert answer.returncode == 1
    codes = [one["code"] for one in json.loads(answer.stdout)["findings"] if one["severity"] == "missed"]
    assert codes == ["mail-faults"]


def test_a_mailbox_that_cannot_be_read_is_a_finding_and_is_read_later(ended: Ended) -> None:
    """The next audit reads this mailbox only."""
    (ended.out / "audit.json").unlink()  # a complete one would be kept
    passwords = ended.server.layout.passwords
    whole = passwords.read_text()
    passwords.write_text("".join(line for line in whole.splitlines(keepends=True) if not line.startswith("user00002:")))
    try:
        status, document, _ = audited(ended.out)
        assert (status, document["unread"], document["mailboxes"]) == (3, 1, 5)
        (unread,) = [one for one in document["findings"] if one["code"] == "mailbox-unread"]
        assert unread["where"] == f"account user00002 (user00002@{DOMAIN})"
        assert not str(unread["values"]["why"]).startswith(unread["where"])
        assert loadsim("log", "answer", ended.out).returncode == 3
    finally:
        passwords.write_text(whole)
    status, document, shown = audited(ended.out)
    assert (status, document["unread"], document["mailboxes"]) == (1, 0, 6)
    assert "audit: 1 of 1 accounts" in shown


def test_a_server_that_lies_is_named(dovecot_postfix: StartDovecotPostfix, tmp_path: Path) -> None:
    """Through a proxy that says OK to MOVE, APPEND and STORE, and does nothing; then one that alters bodies."""
    path = written(tmp_path / "small.yaml")
    server = dovecot_postfix(*population_of(load_scenario(str(path))))
    with lying_proxy(server.services.imap.port, answers=stores_nothing) as port:
        lying = on(server.services)
        lying["server"]["imap"]["port"] = port
        written(path, **lying, limits={"drain": "2s"})
        ran = loadsim("run", "--no-report", path, "--out", tmp_path / "out")
    assert ran.returncode == 1, ran.stderr + ran.stdout
    with lying_proxy(server.services.imap.port, alters=altered) as port:
        status, document, _ = audited(tmp_path / "out", "--set", f"server.imap.port={port}")
    assert status == 1
    shown_again = {"mail-duplicated"}  # if a user lists the whole Inbox once more
    codes = {"mail-lost", "mail-misfiled", "flag-lost", "mail-altered"}
    assert document["counts"].keys() - shown_again == codes
    assert document["counts"]["mail-altered"] == document["messages"]
    assert {folder for code, _, _, folder in found(document) if code == "mail-lost"} == {"Sent Items"}
    assert {folder for code, _, _, folder in found(document) if code == "mail-misfiled"} == {"INBOX"}


def test_bounces_are_counted_by_their_reason(ended: Ended) -> None:
    """A report about a message of loadsim counts; one about another message, and a mail from others, do not."""
    before = audited(ended.out)[1]
    account = Account(1, "user00001", f"user00001@{DOMAIN}", "secret-1")
    ours = own_message(1).replace(b"@example.test", f"@{DOMAIN}".encode())
    for message in (delivery_report(ours), delivery_report(ours.replace(b"X-LoadSim", b"X-Other"))):
        with logged_on(ended.server, account) as client:
            assert client.append("INBOX", "", "", message)[0] == "OK"
    document = audited(ended.out)[1]
    assert document["bounces"] == {"5.1.1": 1}
    assert document | {"bounces": {}} == before
