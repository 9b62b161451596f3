"""The driver for mailboxes over IMAP or POP3, with the scenario's submission, and a calendar kept in a folder."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import cast

from loadsim.model.mail_program import PER_VIEW, driver_name
from loadsim.model.ports import (
    ALL_TASKS,
    MAILDROP_TASKS,
    Account,
    CopiedMailbox,
    Endpoint,
    Mailbox,
    Observer,
    Services,
    Session,
    Submission,
)
from loadsim.protocols.calendar import MailboxCalendar
from loadsim.protocols.smtp.submission import SmtpSubmission
from loadsim.protocols.tls import TlsContexts


class OutsideSubmission:
    """Submits for outside senders, by SMTP or LMTP (`ports.DriverOfSenders`)."""

    def __init__(self, services: Services, endpoint: Endpoint) -> None:
        """Take no log-on and no users' certificates from the endpoint."""
        self._services = services
        self._endpoint = replace(endpoint, auth=False, client_certificate=None, client_key=None)
        self._tls = TlsContexts(self._endpoint)

    def outside(self, account: Account, observer: Observer) -> Submission:
        limit_s, way = self._services.command_limit_s, self._services.submission
        return SmtpSubmission(self._endpoint, account, observer, limit_s, self._tls.of(account), way)


class MailDriver:
    """Composes each user's session (`ports.Driver`). Users share TLS contexts unless each has a certificate."""

    def __init__(
        self,
        name: str,
        services: Services,
        mailbox: Callable[[ssl.SSLContext | None, Account, Observer], Mailbox],
        takes_programs: bool = False,
        maildrop: bool = False,
    ) -> None:
        """`mailbox` makes a user's mailbox. Raises `ConfigError` if a TLS file cannot be read.

        With `takes_programs`, mailboxes behave like `services.program`. If it has a session per view, they log on and
        off as `Session` describes. With `maildrop`, they are POP3's; otherwise, programs may copy them.
        """
        self.takes_programs = takes_programs
        self.name = driver_name(name, services.program, services.companions)
        self._services = services
        self._mailbox, self._maildrop = mailbox, maildrop
        self.supported_tasks = MAILDROP_TASKS if maildrop else ALL_TASKS
        self._smtp = services.endpoint("smtp")
        self._mailbox_tls = TlsContexts(services.endpoint("pop3" if maildrop else "imap"))
        self._smtp_tls = TlsContexts(self._smtp)

    def session(self, account: Account, observer: Observer) -> Session:
        """Return a new session for one user, not connected yet."""
        services = self._services
        mailbox = self._mailbox(self._mailbox_tls.of(account), account, observer)
        limit_s, way = services.command_limit_s, services.submission
        sending = SmtpSubmission(self._smtp, account, observer, limit_s, self._smtp_tls.of(account), way)
        poll_s = services.program.poll_s if services.program.session == PER_VIEW else None
        copied = cast(CopiedMailbox, mailbox) if self.takes_programs and not self._maildrop else None
        return Session(mailbox, sending, MailboxCalendar(mailbox), poll_s, copied, self._maildrop)

    def outside(self, account: Account, observer: Observer) -> Submission:
        return self._outside.outside(account, observer)

    @cached_property
    def _outside(self) -> OutsideSubmission:
        return OutsideSubmission(self._services, self._services.outside or self._smtp)
