"""Run one scenario on each mail server that loadsim can start, through both drivers, from empty accounts and back.

Initialise, run, initialise again and clean; imaplib reads all mailboxes between the steps. A short run on the embedded
server is part of `make test`, all servers are part of `make nightly-servers`.
"""

import asyncio
import imaplib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from agreement import deleted_items_emptied, differences, mailboxes_by_log
from any_server import KINDS, Site, started
from imap_script import Ear
from small_runs import loadsim
from whole_mailboxes import MANIFESTS, Mailbox, contents, ids_of, looking, others

from loadsim.model.mail_program import load_program
from loadsim.model.ports import INBOX, SENT_ITEMS
from loadsim.model.provisioning_ports import Quota
from loadsim.protocols.imap import open_driver
from loadsim.protocols.imap.mailbox import ImapMailbox
from loadsim.protocols.imap.session import ImapSession
from loadsim.scenario.workload import Workload
from loadsim.timinglog.merge import read_logs

PLANTED = 200

# Flags that any server may keep, one that the owner will expunge, and keywords, which some servers drop.
FLAGS = ("", r"(\Seen)", r"(\Seen \Flagged)", r"(\Deleted)", r"(\Answered \Seen \Deleted)", "($Forwarded Private)")
DATES = ("01-Jan-2001 01:02:03 +0000", "29-Feb-2024 23:59:59 +0000", "31-Jul-2025 12:00:00 +0000")
FOREIGN = (
    b"From: friend@elsewhere.test\r\nTo: you@example.test\r\nSubject: hello %d\r\n"
    b"Date: Mon, 01 Jan 2001 01:02:03 +0000\r\nMessage-ID: <%d@elsewhere.test>\r\n\r\nX-LoadSim: not quite %s\r\n"
)
NESTED = "Family/Letters"


def plant(site: Site) -> None:
    """Put others' messages into the first account of each driver: in the Inbox, our folders, and a nested one."""
    for user in (1, site.scenario.users):
        with looking(site.services, site.scenario.account(user), site.kind.names) as eye:
            eye.create(NESTED)
            places = (INBOX, SENT_ITEMS, "Folder 01", NESTED)
            for number in range(PLANTED // 2):
                message = FOREIGN % (number, number, b"x" * number)
                flags, date = FLAGS[number // len(places) % len(FLAGS)], DATES[number % len(DATES)]
                eye.put(places[number % len(places)], message, flags, date)


def changed_folders(before: Mailbox, after: Mailbox) -> set[str]:
    """Return the folders of which any message, flag or UID differs."""
    return {folder for folder in before.keys() | after.keys() if before.get(folder) != after.get(folder)} - {MANIFESTS}


@pytest.mark.nightly(part="servers")
@pytest.mark.parametrize("name", KINDS)
def test_a_run_prepares_and_cleans_empty_accounts(name: str, tmp_path: Path) -> None:
    """Every task is done, mailboxes and log agree, only changes are restored, and clean removes only what is ours.

    The audit of the run finds nothing, and a later one a message that is gone.
    """
    with started(name, tmp_path, users=5, day_s=25) as site:
        empty = site.mailboxes()

        # Initialise twice: the second time finds nothing to do.
        site.command("init")
        start = site.mailboxes()
        assert "nothing to do" in site.command("init")
        assert not set().union(*map(changed_folders, start, site.mailboxes()))

        # Run, and compare the mailboxes with the log, message by message.
        out = tmp_path / "out"
        site.command("run", "--no-report", "--out", out)
        score = json.loads((out / "score.json").read_text())
        tasks = {driver: {each["task"]: each for each in of["tasks"]} for driver, of in score["by_protocol"].items()}
        assert {driver for driver, of in tasks.items() if of} == {*site.kind.drivers}
        for of in tasks.values():
            assert {task for task, each in of.items() if each["failed"]} <= site.kind.may_fail
            assert of["SEARCH"]["hits"] > 0 and of["DELETE UNREAD"]["hits"] > 0
        ran = site.mailboxes()
        held = {user: ids_of(mailbox) for user, mailbox in enumerate(ran, start=1)}
        expected = mailboxes_by_log(Workload(site.scenario), read_logs([out]), "jmap" in site.kind.drivers)
        assert differences(expected, held) == []
        assert deleted_items_emptied(held)

        # Audit.
        audit = json.loads((out / "audit.json").read_text())
        assert (audit["mailboxes"], audit["unread"], audit["findings"]) == (site.scenario.users, 0, [])
        gone = ran[0]["Folder 01"][-1]
        with looking(site.services, site.accounts[0], site.kind.names) as eye:
            eye.remove("Folder 01", gone.uid)
        ended = loadsim("audit", out, "--json", "--set", "accounts.password=secret-{index}")
        found = [(one["code"], one["values"]["folder"]) for one in json.loads(ended.stdout)["findings"]]
        assert (ended.returncode, found) == (1, [("mail-lost", "Folder 01")])
        (named,) = json.loads(ended.stdout)["findings"]
        assert named["values"]["message_id"].startswith(f"<{gone.id}.")
        ran = site.mailboxes()

        # Restore: the start state is back, and folders that the run did not change are untouched.
        assert "Initialised" in site.command("init")
        restored = site.mailboxes()
        assert [contents(each) for each in restored] == [contents(each) for each in start]
        for before, after, again in zip(start, ran, restored, strict=True):
            assert changed_folders(before, again) <= changed_folders(before, after)

        # Clean: others' messages are the same, with UIDs, flags and dates, and no folder of ours is left.
        plant(site)
        planted = site.mailboxes()
        assert sum(len(messages) for each in planted for messages in others(each).values()) == PLANTED
        site.command("clean")
        for before, with_others, after in zip(empty, planted, site.mailboxes(), strict=True):
            foreign = others(with_others)
            assert {folder: messages for folder, messages in after.items() if messages} == foreign
            parents = {"Family"} if NESTED in with_others else set()
            assert set(after) <= before.keys() | foreign.keys() | parents
            assert before.keys() <= after.keys()


@pytest.mark.nightly(part="servers")
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if "imap" in kind.drivers])
def test_programs_ask_about_folders_and_quotas(name: str, tmp_path: Path) -> None:
    """Each STATUS and GETQUOTAROOT of Thunderbird is answered; limits are those that imaplib reads."""
    with started(name, tmp_path, users=1, day_s=25) as site:
        site.command("init")
        account, ear = site.accounts[0], Ear()

        async def ask() -> int:
            services = replace(site.services, program=load_program("thunderbird"))
            mailbox = open_driver(services).session(account, ear).mailbox
            await mailbox.log_on()
            folders = await mailbox.folders()
            await mailbox.headers(INBOX, 50)
            await mailbox.watch()
            await mailbox.log_off()
            return len(folders)

        async def limits() -> tuple[bool, list[Quota]]:
            mailbox = ImapMailbox(ImapSession(site.services.endpoint("imap"), None, account, Ear(), 60.0))
            await mailbox.log_on()
            found = "QUOTA" in mailbox.session.offered, list(await mailbox.quotas())
            await mailbox.log_off()
            return found

        folders = asyncio.run(ask())
        offers, quotas = asyncio.run(limits())
        asked = [(command, outcome) for command, outcome, *_ in ear.commands]
        assert asked.count(("IMAP STATUS", "ok")) == folders - 1 > 3
        assert asked.count(("IMAP GETQUOTAROOT", "ok")) == offers
        assert {outcome for _, outcome in asked} == {"ok"}
        read: list[bytes] = []
        if offers:
            endpoint = site.services.endpoint("imap")
            with imaplib.IMAP4(endpoint.host, endpoint.port, timeout=60) as client:
                client.login(account.login, account.password)
                read = [line for line in client.getquotaroot("INBOX")[1][1] if line]
        triples = re.findall(rb"([A-Z-]+) (\d+) (\d+)", b" ".join(read))
        assert quotas == [Quota(resource.decode(), int(used), int(limit)) for resource, used, limit in triples]
