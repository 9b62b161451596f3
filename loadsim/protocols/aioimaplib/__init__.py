"""The driver `aioimaplib`: IMAP through the library of that name, with requests within the library's limits.

It is an alternative to the driver `imap`, with the same behaviour for tasks. docs/reference/drivers.md has the
library's defects and costs; the limits in `mailbox` follow from them.
"""

from __future__ import annotations

import logging

from aioimaplib import aioimaplib as library

from loadsim.model.ports import Driver, Services
from loadsim.protocols.aioimaplib.mailbox import AioimaplibMailbox
from loadsim.protocols.mail_driver import MailDriver


def open_driver(services: Services) -> Driver:
    """Return a new driver (entry point `aioimaplib`)."""
    # At its lower levels the library logs each line of the conversation, including mail.
    library.log.setLevel(logging.WARNING)
    imap, limit_s, folders = services.imap, services.command_limit_s, services.folders
    return MailDriver(
        "aioimaplib",
        services,
        lambda context, account, observer: AioimaplibMailbox(imap, account, observer, limit_s, context, folders),
    )
