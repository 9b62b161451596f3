"""Checks on plug-ins' reports before they reach a user's observer: see `CheckedObserver`.

A wrong report is an error in the plug-in. It must neither damage the log nor look like a failure of the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadsim.errors import PluginFailed
from loadsim.model.records import FAILURES, GENERATOR

if TYPE_CHECKING:
    from loadsim.model.ports import Account, Driver, KeptLines, Observer, Session

LONGEST_COMMAND_S = 86_400
"""The longest command in seconds. Records can hold instants within 35 years of the start of their log."""

LONGEST_COMMAND_NAME = 48
"""The most characters in a command's name. The longest name among loadsim's own drivers has fewer than 30."""

MOST_COMMANDS = 200
"""The most different command names from a plug-in in one engine."""

OTHER_COMMANDS = "others"
"""The name for all commands beyond `MOST_COMMANDS` names."""

MOST_MESSAGES = 2**31
"""The most messages in an announcement."""

EXPECTED_COMMAND = (
    f"a printable name of at most {LONGEST_COMMAND_NAME} characters, since by observer.now() and at most a day ago,"
    " the outcome ok, refused, lost or timeout, and whole numbers of bytes"
)


class CheckedObserver:
    """A user's observer as plug-ins see it. A wrong report is not recorded, but ends the session.

    `names` are the command names that the plug-in has used in this engine. `wrong` is the failure for the first wrong
    report, None until there is one.
    """

    __slots__ = ("_names", "_observer", "_package", "now", "wrong")

    def __init__(self, observer: Observer, package: str, names: set[str]) -> None:
        self._observer = observer
        self._package = package
        self._names = names
        self.now = observer.now
        self.wrong: PluginFailed | None = None

    @property
    def lines(self) -> KeptLines:
        return self._observer.lines

    def command(
        self, name: str, since: int, outcome: str, sent_bytes: int, received_bytes: int, *_: object, **__: object
    ) -> None:
        """Check a report, and pass it on. Arrivals are left out: they would be believed."""
        if not _may_record(name, since, self.now(), outcome, sent_bytes, received_bytes):
            self._reject("command", EXPECTED_COMMAND)
            return
        if len(self._names) < MOST_COMMANDS:
            self._names.add(name)
        known = name if name in self._names else OTHER_COMMANDS
        self._observer.command(known, since, outcome, sent_bytes, received_bytes)

    def arrived(self, messages: int, *_: object, **__: object) -> None:
        if type(messages) is not int or not 0 <= messages < MOST_MESSAGES:
            self._reject("arrived", "a whole number of messages of at least 0")
        else:
            self._observer.arrived(messages)

    def lost(self, failure: Exception) -> None:
        if isinstance(failure, Exception):
            self._observer.lost(failure)
        else:
            self._reject("lost", "an exception")

    def _reject(self, report: str, expected: str) -> None:
        """End the session. The failure's text leaves out the plug-in's value, which may be a secret."""
        kind = f"error in the plug-in {self._package}: wrong report"
        failure = PluginFailed(kind, f"{report}: expected {expected}")
        self.wrong = self.wrong or failure
        self._observer.lost(failure)


def _may_record(name: object, since: object, now: int, outcome: object, *moved: object) -> bool:
    """Return whether a log can hold this report of a command: see `EXPECTED_COMMAND`."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= LONGEST_COMMAND_NAME
        and name.isprintable()
        and type(since) is int
        and now - LONGEST_COMMAND_S * 10**9 <= since <= now
        and isinstance(outcome, str)
        and outcome in ("ok", *FAILURES, GENERATOR)
        and all(type(size_bytes) is int and size_bytes >= 0 for size_bytes in moved)
    )


class CheckedDriver:
    """A plug-in's driver that reports to a `CheckedObserver`; everything else is the driver's own."""

    def __init__(self, driver: Driver, package: str) -> None:
        self._driver, self._package = driver, package
        self._names = set[str]()

    def __getattr__(self, name: str) -> object:
        own = getattr(self._driver, name)
        return (lambda account, observer: own(account, self._checked(observer))) if name == "outside" else own

    def session(self, account: Account, observer: Observer) -> Session:
        return self._driver.session(account, self._checked(observer))

    def _checked(self, observer: Observer) -> CheckedObserver:
        return CheckedObserver(observer, self._package, self._names)
