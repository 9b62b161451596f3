"""The embedded mail server's own process: pymap's in-memory IMAP and aiosmtpd's SMTP on one event loop.

`loadsim.servers.embedded` starts it. Both servers run in one process: SMTP delivers through pymap's own session, so
that idling clients are notified at once.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from proxyprotocol.sock import SocketInfo
from pymap.backend.dict import Config, Identity, Login
from pymap.backend.dict.mailbox import MailboxData
from pymap.concurrent import Event, Subsystem
from pymap.config import BackendCapability
from pymap.imap import IMAPServer
from pymap.imap.state import ConnectionState
from pymap.message import BaseLoadedMessage
from pymap.mime import MessageContent
from pymap.parsing.command.auth import CommandMailboxArg
from pymap.parsing.message import AppendMessage
from pymap.parsing.response import CommandResponse, ResponseOk, UntaggedResponse
from pymap.parsing.response.fetch import BodyStructure, ContentBodyStructure
from pymap.selected import SelectedMailbox
from pymap.user import UserMetadata
from pysasl.hashing import Cleartext

from loadsim.servers.child import BACKLOG, listen, run_child, until_end

LARGEST_MESSAGE_BYTES = 32 * 1024 * 1024


class GetQuotaRoot(CommandMailboxArg):
    command = b"GETQUOTAROOT"


def repair_pymap() -> None:
    _announce_pending_changes()
    _state_sizes_of_bodies()
    _answer_quotas()


def _answer_quotas() -> None:
    """Add QUOTA (RFC 9208): all of a user's mailboxes have one root, which limits nothing."""

    async def do_getquotaroot(self: ConnectionState, command: GetQuotaRoot) -> tuple[CommandResponse, None]:
        await self.session.get_mailbox(command.mailbox)  # refused if it does not exist
        response = ResponseOk(command.tag, b"GETQUOTAROOT completed.")
        root = UntaggedResponse(b'QUOTAROOT %b ""' % bytes(command.mailbox_obj))
        response.add_untagged(root, UntaggedResponse(b'QUOTA "" ()'))
        return response, None

    ConnectionState.do_getquotaroot = do_getquotaroot  # type: ignore[attr-defined]
    offered = BackendCapability(idle=True, object_id=True, multi_append=True, custom=[b"QUOTA"])
    Config.backend_capability = property(lambda _: offered)  # type: ignore[assignment]


def _state_sizes_of_bodies() -> None:
    """Make BODYSTRUCTURE state the sizes of bodies (RFC 9051 section 7.5.2); pymap's include the parts' headers."""
    with_headers = BaseLoadedMessage._get_body_structure.__func__  # type: ignore[attr-defined]

    def body_structure(cls: type[BaseLoadedMessage], part: MessageContent) -> BodyStructure:
        structure: BodyStructure = with_headers(cls, part)
        if isinstance(structure, ContentBodyStructure):
            structure.size = len(part.body)
        return structure

    BaseLoadedMessage._get_body_structure = classmethod(body_structure)  # type: ignore[assignment]


def _announce_pending_changes() -> None:
    """Make IDLE announce at once the changes made since the last command.

    pymap announces them only with the next change. A client that just idles, as RFC 2177 intends, would miss a message
    that arrived before IDLE.
    """
    wait_and_update = MailboxData.update_selected

    async def update_selected(
        self: MailboxData, selected: SelectedMailbox, *, wait_on: Event | None = None
    ) -> SelectedMailbox:
        seen = selected.mod_sequence
        if wait_on is not None and seen is not None and any(self._mod_sequences.find_updated(seen + 1)):
            wait_on = None
        return await wait_and_update(self, selected, wait_on=wait_on)

    MailboxData.update_selected = update_selected  # type: ignore[method-assign]


class MailDelivery:
    """Delivers messages from SMTP to the mailboxes; aiosmtpd's handler and authenticator."""

    def __init__(self, login: Login, accounts: Iterable[Sequence[str]], lists: Mapping[str, Sequence[str]]) -> None:
        """`accounts` are (login, address, password), `lists` maps an address to its members' addresses."""
        self._login = login
        self._passwords = {name.encode(): password.encode() for name, _, password in accounts}
        self._targets: dict[str, tuple[str, ...]] = {address.lower(): (name,) for name, address, _ in accounts}
        self._targets |= {
            address.lower(): tuple(self._targets[member.lower()][0] for member in members)
            for address, members in lists.items()
        }

    def authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, credentials: object
    ) -> AuthResult:
        """Accept an account's login and password (RFC 4954); others get the reply 535."""
        known = isinstance(credentials, LoginPassword) and (
            self._passwords.get(credentials.login) == credentials.password
        )
        return AuthResult(success=known, handled=False)

    async def handle_RCPT(  # noqa: N802 - aiosmtpd finds its hooks by name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """Accept accounts and lists, refuse all others (RFC 5321 section 3.3)."""
        if address.lower() not in self._targets:
            return "550 5.1.1 No such user here"
        envelope.rcpt_tos.append(address)
        envelope.rcpt_options.extend(options)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        """Put the message into each recipient's Inbox once, even if they are members of several lists."""
        content = envelope.original_content
        assert content is not None
        stored = b"Return-Path: <%b>\r\n%b" % ((envelope.mail_from or "").encode(), content)
        message = AppendMessage(stored, datetime.now(UTC))  # INTERNALDATE needs a zone
        for name in dict.fromkeys(name for address in envelope.rcpt_tos for name in self._targets[address.lower()]):
            async with Identity(name, self._login, None, frozenset()).new_session() as mailbox:
                await mailbox.append_messages("INBOX", [message])
        return "250 2.0.0 OK: delivered"


async def mailboxes(accounts: Iterable[Sequence[str]]) -> tuple[Config, Login]:
    """Return an in-memory pymap server with an empty mailbox for each account (login, address, password)."""
    config = Config(
        Namespace(proxy_protocol=None),
        demo_data=False,
        demo_user="",
        demo_password="",
        host=None,
        port=0,
        ssl_context=ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
        tls_enabled=False,
        reject_dnsbl=False,
        invalid_user_sleep=0.0,
        max_append_len=LARGEST_MESSAGE_BYTES,
        # Hashing in a thread would cost more than everything else at log-on.
        hash_context=Cleartext(),
        cpu_subsystem=Subsystem.for_asyncio(),
    )
    config.apply_context()
    login = Login(config)
    for name, _, password in accounts:
        await Identity(name, login, None, frozenset()).set(UserMetadata(config, name, password=password))
    return config, login


def smtp_protocol(delivery: MailDelivery) -> SMTP:
    """Return aiosmtpd's protocol for one connection."""
    return SMTP(
        delivery,
        data_size_limit=LARGEST_MESSAGE_BYTES,
        hostname="localhost",
        authenticator=delivery.authenticate,
        auth_require_tls=False,
        loop=asyncio.get_running_loop(),
    )


async def imap_connection(server: IMAPServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve a connection in asyncio's own task; pymap's ProxyProtocolReader starts another without keeping a reference.

    From Python 3.13 on, the garbage collector ends such a task, and with it the connection.
    """
    await server(reader, writer, SocketInfo.get(writer, None))


async def serve(accounts: Sequence[Sequence[str]], lists: Mapping[str, Sequence[str]]) -> None:
    """Listen on two free loopback ports, report them to the parent, and serve until SIGTERM or the end of stdin."""
    config, login = await mailboxes(accounts)
    delivery = MailDelivery(login, accounts, lists)

    imap_server = IMAPServer(login, config)
    imap_server.commands.register(GetQuotaRoot)
    imap = partial(imap_connection, imap_server)
    smtp = partial(smtp_protocol, delivery)
    imap_socket, smtp_socket = listen(), listen()
    async with (
        await asyncio.start_server(imap, sock=imap_socket, backlog=BACKLOG),
        await asyncio.get_running_loop().create_server(smtp, sock=smtp_socket, backlog=BACKLOG),
    ):
        services = {"imap": (imap_socket, ""), "smtp": (smtp_socket, "")}
        await until_end(services, {package: version(package) for package in ("pymap", "aiosmtpd")})


def main() -> None:
    os.environ["FQDN"] = "localhost"  # otherwise pymap asks the resolver at each connection
    repair_pymap()
    run_child(serve)


if __name__ == "__main__":
    main()
