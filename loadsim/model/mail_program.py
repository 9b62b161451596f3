"""A mail program: the requests by which users list, read and watch their mail, apart from what the users do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

KEPT, PER_VIEW = SESSIONS = ("kept", "per-view")
"""The kinds of sessions: one from log-on to log-off, or one for each view (a task, or a look for new mail)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MailProgram:
    """The behaviour of a mail program; the defaults are those of `programs/outlook-like.yaml`.

    `list_items` are the items of a FETCH that lists messages, `flags` those of one that compares a header cache with
    the server. Without `flags`, the program has no cache. `message_items` fetch a whole message to show it; if empty,
    its structure and its parts are fetched, one at a time. `prefetch`: new messages are fetched when they are listed.
    `idle`: wait for new mail by IDLE; otherwise, and on servers without it, send NOOP each `poll_s`. `session` is one
    of `SESSIONS`; with a session per view, users look for new mail each `poll_s`, in a session of its own. A kept
    session has at most `connections`: one for the Inbox, and one for each other folder that is open. `submission` and
    `connection` apply where the scenario states none.
    """

    name: str = "outlook-like"
    list_items: tuple[str, ...] = ("UID", "FLAGS", "RFC822.SIZE", "ENVELOPE")
    flags: tuple[str, ...] = ()
    message_items: tuple[str, ...] = ()
    prefetch: bool = False
    idle: bool = True
    poll_s: float = 30.0
    submission: str = "aiosmtplib"
    connection: str = "per-message"
    session: str = KEPT
    connections: int = 1

    @property
    def look_s(self) -> float:
        """The longest time for which the program does not look for new mail; 0 if the server announces it."""
        return 0.0 if self.idle and self.session == KEPT else self.poll_s


OUTLOOK_LIKE = MailProgram()
"""The default program."""


MOST_CONNECTIONS = 20
"""The most connections of a mail program at once. Dovecot allows a user 10 (`mail_max_userip_connections`)."""

MOST_PROGRAMS = 4
"""The most mail programs of a user at once."""


def program_names(programs: Sequence[MailProgram]) -> str:
    """Return the name in results of all programs of a user, such as `outlook-like+phone`."""
    return "+".join(program.name for program in programs)


def module_name(protocol: str, program: MailProgram, companions: Sequence[MailProgram] = ()) -> str:
    """Return the name of a driver and a user's programs in results; the driver's, if all is the default program."""
    return (
        protocol
        if program == OUTLOOK_LIKE and not companions
        else f"{protocol}/{program_names((program, *companions))}"
    )
