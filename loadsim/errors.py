"""The exceptions of loadsim.

    LoadSimError
      ConfigError          invalid input: one line, exit status 2, nothing was run
        LogError             a timing log is empty, damaged at its head, or no timing log at all
      TaskFailed           one task of one user failed: recorded, the user continues
        ServerRefused        the server answered NO, BAD, 4xx or 5xx; the session continues
        ServerLost           the connection broke, or could not be made
          ProtocolError        the server sent what its protocol does not allow; the session is closed
        ServerSilent         no answer within the command's time limit; the session is closed
        GeneratorFailed      a shortage of this machine or a bug in loadsim; it makes the run invalid
      RunInvalid           a run or a plan ended without a result

The texts of a `TaskFailed` come from a server: they are shortened, made `printable`, and never hold a password.
"""

from __future__ import annotations

LONGEST_SERVER_LINE = 200


def printable(text: str) -> str:
    """Return a text on one line that is safe for a terminal: white space is a blank, other controls are escaped.

    Texts of a server may contain line ends, terminal control sequences, or bidirectional control characters.
    """
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() else " " if sign.isspace() else sign.encode("unicode_escape").decode()
        for sign in text
    )


class LoadSimError(Exception):
    """The base of all exceptions of loadsim."""


class ConfigError(LoadSimError):
    """A profile, scenario, account or server is not as expected; `str()` is the one line to print."""


class LogError(ConfigError):
    """A file cannot be read as a timing log."""


class TaskFailed(LoadSimError):
    """One task failed. `kind` is a short stable name to count by; `line` is the answer of the server, or ''.

    Both are printable and on one line.
    """

    outcome = "refused"

    def __init__(self, kind: str, line: str = "") -> None:
        kind, shown = printable(kind), printable(line[: LONGEST_SERVER_LINE + 1])
        if len(shown) > LONGEST_SERVER_LINE:
            shown = shown[: LONGEST_SERVER_LINE - 3] + "..."
        super().__init__(f"{kind}: {shown}" if shown else kind)
        self.kind = kind
        self.line = shown


class ServerRefused(TaskFailed):
    """The server rejected a command: IMAP NO or BAD, SMTP 4xx or 5xx."""

    outcome = "refused"


class ServerLost(TaskFailed):
    """The connection broke, or could not be made."""

    outcome = "lost"


class ProtocolError(ServerLost):
    """The server violated its protocol; this ends the session, and no other."""


class ServerSilent(TaskFailed):
    """No answer within the time limit of a command."""

    outcome = "timeout"


class GeneratorFailed(TaskFailed):
    """The generator itself failed: a shortage of files, ports or memory, or an error in loadsim."""

    outcome = "generator"


class RunInvalid(LoadSimError):
    """A run or a plan ended without a result: no engine was ready, or logs are missing."""
