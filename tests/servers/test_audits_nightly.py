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
from agreement import mailboxes_by_doveadm
from maildirs import stored
from mailservers import StartDovecotPostfix, short_directory
from patience import PATIENCE_S
from small_runs import AT_WORK, await_line, loadsim, on, population_of, written

from loadsim.model.ports import INBOX
from loadsim.model.records import EVENTS
from loadsim.model.scenario import load_scenario
from loadsim.servers.command import run as run_program
from loadsim.servers.dovecot_postfix import DovecotPostfix, start_dovecot_postfix
from loadsim.timinglog.merge import read_logs

pytestmark = pytest.mark.nightly(part="runs")

PASSWORD = "accounts.password=secret-{index}"
DAY = {"day_length": "20s", "ramp_up": "1s", "warm_up": "2s", "window": "18s"}


def test_20_runs_on_dovecot_have_no_finding_and_all_that_is_deleted_is_named(
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


def test_what_a_killed_server_loses_is_what_is_on_no_disk_and_in_no_spool(tmp_path: Path) -> None:
    """Dovecot and Postfix are killed three times at work; after a flush of the queue, both counts are the same."""
    path = written(tmp_path / "small.yaml")
    population = population_of(load_scenario(str(path)))
    with short_directory() as place:
        server = start_dovecot_postfix(*population, place)
        try:
            imap, smtp = server.services.imap.port, server.services.smtp.port
            times = {"day_length": "60s", "ramp_up": "1s", "warm_up": "2s", "window": "58s"}
            written(path, **on(server.services), run={**times, "audit": False})
            command = [sys.executable, "-m", "loadsim", "run", "--no-report", path, "--out", tmp_path / "out"]
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

    # The independent count: what was accepted for sure, was not expunged, and is in no folder.
    assert not spool
    events: dict[tuple[int, str], set[str]] = {}
    for record in read_logs([tmp_path / "out"]).mails:
        key = int(record["user"]), record["message"].decode()
        events.setdefault(key, set()).add(EVENTS[record["event"]])
    lost = {
        (user, message)
        for (user, message), happened in events.items()
        if "accepted" in happened
        and not happened & {"expunged", "unsure"}
        and not any(message in ids for ids in held[user].values())
    }
    assert any("unsure" in happened for happened in events.values())
    lines = [line.split(",") for line in (tmp_path / "out" / "audit.csv").read_text().splitlines()[1:]]
    named = {
        (int(user), message[1:].rpartition("@")[0].rpartition(".")[0])
        for code, message, user, folder, _ in lines
        if code == "mail-lost" and folder == INBOX
    }
    assert named == lost
