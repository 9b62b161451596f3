"""The driver `sendmail`: IMAP as in `imap`; this machine's sendmail command submits mail."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace

from loadsim.errors import ServerRefused, ServerSilent
from loadsim.model.ports import ALL_TASKS, Account, Driver, Observer, Services, Session
from loadsim.protocols.imap import open_driver as open_imap

COMMAND = os.environ.get("SENDMAIL", "/usr/sbin/sendmail")


class Sendmail:
    """Submission with one process per message (`loadsim.model.ports.Submission`)."""

    def __init__(self, observer: Observer, limit_s: float) -> None:
        self.observer, self.limit_s = observer, limit_s

    async def send(self, sender: str, recipients: Sequence[str], message: bytes, *_: object) -> bool:
        since, outcome, process = self.observer.now(), "lost", None
        try:
            async with asyncio.timeout(self.limit_s):
                words = (COMMAND, "-i", "-f", sender, "--", *recipients)
                process = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.PIPE)
                await process.communicate(message.replace(b"\r\n", b"\n"))
            outcome = "refused" if process.returncode else "ok"
        except TimeoutError:
            outcome = "timeout"
            raise ServerSilent("no answer to SENDMAIL") from None
        finally:
            if process and process.returncode is None:
                process.kill()
            self.observer.command("SENDMAIL", since, outcome, len(message), 0)
        if process.returncode:
            raise ServerRefused("SENDMAIL", f"exit status {process.returncode}")
        return False

    async def check(self) -> None:
        """Do nothing: there is no connection to try."""

    async def close(self) -> None:
        """Do nothing: there is no connection to close."""


class SendmailDriver:
    """The sessions of `imap` with a different submission (`loadsim.model.ports.Driver`)."""

    name, supported_tasks = "sendmail", ALL_TASKS - {"TRACK RECEIPT"}

    def __init__(self, services: Services) -> None:
        self.imap, self.limit_s = open_imap(services), services.command_limit_s

    def session(self, account: Account, observer: Observer) -> Session:
        return replace(self.imap.session(account, observer), submission=Sendmail(observer, self.limit_s))


def open_driver(services: Services) -> Driver:
    """Return an engine's driver: the entry point `sendmail` in the group `loadsim.protocols`."""
    return SendmailDriver(services)
