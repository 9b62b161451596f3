"""SMTP submission (RFC 5321, RFC 6409), by either of two drivers of the same behaviour: which one, the scenario says.

    aiosmtplib      on the library of that name
    pipelining      loadsim's own: the port, and the order of the commands
    connection      a socket, the commands under way, time limits
    commands        commands and messages into bytes
    wire            the stream into replies
    codes           which reply accepts a message, and how refusals are counted

`commands`, `wire` and `codes` do no I/O. The drivers report these sub-timings, and nothing of QUIT: a person waits for
the acceptance, and no longer.

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
"""By their names in a scenario, `ports.SUBMISSIONS`."""


def open_submission(
    services: Services, account: Account, observer: Observer, tls_context: ssl.SSLContext | None
) -> Submission:
    """The driver that the services name, for one user; nothing is connected yet."""
    driver = DRIVERS[services.submission]
    return driver(services.smtp, account, observer, services.command_limit_s, tls_context)
