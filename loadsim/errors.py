"""The exceptions of loadsim.

    LoadSimError
      ConfigError          invalid input: one line, exit status 2, nothing was run
        ConfigErrors         several errors, at most 20 lines
        LogError             a timing log is empty, damaged at its head, or not a timing log at all
      TaskFailed           one task of one user failed: recorded, the user continues
        ServerRefused        the server answered NO, BAD, 4xx or 5xx; the session continues
          InboxRenumbered      all messages in the Inbox have new references
          MailMissing          it answered, but a stored message, or part of one, is missing
            BareLineFeeds        only the CRs of line breaks are missing
        ServerLost           the connection broke, or could not be made
          ProtocolError        the server sent what its protocol does not allow; the session is closed
        ServerSilent         no answer within the command's time limit; the session is closed
        GeneratorFailed      a shortage on this machine or a bug in loadsim; it makes the run invalid
          PluginFailed         an error in a plug-in, which is named; it ends the session
      RunInvalid           a run or a plan ended without a result

The texts of a `TaskFailed` come from a server: they are shortened, made `printable`, and never contain a password.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

LONGEST_SERVER_LINE = 200


def printable(text: str) -> str:
    """Make a text safe for one line of a terminal: white space becomes blanks, other control characters are escaped.

    A server's responses may contain line breaks, terminal control sequences, or bidirectional control characters.
    """
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() else " " if sign.isspace() else sign.encode("unicode_escape").decode()
        for sign in text
    )


_LIMITS = {
    errno.EAGAIN: "expected to start a process or thread, found the limit reached (ulimit -u, or the container's)",
    errno.EMFILE: "expected to open a file, found this process's limit reached (ulimit -n)",
    errno.ENFILE: "expected to open a file, found this machine's limit reached (sysctl fs.file-max)",
    errno.ENOMEM: "expected more memory, found the limit reached (ulimit -v, or the container's)",
}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def machine_failure(error: BaseException) -> str | None:
    """Return an error line for a shortage or fault of this machine, outside protocols; None for other exceptions.

    It names the limit, or the file.
    """
    match error:
        case BaseExceptionGroup():
            lines = [machine_failure(inner) for inner in error.exceptions]
            return lines[0] if all(lines) else None
        case MemoryError():
            return _LIMITS[errno.ENOMEM]
        case RuntimeError(args=("can't start new thread",)):  # CPython has no type for this
            return _LIMITS[errno.EAGAIN]
        case OSError(errno=number) if number in _LIMITS:
            return _LIMITS[number]
        case OSError(errno=number) if number in _FULL:
            return f"output not written: {error.strerror}"
        case FileNotFoundError() if not _working_directory():
            return "working directory: expected one that exists, found it removed"
        case OSError(filename=str() as name):
            return f"{name}: expected a file or directory that can be used, found: {error.strerror}"
    return None


@contextmanager
def machine_failures(named: Callable[[str], BaseException]) -> Iterator[None]:
    """Raise `named(line)` for a shortage or fault of this machine in the block, with `machine_failure`'s line."""
    try:
        yield
    except (OSError, MemoryError, RuntimeError, ExceptionGroup) as error:
        if line := machine_failure(error):
            raise named(line) from None
        raise


def _working_directory() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd does the same
    except FileNotFoundError:
        return False
    return True


class LoadSimError(Exception):
    """The base of all loadsim exceptions."""

    @property
    def lines(self) -> tuple[str, ...]:
        return (str(self),)


class ConfigError(LoadSimError):
    """A profile, scenario, account or server is not as expected; `str()` is the single line to print.

    `file` and `line` (from 1) say where the error is; `line` is 0 if it is unknown, or already in the text.
    """

    def __init__(self, text: str, file: str = "", line: int = 0) -> None:
        super().__init__(text)
        self.file = file
        self.line = line

    @property
    def problems(self) -> tuple[ConfigError, ...]:
        return (self,)


MOST_SHOWN = 20
"""The most errors to show if there are several."""


class ConfigErrors(ConfigError):
    """Several errors in files. `str()` is the first one, and how many more there are; `problems` has all of them."""

    def __init__(self, text: str, problems: tuple[ConfigError, ...] = ()) -> None:
        super().__init__(text)
        self._problems = problems

    @property
    def problems(self) -> tuple[ConfigError, ...]:
        return self._problems

    @property
    def lines(self) -> tuple[str, ...]:
        """One line for each of the first errors, with its line in the file, and how many more there are."""
        more = len(self._problems) - MOST_SHOWN
        return (*map(_located, self._problems[:MOST_SHOWN]), *([f"and {more} more"] if more > 0 else []))


def _located(problem: ConfigError) -> str:
    if not problem.line:
        return str(problem)
    return f"{problem.file}: line {problem.line}: {str(problem).removeprefix(f'{problem.file}: ')}"


def together(problems: Sequence[ConfigError]) -> ConfigError:
    """Combine one or more exceptions, sorted by file (in order of first error), then by line."""
    distinct = {str(single): single for problem in problems for single in problem.problems}
    files = {file: order for order, file in enumerate(dict.fromkeys(problem.file for problem in distinct.values()))}
    ordered = sorted(distinct.values(), key=lambda problem: (files[problem.file], problem.line))
    if len(ordered) == 1:
        return ordered[0]
    return ConfigErrors(f"{ordered[0]} (and {len(ordered) - 1} more)", tuple(ordered))


class LogError(ConfigError):
    """A file cannot be read as a timing log."""


class TaskFailed(LoadSimError):
    """One task failed. `kind` is a short, stable name for counting; `line` is the server's answer, or ''.

    Both are printable and on one line. `accepted` are the recipients for whom the server took the message all the same,
    with the instants of its replies: LMTP answers for each.
    """

    outcome = "refused"

    def __init__(self, kind: str, line: str = "") -> None:
        kind, shown = printable(kind), printable(line[: LONGEST_SERVER_LINE + 1])
        if len(shown) > LONGEST_SERVER_LINE:
            shown = shown[: LONGEST_SERVER_LINE - 3] + "..."
        super().__init__(f"{kind}: {shown}" if shown else kind)
        self.kind = kind
        self.line = shown
        self.accepted: Mapping[str, int] = {}


class ServerRefused(TaskFailed):
    """The server rejected a command: IMAP NO or BAD, SMTP 4xx or 5xx."""

    outcome = "refused"

    @property
    def is_of_recipient(self) -> bool:
        """True if a recipient was refused for good: 550 to 559 after RCPT, or not in the server's address book."""
        refused = self.kind.startswith("55") and self.kind.endswith(" RCPT")
        return refused or self.kind in ("unknown recipient ResolveNames", "invalidRecipients EmailSubmission/set")


class InboxRenumbered(ServerRefused):
    """The references to the Inbox's messages are void; the user lists all messages again."""


class MailMissing(ServerRefused):
    """The server answered without an error, but a stored message, or part of one, is missing."""


class BareLineFeeds(MailMissing):
    """A part is too short only because its lines lack CR (RFC 5322 section 2.3)."""


class ServerLost(TaskFailed):
    """The connection broke, or could not be made."""

    outcome = "lost"


class ProtocolError(ServerLost):
    """The server violated its protocol; this ends the session, but no others."""


class ServerSilent(TaskFailed):
    """The server did not answer within a command's time limit."""

    outcome = "timeout"


class GeneratorFailed(TaskFailed):
    """The generator itself failed: it ran out of files, ports or memory, or hit an error in loadsim."""

    outcome = "generator"


SHORTAGES: Mapping[int, str] = {
    errno.EMFILE: "no free file descriptor (EMFILE)",
    errno.ENFILE: "no free file on this machine (ENFILE)",
    errno.EADDRNOTAVAIL: "no free local port (EADDRNOTAVAIL)",
    errno.EADDRINUSE: "no free local port (EADDRINUSE)",  # bind(2) to port 0; we do not listen on TCP
    errno.EAGAIN: "no free local port (EAGAIN)",  # connect(2); see connect.py for EINPROGRESS
    errno.ENOBUFS: "no buffer space (ENOBUFS)",
    errno.ENOMEM: "no memory (ENOMEM)",
    socket.EAI_MEMORY: "no memory (EAI_MEMORY)",  # getaddrinfo(3), whose numbers are negative
}
"""Kinds of shortage on this machine, by the system's error number. A server can cause none of them."""


class PluginFailed(GeneratorFailed):
    """A plug-in failed, or made a report that no log can hold. The failure's kind names its package."""


class RunInvalid(LoadSimError):
    """A run or a plan ended without a result: no engine was ready, or logs are missing."""
