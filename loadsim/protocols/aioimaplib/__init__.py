"""The client module `aioimaplib`: IMAP through the library of that name, its requests kept inside what it survives.

It is the second opinion beside the module `imap`, with the same behaviour towards tasks. What the library cannot do,
and what it costs, is told in docs/reference/client-modules.md; the limits in `mailbox` follow from it.
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
    """The client module for these services. Raises `ConfigError` for STARTTLS, which the library does not speak."""
    if services.imap.tls == "starttls":
        raise ConfigError("server.imap.tls: expected none or implicit with protocol aioimaplib, found starttls")
    # At its lower levels the library logs every line of the conversation, mail and all.
    library.log.setLevel(logging.WARNING)
    return AioimaplibDriver(services)


class AioimaplibDriver:
    """The driver; implements `ports.Driver`."""

    name = "aioimaplib"
    supported_tasks = ALL_TASKS

    def __init__(self, services: Services) -> None:
        self._services = services
        self._imap_tls = tls_context(services.imap)
        self._smtp_tls = tls_context(services.smtp)

    def session(self, account: Account, observer: Observer) -> Session:
        """The drivers of one user; nothing is connected yet."""
        services = self._services
        mailbox = AioimaplibMailbox(services.imap, account, observer, services.command_limit_s, self._imap_tls)
        submission = open_submission(services, account, observer, self._smtp_tls)
        return Session(mailbox, submission, MailboxCalendar(mailbox))
