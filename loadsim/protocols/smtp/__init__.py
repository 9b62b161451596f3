"""SMTP submission (RFC 5321, RFC 6409), by one of two drivers with the same behaviour; the scenario names it.

    aiosmtplib      on the library of that name
    pipelining      loadsim's own: the port, and the order of the commands
    connection      a socket, the commands under way, time limits
    commands        commands and messages into bytes
    wire            the stream into replies
    codes           reply codes: acceptance of a message, and names of refusals

`commands`, `wire` and `codes` do no I/O. The drivers report these sub-timings, but not QUIT: users wait for the
acceptance only.

    SMTP CONNECT, EHLO, [STARTTLS, EHLO,] [AUTH]    once per connection; CONNECT includes implicit TLS and the greeting
    SMTP MAIL, RCPT, ... RCPT, DATA                 once per message; DATA ends with the acceptance
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from loadsim.model.ports import Account, Observer, Services, Submission
from loadsim.protocols.smtp.aiosmtplib import LibrarySubmission
from loadsim.protocols.smtp.pipelining import PipeliningSubmission

DRIVERS: Mapping[str, type[LibrarySubmission] | type[PipeliningSubmission]] = {
    "aiosmtplib": LibrarySubmission,
    "pipelining": PipeliningSubmission,
}
"""The drivers by their names in a scenario, `ports.SUBMISSIONS`."""


def open_submission(
    services: Services, account: Account, observer: Observer, tls_context: ssl.SSLContext | None
) -> Submission:
    """Return a new driver for one user, of the kind that the services name. Nothing is connected yet."""
    driver = DRIVERS[services.submission]
    return driver(services.smtp, account, observer, services.command_limit_s, tls_context)
