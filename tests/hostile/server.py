"""The embedded server's own pymap and aiosmtpd on the running loop, and a list of what they took."""

import asyncio
import os
import re
import socket
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime
from functools import cache
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session
from proxyprotocol.result import ProxyResultUnknown
from proxyprotocol.sock import SocketInfo
from pymap.backend.dict import Identity
from pymap.imap import IMAPServer
from pymap.parsing.message import AppendMessage
from pysasl import SASLAuth

from loadsim.model.message_tag import MessageTag
from loadsim.model.ports import CALENDAR, DELETED_ITEMS, SENT_ITEMS, Account
from loadsim.servers import embedded_child

LONGEST_LINE = 1 << 26

_TAG = re.compile(rb"^X-LoadSim: (.*(?:\r\n[ \t].*)*)", re.MULTILINE)


class Delivery(embedded_child.MailDelivery):
    """Delivers, and remembers each message that it took, with each of its users."""

    def __init__(self, *args: object, users: dict[str, int]) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._users = users
        self.took: set[tuple[str, int]] = set()

    async def handle_EHLO(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, hostname: str, responses: list[str]
    ) -> list[str]:
        session.host_name = hostname
        return [responses[0], "250-PIPELINING", *responses[1:]]

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        answer = await super().handle_DATA(server, session, envelope)
        found = _TAG.search(envelope.original_content or b"")
        tag = MessageTag.parse(found[1].decode()) if found else None
        if tag is not None:
            self.took.update((tag.id, self._users[address]) for address in envelope.rcpt_tos)
        return answer


class Server:
    """Both servers; `imap` and `smtp` each serve one end of a connection."""

    def __init__(self, config: embedded_child.Config, login: embedded_child.Login, delivery: Delivery) -> None:
        self._imap = IMAPServer(login, config)
        self._login = login
        self.delivery = delivery

    async def put(self, account: Account, folder: str, message: bytes) -> None:
        """Put a message into a folder, as any other program might."""
        async with self._session(account) as mailbox:
            await mailbox.append_messages(folder, [AppendMessage(message, datetime.now(UTC))])

    async def messages(self, account: Account) -> list[bytes]:
        found = []
        async with self._session(account) as mailbox:
            for entry in (await mailbox.mailbox_set.list_mailboxes()).list():
                folder = await mailbox.mailbox_set.get_mailbox(entry.name)
                found += [bytes(message._content) for message in folder._messages.values()]
        return found

    def _session(self, account: Account) -> AbstractAsyncContextManager[Any]:
        return Identity(account.login, self._login, None, frozenset()).new_session()

    async def imap(self, sock: socket.socket) -> None:
        """Serve one IMAP connection to its end. Exceptions of pymap about a broken connection are ignored."""
        reader, writer = await asyncio.open_connection(sock=sock, limit=LONGEST_LINE)
        try:
            with suppress(Exception):
                await self._imap(reader, writer, SocketInfo.get(writer, ProxyResultUnknown(), unique_id=b"any"))
        finally:
            writer.close()

    async def smtp(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: embedded_child.smtp_protocol(self.delivery), sock)


@cache
def _prepare() -> None:
    """Prepare pymap as the embedded server does, and let it search all packages for log-on methods only once."""
    os.environ["FQDN"] = "localhost"
    SASLAuth.defaults = cache(SASLAuth.defaults)  # type: ignore[method-assign]
    embedded_child.repair_pymap()


async def serve(accounts: Sequence[Account], folders: Sequence[str]) -> Server:
    """Make both servers for these accounts, each with these folders and the usual ones."""
    _prepare()
    known = [(account.login, account.address, account.password) for account in accounts]
    config, login = await embedded_child.mailboxes(known)
    for account in accounts:
        async with Identity(account.login, login, None, frozenset()).new_session() as mailbox:
            for folder in (SENT_ITEMS, DELETED_ITEMS, CALENDAR, *folders):
                await mailbox.create_mailbox(folder)
    users = {account.address: account.number for account in accounts}
    return Server(config, login, Delivery(login, known, {}, users=users))
