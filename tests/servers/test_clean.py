"""Clean: nothing of loadsim's stays, and nothing of anybody else's is touched."""

import asyncio
import hashlib

import pytest
from mailservers import DOMAIN, logged_on
from provisioning import (
    FOREIGN,
    WANTED_FOLDERS,
    Lab,
    MakeLab,
    Snapshot,
    delivery_report,
    own_message,
    put,
    quiet,
    quoted,
    runs_step_by_step,
    with_steps,
)

from loadsim.cli import main, parser
from loadsim.model.ports import INBOX, Account
from loadsim.provisioning.clean import Cleaned, clean, clean_mailbox, describe
from loadsim.provisioning.initialise import initialise, restore_mailbox
from loadsim.provisioning.start_state import StoredState


@pytest.fixture
def lab(lab: Lab) -> Lab:
    """A scenario of three users with new accounts, which are initialised."""
    asyncio.run(initialise(lab.workload, lab.services, "auto", quiet))
    return lab


def run(lab: Lab, dry_run: bool = False) -> list[Cleaned]:
    return asyncio.run(clean(lab.scenario, lab.services, dry_run, quiet))


def digests(mailbox: Snapshot) -> dict[str, list[tuple[int, list[str], str]]]:
    """UID, flags and SHA-256 of every message that is not ours, folder by folder."""
    return {
        folder: [
            (each.uid, sorted(each.flags), hashlib.sha256(each.message).hexdigest())
            for each in messages
            if each.id is None
        ]
        for folder, messages in mailbox.items()
    }


def put_foreign_mail_everywhere(lab: Lab, account: Account) -> None:
    """Into every folder: unread, read, marked as deleted by its owner, and one that only speaks of us."""
    with logged_on(lab.server, account) as client:
        client.create("Family")
        client.create(quoted("Work/2024"))
        for folder in (*sorted(WANTED_FOLDERS), "LoadSim", "Family", "Work/2024"):
            put(client, folder, FOREIGN % 1)
            put(client, folder, FOREIGN % 2, r"(\Seen \Flagged)")
            put(client, folder, FOREIGN % 3, r"(\Deleted)")
            put(client, folder, FOREIGN % 4 + own_message(1), r"(\Answered)")  # ours quoted in a friend's letter
            put(client, folder, delivery_report(FOREIGN % 5))
            put(client, folder, own_message(6), r"(\Deleted)")


def test_a_foreign_folder_in_loadsims_leaves_the_account_usable(lab: Lab) -> None:
    """The folder above is gone. Dovecot 2.3 lists it all the same, as if it could be selected."""
    inside = quoted("LoadSim/Family"), quoted("Folder 01/Family")
    with logged_on(lab.server, lab.accounts[0]) as client:
        for folder in inside:
            client.create(folder)
    run(lab)
    assert not any(run(lab))
    asyncio.run(initialise(lab.workload, lab.services, "auto", quiet))
    assert {"LoadSim/Family", "Folder 01/Family", *WANTED_FOLDERS, "LoadSim"} <= set(lab.snapshots()[0])


def test_foreign_mail_is_kept_in_every_folder(lab: Lab) -> None:
    """Bytes, flags and UIDs of every foreign message are the same before and after; of ours nothing is left."""
    for account in lab.accounts:
        put_foreign_mail_everywhere(lab, account)
    before = lab.snapshots()
    cleaned = run(lab)
    after = lab.snapshots()
    for old, new, one in zip(before, after, cleaned, strict=True):
        assert digests(new) == digests(old)
        assert all(each.id is None for messages in new.values() for each in messages)
        assert {"Family", "Work/2024", "LoadSim", *WANTED_FOLDERS} <= set(new)
        assert all(len(messages) == 5 for folder, messages in new.items() if folder != "Work")
        assert one.folders == ()
        assert set(one.foreign.values()) == {5}


def test_accounts_end_as_they_began(make_lab: MakeLab) -> None:
    """Initialised and cleaned, a new account has the folders that it had, and no mail."""
    lab = make_lab()
    before = lab.snapshots()
    asyncio.run(initialise(lab.workload, lab.services, "auto", quiet))
    cleaned = run(lab)
    assert lab.snapshots() == before
    assert [sum(one.messages.values()) for one in cleaned] == [12, 12, 12]  # 11 and the manifest
    assert all(set(one.folders) == WANTED_FOLDERS - {INBOX} | {"LoadSim"} for one in cleaned)


def test_dry_run_changes_nothing_and_counts_what_would_be_removed(lab: Lab) -> None:
    put_foreign_mail_everywhere(lab, lab.accounts[0])
    before = lab.snapshots()
    said = run(lab, dry_run=True)
    assert lab.snapshots() == before
    assert describe(said, True).startswith("Would remove ")
    assert run(lab) == said


def test_folders_that_were_there_before_stay(make_lab: MakeLab) -> None:
    """An empty Sent Items of the user's own is not ours to delete, although its mail was."""
    lab = make_lab()
    with logged_on(lab.server, lab.accounts[0]) as client:
        for folder in ("Sent Items", "Folder 01", "Empty"):
            client.create(quoted(folder))
    asyncio.run(initialise(lab.workload, lab.services, "auto", quiet))
    lab.put(1, "Sent Items", own_message(1))
    run(lab)
    first, second, _ = lab.snapshots()
    assert first == {INBOX: [], "Sent Items": [], "Folder 01": [], "Empty": []}
    assert second == {INBOX: []}


def test_loadsims_mail_is_removed_from_foreign_folders(lab: Lab) -> None:
    """A message that somebody filed elsewhere is still ours; the folder is not."""
    with logged_on(lab.server, lab.accounts[0]) as client:
        client.create("Filed")
        put(client, "Filed", own_message(1), r"(\Seen \Flagged)")
    assert run(lab)[0].messages["Filed"] == 1
    assert lab.snapshots()[0] == {INBOX: [], "Filed": []}


def test_bounces_of_loadsims_mail_are_removed(lab: Lab) -> None:
    """Only reports in form (RFC 3464) go, and only those that return a message of ours."""
    downtime = b"From: postmaster@example.test\r\nSubject: downtime\r\n\r\nOn Monday.\r\n"
    lab.put(1, INBOX, delivery_report(own_message(1)))
    lab.put(1, INBOX, delivery_report(own_message(2), whole=True))
    lab.put(1, INBOX, delivery_report(FOREIGN % 1))
    lab.put(1, INBOX, downtime)
    cleaned = run(lab)[0]
    assert cleaned.messages[INBOX] == 4 + 2
    assert cleaned.foreign == {INBOX: 2}
    assert [each.message for each in lab.snapshots()[0][INBOX]] == [delivery_report(FOREIGN % 1), downtime]


AUTOMATIC = b"From: away@example.test\r\nAuto-Submitted: auto-replied\r\nIn-Reply-To: <%b>\r\n\r\naway\r\n"
OWN_ID = b"n2.1.20261129T083441Z-0a1b2c@" + DOMAIN.encode()


def test_automatic_replies_to_loadsims_mail_are_removed(lab: Lab) -> None:
    """Not those of a person, nor those to others' mail."""
    reply = AUTOMATIC % OWN_ID
    others = [
        reply.replace(b"auto-replied", b"no"),
        reply.replace(b"Auto-Submitted", b"X-Was"),
        AUTOMATIC % b"2026.1.abc@elsewhere.test",
        AUTOMATIC % OWN_ID.replace(b"n2.1", b"m2.1"),
        AUTOMATIC % OWN_ID.replace(DOMAIN.encode(), b"elsewhere.test"),
    ]
    for each in (reply, *others):
        lab.put(1, INBOX, each)
    run(lab)
    assert [each.message for each in lab.snapshots()[0][INBOX]] == others


_QUOTED = b"\r\n".join(b"> " + line for line in own_message(1).split(b"\r\n"))
_REPORT = delivery_report(own_message(1))
LETTERS = {
    "a human's, quoting": b"From: postmaster@evil.test\r\nSubject: why?\r\n\r\nYou sent me this:\r\n\r\n" + _QUOTED,
    "a header unquoted": b"From: postmaster@evil.test\r\nSubject: why?\r\n\r\nThis:\r\n\r\n" + own_message(1),
    "ours attached": _REPORT.replace(b"multipart/report; report-type=delivery-status", b"multipart/mixed"),
    "a receipt": _REPORT.replace(b"report-type=delivery-status", b"report-type=disposition-notification"),
    "no status": _REPORT.replace(b"message/delivery-status", b"text/plain"),
    "two types": _REPORT.replace(b"MIME-Version", b"Content-Type: multipart/mixed; boundary=b1\r\nMIME-Version"),
    "another domain": _REPORT.replace(b"From: a@" + DOMAIN.encode(), b"From: a@elsewhere.test"),
    "another Message-ID": _REPORT.replace(b"Message-ID: <", b"Message-ID: <x"),
    "no Message-ID": _REPORT.replace(b"Message-ID:", b"X-Was:"),
    "tag cut off": _REPORT.replace(b"; body=", b"; nothing="),
    "tag in two": _REPORT.replace(b"X-LoadSim: ", b"X-LoadSim: run=r2; \r\nX-LoadSim: "),
    "a header of 100 KB": _REPORT.replace(b"MIME-Version", b"X-Long: " + b"x" * 100_000 + b"\r\nMIME-Version"),
    "our header copied": own_message(1).replace(b"a@" + DOMAIN.encode(), b"friend@elsewhere.test"),
    "our header in an answer": own_message(1).replace(b"Message-ID: <", b"Message-ID: <answer-to-"),
    "our header twice": own_message(1).replace(b"X-LoadSim: ", b"X-LoadSim: run=r2; \r\nX-LoadSim: "),
}


def test_mail_that_only_resembles_loadsims_is_kept(lab: Lab) -> None:
    """Reports out of form, letters that quote, and headers that somebody copied stay, byte for byte."""
    for letter in LETTERS.values():
        lab.put(1, INBOX, letter)
    cleaned = run(lab)[0]
    left = [each.message for each in lab.snapshots()[0][INBOX]]
    assert [name for name, letter in LETTERS.items() if letter not in left] == []
    assert cleaned.foreign == {INBOX: len(LETTERS)}


def test_redirected_mail_of_loadsim_is_removed(lab: Lab) -> None:
    """A message that somebody resent has no word of theirs in it (RFC 5322 section 3.6.6)."""
    lab.put(1, INBOX, b"Resent-From: friend@elsewhere.test\r\n" + own_message(1))
    assert run(lab)[0].foreign == {}


def test_a_clean_killed_between_any_two_steps_can_resume(lab: Lab) -> None:
    """Killed after every single change, it comes to its end, and nothing of ours is left."""

    async def work(account: Account, mailbox: object) -> None:
        await clean_mailbox(account, mailbox, dry_run=False)

    # The Inbox, folders with what they hold, the manifest with its folder.
    assert runs_step_by_step(lab, lab.accounts[0], work) == 1 + 5 + 1
    assert lab.snapshots()[0] == {INBOX: []}


def test_an_interrupted_initialise_is_cleaned(make_lab: MakeLab) -> None:
    """The manifest names everything that was created before the kill."""
    lab = make_lab()
    start = StoredState(lab.workload)

    async def work(account: Account, mailbox: object) -> None:
        await restore_mailbox(account, mailbox, start, from_scratch=False)

    for steps in (2, 3, 6, 8):
        assert not asyncio.run(with_steps(lab, lab.accounts[0], steps, work))
        run(lab)
        assert lab.snapshots()[0] == {INBOX: []}


def test_clean_prints_a_line_per_account_and_the_total(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """The verb, first dry, then in earnest."""
    lab.put(2, INBOX, FOREIGN % 1)
    first, second, third = (account.login for account in lab.accounts)
    for options, would, removed in ((["--dry-run"], "would remove", "Would remove"), ([], "removed", "Removed")):
        args = parser("clean").parse_args(["clean", str(lab.path), *options])
        assert args.run(args) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[:3] == [
            f"{first}: {would} 12 messages, 6 folders",
            f"{second}: {would} 12 messages, 6 folders; not created by loadsim: INBOX 1",
            f"{third}: {would} 12 messages, 6 folders",
        ]
        assert lines[3].startswith(
            f"{removed} 36 messages and 18 folders from 3 of 3 accounts; 1 messages not created by loadsim"
        )


def test_a_refused_log_on_is_that_accounts_failure(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """The others are cleaned; the error has the account and what the server said, and no password."""
    table = lab.path.parent / "wrong.csv"
    login = lab.accounts[0].login
    second = lab.accounts[1]
    table.write_text(f"user,password\n{login},hush-hush\n{second.login},{second.password}\n")
    said = f"account {login} ({login}@{DOMAIN}): expected to log on, the server answered: NO "
    wrong = (f"accounts.csv={table}", "topology.0.users=2")
    assert main(["clean", str(lab.path), *(word for each in wrong for word in ("--set", each))]) == 2
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0].startswith(f"{login}: failed: {said}")
    assert lines[1] == f"{second.login}: removed 12 messages, 6 folders"
    assert printed.err.splitlines()[-1].startswith(f"loadsim: 1 of 2 accounts failed, such as {said}")
    assert "hush" not in printed.out + printed.err
    assert lab.snapshots()[1] == {INBOX: []}
