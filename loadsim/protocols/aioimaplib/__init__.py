"""The `aioimaplib` driver: the `imap` driver's mailbox over that library's connections.

docs/reference/drivers.md states what the library does, and what loadsim does itself.
"""

from __future__ import annotations

import logging

from aioimaplib import aioimaplib as library

from loadsim.model.ports import Driver, Services
from loadsim.protocols.aioimaplib.connection import LibraryConnection
from loadsim.protocols.imap.mailbox import ImapMailbox
from loadsim.protocols.imap.session import ImapSession
from loadsim.protocols.mail_driver import MailDriver


def open_driver(services: Services) -> Driver:
    """Return a new driver (entry point `aioimaplib`)."""
    # At lower levels, the library logs each line of the conversation, including mail.
    library.log.setLevel(logging.WARNING)
    imap, limit_s, folders = services.endpoint("imap"), services.command_limit_s, services.folders
    return MailDriver(
        "aioimaplib",
        services,
        lambda context, account, observer: ImapMailbox(
            ImapSession(imap, context, account, observer, limit_s, folders, make=LibraryConnection)
        ),
    )
