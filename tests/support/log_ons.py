"""One log-on of a user through any driver, by its name: of a mailbox or of submission."""

from __future__ import annotations

from dataclasses import replace

from loadsim.model.mail_program import SUBMISSIONS
from loadsim.model.ports import Account, Services
from loadsim.protocols.registry import open_driver
from loadsim.provisioning.sessions import NullObserver

IMAP = ("imap", "aioimaplib")
EACH = (*IMAP, *SUBMISSIONS)
USER = Account(1, "user", "user@sim.test", "pencil")


async def log_on_and_off(driver: str, services: Services, account: Account, methods: tuple[str, ...] = ()) -> None:
    """Log on by one of these methods (none: `auto`), and off again. Raises `TaskFailed`."""
    imap, smtp = (replace(endpoint, methods=methods) for endpoint in (services.imap, services.smtp))
    submission = driver if driver in SUBMISSIONS else SUBMISSIONS[0]
    services = replace(services, imap=imap, smtp=smtp, submission=submission)
    made = open_driver(driver if driver in IMAP else "imap", services).session(account, NullObserver())
    try:
        if driver in IMAP:
            await made.mailbox.log_on()
            await made.mailbox.log_off()
        else:
            await made.submission.check()
    finally:
        made.mailbox.abandon()
        await made.submission.close()
