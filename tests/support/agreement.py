"""The expected contents of each mailbox after a run, from the log alone, and the actual ones.

The log's MailRecords are replayed over the start state; the other side is read by imaplib or doveadm, which know
nothing of our code but the header that marks our mail.
"""

import re
from collections import Counter
from collections.abc import Iterable

from loadsim.model.ports import CALENDAR, DELETED_ITEMS, INBOX, SENT_ITEMS, Account
from loadsim.model.records import EVENTS
from loadsim.scenario.workload import Workload
from loadsim.timinglog.reader import TimingLog

Mailboxes = dict[int, dict[str, Counter[str]]]
"""By user and folder: how often each message id lies there."""


def mailboxes_by_log(workload: Workload, log: TimingLog, submission_saves: bool = False) -> Mailboxes:
    """Replay what the log says was delivered, moved, copied, deleted, saved and expunged; empty folders left out.

    With `submission_saves`, Sent Items has what was submitted, even if its user's day ended before `SAVE SENT`.
    """
    users = range(1, len(workload.population) + 1)
    held: Mailboxes = {
        user: {
            folder: Counter(workload.initial(user, folder, index).id for index in range(count))
            for folder, count in workload.start_state(user).items()
        }
        for user in users
    }
    mails = log.mails[log.mails["at_us"].argsort(kind="stable")]
    for record, folder in zip(mails, log.names(mails, "folder"), strict=True):
        event, message = EVENTS[record["event"]], record["message"].decode()
        folders = held[int(record["user"])]
        if event == "accepted":
            folders.setdefault(INBOX, Counter())[message] += 1
            if submission_saves:
                held[int(record["sender"])].setdefault(SENT_ITEMS, Counter())[message] = 1
        elif event in ("moved", "deleted"):
            folders[INBOX][message] -= 1
            folders.setdefault(str(folder), Counter())[message] += 1
        elif event in ("copied", "saved") and folder != CALENDAR and not (submission_saves and folder == SENT_ITEMS):
            folders.setdefault(str(folder), Counter())[message] += 1
        elif event == "expunged":
            folders[str(folder)][message] -= 1
    return {user: _without_empty(folders) for user, folders in held.items()}


def events_by_log(accounts: Iterable[Account], log: TimingLog) -> dict[str, set[str]]:
    """The UIDs of the events that users have made on a calendar server, and not removed, by login."""
    owners = {account.number: account for account in accounts}
    held: dict[str, set[str]] = {account.login: set() for account in owners.values()}
    mails = log.mails[log.mails["at_us"].argsort(kind="stable")]
    for record, folder in zip(mails, log.names(mails, "folder"), strict=True):
        if folder == "Events":
            owner = owners[int(record["user"])]
            uid = f"loadsim-{record['message'].decode()}.{log.header.run}@{owner.domain}"
            events = held[owner.login]
            {"saved": events.add, "expunged": events.remove}[EVENTS[record["event"]]](uid)
    return held


def mailboxes_by_doveadm(accounts: Iterable[Account], doveadm: object) -> Mailboxes:
    """Return a mailbox as `doveadm fetch` reads it, from Dovecot's files and without IMAP."""
    assert callable(doveadm)
    held: Mailboxes = {}
    for account in accounts:
        told = doveadm("-f", "tab", "fetch", "-u", account.login, "mailbox hdr.x-loadsim", "ALL")
        folders: dict[str, Counter[str]] = {}
        for line in told.splitlines()[1:]:
            name, _, header = line.partition("\t")
            if name not in (CALENDAR, "LoadSim"):
                folders.setdefault(name, Counter())[_id(header.encode())] += 1
        held[account.number] = folders
    return held


def differences(expected: Mailboxes, found: Mailboxes) -> list[str]:
    """Where the two disagree, in words; folders that only one of them knows count as empty in the other."""
    told = []
    for user in sorted(expected.keys() | found.keys()):
        left, right = expected.get(user, {}), found.get(user, {})
        for folder in sorted(left.keys() | right.keys()):
            missing = left.get(folder, Counter()) - right.get(folder, Counter())
            surplus = right.get(folder, Counter()) - left.get(folder, Counter())
            if missing or surplus:
                told.append(f"user {user}, {folder}: missing {dict(missing)}, too many {dict(surplus)}")
    return told


def deleted_items_emptied(held: Mailboxes) -> bool:
    """Return if all users have left their Deleted Items empty."""
    return not any(folders.get(DELETED_ITEMS) for folders in held.values())


def _id(header: bytes) -> str:
    found = re.search(rb"\bid=([^;\s]+)", header)
    return found[1].decode() if found else "(a message that loadsim did not make)"


def _without_empty(folders: dict[str, Counter[str]]) -> dict[str, Counter[str]]:
    return {name: +ids for name, ids in folders.items() if +ids}
