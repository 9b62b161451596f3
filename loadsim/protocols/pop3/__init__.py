"""The `pop3` driver (RFC 1939): a mailbox that is an Inbox alone, with the scenario's submission.

log_on        greeting, TLS, capabilities, log-on, and what is in the maildrop; line_based has the connection
mailbox       the port: its calls as commands
"""

from __future__ import annotations

import ssl

from loadsim.model.ports import Account, Driver, Observer, Services
from loadsim.protocols.mail_driver import MailDriver
from loadsim.protocols.pop3.mailbox import Pop3Mailbox


def open_driver(services: Services) -> Driver:
    """Return a new driver (entry point `pop3`)."""
    endpoint, limit_s = services.endpoint("pop3"), services.command_limit_s

    def mailbox(context: ssl.SSLContext | None, account: Account, observer: Observer) -> Pop3Mailbox:
        return Pop3Mailbox(endpoint, context, account, observer, limit_s)

    return MailDriver("pop3", services, mailbox, takes_programs=True, maildrop=True)


open_driver.needs = ("pop3", "smtp", "imap")  # type: ignore[attr-defined]  # mailboxes are prepared by IMAP
