"""The driver `aioimaplib`: IMAP through the library of that name, with requests within the library's limits.

It is an alternative to the driver `imap`, with the same behaviour for tasks. docs/reference/drivers.md has the
library's defects and costs; the limits in `mailbox` follow from them.
"""

from __future__ import annotations

import logging

from aioimaplib import aioimaplib as library

from loadsim.errors import ConfigError
from loadsim.model.ports import ALL_TASKS, Account, Driver, Observer, Services, Session
from loadsim.protocols.aioimaplib.mailbox import AioimaplibMailbox
from loadsim.protocols.calendar import MailboxCalendar
from loadsim.protocols.smtp import open_submission
from loadsim.protocols.tls import tls_context


def open_driver(services: Services) -> Driver:
    """Return a new driver (entry point `aioimaplib`). Raises `ConfigError` for STARTTLS, which the library lacks."""
    if services.imap.tls == "starttls":
        raise ConfigError("server.imap.tls: expected none or implicit with protocol aioimaplib, found starttls")
    # At its lower levels the library logs each line of the conversation, including mail.
    library.log.setLevel(logging.WARNING)
    return AioimaplibDriver(services)


class AioimaplibDriver:
    """Composes the session of each user (`ports.Driver`). All users share the TLS contexts."""

    name = "aioimaplib"
    supported_tasks = ALL_TASKS

    def __init__(self, services: Services) -> None:
        self._services = services
        self._imap_tls = tls_context(services.imap)
        self._smtp_tls = tls_context(services.smtp)

    def session(self, account: Account, observer: Observer) -> Session:
        """Return a new session of one user; nothing is connected yet."""
        services = self._services
        mailbox = AioimaplibMailbox(services.imap, account, observer, services.command_limit_s, self._imap_tls)
        submission = open_submission(services, account, observer, self._smtp_tls)
        return Session(mailbox, submission, MailboxCalendar(mailbox))
