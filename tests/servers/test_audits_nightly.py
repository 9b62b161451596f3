"""Audits of many runs, and of servers that are killed: what the audit names is what an independent count finds."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from agreement import mailboxes_by_doveadm
from maildirs import stored
from mailservers import StartDovecotPostfix, short_directory
from patience import PATIENCE_S
from small_runs import AT_WORK, await_line, loadsim, on, population_of, written

from loadsim.model.ports import DELETED_ITEMS, INBOX
from loadsim.model.records import EVENTS
from loadsim.scenario.scenario import load_scenario
from loadsim.servers.command import run as run_program
from loadsim.servers.dovecot_postfix import DovecotPostfix, check_machine, start_dovecot_postfix
from loadsim.timinglog.merge import read_logs

pytestmark = pytest.mark.nightly(part="runs")

PASSWORD = "accounts.password=secret-{index}"
DAY = {"day_length": "20s", "ramp_up": "1s", "warm_up": "2s", "window": "18s"}


def test_20_runs_on_dovecot_have_no_finding_and_each_deleted_message_is_named(
    dovecot_postfix: StartDovecotPostfix, tmp_path: Path
) -> None:
    path = written(tmp_path / "small.yaml")
    server = dovecot_postfix(*population_of(load_scenario(str(path))))
    for seed in range(1, 21):
        out = tmp_path / str(seed)
        written(path, **on(server.services), run=DAY | {"seed": seed})
        ran = loadsim("run", "--no-report", path, "--out", out)
        assert ran.returncode == 0, ran.stderr + ran.stdout
        audit = json.loads((out / "audit.json").read_text())
        assert (audit["mailboxes"], audit["findings"], audit["unknown"]) == (6, [], 0)
        mail = list(stored(server.layout.mail))
        deleted = random.Random(seed).sample(mail, 15)
        for each in deleted:
            each.path.unlink()
        ended = loadsim("audit", out, "--json", "--set", PASSWORD)
        assert ended.returncode == 1, ended.stderr
        lines = [line.split(",") for line in (out / "audit.csv").read_text().splitlines()[1:]]
        named = Counter((code, message, int(user), folder) for code, message, user, folder, _ in lines)
        assert named == Counter(("mail-lost", each.message_id, each.user, each.folder) for each in deleted)


def test_20_runs_on_the_embedded_server_have_no_finding(tmp_path: Path) -> None:
    for seed in range(1, 21):
        path = written(tmp_path / "small.yaml", run=DAY | {"seed": seed})
        out = tmp_path / str(seed)
        ran = loadsim("run", "--no-report", path, "--out", out)
        assert ran.returncode == 0, ran.stderr + ran.stdout
        audit = json.loads((out / "audit.json").read_text())
        assert (audit["mailboxes"], audit["findings"], audit["unknown"]) == (6, [], 0)


def kill(server: DovecotPostfix) -> None:
    for pid in server.pids():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    server.stop()


USERS = 500
SMALL = {"inbox": 4, "deleted_items": 1, "folders": 3, "messages_per_folder": 1}


@pytest.mark.parametrize("fsync", ["never", "always"])
def test_a_killed_servers_lost_mail_is_on_no_disk_and_in_no_spool(fsync: str, tmp_path: Path) -> None:
    """Dovecot and Postfix are killed three times at work; after a flush of the queue, both counts are the same."""
    profile = tmp_path / "profile.yaml"
    rates = {"new_mail": {"per_day": 2}, "process_inbox": {"per_day": 3}, "browse": {"per_day": 3}}
    profile.write_text(yaml.safe_dump({"from": "loadsim-5.5/heavy", "name": "small", "start_state": SMALL, **rates}))
    users = {"topology": [{"profile": str(profile), "users": USERS}]}
    path = written(tmp_path / "small.yaml", **users)
    population = population_of(load_scenario(str(path)))
    with short_directory() as place:
        (place / "dovecot").mkdir(mode=0o755)
        (place / "dovecot" / "extra.conf").write_text(f"mail_fsync = {fsync}\n")
        server = start_dovecot_postfix(*population, place)
        try:
            imap, smtp = server.services.imap.port, server.services.smtp.port
            times = {"day_length": "3m", "ramp_up": "20s", "warm_up": "30s", "window": "2m"}
            written(path, **on(server.services), **users, run={**times, "audit": False})
            # 500 processes of Dovecot at once would starve the engines, which are lost then, with what they recorded.
            command = ["nice", "-n", "-15", sys.executable, "-m", "loadsim", "run", "--no-report", path]
            command += ["--out", tmp_path / "out"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
                for _ in range(3):
                    await_line(process, AT_WORK)
                    kill(server)
                    server = start_dovecot_postfix(*population, place, imap_port=imap, smtp_port=smtp)
                process.communicate(timeout=PATIENCE_S)
            while server.queue():
                run_program("postqueue", ("-c", str(server.postfix.conf), "-f"))
            spool = server.queue()
            ended = loadsim("audit", tmp_path / "out", "--json", "--set", PASSWORD)
            assert ended.returncode in (0, 1), ended.stderr
            held = mailboxes_by_doveadm(population[0], server.doveadm)
        finally:
            server.stop()

    # The independent count: what was accepted, was not expunged, not even perhaps, and is in no folder.
    assert not spool
    events: dict[tuple[int, str], set[str]] = {}
    log = read_logs([tmp_path / "out"])
    for record in log.mails:
        key = int(record["user"]), record["message"].decode()
        events.setdefault(key, set()).add(EVENTS[record["event"]])
        if EVENTS[record["event"]] == "left" and log.strings[record["folder"]] == DELETED_ITEMS:
            events[key].add("expunged")
    lost = {
        (user, message)
        for (user, message), happened in events.items()
        if "accepted" in happened
        and "expunged" not in happened
        and not any(message in ids for ids in held[user].values())
    }
    assert sum("accepted" in happened for happened in events.values()) > USERS
    assert any("unsure" in happened for happened in events.values())
    lines = [line.split(",") for line in (tmp_path / "out" / "audit.csv").read_text().splitlines()[1:]]
    named = {
        (int(user), message[1:].rpartition("@")[0].rpartition(".")[0])
        for code, message, user, folder, _ in lines
        if code == "mail-lost" and folder == INBOX
    }
    assert named == lost


def test_altered_messages_in_mdbox_are_named(tmp_path: Path) -> None:
    """By doveadm, as an administrator would; a byte of an attachment is changed in the file of the store."""
    path = written(tmp_path / "small.yaml")
    population = population_of(load_scenario(str(path)))
    with short_directory() as place:
        (place / "dovecot").mkdir(mode=0o755)
        (place / "dovecot" / "extra.conf").write_text(check_machine()[0].mailboxes.format("~/mdbox", format="mdbox"))
        server = start_dovecot_postfix(*population, place)
        try:
            written(path, **on(server.services), run=DAY)
            ran = loadsim("run", "--no-report", path, "--out", tmp_path / "out")
            assert ran.returncode == 0, ran.stderr + ran.stdout
            assert json.loads((tmp_path / "out" / "audit.json").read_text())["findings"] == []
            expected = _tampered(server, {account.login for account in population[0]}, tmp_path / "out")
            ended = loadsim("audit", tmp_path / "out", "--json", "--set", PASSWORD)
        finally:
            server.stop()
    assert ended.returncode == 1, ended.stderr
    lines = [line.split(",") for line in (tmp_path / "out" / "audit.csv").read_text().splitlines()[1:]]
    assert Counter((code, message, int(user), folder) for code, message, user, folder, _ in lines) == Counter(expected)


def _tampered(server: DovecotPostfix, logins: set[str], out: Path) -> list[tuple[str, str, int, str]]:
    """Do each of six kinds of harm to one message; return the faults."""
    held = []  # login, folder, uid, id, run, kind
    for login in sorted(logins):
        told = server.doveadm("-f", "tab", "fetch", "-u", login, "mailbox uid hdr.x-loadsim", "ALL")
        for line in told.splitlines()[1:]:
            folder, uid, tag = line.split("\t")
            fields = dict(part.strip().partition("=")[::2] for part in tag.split(";"))
            held.append((login, folder, uid, fields["id"], fields["run"], fields["kind"]))
    filed = (each for each in held if each[1].startswith("Folder"))
    lost, doubled, moved, unflagged = (next(filed) for _ in range(4))
    altered = next(each for each in held if each[1] == INBOX and each[5] == "ups10Kat")
    saved = {each[3]: each for each in held if each[1] == "Sent Items"}
    log = read_logs([out])
    gone = [(int(mail["user"]), mail["message"].decode()) for mail in log.mails if EVENTS[mail["event"]] == "expunged"]
    back_user, back = next((user, saved[message]) for user, message in gone if message in saved)
    other = f"user{1 + int(moved[0][4:]) % 6:05d}"

    server.doveadm("expunge", "-u", lost[0], "mailbox", lost[1], "uid", lost[2])
    server.doveadm("copy", "-u", doubled[0], doubled[1], "mailbox", doubled[1], "uid", doubled[2])
    server.doveadm("copy", "-u", other, INBOX, "user", moved[0], "mailbox", moved[1], "uid", moved[2])
    server.doveadm("expunge", "-u", moved[0], "mailbox", moved[1], "uid", moved[2])
    server.doveadm("flags", "remove", "-u", unflagged[0], "\\Seen", "mailbox", unflagged[1], "uid", unflagged[2])
    trash = f"user{back_user:05d}"
    server.doveadm("copy", "-u", trash, "Deleted Items", "user", back[0], "mailbox", back[1], "uid", back[2])
    for store in (server.layout.mail / altered[0] / "mdbox" / "storage").glob("m.*"):
        raw = store.read_bytes()
        if (begin := raw.find(f"id={altered[3]};".encode())) >= 0:
            at = raw.index(b"\n", raw.index(b"\n\n", raw.index(b"base64", begin)) + 40) - 9
            store.write_bytes(raw[:at] + (b"A" if raw[at : at + 1] != b"A" else b"B") + raw[at + 1 :])
    return [
        *(
            (code, f"<{each[3]}.{each[4]}@loadsim.test>", int(each[0][4:]), each[1])
            for code, each in (
                ("mail-lost", lost),
                ("mail-duplicated", doubled),
                ("flag-lost", unflagged),
                ("mail-altered", altered),
            )
        ),
        ("mail-misdelivered", f"<{moved[3]}.{moved[4]}@loadsim.test>", int(other[4:]), INBOX),
        ("mail-unexpected", f"<{back[3]}.{back[4]}@loadsim.test>", back_user, "Deleted Items"),
    ]
