"""Mailboxes as a scenario states them, on real servers: dates, sizes, nested folders; and gone after clean."""

import asyncio
import imaplib
import re
import time
from collections.abc import Callable

import pytest
from mailservers import StartEmbedded, logged_on, numbered_accounts
from provisioning import USERS, Lab, lab_maker, quiet, quoted

from loadsim.provisioning.clean import clean
from loadsim.provisioning.initialise import Initialised, StoredState, initialise
from loadsim.scenario.mailboxes import folder_names

pytestmark = pytest.mark.nightly(part="runs")

STATED = (
    "mailbox={inbox: 9, deleted_items: 2, folders: 6, fan_out: 2, messages_per_folder: 4,"
    " sizes: {1500: 70%, 40K: 30%}, age_days: 400}"
)


@pytest.fixture(scope="module", params=["embedded", "dovecot"])
def make_lab(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, embedded_server: StartEmbedded
) -> Callable[[], Lab]:
    accounts = numbered_accounts(USERS)
    starts = embedded_server if request.param == "embedded" else request.getfixturevalue("dovecot_postfix")
    return lab_maker(starts(accounts), accounts, tmp_path_factory.mktemp("labs"))


def test_the_mailbox_section_fills_mailboxes_on_a_server(make_lab: Callable[[], Lab]) -> None:
    """Held against imaplib; a second init has nothing to do, a smaller tree is pruned, and clean removes all."""
    lab = make_lab().with_settings(STATED)

    def init(with_state: Lab) -> Initialised:
        return asyncio.run(initialise(with_state.workload, with_state.services, "auto", quiet))

    first = init(lab)
    assert first.put == USERS * (9 + 2 + 6 * 4)
    assert first.folders_created == USERS * (6 + 3)
    start = StoredState(lab.workload)
    for user, account in enumerate(lab.accounts, start=1):
        with logged_on(lab.server, account) as client:
            for folder in start.folders(user):
                found = _listed(client, folder)
                wanted = [
                    ({"\\seen"} if each.flags else set(), each.received_us // 1_000_000, len(each.message))
                    for each in start.messages(user, folder)
                ]
                assert found == wanted, folder
    assert not init(lab).changed

    flat = lab.with_settings("mailbox={inbox: 9, deleted_items: 2, folders: 2, messages_per_folder: 4}")
    assert init(flat).folders_deleted == USERS * 4
    names = {name for state in flat.snapshots() for name in state}
    assert {name for name in names if name.startswith("Folder")} == set(folder_names(2))
    init(lab)
    cleaned = asyncio.run(clean(lab.scenario, lab.services, False, quiet))
    assert not any(one.failure for one in cleaned)
    assert all(set(state) == {"INBOX"} and not state["INBOX"] for state in lab.snapshots())


def _listed(client: imaplib.IMAP4, folder: str) -> list[tuple[set[str], int, int]]:
    """Flags, internal date in seconds, and size of each message."""
    status, count = client.select(quoted(folder), readonly=True)
    assert status == "OK", count
    if count == [b"0"]:
        return []
    _, answer = client.uid("FETCH", "1:*", "(FLAGS INTERNALDATE RFC822.SIZE)")
    found = []
    for line in answer:
        read = {"flags": re.search(rb"FLAGS \(([^)]*)\)", line)[1], "size": re.search(rb"RFC822\.SIZE (\d+)", line)[1]}
        date = imaplib.Internaldate2tuple(line)
        flags = set(read["flags"].decode().lower().split()) - {"\\recent"}
        found.append((flags, round(time.mktime(date)), int(read["size"])))
    return found
