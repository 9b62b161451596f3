"""The meaning of a server's refusal, from its response codes."""

from __future__ import annotations

import re

from loadsim.errors import BareLineFeeds, ProtocolError, ServerLost, TaskFailed
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding

_ANY_MAIL = "MAIL RCPT LIST DATA"

_TABLE = (
    ("LIMIT 5.3", "", Code.LIMIT_REACHED),
    ("452", "RCPT LIST", Code.LIMIT_REACHED),
    ("NONEXISTENT TRYCREATE", "SELECT STATUS APPEND COPY MOVE", Code.FOLDER_MISSING),
    ("NOPERM", "", Code.RIGHT_MISSING),
    ("OVERQUOTA 2.2 3.1 452", "", Code.NO_ROOM),
    ("552", "RCPT LIST", Code.NO_ROOM),
    ("PRIVACYREQUIRED 7.10 7.11 523 530 538", "", Code.LOG_ON_REQUIRED),
    ("SERVERBUG UNAVAILABLE 3.2 4.5 421", "", Code.SERVER_UNAVAILABLE),
    ("TOOBIG 2.3 3.4", "", Code.MESSAGE_TOO_LARGE),
    ("552", "MAIL", Code.MESSAGE_TOO_LARGE),
    ("1.1 1.2 1.6 1.10 unknown", "LIST", Code.LIST_UNKNOWN),
    ("1.1 1.2 1.6 1.10", "RCPT", Code.RECIPIENT_REFUSED),
    ("unknown", "ResolveNames", Code.RECIPIENT_REFUSED),
    ("2.1 550 551 553", "RCPT LIST", Code.RECIPIENT_REFUSED),
    ("4.7.1", _ANY_MAIL, Code.GREYLISTED),
    ("450", "RCPT LIST", Code.GREYLISTED),
    ("1.7 1.8", "", Code.MAIL_FORBIDDEN),
    ("553", "MAIL", Code.MAIL_FORBIDDEN),
    ("7", _ANY_MAIL, Code.MAIL_FORBIDDEN),
)
"""Response codes, the commands after which they mean this ("": any; LIST: RCPT of a list), and the finding.

Codes are IMAP's (RFC 5530 section 3, RFC 4469, RFC 7889, RFC 9051 section 7.1), SMTP's enhanced codes (RFC 3463 section
3, RFC 7505, IANA's registry) in full, as subject and detail, or as subject alone, and SMTP's basic codes (RFC 5321
section 4.2, RFC 3207, RFC 4954, RFC 5248); "unknown" comes from the driver `mapi`. Texts are not interpreted: an answer
without an entry is quoted."""

_MEANINGS = {
    (code, command): meaning
    for codes, commands, meaning in _TABLE
    for code in codes.split()
    for command in commands.split() or [""]
}

_CODE = re.compile(r"(?:NO|BAD) \[([^]]+)\]|(\d{3}|unknown)\b")
_ENHANCED = re.compile(r"[245]\d\d[ -]([245]\.((\d{1,3})\.[1-9]\d{0,2}))\b")
"""An enhanced code whose detail is not 0, which means undefined (RFC 3463 section 3.1)."""


def meaning(failure: TaskFailed, sender: str = "", recipient: str = "", to_list: bool = False) -> Finding:
    """Return the meaning of a task's failure, according to the code in the server's answer."""
    values = {
        "answer": str(failure),
        "sender": sender or "its address",
        "recipient": recipient or "the scenario's addresses",
    }
    code = _meaning(failure, to_list)
    return finding(code, **{name: values[name] for name in code.fields})


def remedy(failure: TaskFailed, to_list: bool = False) -> str:
    """Return the remedy for a failure as a clause; "" if the answer's code is unknown."""
    code = _meaning(failure, to_list)
    return f"; {code.remedy}" if code is not Code.ANSWER_UNKNOWN and code.remedy else ""


def _meaning(failure: TaskFailed, to_list: bool) -> Code:
    if failure.outcome == "generator":
        return Code.MACHINE_FAILED
    if isinstance(failure, BareLineFeeds):
        return Code.BARE_LINE_FEEDS
    if isinstance(failure, ProtocolError):
        return Code.PROTOCOL_BROKEN
    code, enhanced = _CODE.match(failure.kind), _ENHANCED.match(failure.line)
    command = failure.kind.rpartition(" ")[2]
    if to_list and command in ("RCPT", "ResolveNames"):
        command = "LIST"
    imap, smtp = code.groups() if code else (None, None)
    codes = [imap, *(enhanced.groups() if enhanced else ()), smtp]
    known = (_MEANINGS.get((str(code), where)) for code in codes for where in (command, ""))
    ended = isinstance(failure, ServerLost) and not failure.line
    return next(filter(None, known), Code.SERVER_UNAVAILABLE if ended else Code.ANSWER_UNKNOWN)
