"""Cyrus and Courier as loadsim starts them: they take mail, hand it out, and leave nothing behind."""

from __future__ import annotations

import imaplib
import os
import smtplib
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from mailservers import DOMAIN, inbox, logged_on, numbered_accounts, short_directory, submit
from other_servers.courier import start_courier
from other_servers.cyrus import start_cyrus
from patience import PATIENCE_S
from private_servers import assert_ends_with_its_parent, assert_refuses_a_taken_port
from processes import ended, refuses

from loadsim.model.ports import Account
from loadsim.servers.private import PrivateServer

pytestmark = pytest.mark.nightly(part="servers")

PROGRAMS = Path(os.environ.get("LOADSIM_SERVERS", "/var/cache/loadsim/servers"))
"""The default directory of tests/install-other-servers.sh."""

# The last two have what is special in the tables of passwords, and a login that is not the local part of the address.
ACCOUNTS = [
    *numbered_accounts(4),
    Account(5, "user5", f"User.Five@{DOMAIN}", 'back\\slash "quoted": #x'),
    Account(6, "u-6", f"six@{DOMAIN}", " spaces around "),
]
EVERYBODY = f"all@{DOMAIN}"
FEW = f"few@{DOMAIN}"
LISTS = {
    EVERYBODY: [account.address for account in ACCOUNTS],
    FEW: [account.address for account in ACCOUNTS[:3]],
}
MESSAGE = (
    b"From: user2@example.test\r\nTo: all@example.test\r\nSubject: hello\r\n"
    b"Date: Sun, 22 Nov 2026 12:00:00 +0000\r\nMessage-ID: <%d@example.test>\r\n\r\n.a dot\r\nand an end\r\n"
)
"""Cyrus drops a second message with the same Message-ID, so each has a number of its own."""
MESSAGES = (MESSAGE % number for number in count())


class Kind(NamedTuple):
    start: Callable[..., PrivateServer]
    options: dict[str, bool]
    personal: bytes
    """The personal namespace that it announces (RFC 2342)."""


KINDS = {
    "cyrus": Kind(start_cyrus, {"altnamespace": False}, b'(("INBOX." "."))'),
    "cyrus-altnamespace": Kind(start_cyrus, {"altnamespace": True}, b'(("" "."))'),
    "courier": Kind(start_courier, {}, b'(("INBOX." "."))'),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of server in turn."""
    assert (PROGRAMS / "complete").exists(), "as root on Debian: tests/install-other-servers.sh"
    return KINDS[request.param]


def started(kind: Kind, directory: Path, **options: int) -> AbstractContextManager[PrivateServer]:
    """A server of this kind with all accounts and lists."""
    return kind.start(ACCOUNTS, LISTS, directory, programs=PROGRAMS, **kind.options, **options)


@pytest.fixture(scope="module")
def server(kind: Kind) -> Iterator[PrivateServer]:
    """A server of each kind, stopped after its tests."""
    with short_directory() as directory, started(kind, directory) as running:
        yield running


def await_messages(server: PrivateServer, account: Account, expected: int) -> list[bytes]:
    """Look into the Inbox until it has this many messages; the limit of a test's time ends a vain wait."""
    with logged_on(server, account) as client:
        client.select("INBOX", readonly=True)
        for _ in range(10_000):
            if int(client.status("INBOX", "(MESSAGES)")[1][0].split()[-1].rstrip(b")")) >= expected:
                break
    return inbox(server, account)


def test_delivers_once_to_each_recipient(server: PrivateServer) -> None:
    """Mail to two lists and one user: each member gets one copy, byte for byte behind the server's own header."""
    before = {account.login: len(inbox(server, account)) for account in ACCOUNTS}
    recipients = [EVERYBODY, FEW, ACCOUNTS[5].address]
    message = next(MESSAGES)
    assert submit(server.services, ACCOUNTS[1].address, recipients, message) == {}
    for account in ACCOUNTS:
        arrived = await_messages(server, account, before[account.login] + 1)[before[account.login] :]
        assert len(arrived) == 1
        assert arrived[0].endswith(message)


def test_delivers_to_one_user(server: PrivateServer) -> None:
    """Mail to one user arrives with them, and with no other."""
    before = {account.login: len(inbox(server, account)) for account in ACCOUNTS}
    assert submit(server.services, ACCOUNTS[1].address, [ACCOUNTS[4].address.lower()], next(MESSAGES)) == {}
    await_messages(server, ACCOUNTS[4], before["user5"] + 1)
    after = {account.login: len(inbox(server, account)) for account in ACCOUNTS}
    assert after == before | {"user5": before["user5"] + 1}


def test_refuses_unknown_recipients(server: PrivateServer) -> None:
    """No mail leaves the server, and none for unknown users is accepted."""
    strangers = [f"nobody@{DOMAIN}", "user1@elsewhere.test"]
    refused = submit(server.services, ACCOUNTS[0].address, [*strangers, ACCOUNTS[3].address], next(MESSAGES))
    assert sorted(refused) == sorted(strangers)


@pytest.mark.parametrize("account", ACCOUNTS, ids=lambda account: account.login)
def test_checks_passwords(server: PrivateServer, account: Account) -> None:
    """IMAP and SMTP take each user's own password; SMTP takes no other."""
    with logged_on(server, account) as client:
        assert client.select("INBOX")[0] == "OK"
    for mechanism in ("PLAIN", "LOGIN"):
        assert authenticated(server, mechanism, account.login, account.password) == 235
        assert authenticated(server, mechanism, account.login, f"{account.password}x") == 535


def test_refuses_a_wrong_password(server: PrivateServer) -> None:
    """IMAP takes no other password. Courier answers after five seconds."""
    imap, account = server.services.imap, ACCOUNTS[0]
    with imaplib.IMAP4(imap.host, imap.port, timeout=PATIENCE_S) as client, pytest.raises(imaplib.IMAP4.error):
        client.login(account.login, f"{account.password}x")


def authenticated(server: PrivateServer, mechanism: str, login: str, password: str) -> int:
    """The server's answer to a log-on by SMTP, on a connection of its own."""
    smtp = server.services.smtp
    with smtplib.SMTP(smtp.host, smtp.port, timeout=PATIENCE_S) as client:
        client.ehlo()
        client.user, client.password = login, password
        try:
            return client.auth(mechanism, getattr(client, f"auth_{mechanism.lower()}"))[0]
        except smtplib.SMTPAuthenticationError as refused:
            return refused.smtp_code


def test_has_the_namespace_asked_for(server: PrivateServer, kind: Kind) -> None:
    """The personal namespace is that of the distribution's configuration, or the other one that was asked for."""
    with logged_on(server, ACCOUNTS[0]) as client:
        assert client.namespace()[1][0].startswith(kind.personal)
        prefix = kind.personal.split(b'"')[1].decode()
        assert client.create(f"{prefix}Sent")[0] == "OK"
        assert client.delete(f"{prefix}Sent")[0] == "OK"


def test_says_what_it_is(server: PrivateServer) -> None:
    """The description has names and versions."""
    name, version, _, front, number, *_ = server.describe().split()
    assert (name, front) in (("Cyrus", "Postfix"), ("Courier", "Exim"))
    assert version.replace(".", "").isdigit()
    assert number.replace(".", "").isdigit()


def test_stop_leaves_nothing_and_keeps_mail(kind: Kind, server_directory: Path) -> None:
    """After stop, also with a client in the middle of a session, no process and no port is left; mail is kept."""
    with ExitStack() as stack:
        server = stack.enter_context(started(kind, server_directory))
        imap, smtp = server.services.imap, server.services.smtp
        submit(server.services, ACCOUNTS[1].address, [ACCOUNTS[0].address], next(MESSAGES))
        await_messages(server, ACCOUNTS[0], 1)
        client = stack.enter_context(socket.create_connection((imap.host, imap.port)))
        client.sendall(b"1 LOGIN %b %b\r\n" % (ACCOUNTS[0].login.encode(), ACCOUNTS[0].password.encode()))
        client.recv(4096)
        pids = server.pids()
        server.stop()
        assert len(pids) > 5
        assert not server.pids()
        assert all(ended(pid) for pid in pids)
        assert refuses(imap.port)
        assert refuses(smtp.port)
        server.stop()
    with started(kind, server_directory) as again:
        assert len(inbox(again, ACCOUNTS[0])) == 1


def test_ends_with_loadsim(kind: Kind, server_directory: Path) -> None:
    """If loadsim is killed, the servers end."""
    assert_ends_with_its_parent(kind.start.__name__, server_directory, least=6, programs=PROGRAMS)


def test_takes_logins_with_domains_and_dots(kind: Kind, server_directory: Path) -> None:
    """Logins may be addresses, their own or others; each user gets the mail to their address."""
    accounts = [
        Account(1, "first.last@example.test", "first.last@example.test", "one"),
        Account(2, "second@other.test", "two@example.test", "two"),
        Account(3, "third", "third@example.test", "three"),
    ]
    everybody = {EVERYBODY: [account.address for account in accounts]}
    with kind.start(accounts, everybody, server_directory, programs=PROGRAMS, **kind.options) as server:
        message = next(MESSAGES)
        assert submit(server.services, accounts[0].address, [EVERYBODY], message) == {}
        for account in accounts:
            (arrived,) = await_messages(server, account, 1)
            assert arrived.endswith(message)
            assert authenticated(server, "PLAIN", account.login, account.password) == 235


@pytest.mark.parametrize("service", ["imap_port", "smtp_port"])
def test_a_taken_port_is_refused(kind: Kind, server_directory: Path, service: str) -> None:
    """Bad input, and nothing stays behind."""
    assert_refuses_a_taken_port(partial(started, kind, server_directory), service)
