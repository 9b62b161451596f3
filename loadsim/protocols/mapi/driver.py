"""The `mapi` driver: a user's mailbox, submission and calendar in one session of MAPI over HTTP."""

from __future__ import annotations

from loadsim.model.mail_program import driver_name
from loadsim.model.ports import ALL_TASKS, Account, Observer, Services, Session
from loadsim.model.terms import PUBLIC_TASKS, RECEIPT_TASKS
from loadsim.protocols.calendar import MailboxCalendar
from loadsim.protocols.http.log_on import check_library
from loadsim.protocols.mapi.address_book import AddressBook
from loadsim.protocols.mapi.mailbox import MapiMailbox
from loadsim.protocols.mapi.session import MapiSession
from loadsim.protocols.mapi.submission import MapiSubmission
from loadsim.protocols.tls import TlsContexts


class MapiDriver:
    """Composes each user's session (`ports.Driver`). Users share the address book's entries once resolved."""

    needs = ("mapi",)
    supported_tasks = ALL_TASKS.difference(RECEIPT_TASKS, PUBLIC_TASKS)

    def __init__(self, services: Services) -> None:
        """Raises `ConfigError` if a TLS file cannot be read, or a package or the endpoint is missing."""
        self.name = driver_name("mapi", services.program, services.companions)
        self._services = services
        self._endpoint = services.endpoint("mapi")
        check_library(self._endpoint)
        self._contexts = TlsContexts(self._endpoint)
        self._book = AddressBook()

    def session(self, account: Account, observer: Observer) -> Session:
        """Return a new session for one user, not connected yet."""
        services = self._services
        context = self._contexts.of(account)
        session = MapiSession(self._endpoint, context, account, observer, services.command_limit_s)
        mailbox = MapiMailbox(session, self._book, services.folders)
        return Session(mailbox, MapiSubmission(mailbox), MailboxCalendar(mailbox))


open_driver = MapiDriver
"""The entry point `mapi`."""
