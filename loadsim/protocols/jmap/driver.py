"""The `jmap` driver: a user's mailbox, submission and calendar in one session of JMAP."""

from __future__ import annotations

import time

from loadsim.model.mail_program import driver_name
from loadsim.model.ports import ALL_TASKS, Account, Observer, Services, Session
from loadsim.model.terms import PUBLIC_TASKS, RECEIPT_TASKS
from loadsim.protocols.calendar import MailboxCalendar
from loadsim.protocols.jmap.mailbox import JmapMailbox
from loadsim.protocols.jmap.session import JmapSession
from loadsim.protocols.jmap.state_rules import JmapUserCheck
from loadsim.protocols.jmap.submission import JmapSubmission
from loadsim.protocols.tls import TlsContexts


class JmapDriver:
    """Composes each user's session (`ports.Driver`)."""

    needs = ("jmap",)
    supported_tasks = ALL_TASKS.difference(RECEIPT_TASKS, PUBLIC_TASKS)

    def __init__(self, services: Services) -> None:
        """Raises `ConfigError` if a TLS file cannot be read, or the endpoint is missing."""
        self.name = driver_name("jmap", services.program, services.companions)
        self._services = services
        self._endpoint = services.endpoint("jmap")
        self._contexts = TlsContexts(self._endpoint)

    def session(self, account: Account, observer: Observer) -> Session:
        """Return a new session for one user, not connected yet."""
        services, context = self._services, self._contexts.of(account)
        session = JmapSession(
            self._endpoint, context, account, observer, services.command_limit_s, services.program.poll_s
        )
        if (checks := services.state_checks) is not None:
            session.check = checks.of(account.number, lambda: JmapUserCheck(checks, account.number, time.monotonic))
        mailbox = JmapMailbox(session, services.folders)
        return Session(mailbox, JmapSubmission(mailbox), MailboxCalendar(mailbox))


open_driver = JmapDriver
"""The entry point `jmap`."""
