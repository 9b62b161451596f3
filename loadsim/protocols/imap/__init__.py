"""The driver `imap`: loadsim's own IMAP client, submission as the scenario states, the calendar as a folder.

    names, commands        names and arguments into bytes
    sets, responses        values of the responses that a server can send
    values, grammar        one whole response into its value
    wire                   the stream into responses
    under_way, codes       a command with its answer; the codes by which failures are counted
    large_answers          a limit on all large answers of a process
    connection             a socket, the commands under way, time limits
    authenticate           greeting, TLS, authentication, capabilities
    new_mail, session      the open folder and new mail in it, over lost and new connections
    reading, mailbox       the port: commands and answers as values of mail

Everything up to `wire` does no I/O.
"""

from __future__ import annotations

from loadsim.model.ports import ALL_TASKS, Account, Driver, Observer, Services, Session
from loadsim.protocols.calendar import MailboxCalendar
from loadsim.protocols.imap.mailbox import ImapMailbox
from loadsim.protocols.imap.session import ImapSession
from loadsim.protocols.smtp import open_submission
from loadsim.protocols.tls import tls_context


class ImapDriver:
    """Composes the session of each user (`ports.Driver`). All users share the TLS contexts."""

    name = "imap"
    supported_tasks = ALL_TASKS

    def __init__(self, services: Services) -> None:
        """Make the TLS contexts. Raises `ConfigError` if an authorities' file cannot be read."""
        self._services = services
        self._imap_tls = tls_context(services.imap)
        self._smtp_tls = tls_context(services.smtp)

    def session(self, account: Account, observer: Observer) -> Session:
        """Return a new session of one user; nothing is connected yet."""
        services = self._services
        mailbox = ImapMailbox(ImapSession(services.imap, self._imap_tls, account, observer, services.command_limit_s))
        submission = open_submission(services, account, observer, self._smtp_tls)
        return Session(mailbox, submission, MailboxCalendar(mailbox))


def open_driver(services: Services) -> Driver:
    """Return a new driver: the entry point `imap` of `loadsim.protocols`."""
    return ImapDriver(services)
