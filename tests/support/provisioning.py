"""Shared parts of the tests of initialise and clean: a scenario on a running server, read by imaplib."""

from __future__ import annotations

import asyncio
import csv
import imaplib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from mailservers import DOMAIN, SITES, StartEmbedded, logged_on, numbered_accounts

from loadsim.errors import ServerLost
from loadsim.model.message_tag import MessageTag, body_digest
from loadsim.model.ports import Account, Services
from loadsim.model.provisioning_ports import Provisioning
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.sessions import NullObserver
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.workload import Workload
from loadsim.servers.running import RunningServer

USERS = 3
FOREIGN = b"From: friend@elsewhere.test\r\nTo: you@example.test\r\nSubject: hello %d\r\n\r\nX-LoadSim: not quite\r\n"

_LISTED = re.compile(rb'\(([^)]*)\) (?:"[^"]*"|NIL) (?:"([^"]*)"|(\S+))')
_TAG = re.compile(rb"^X-LoadSim: (.*)\r$", re.MULTILINE)
_FLAGS = re.compile(rb"FLAGS \(([^)]*)\)")
SERVERS_FLAGS = {"\\recent", "$hasattachment", "$hasnoattachment"}
"""The flags that servers set: the keywords are those of Dovecot 2.4.5."""

_UID = re.compile(rb"UID (\d+)")


class Seen(NamedTuple):
    uid: int
    flags: frozenset[str]
    message: bytes

    @property
    def id(self) -> str | None:
        """loadsim's id of it, out of its header; None when it is somebody else's."""
        found = _TAG.search(self.message.partition(b"\r\n\r\n")[0] + b"\r\n")
        tag = MessageTag.parse(found[1].decode()) if found else None
        return tag.id if tag else None


Snapshot = dict[str, list[Seen]]


@dataclass(frozen=True)
class Lab:
    """A scenario of three users, whose accounts are new on this server."""

    server: RunningServer
    scenario: Scenario
    path: Path

    @property
    def services(self) -> Services:
        return self.server.services

    @property
    def workload(self) -> Workload:
        return Workload(self.scenario)

    @property
    def accounts(self) -> list[Account]:
        return [self.scenario.account(user) for user in range(1, self.scenario.users + 1)]

    def with_settings(self, *settings: str) -> Lab:
        """Return the accounts with a scenario of other settings."""
        return replace(self, scenario=load_scenario(str(self.path), settings))

    def snapshots(self) -> list[Snapshot]:
        return [snapshot(self.server, account) for account in self.accounts]

    def put(self, user: int, folder: str, message: bytes, flags: str = "") -> None:
        with logged_on(self.server, self.scenario.account(user)) as client:
            put(client, folder, message, flags)


LABS = 60
"""More labs than one file of tests makes on a server."""

MakeLab = Callable[[], Lab]


@pytest.fixture(scope="module", params=SITES)
def make_lab(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, embedded_server: StartEmbedded
) -> MakeLab:
    """Make scenarios with new accounts, on either server."""
    accounts = numbered_accounts(USERS * LABS)
    if request.param == "embedded":
        server: RunningServer = embedded_server(accounts)
    else:
        server = request.getfixturevalue("dovecot_postfix")(accounts)
    return lab_maker(server, accounts, tmp_path_factory.mktemp("labs"))


@pytest.fixture
def lab(make_lab: MakeLab) -> Lab:
    """A scenario of three users with new accounts."""
    return make_lab()


def lab_maker(server: RunningServer, accounts: Sequence[Account], directory: Path) -> MakeLab:
    """Makes labs on one server, each with the next accounts of these."""
    numbers = count()

    def make() -> Lab:
        number = next(numbers)
        mine = accounts[number * USERS : (number + 1) * USERS]
        assert len(mine) == USERS, "the server needs more accounts"
        table = directory / f"accounts-{number}.csv"
        with table.open("w", newline="") as file:
            csv.writer(file).writerows([("user", "password"), *((each.login, each.password) for each in mine)])
        profile = {"from": "loadsim-5.5/medium", "name": "small", "start_state": START_STATE}
        (directory / "small.yaml").write_text(yaml.safe_dump(profile))
        imap, smtp = server.services.imap, server.services.smtp
        document: dict[str, Any] = {
            "server": {
                "imap": {"host": imap.host, "port": imap.port, "tls": imap.tls},
                "smtp": {"host": smtp.host, "port": smtp.port, "tls": smtp.tls},
            },
            "domain": DOMAIN,
            "accounts": {"csv": str(table)},
            "topology": [{"profile": str(directory / "small.yaml"), "users": USERS}],
        }
        path = directory / f"scenario-{number}.yaml"
        path.write_text(yaml.safe_dump(document))
        return Lab(server, load_scenario(str(path)), path)

    return make


START_STATE = {"inbox": 4, "deleted_items": 1, "folders": 2, "messages_per_folder": 3}
WANTED_FOLDERS = {"INBOX", "Sent Items", "Deleted Items", "Calendar", "Folder 01", "Folder 02"}


def quoted(folder: str) -> str:
    """A folder's name as imaplib wants it."""
    return f'"{folder}"'


def put(client: imaplib.IMAP4, folder: str, message: bytes, flags: str = "") -> None:
    status, said = client.append(quoted(folder), flags, "", message)
    assert status == "OK", said


def snapshot(server: RunningServer, account: Account) -> Snapshot:
    """All folders of an account with all that is in them; reading changes nothing."""
    with logged_on(server, account) as client:
        _, listed = client.list()
        names = [
            found[2] or found[3] for line in listed if (found := _LISTED.match(line)) and b"select" not in found[1]
        ]
        return {name.decode(): _messages(client, name.decode()) for name in names}


def _messages(client: imaplib.IMAP4, folder: str) -> list[Seen]:
    status, found = client.select(quoted(folder), readonly=True)
    assert status == "OK", found
    if found == [b"0"]:
        return []
    _, answer = client.uid("FETCH", "1:*", "(UID FLAGS BODY.PEEK[])")
    messages = []
    for at, each in enumerate(answer):
        if isinstance(each, tuple):
            rest = answer[at + 1] if at + 1 < len(answer) and isinstance(answer[at + 1], bytes) else b""
            said = each[0] + rest
            flags = frozenset(_FLAGS.search(said)[1].decode().lower().split()) - SERVERS_FLAGS
            messages.append(Seen(int(_UID.search(said)[1]), flags, each[1]))
    assert len(messages) == int(found[0])
    return messages


def own_message(number: int, run: str = "r1") -> bytes:
    """A message such as a run leaves behind."""
    body = b"left behind\r\n"
    tag = MessageTag(run, 2, f"n2.{number}", "ups1K", 1_763_700_000_000_000, body_digest(body))
    return (
        f"From: a@{DOMAIN}\r\nTo: b@{DOMAIN}\r\nSubject: {number}\r\nMessage-ID: <{tag.id}.{run}@{DOMAIN}>\r\n"
        f"X-LoadSim: {tag.header()}\r\n\r\n"
    ).encode() + body


def delivery_report(about: bytes, whole: bool = False) -> bytes:
    """Return a report (RFC 3464) of a message that could not be delivered, with its header or all of it."""
    head = f"""\
From: MAILER-DAEMON@mail.example.test (Mail Delivery System)
To: a@example.test
Subject: Undelivered Mail Returned to Sender
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary="b1"

--b1
Content-Type: text/plain; charset=us-ascii

Your message could not be delivered.
--b1
Content-Type: message/delivery-status

Reporting-MTA: dns; mail.example.test

Final-Recipient: rfc822; b@example.test
Action: failed
Status: 5.1.1

--b1
Content-Type: {"message/rfc822" if whole else "text/rfc822-headers"}

"""
    returned = about if whole else about.partition(b"\r\n\r\n")[0]
    return head.replace("\n", "\r\n").encode() + returned + b"\r\n\r\n--b1--\r\n"


class Killed(Exception):
    """The end of a process between two steps."""


class Wrapped:
    """A mailbox that does what another one does."""

    def __init__(self, mailbox: Any) -> None:
        self._mailbox = mailbox

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mailbox, name)


class Mortal(Wrapped):
    """A mailbox whose user is killed at the change after `steps` changes."""

    CHANGES = frozenset({"create", "delete", "append", "append_many", "expunge", "set_flags", "flag", "move", "copy"})

    def __init__(self, mailbox: Provisioning, steps: int) -> None:
        super().__init__(mailbox)
        self._left = steps

    def __getattr__(self, name: str) -> Any:
        if name in self.CHANGES:
            if not self._left:
                raise Killed
            self._left -= 1
        return super().__getattr__(name)


async def with_steps(lab: Lab, account: Account, steps: int, work: Callable[[Account, Any], Any]) -> bool:
    """Do the work on a real session until it has taken so many steps; whether it came to its end."""
    mailbox = open_driver("imap", lab.services).session(account, NullObserver()).mailbox
    await mailbox.log_on()
    try:
        await work(account, Mortal(mailbox, steps))
    except Killed:
        return False
    finally:
        try:
            await mailbox.log_off()
        except ServerLost:
            mailbox.abandon()
    return True


def runs_step_by_step(lab: Lab, account: Account, work: Callable[[Account, Any], Any]) -> int:
    """Repeat work that is killed after each single change until it finishes; return the number of runs."""
    for runs in range(1, 100):
        if asyncio.run(with_steps(lab, account, 1, work)):
            return runs
    raise AssertionError("it does not get any further")


def quiet(phase: str, done: int, total: int) -> None:
    """Ignore the progress."""
