"""A session through the library aiosmtplib, which sends all commands and reads all replies.

docs/reference/drivers.md states how the library differs, and what it cannot tell apart.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from aiosmtplib import SMTP, SMTPConnectError, SMTPException, SMTPResponse, SMTPResponseException, SMTPStatus

from loadsim.errors import GeneratorFailed, ProtocolError, ServerRefused, TaskFailed
from loadsim.model.ports import Account, Endpoint, Observer
from loadsim.protocols import connect
from loadsim.protocols.error_mapping import failing_as, internal
from loadsim.protocols.lines import KEPT_BYTES, unseen
from loadsim.protocols.sasl import tokens
from loadsim.protocols.sasl.authenticate import log_on_by
from loadsim.protocols.sasl.masking import MASK, without_password
from loadsim.protocols.smtp import commands
from loadsim.protocols.smtp.commands import DATA, GREETING, RESET, STARTTLS, SmtpCommand
from loadsim.protocols.smtp.connection import NOTHING, QUIT_LIMIT_S, Closing
from loadsim.protocols.smtp.wire import kind_of
from loadsim.protocols.tls import handshakes_of, remember
from loadsim.protocols.transport import acknowledge_at_once
from loadsim.scenario.log_on import AIOSMTPLIB_METHODS


@dataclass(slots=True, eq=False, repr=False)
class LibrarySession:
    """Implements `SmtpSession`. `open_connections` includes this one while it has a socket."""

    account: Account
    observer: Observer
    limit_s: float
    open_connections: list[Closing]
    offered: Mapping[str, str] = field(default_factory=lambda: NOTHING, init=False)
    succeeded: int = field(default=0, init=False)
    method: str = field(default="", init=False)
    _smtp: SMTP = field(default_factory=lambda: SMTP(timeout=None, start_tls=False), init=False)
    _sock: socket.socket | None = field(default=None, init=False)
    _quitting: asyncio.Task[str] | None = field(default=None, init=False)

    @property
    def is_usable(self) -> bool:
        return self._smtp.is_connected

    async def open(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
        smtp, account = self._smtp, self.account
        await self._run(GREETING, self._connect(endpoint, context))
        await self._greet()
        if endpoint.tls == "starttls":
            if "STARTTLS" not in self.offered:
                raise commands.no_starttls()
            await self._run(STARTTLS, smtp.starttls(server_hostname=endpoint.tls_name, tls_context=context))
            await self._greet()
        remember(account.number, smtp.transport)
        offer = commands.offer_of(endpoint, self.offered)
        if offer is not None:
            usable = replace(offer, mechanisms=offer.mechanisms & {method.upper() for method in AIOSMTPLIB_METHODS})
            if not usable.mechanisms:
                expected = " or ".join(AIOSMTPLIB_METHODS)
                raise ServerRefused("no AUTH", f"expected {expected} for aiosmtplib, the server offers {offer.shown()}")
            self.method = await log_on_by("SMTP", endpoint, account, usable, "no AUTH", self._log_on)

    async def transact(self, sender: str, recipients: Sequence[str], message: bytes, envelope_id: str | None) -> None:
        mail = commands.mail(sender, message, self.offered, envelope_id)
        await self._name(mail, sender, recipients, envelope_id is not None)
        await self._run(DATA, self._smtp.data(message), message)

    async def ask(self, sender: str, recipient: str) -> None:
        await self._name(commands.mail(sender, b"", {}), sender, [recipient])
        await self.reset()

    async def reset(self) -> None:
        await self._run(RESET, self._smtp.rset())

    def leave(self) -> None:
        if not self.is_usable:
            self.abort()
        elif self._quitting is None:
            self._quitting = asyncio.get_running_loop().create_task(self._quit())

    def abort(self) -> None:
        """Close at once, even if the library still waits to write, or to end TLS."""
        self._smtp.close()
        if self._sock is not None:
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        if self in self.open_connections:
            self.open_connections.remove(self)

    async def wait_closed(self) -> None:
        if self._quitting is not None:
            since_ns = self.observer.now()
            await asyncio.wait((self._quitting,))
            self.observer.command("SMTP QUIT", since_ns, self._quitting.result(), 0, 0)

    async def _connect(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> SMTPResponse:
        self._sock = sock = await connect.connected_socket(endpoint, endpoint.source(self.account.number))
        self.open_connections.append(self)
        name, tls = commands.ehlo(sock.getsockname()[0]).line.split()[1].decode(), endpoint.tls == "implicit"
        # Without a name, the library looks up this machine's.
        return await self._smtp.connect(
            sock=sock, local_hostname=name, use_tls=tls, hostname=endpoint.tls_name, tls_context=context
        )

    async def _greet(self) -> None:
        command = SmtpCommand("EHLO", f"EHLO {self._smtp.local_hostname}\r\n".encode())
        reply = await self._run(command, self._smtp.ehlo())
        self.offered = commands.extensions(tuple(_lines(reply)))

    async def _log_on(self, method: str) -> None:
        smtp, account = self._smtp, self.account
        call = {"cram-md5": smtp.auth_crammd5, "plain": smtp.auth_plain, "login": smtp.auth_login}.get(method)
        secret = account.password
        if call is None:
            assert account.token_file is not None
            call, secret = smtp.auth_xoauth2, tokens.current(account.token_file)
        try:
            await self._run(SmtpCommand("AUTH", f"AUTH {method.upper()}\r\n".encode()), call(account.name, secret))
        except ServerRefused as refusal:
            if method in ("plain", "login"):
                raise
            why = ": ".join(filter(None, (method, tokens.expiry_note(secret))))
            raise ServerRefused(refusal.kind, f"({why}) {refusal.line}") from None

    async def _name(self, mail: SmtpCommand, sender: str, recipients: Sequence[str], notifies: bool = False) -> None:
        """Send a message's sender and recipients."""
        options = mail.line.decode().split()[2:]
        await self._run(mail, self._smtp.mail(sender, options=options, encoding="utf-8"))
        for recipient in recipients:
            rcpt = commands.rcpt(recipient, notifies)
            options = rcpt.line.decode().split()[2:]
            await self._run(rcpt, self._smtp.rcpt(recipient, options=options, encoding="utf-8"))

    async def _quit(self) -> str:
        """Send QUIT, and close. Return the outcome."""
        try:
            async with asyncio.timeout(QUIT_LIMIT_S):
                await self._smtp.quit()
        except TimeoutError:
            return "timeout"
        except (SMTPException, OSError):
            pass  # any end is one
        finally:
            self.abort()
        return "ok"

    def _acknowledge(self) -> None:
        if self._sock is not None:
            with suppress(OSError):
                acknowledge_at_once(self._sock)

    async def _run(self, command: SmtpCommand, call: Awaitable[SMTPResponse], message: bytes = b"") -> SMTPResponse:
        """Await the library's call for a command, and report it. Raises `TaskFailed`; all but refusals close."""
        since_ns, verb, outcome, received_bytes = self.observer.now(), command.verb, "lost", 0
        sent_bytes = len(command.line) + (len(message) + message.count(b"\r\n.") + len(b".\r\n") if message else 0)
        for line in filter(None, (command.line, message and unseen(len(message)))):
            self.observer.lines.append(since_ns)
            self.observer.lines.append(line[:KEPT_BYTES])
        asyncio.get_running_loop().call_soon(self._acknowledge)
        try:
            with failing_as(verb, f"lost at {verb}"), handshakes_of(self.account.number):
                async with asyncio.timeout(self.limit_s):
                    reply, refused = await _answer(call)
            lines = _lines(reply)
            received_bytes = sum(len(b"250 %b\r\n" % line) for line in lines)
            masked = b" ".join(MASK.encode() if line and line in message else line for line in lines)
            shown = f"{reply.code} {masked.decode('utf-8', 'replace')}"
            self.observer.lines.append(shown.encode()[:KEPT_BYTES])
            if refused:
                raise _failure(reply.code, verb, " ".join(without_password(shown, self.account).split()))
            self.succeeded += 1
            outcome = "ok"
        except TaskFailed as failure:
            outcome = failure.outcome
            raise
        except Exception as error:  # noqa: BLE001 - the library raises anything on data that it did not expect
            outcome = GeneratorFailed.outcome
            raise internal(error) from None
        finally:
            if outcome not in ("ok", ServerRefused.outcome):
                self.abort()
            self.observer.command(f"SMTP {verb}", since_ns, outcome, sent_bytes, received_bytes)
        return reply


async def _answer(call: Awaitable[SMTPResponse]) -> tuple[SMTPResponse, bool]:
    """Return a reply, and whether the library rejects it."""
    try:
        return await call, False
    except SMTPResponseException as error:
        return SMTPResponse(error.code, error.message.removeprefix("Malformed SMTP response line: ")), True
    except SMTPConnectError as error:
        raise error.__cause__ or error from None


def _lines(reply: SMTPResponse) -> list[bytes]:
    """Return a reply's lines; the library decodes them so that all bytes come back."""
    return reply.message.encode("utf-8", "surrogateescape").split(b"\n")


def _failure(code: int, verb: str, shown: str) -> TaskFailed:
    if code // 100 in (4, 5):
        return ServerRefused(kind_of(code, verb), shown)
    return ProtocolError(f"{'no SMTP' if code == SMTPStatus.invalid_response else 'no such answer'} at {verb}", shown)
