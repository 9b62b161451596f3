"""James and GreenMail as loadsim starts them: they take mail, hand it out, and leave nothing behind."""

from __future__ import annotations

import imaplib
import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from mailservers import DOMAIN, numbered_accounts, short_directory, submit
from other_servers.greenmail import start_greenmail
from other_servers.james import James, start_james
from other_servers.java import find_programs
from patience import PATIENCE_S
from private_servers import assert_ends_with_its_parent, assert_refuses_a_taken_port
from processes import ended, refuses

from loadsim.errors import ConfigError
from loadsim.model.ports import Account
from loadsim.provisioning.export_james import james_script
from loadsim.servers.private import PrivateServer

pytestmark = pytest.mark.nightly(part="servers")

# The last one has what is special in argument files, JSON and configurations of curl.
ACCOUNTS = [*numbered_accounts(5), Account(6, "user6", f"user6@{DOMAIN}", 'back\\slash "quoted": #x $HOME @y')]
EVERYBODY = f"all@{DOMAIN}"
FEW = f"few@{DOMAIN}"
LISTS = {
    EVERYBODY: [account.address for account in ACCOUNTS],
    FEW: [account.address for account in ACCOUNTS[:3]],
}
MESSAGE = (
    b"From: user2@example.test\r\nTo: all@example.test\r\nSubject: hello\r\n"
    b"Date: Sun, 22 Nov 2026 12:00:00 +0000\r\nMessage-ID: <%s@example.test>\r\n\r\n.a dot\r\nand an end\r\n"
)


class Kind(NamedTuple):
    start: Callable[..., PrivateServer]
    artifact: str
    series: str
    lists: Mapping[str, Sequence[str]]


KINDS = {
    "james": Kind(start_james, "james-server-memory-app", "3.8", LISTS),
    "greenmail": Kind(start_greenmail, "greenmail-standalone", "2.1", {}),
}


def checked(name: str) -> Kind:
    """Return the kind of this name, whose programs tests/install-java-servers.sh fetches."""
    find_programs(name, KINDS[name].artifact, KINDS[name].series, None)
    return KINDS[name]


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of server in turn."""
    return checked(request.param)


def started(kind: Kind, directory: Path, **options: int) -> AbstractContextManager[PrivateServer]:
    """A server of this kind with all accounts, and the lists that it can have."""
    return kind.start(ACCOUNTS, kind.lists, directory, **options)


@pytest.fixture(scope="module")
def server(kind: Kind) -> Iterator[PrivateServer]:
    """A server of each kind, stopped after its tests."""
    with short_directory() as directory, started(kind, directory) as running:
        yield running


@pytest.fixture
def james() -> Iterator[James]:
    """A James with one account, that of user 1."""
    checked("james")
    with short_directory() as directory, start_james(ACCOUNTS[:1], {}, directory) as running:
        yield running


@contextmanager
def session(server: PrivateServer, account: Account) -> Iterator[imaplib.IMAP4]:
    """A session of this account. It ends without LOGOUT: James sometimes closes the connection with no answer to it."""
    imap = server.services.imap
    client = imaplib.IMAP4(imap.host, imap.port, timeout=PATIENCE_S)
    try:
        client.login(account.login, account.password)
        yield client
    finally:
        client.shutdown()


def holds(server: PrivateServer, account: Account, mark: str, expected: int) -> list[bytes]:
    """The Inbox's messages with this Message-ID, once there are so many; a test's time limit ends a vain wait."""
    with session(server, account) as client:
        for _ in range(100_000):
            client.select("INBOX", readonly=True)
            found = client.uid("SEARCH", "HEADER", "Message-ID", mark)[1][0].split()
            if len(found) >= expected:
                break
    # James's SEARCH finds messages that FETCH in the same session does not know yet.
    with session(server, account) as client:
        client.select("INBOX", readonly=True)
        return [client.uid("FETCH", uid.decode(), "(BODY.PEEK[])")[1][0][1] for uid in found]


def test_delivers_to_one_user(server: PrivateServer) -> None:
    """Mail to one user arrives with them, whole, and with no other."""
    message = MESSAGE % b"one"
    assert submit(server.services, ACCOUNTS[1].address, [ACCOUNTS[4].address], message) == {}
    assert [found.rstrip().endswith(message.rstrip()) for found in holds(server, ACCOUNTS[4], "one", 1)] == [True]
    assert holds(server, ACCOUNTS[3], "one", 0) == []


def test_delivers_to_lists() -> None:
    """Mail to two lists and a member: each member gets one copy. Nobody else can be written to."""
    kind = checked("james")
    with short_directory() as directory, started(kind, directory) as server:
        message = MESSAGE % b"lists"
        recipients = [EVERYBODY, FEW, ACCOUNTS[5].address]
        assert submit(server.services, ACCOUNTS[1].address, recipients, message) == {}
        for account in ACCOUNTS:
            copies = holds(server, account, "lists", 1)
            assert [copy.rstrip().endswith(message.rstrip()) for copy in copies] == [True]
        strangers = [f"nobody@{DOMAIN}", "user1@elsewhere.test"]
        refused = submit(server.services, ACCOUNTS[0].address, [*strangers, ACCOUNTS[3].address], MESSAGE % b"no")
        assert sorted(refused) == sorted(strangers)


@pytest.mark.parametrize("account", ACCOUNTS, ids=lambda account: account.login)
def test_checks_passwords(server: PrivateServer, account: Account) -> None:
    """Each user logs on with their own password, and with no other."""
    with session(server, account) as client:
        assert client.select("INBOX")[0] == "OK"
    stranger = replace(account, password="other")
    with pytest.raises(imaplib.IMAP4.error), session(server, stranger):
        pass


def test_passwords_are_in_no_arguments(server: PrivateServer) -> None:
    """No process of the server shows a password to other users."""
    for pid in server.pids():
        assert b"secret-of" not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_says_what_it_is(server: PrivateServer) -> None:
    """The description has name and version."""
    name, version, *_ = server.describe().removeprefix("Apache ").split()
    assert name in ("James", "GreenMail")
    assert version.replace(".", "").isdigit()


def test_stop_leaves_nothing(kind: Kind, server_directory: Path) -> None:
    """After stop, also with a client in the middle of a session, no process, no port and no secret is left."""
    with started(kind, server_directory) as server, session(server, ACCOUNTS[0]):
        pids = server.pids()
        server.stop()
        assert pids
        assert all(ended(pid) for pid in pids)
        assert refuses(server.services.imap.port)
        assert refuses(server.services.smtp.port)
        server.stop()
    for file in server_directory.rglob("*"):
        assert file.is_dir() or b"secret-of" not in file.read_bytes()


def test_ends_with_loadsim(kind: Kind, server_directory: Path) -> None:
    """If loadsim is killed, the server ends."""
    assert_ends_with_its_parent(kind.start.__name__, server_directory)


@pytest.mark.parametrize("service", ["imap_port", "smtp_port"])
def test_a_taken_port_is_refused(kind: Kind, server_directory: Path, service: str) -> None:
    """Bad input, and nothing stays behind."""
    assert_refuses_a_taken_port(partial(started, kind, server_directory), service)


def test_the_exported_script_creates_accounts_and_lists(james: James, tmp_path: Path) -> None:
    """`james.sh` gives a James the accounts and lists; it may run again, and changes passwords that differ."""
    script = tmp_path / "james.sh"
    command = ["sh", str(script), f"http://127.0.0.1:{james.webadmin}"]
    for password in ("other", ACCOUNTS[5].password):
        accounts = [*ACCOUNTS[:5], Account(6, "user6", f"user6@{DOMAIN}", password)]
        script.write_text(james_script(accounts, LISTS), encoding="utf-8")
        done = subprocess.run(command, env={**os.environ, "JAMES_TOKEN": james.token}, capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    for account in ACCOUNTS:
        with session(james, account):
            pass
    assert submit(james.services, ACCOUNTS[1].address, [FEW], MESSAGE % b"few") == {}
    assert [len(holds(james, account, "few", 1)) for account in ACCOUNTS[:3]] == [1, 1, 1]
    refused = subprocess.run(command, capture_output=True, check=False)
    assert refused.returncode == 22
    assert b"401" in refused.stderr


def test_webadmin_demands_its_token(james: James) -> None:
    """Other users of the machine cannot change accounts."""
    request = b"GET /users HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", james.webadmin), timeout=PATIENCE_S) as client:
        client.sendall(request)
        assert client.makefile("rb").readline().split()[1] == b"401"
    with socket.create_connection(("127.0.0.1", james.webadmin), timeout=PATIENCE_S) as client:
        client.sendall(request.replace(b"Host", b"Authorization: Bearer " + james.token.encode() + b"\r\nHost"))
        assert client.makefile("rb").readline().split()[1] == b"200"


def test_greenmail_rejects_lists(server_directory: Path) -> None:
    """GreenMail has no lists: a scenario with lists is bad input."""
    with pytest.raises(ConfigError, match=r"lists\.count=0"):
        start_greenmail(ACCOUNTS, LISTS, server_directory)
