"""Mail servers for tests: fixtures that start them, and the few things that several tests do with them.

`embedded_server` and `dovecot_postfix` are factories: called with accounts and lists they return a running server,
which is stopped, and its directory removed, when the module's tests are done. Tests that use `dovecot_postfix`
carry `@pytest.mark.system`.
"""

from __future__ import annotations

import imaplib
import os
import re
import shutil
import smtplib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keeper
import pytest
from jmap_peer import User
from jmap_peer.child import peer_process
from patience import PATIENCE_S

from loadsim.model.ports import Account, Endpoint, Services
from loadsim.servers.dovecot_postfix import DovecotPostfix, check_machine, start_dovecot_postfix
from loadsim.servers.dovecot_postfix_config import Layout
from loadsim.servers.embedded import EmbeddedServer, start_embedded, start_embedded_mapi
from loadsim.servers.running import RunningServer

DOMAIN = "example.test"

SITES = [
    pytest.param("embedded", marks=pytest.mark.nightly(part="drivers")),
    pytest.param("dovecot", marks=pytest.mark.system),
]
"""The servers on which a mailbox test runs; the embedded server takes far more CPU time than Dovecot."""

StartEmbedded = Callable[..., EmbeddedServer]
StartDovecotPostfix = Callable[..., DovecotPostfix]


def numbered_accounts(count: int) -> list[Account]:
    """Accounts user1, user2, ... of example.test, with passwords of their own."""
    return [Account(i, f"user{i}", f"user{i}@{DOMAIN}", f"secret-of-{i}") for i in range(1, count + 1)]


@contextmanager
def short_directory() -> Iterator[Path]:
    """A directory that the servers' users can enter, with room for socket names; pytest's own are neither."""
    directory = Path(tempfile.mkdtemp(prefix="lst", dir=os.environ[keeper.PLACE]))
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


@pytest.fixture
def server_directory() -> Iterator[Path]:
    """A directory for one server that a test starts by itself."""
    with short_directory() as directory:
        yield directory


@pytest.fixture(scope="module")
def embedded_server() -> Iterator[StartEmbedded]:
    """`embedded_server(accounts, lists={}) -> EmbeddedServer`, stopped after the module."""
    with ExitStack() as stack:

        def start(accounts: Sequence[Account], lists: Mapping[str, Sequence[str]] | None = None) -> EmbeddedServer:
            directory = stack.enter_context(short_directory())
            return stack.enter_context(start_embedded(accounts, lists or {}, directory))

        yield start


@pytest.fixture(scope="module")
def embedded_mapi_server() -> Iterator[StartEmbedded]:
    """`embedded_mapi_server(accounts, lists={}) -> EmbeddedServer`, stopped after the module."""
    with ExitStack() as stack:

        def start(accounts: Sequence[Account], lists: Mapping[str, Sequence[str]] | None = None) -> EmbeddedServer:
            directory = stack.enter_context(short_directory())
            return stack.enter_context(start_embedded_mapi(accounts, lists or {}, directory))

        yield start


@dataclass(frozen=True)
class JmapServer:
    """The JMAP peer as a process, which the fixture stops."""

    services: Services

    def describe(self) -> str:
        return "JMAP peer"

    def stop(self) -> None:
        pass


@contextmanager
def start_jmap_peer(accounts: Iterable[Account], *settings: str, **changes: Any) -> Iterator[Services]:
    """Start the JMAP peer, and yield the services; `settings` are its switches, such as `relative_urls=true`."""
    users = [User(each.login, each.address, each.password) for each in accounts]
    with peer_process(users, *settings) as port:
        yield Services(jmap=Endpoint("127.0.0.1", port), command_limit_s=PATIENCE_S, **changes)


@pytest.fixture(scope="module")
def jmap_peer_server() -> Iterator[Callable[..., JmapServer]]:
    """`jmap_peer_server(accounts, *settings) -> JmapServer`, stopped after the module."""
    with ExitStack() as stack:
        yield lambda accounts, *settings: JmapServer(stack.enter_context(start_jmap_peer(accounts, *settings)))


@pytest.fixture(scope="module")
def dovecot_postfix() -> Iterator[StartDovecotPostfix]:
    """`dovecot_postfix(accounts, lists={}, tls="none", extra="", public_folder=None) -> DovecotPostfix`.

    It is stopped after the module. `extra` are further settings of Dovecot.
    """
    with ExitStack() as stack:

        def start(
            accounts: Sequence[Account],
            lists: Mapping[str, Sequence[str]] | None = None,
            tls: str = "none",
            extra: str = "",
            public_folder: str | None = None,
        ) -> DovecotPostfix:
            directory = stack.enter_context(short_directory())
            if extra:
                settings = Layout(directory).dovecot_extra
                settings.parent.mkdir()
                settings.write_text(extra, encoding="utf-8")
            started = start_dovecot_postfix(accounts, lists or {}, directory, tls=tls, public_folder=public_folder)
            return stack.enter_context(started)

        yield start


def quotas() -> str:
    """Return settings by which Dovecot offers QUOTA, with a limit of 1 GiB for each user."""
    dialect, _ = check_machine()
    if dialect.version:
        return (
            "mail_plugins {\n  quota = yes\n}\nprotocol imap {\n  mail_plugins {\n    imap_quota = yes\n  }\n}\n"
            "quota User {\n  quota_storage_size = 1G\n}\n"
        )
    return (
        "mail_plugins = quota\nprotocol imap {\n  mail_plugins = quota imap_quota\n}\n"
        "plugin {\n  quota = count:User\n  quota_vsizes = yes\n  quota_rule = *:storage=1G\n}\n"
    )


def submit(services: Services, sender: str, recipients: Sequence[str], message: bytes) -> Mapping[str, object]:
    """Send by smtplib without TLS; what was refused."""
    with smtplib.SMTP(services.smtp.host, services.smtp.port, timeout=PATIENCE_S) as client:
        return client.sendmail(sender, recipients, message)


@contextmanager
def logged_on(server: RunningServer, account: Account) -> Iterator[imaplib.IMAP4]:
    """An imaplib session of this account, without TLS."""
    endpoint = server.services.imap
    with imaplib.IMAP4(endpoint.host, endpoint.port, timeout=PATIENCE_S) as client:
        client.login(f'"{account.login}"', account.password)  # quotes the password only
        yield client


@contextmanager
def idling(server: RunningServer, account: Account) -> Iterator[Callable[[], int]]:
    """A session that waits with IDLE on the Inbox; the function returns the next count that it is told of."""
    with logged_on(server, account) as client:
        client.select("INBOX")
        client.send(b"W1 IDLE\r\n")
        while not client.readline().startswith(b"+"):
            pass

        def next_count() -> int:
            while True:
                line = client.readline()
                assert line, "the server closed the connection"
                if count := re.match(rb"\* (\d+) EXISTS", line):
                    return int(count[1])

        yield next_count
        client.send(b"DONE\r\n")
        while not client.readline().startswith(b"W1 "):
            pass


def inbox(server: RunningServer, account: Account) -> list[bytes]:
    with logged_on(server, account) as client:
        client.select("INBOX", readonly=True)
        _, found = client.uid("SEARCH", "ALL")
        messages: list[bytes] = []
        for uid in found[0].split():
            _, fetched = client.uid("FETCH", uid.decode(), "(BODY.PEEK[])")
            messages.append(fetched[0][1])
        return messages
