"""The words of `loadsim show tasks NAME` and `loadsim show drivers NAME`; docs/reference has the same in tables."""

from __future__ import annotations

from collections.abc import Mapping

_WHOLE = "from the first byte to the last response"

COMMANDS: Mapping[str, tuple[str, str]] = {
    "LOGON": (
        (
            "connect; with starttls CAPABILITY, STARTTLS; CAPABILITY, unless the greeting has it; AUTHENTICATE or"
            " LOGIN, by the log-on method; CAPABILITY; at the user's first log-on NAMESPACE and LIST of special "
            "uses, if the server has them; LIST, SELECT of the Inbox, FETCH of the headers of the newest 50, IDLE"
        ),
        "from the connection to the server's confirmation of IDLE",
    ),
    "SYNC": ("DONE, UID FETCH of the headers of what is new, IDLE", "from DONE to the server's confirmation of IDLE"),
    "READ": ("UID FETCH of BODYSTRUCTURE, UID FETCH of the text, UID STORE \\Seen", _WHOLE),
    "LOAD ATTACHMENT": ("UID FETCH of the attachment's part", _WHOLE),
    "SEND": (
        "connect, EHLO, with starttls STARTTLS and EHLO, AUTH, MAIL, a RCPT for each recipient, DATA",
        "from the connection to the acceptance after DATA",
    ),
    "REPLY": ("as SEND, to the sender", "as SEND"),
    "REPLY ALL": ("as SEND, to the sender and the individual recipients; never again to a list", "as SEND"),
    "FORWARD": (
        "if it carries an attachment, UID FETCH of it; then as SEND, to recipients chosen as for new mail",
        "from the first byte, otherwise the connection, to the acceptance after DATA",
    ),
    "SAVE SENT": (
        "APPEND to Sent Items; after replies and forwards UID STORE \\Answered or $Forwarded on the original",
        _WHOLE,
    ),
    "MOVE": ("UID MOVE to one of the profile's folders, at random", _WHOLE),
    "COPY": ("UID COPY to one of the profile's folders, at random", _WHOLE),
    "DELETE": ("UID MOVE to Deleted Items", _WHOLE),
    "BROWSE": (
        (
            "SELECT of one of the profile's folders, at random; FETCH of the headers of the newest 50; UID FETCH "
            "of BODYSTRUCTURE, UID FETCH of the text of one message. Then SELECT of the Inbox"
        ),
        _WHOLE,
    ),
    "SCHEDULE": (
        (
            "APPEND of the new schedule to the folder Calendar; SELECT of Calendar, UID STORE \\Deleted and UID "
            "EXPUNGE of the old one; SELECT of the Inbox. Before a user's first change, SELECT and FETCH find the"
            " old one"
        ),
        _WHOLE,
    ),
    "EVICT": ("UID MOVE of the oldest read messages above the Inbox limit to Deleted Items", _WHOLE),
    "LOGOFF": (
        (
            "LIST; of each folder that the user put mail into since it was last listed, SELECT, and FETCH of the "
            "headers of the newest 50. If the profile says so, SELECT of Deleted Items, FETCH of all headers, UID "
            "STORE \\Deleted, UID EXPUNGE. SELECT of the Inbox, FETCH of the newest header. Then QUIT on a kept SMTP "
            "connection; LOGOUT, and the close"
        ),
        "from the first byte to the end of the connection",
    ),
}
"""The commands of each task in their order, and what its time covers (docs/reference/tasks.md)."""

_IMAP: Mapping[str, str] = {
    "mailbox": "loadsim's own IMAP client",
    "submission": "SMTP, by client.submission",
    "calendar": "one message in the folder Calendar",
    "tasks": "all",
    "TLS": "none, STARTTLS, implicit",
    "IMAP log-on": "by server.imap.auth",
    "mail programs": "all",
    "headers of a folder": "by the program; one FETCH with ENVELOPE by default",
    "a part of a message": "one FETCH",
    "move, copy, flags, expunge": "sets of any size, commands under way together",
    "APPEND": "without a wait if the server has LITERAL+",
    "without IDLE": "NOOP every 30 s, or the program's poll",
    "names of folders": "by NAMESPACE and SPECIAL-USE at a user's first log-on; folders overrides them",
    "use": "measurements",
}

DRIVERS: Mapping[str, Mapping[str, str]] = {
    "imap": _IMAP,
    "aioimaplib": {
        **_IMAP,
        "mailbox": "IMAP through the library aioimaplib (2.0)",
        "mail programs": "outlook-like",
        "headers of a folder": "one FETCH with ENVELOPE",
        "move, copy, flags, expunge": "sets of any size, one command after the other",
        "APPEND": "one more round trip, always",
        "without IDLE": "NOOP every 30 s",
        "use": "to compare with the library",
    },
    "fake": {
        "mailbox": "in memory",
        "submission": "in memory",
        "calendar": "one message in the folder Calendar",
        "tasks": "all",
        "TLS": "none",
        "IMAP log-on": "any",
        "mail programs": "outlook-like",
        "headers of a folder": "one",
        "a part of a message": "one",
        "move, copy, flags, expunge": "one",
        "APPEND": "one",
        "names of folders": "loadsim's own",
        "use": "tests, loadsim plan",
    },
}
"""Properties of each driver (docs/reference/drivers.md)."""
