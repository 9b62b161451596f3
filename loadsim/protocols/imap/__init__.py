"""The `imap` driver: loadsim's own IMAP client, the scenario's submission, and a calendar kept in a folder.

    names, commands        names and arguments as bytes
    sets, responses        the responses that a server can send, as values
    values, grammar        the parser of one whole response
    wire                   whole responses from the stream
    under_way              a command with its answer
    states                 what may be sent or answered, and when
    known_state, state_rules
                           what sessions know, and the rules that responses must obey
    connection             a socket, the commands under way, time limits
    authenticate           greeting, TLS, authentication, capabilities
    folder_names           the server's folder names, and loadsim's
    session                the open folder and its new mail, across lost and new connections
    reading, answers, mailbox
                           the port: its calls as commands, and their answers as its values
    requests, header_lists, whole_message, status_rounds, several_connections
                           what differs between mail programs

Everything up to `states` does no I/O.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import partial

from loadsim.model.mail_program import PER_VIEW
from loadsim.model.ports import Account, CopiedMailbox, Driver, Observer, Services
from loadsim.protocols.imap.header_lists import HeaderCache
from loadsim.protocols.imap.known_state import Known
from loadsim.protocols.imap.mailbox import ImapMailbox
from loadsim.protocols.imap.requests import in_parentheses, requests_of
from loadsim.protocols.imap.session import ImapSession
from loadsim.protocols.imap.several_connections import SeveralConnections
from loadsim.protocols.imap.state_rules import UserCheck
from loadsim.protocols.imap.status_rounds import StatusTimes
from loadsim.protocols.imap.whole_message import MessageStore
from loadsim.protocols.mail_driver import MailDriver
from loadsim.protocols.short_sessions import PerViewMailbox


def open_driver(services: Services) -> Driver:
    """Return a new driver (entry point `imap`)."""
    imap, limit_s = services.endpoint("imap"), services.command_limit_s
    folders, program = services.folders, services.program
    requests, checks = requests_of(program), services.state_checks

    def over_one_connection(context: ssl.SSLContext | None, account: Account, observer: Observer) -> ImapMailbox:
        session = ImapSession(
            imap, context, account, observer, limit_s, folders, poll_s=program.poll_s, idles=program.idle
        )
        if program.status is not None:
            session.rounds = StatusTimes(in_parentheses(program.status.items), program.status.every_s)
        if checks is not None:
            session.check = checks.of(account.number, lambda: _check(Known(checks, account.number)))
            if session.check is None and checks.share:
                session.broken = checks.broken
        cache = HeaderCache() if requests.flags else None
        return ImapMailbox(session, requests, cache, MessageStore() if requests.message else None)

    def mailbox(context: ssl.SSLContext | None, account: Account, observer: Observer) -> CopiedMailbox:
        if program.connections > 1:
            return SeveralConnections(partial(over_one_connection, context, account), program.connections, observer)
        single = over_one_connection(context, account, observer)
        if program.session != PER_VIEW:
            return single
        forget = [single.forget] if program.calls is not None else []
        return PerViewMailbox(single, single.holds, single.look, single, *forget)

    return MailDriver("imap", services, mailbox, takes_programs=True)


def _check(known: Known) -> UserCheck:
    loop = asyncio.get_running_loop()
    return UserCheck(known, loop.call_soon, loop.time)
