"""Audits of runs on Dovecot and Postfix: healthy runs have no finding, and each tampering is named by id and folder."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import subprocess
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from lying_proxy import altered, bare, lying_proxy, stores_nothing
from maildirs import DOMAIN, Stored, stored
from mailservers import StartDovecotPostfix, logged_on
from provisioning import delivery_report, own_message
from small_runs import loadsim, on, population_of, written

from loadsim.audit.audit import audit
from loadsim.cli import main
from loadsim.errors import ConfigError
from loadsim.model.ports import Account
from loadsim.provisioning.hold import Hold, held
from loadsim.provisioning.sessions import accounts_on_server, services_of
from loadsim.runs.local import run_locally
from loadsim.runs.watcher import Stage, Watcher
from loadsim.scenario.scenario import load_scenario
from loadsim.servers.dovecot_postfix import DovecotPostfix
from loadsim.timinglog.merge import read_logs

pytestmark = pytest.mark.system

PASSWORD = "accounts.password=secret-{index}"
DAY = {"day_length": "12s", "ramp_up": "1s", "warm_up": "1s", "window": "11s"}
GRACE = {"grace": "120s"}  # nothing is cut off, and so unknown, on a busy machine


def called(*arguments: str | Path) -> tuple[int, str, str]:
    """The exit status, output and errors of a command, run here."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as errors:
        status = main([*map(str, arguments)])
    return status, out.getvalue(), errors.getvalue()


def audited(out: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    status, shown, errors = called("audit", out, "--json", "--set", PASSWORD, *options)
    assert shown, errors
    return status, json.loads(shown), errors


def found(document: dict[str, Any]) -> set[tuple[str, str, int, str]]:
    return {
        (one["code"], one["values"]["message_id"], one["values"]["user"], one["values"]["folder"])
        for one in document["findings"]
    }


@dataclass(frozen=True)
class Ended:
    """A run that has ended with this exit status, on a server that still runs; `files` has its scenario, too.

    `seen` are the holders of its accounts in its audit, and the exit status of an `init` meanwhile. `emptied` was in
    Deleted Items before the log-off; its file is also in `files`.
    """

    server: DovecotPostfix
    files: Path
    status: int
    seen: tuple[object, ...]
    emptied: Stored

    @property
    def out(self) -> Path:
        return self.files / "out"

    @property
    def mail(self) -> Path:
        return self.server.layout.mail


def holders(mail: Path) -> list[bytes]:
    """The work of those who hold the first account, by its manifests."""
    manifests = (mail / "user00001" / "Maildir").glob(".LoadSim/[cn]*/*")
    held = (re.search(rb'"work": "(\w+)".*"until_s": [1-9]', each.read_bytes(), re.S) for each in manifests)
    return [each[1] for each in held if each]


def users(place: Path) -> dict[str, Any]:
    """Six Heavy users with small mailboxes, who forward more and reply less than others."""
    start = {"inbox": 12, "deleted_items": 2, "folders": 3, "messages_per_folder": 4}
    then = {"reply": "10%", "reply_all": "2%", "forward": "14%", "move": "20%", "copy": "5%", "delete": "40%"}
    changes = {"start_state": start, "after_reading": {**then, "nothing": "9%"}}
    profile = place / "small-profile.yaml"
    profile.write_text(json.dumps({"from": "loadsim-5.5/heavy", "name": "small", **changes}))
    return {"topology": [{"profile": str(profile), "users": 6}]}


def copy(source: Path, target: Path) -> None:
    """Copy the contents of a directory with their owners, in place of those of the other."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", source, target], check=True)


@pytest.fixture(scope="module")
def kept(dovecot_postfix: StartDovecotPostfix, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A run whose audit was ended by Ctrl-C, with copies of its files and of its mail."""
    files = tmp_path_factory.mktemp("audited") / "run"
    files.mkdir()
    path = written(files / "small.yaml", **users(files))
    server = dovecot_postfix(*population_of(load_scenario(str(path))))
    written(path, **users(files), **on(server.services), run=DAY, limits=GRACE)
    seen = list[object]()
    deleted = list[Stored]()

    class Stopping(Watcher):
        def stage(self, stage: Stage) -> None:
            if stage == "load":
                deleted.extend(each for each in stored(server.layout.mail) if each.folder == "Deleted Items")
                shutil.copy2(deleted[0].path, files)

        def prepared(self, phase: str, done: int, total: int) -> None:
            if phase == "audit" and not seen:
                seen.extend((*holders(server.layout.mail), loadsim("init", path).returncode))
                signal.raise_signal(signal.SIGINT)

    status = run_locally(load_scenario(str(path)), files / "out", watcher=Stopping()).exit_status
    ended = Ended(server, files, status, tuple(seen), deleted[0])
    await_log_offs(server)
    copy(files, files.with_name("files"))
    copy(ended.mail, files.with_name("mail"))
    return ended


@pytest.fixture
def ended(kept: Ended) -> Iterator[Ended]:
    """The run, whose mail a test only reads."""
    yield kept
    copy(kept.files.with_name("files"), kept.files)


@pytest.fixture
def harmed(ended: Ended) -> Iterator[Ended]:
    """The run, whose mail a test changes."""
    yield ended
    await_log_offs(ended.server)
    copy(ended.files.with_name("mail"), ended.mail)


def await_log_offs(server: DovecotPostfix) -> None:
    while "imap" in server.doveadm("who"):
        pass


def test_a_run_has_its_result_if_its_audit_is_stopped(ended: Ended) -> None:
    """Ctrl-C ends the audit, not the run, which holds its accounts until then."""
    assert (ended.status, ended.seen) == (3, (b"run", 2))
    codes = [one["code"] for one in json.loads((ended.out / "score.json").read_text())["findings"]]
    assert "audit-incomplete" in codes
    assert called("log", "answer", ended.out / "logs")[0] == 3
    assert holders(ended.mail) == []


def test_a_later_audit_has_the_full_result(ended: Ended) -> None:
    """It reads all stored messages. Meanwhile no other work may begin; afterwards the accounts are free."""
    scenario = load_scenario(str(ended.out / "scenario.yaml"), [PASSWORD])
    held = list[bytes]()

    def progress(*_: object) -> None:
        held.extend(holders(ended.mail))

    record = asyncio.run(audit(ended.out, read_logs([ended.out]), scenario, services_of(scenario), progress))
    assert (record.exit_status(0), record.findings, record.unknown, record.mailboxes) == (0, (), 0, 6)
    calendars = len(list(ended.mail.glob("user*/Maildir/.Calendar/cur/*")))
    assert record.messages == len(list(stored(ended.mail))) + calendars > 100
    assert {*held} == {b"audit"}
    assert holders(ended.mail) == []
    assert (ended.out / "audit.csv").read_text() == "code,message_id,user,folder,wanted\n"
    before = (ended.out / "audit.json").read_bytes()
    assert audited(ended.out)[0] == 0
    assert (ended.out / "audit.json").read_bytes() == before
    assert called("log", "answer", ended.out / "logs")[0] == 0


def test_an_audit_after_another_use_of_the_accounts_is_refused(harmed: Ended) -> None:
    """It would take the work of others for the server's; the result that there is stays."""
    assert audited(harmed.out)[0] == 0
    before = (harmed.out / "audit.json").read_bytes()
    assert called("init", harmed.files / "small.yaml")[0] == 0
    status, shown, errors = called("audit", harmed.out, "--set", PASSWORD)
    assert (status, shown) == (2, "")
    assert "to be its last user, found loadsim init on" in errors
    assert (harmed.out / "audit.json").read_bytes() == before


def test_an_audit_of_other_accounts_is_refused(ended: Ended) -> None:
    """Those of the run in another order, of which the first is the same: users have each other's mail there."""
    rows = [f"user{user:05},secret-{user}" for user in range(1, 7)]
    table = ended.files / "accounts.csv"
    table.touch(0o600)

    def of(order: Sequence[str]) -> int:
        table.write_text("\n".join(["user,password", *order]))
        return called("audit", ended.out, "--set", f"accounts={{csv: {table}}}")[0]

    assert of(rows) == 0
    before = (ended.out / "audit.json").read_bytes()
    assert of([*rows[:4], rows[5], rows[4]]) == 2
    assert (ended.out / "audit.json").read_bytes() == before


@pytest.mark.parametrize("of_run", [True, False])
def test_an_audit_under_a_hold_that_is_lost_has_no_result(harmed: Ended, of_run: bool) -> None:
    """Somebody removes the manifest meanwhile: under the hold of the run, or of the audit."""
    scenario = load_scenario(str(harmed.out / "scenario.yaml"), [PASSWORD])
    services, log = services_of(scenario), read_logs([harmed.out])
    run = log.sources[0].run

    def progress(*_: object) -> None:
        harmed.server.doveadm("expunge", "-u", "user00001", "mailbox", "LoadSim", "ALL")

    async def audited_under(hold: AbstractAsyncContextManager[Hold | None]) -> None:
        async with hold as given:
            await audit(harmed.out, log, scenario, services, progress, given)

    hold = held(accounts_on_server(scenario), services, "run", run) if of_run else nullcontext(None)
    with pytest.raises(ConfigError, match="another loadsim has worked on the mailboxes"):
        asyncio.run(audited_under(hold))
    assert not (harmed.out / "audit.json").exists()


def test_a_failed_audit_keeps_the_previous_result(ended: Ended) -> None:
    audited(ended.out)
    before = [(ended.out / name).read_bytes() for name in ("audit.json", "audit.csv")]
    status, document, _ = audited(ended.out, "--set", "server.imap.port=1")
    assert (status, document["mailboxes"], document["unread"]) == (3, 0, 6)
    assert [(ended.out / name).read_bytes() for name in ("audit.json", "audit.csv")] == before
    assert audited(ended.out)[0] == 0


def test_each_altered_message_is_named_by_id_and_folder(harmed: Ended) -> None:
    """Files of a Maildir are changed as a fault of a disk or of an administrator would."""
    mail = list(stored(harmed.mail))
    saved = {each.id: each for each in mail if each.folder == "Sent Items"}
    own = (each for each in mail if each.folder.startswith("Folder") and ":2,S" in each.path.name)
    deleted, doubled, unflagged, moved, marked = (next(own) for _ in range(5))
    altered = next(each for each in mail if each.kind in ("ups10Kat", "upsWDatt") and each.folder == "INBOX")
    renamed, back = next(iter(saved.values())), harmed.emptied
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
    altered.path.unlink()  # copies for several recipients are links to one file
    altered.path.write_bytes(raw[:at] + (b"A" if raw[at : at + 1] != b"A" else b"B") + raw[at + 1 :])
    moved.path.rename(harmed.mail / f"user{other:05d}" / "Maildir" / "cur" / moved.path.name)
    shutil.copy2(harmed.files / back.path.name, back.path)
    for path in (back.path, altered.path, doubled.path.with_name(f"1{doubled.path.name}")):
        shutil.chown(path, "dovecot", "dovecot")

    status, document, _ = audited(harmed.out)
    assert status == 1
    assert found(document) == {
        ("mail-lost", deleted.message_id, deleted.user, deleted.folder),
        ("mail-lost", marked.message_id, marked.user, marked.folder),
        ("mail-altered", renamed.message_id, renamed.user, renamed.folder),
        ("mail-duplicated", doubled.message_id, doubled.user, doubled.folder),
        ("mail-altered", altered.message_id, altered.user, altered.folder),
        ("mail-misdelivered", moved.message_id, other, "INBOX"),
        ("flag-lost", unflagged.message_id, unflagged.user, unflagged.folder),
        ("mail-unexpected", back.message_id, back.user, "Deleted Items"),
    }
    assert sum(document["counts"].values()) == 8
    lines = (harmed.out / "audit.csv").read_text().splitlines()
    assert len(lines) == 1 + 8

    # The verdict of the run has it, computed again.
    status, answer, _ = called("log", "answer", harmed.out, "--json")
    assert status == 1
    codes = [one["code"] for one in json.loads(answer)["findings"] if one["severity"] == "missed"]
    assert codes == ["mail-faults"]


def test_an_unreadable_mailbox_is_a_finding_and_is_read_later(ended: Ended) -> None:
    """The next audit reads this mailbox only."""

    def refused(command: bytes) -> bytes | None:
        tag, verb, *rest = command.split()
        user_2 = verb == b"AUTHENTICATE" and b"user00002" in b64decode(rest[1])
        return tag + b" NO [AUTHENTICATIONFAILED] Authentication failed.\r\n" if user_2 else None

    with lying_proxy(ended.server.services.imap.port, answers=refused) as port:
        status, document, _ = audited(ended.out, "--set", f"server.imap.port={port}")
    assert (status, document["unread"], document["mailboxes"]) == (3, 1, 5)
    (unread,) = [one for one in document["findings"] if one["code"] == "mailbox-unread"]
    assert unread["where"] == f"account user00002 (user00002@{DOMAIN})"
    assert not str(unread["values"]["why"]).startswith(unread["where"])
    assert called("log", "answer", ended.out)[0] == 3
    status, document, shown = audited(ended.out)
    assert (status, document["unread"], document["mailboxes"]) == (0, 0, 6)
    assert "audit: 1 of 1 accounts" in shown


@pytest.mark.parametrize("at", ["first", "last"])
def test_without_a_hold_an_audit_is_not_complete(ended: Ended, at: str) -> None:
    """The first account refuses to log on when the hold is taken, or renewed at the end, and then no more."""
    log_ons = list[bytes]()
    refused = {"first": 1, "last": 8}[at]  # that of the hold, of six mailboxes, of the hold's end

    def answer(command: bytes) -> bytes | None:
        tag, verb, *_ = command.split()
        log_ons.extend([tag] if verb == b"AUTHENTICATE" else [])
        refuses = verb == b"AUTHENTICATE" and len(log_ons) == refused
        return tag + b" NO [AUTHENTICATIONFAILED] Authentication failed.\r\n" if refuses else None

    with lying_proxy(ended.server.services.imap.port, answers=answer) as port:
        status, document, _ = audited(ended.out, "--set", f"server.imap.port={port}")
    assert (status, document["unread"], document["mailboxes"]) == (3, 1, 5)
    assert [one["where"] for one in document["findings"]] == [f"account user00001 (user00001@{DOMAIN})"]
    assert audited(ended.out)[0] == 0


@pytest.mark.parametrize(("how", "code"), [({"alters": altered}, "mail-altered"), ({"rewrites": bare}, "line-ends")])
def test_altered_bodies_are_named(ended: Ended, how: dict[str, Any], code: str) -> None:
    """Through a proxy that changes a byte of each, or the line ends of all."""
    with lying_proxy(ended.server.services.imap.port, **how) as port:
        status, document, _ = audited(ended.out, "--set", f"server.imap.port={port}")
    assert status == 1
    assert document["counts"] == {code: document["messages"]}


def test_a_run_may_allow_altered_mail(harmed: Ended, tmp_path: Path) -> None:
    """It is counted, also what users see, and named; a run that allows something else misses a criterion."""
    for allowed, status in (("mail-altered", 0), ("mail-misfiled", 1)):
        with lying_proxy(harmed.server.services.imap.port, alters=altered) as port:
            lying = on(harmed.server.services)
            lying["server"]["imap"]["port"] = port
            path = written(tmp_path / "small.yaml", **lying, run=DAY | {"audit_allow": [allowed]}, limits=GRACE)
            assert run_locally(load_scenario(str(path)), tmp_path / allowed).exit_status == status
        document = json.loads((tmp_path / allowed / "audit.json").read_text())
        assert document["counts"] == {"mail-altered": document["messages"]}
        of_code = {one["code"]: one for one in json.loads((tmp_path / allowed / "score.json").read_text())["findings"]}
        assert ("mail-faults" in of_code) == bool(status)
        assert of_code["mail-faults-allowed"]["severity"] == "warning"
        assert of_code["mail-shown-altered"]["severity"] == ("missed" if status else "warning")


def test_a_server_that_ignores_commands_is_named(harmed: Ended, tmp_path: Path) -> None:
    """Through a proxy that says OK to MOVE, APPEND and STORE, and does nothing. The run audits by itself."""
    with lying_proxy(harmed.server.services.imap.port, answers=stores_nothing) as port:
        lying = on(harmed.server.services)
        lying["server"]["imap"]["port"] = port
        path = written(tmp_path / "small.yaml", **users(tmp_path), **lying, run=DAY, limits=GRACE | {"drain": "2s"})
        assert run_locally(load_scenario(str(path)), tmp_path / "out").exit_status == 1
    document = json.loads((tmp_path / "out" / "audit.json").read_text())
    shown_again = {"mail-duplicated"}  # if a user lists the whole Inbox once more
    assert document["counts"].keys() - shown_again == {"mail-lost", "mail-misfiled", "flag-lost"}
    assert {folder for code, _, _, folder in found(document) if code == "mail-lost"} == {"Sent Items"}
    assert {folder for code, _, _, folder in found(document) if code == "mail-misfiled"} == {"INBOX"}


def test_an_unreadable_message_is_named_and_the_others_are_read(harmed: Ended) -> None:
    """Dovecot ends the session at a message whose file is shorter than its name says."""
    mail = list(stored(harmed.mail))
    lost, cut, *_ = (each for each in mail if each.user == 3 and each.folder == "Folder 01")
    lost.path.unlink()
    cut.path.rename(cut.path.with_name(re.sub(r",S=\d+", ",S=9", cut.path.name)))
    for index in cut.path.parent.parent.glob("dovecot.index*"):
        index.unlink()
    status, document, _ = audited(harmed.out)
    assert (status, document["unread"], document["mailboxes"]) == (1, 0, 6)
    assert found(document) == {("mail-lost", each.message_id, 3, "Folder 01") for each in (lost, cut)}


def test_lost_keywords_are_named(harmed: Ended) -> None:
    """All of them: the server still states that it keeps keywords (RFC 9051 section 7.1)."""
    forwarded = []
    for each in stored(harmed.mail):
        keywords = each.path.parents[1] / "dovecot-keywords"  # a number and a name, for each letter in file names
        if keywords.exists() and (found := re.search(r"^(\d+) \$Forwarded$", keywords.read_text(), re.MULTILINE)):
            letter = chr(ord("a") + int(found[1]))
            forwarded += [each] if letter in each.path.name.partition(":2,")[2] else []
    for place in {each.path.parent.parent for each in forwarded}:
        for index in (place / "dovecot-keywords", *place.glob("dovecot.index*")):
            index.unlink()
    status, document, _ = audited(harmed.out)
    assert status == 1
    assert document["counts"] == {"flag-lost": len(forwarded)}
    rows = [line.split(",") for line in (harmed.out / "audit.csv").read_text().splitlines()[1:]]
    assert {(code, message, int(user), folder) for code, message, user, folder, _ in rows} == {
        ("flag-lost", each.message_id, each.user, each.folder) for each in forwarded
    }


def test_bounces_are_counted_by_their_reason(harmed: Ended) -> None:
    """A report about a message of loadsim counts; one about another message, and a mail from others, do not."""
    before = audited(harmed.out)[1]
    account = Account(1, "user00001", f"user00001@{DOMAIN}", "secret-1")
    ours = own_message(1).replace(b"@example.test", f"@{DOMAIN}".encode())
    for message in (delivery_report(ours), delivery_report(ours.replace(b"X-LoadSim", b"X-Other"))):
        with logged_on(harmed.server, account) as client:
            assert client.append("INBOX", "", "", message)[0] == "OK"
    document = audited(harmed.out)[1]
    assert document["bounces"] == {"5.1.1": 1}
    assert document | {"bounces": {}} == before
