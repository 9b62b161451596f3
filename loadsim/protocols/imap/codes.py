"""The response codes that IANA has registered (https://www.iana.org/assignments/imap-response-codes/)."""

from __future__ import annotations

from loadsim.protocols.imap.responses import Code

# fmt: off
REGISTERED = frozenset((
    "ALERT", "ALREADYEXISTS", "ANNOTATE", "ANNOTATIONS", "APPENDLIMIT", "APPENDUID", "AUTHENTICATIONFAILED",
    "AUTHORIZATIONFAILED", "BADCHARSET", "BADCOMPARATOR", "BADEVENT", "BADPARAM", "BADURL", "CANNOT", "CAPABILITY",
    "CLIENTBUG", "CLOSED", "COMPRESSIONACTIVE", "CONTACTADMIN", "COPYUID", "CORRUPTION", "EXPIRED", "EXPUNGEISSUED",
    "HASCHILDREN", "HIGHESTMODSEQ", "INPROGRESS", "INUSE", "LIMIT", "MAILBOXID", "MAXCONVERTMESSAGES",
    "MAXCONVERTPARTS", "MESSAGELIMIT", "METADATA", "MODIFIED", "NEWNAME", "NOMODSEQ", "NONEXISTENT", "NOPERM",
    "NOPRIVATE", "NOTIFICATIONOVERFLOW", "NOTSAVED", "NOUPDATE", "OVERQUOTA", "PARSE", "PERMANENTFLAGS",
    "PRIVACYREQUIRED", "READ-ONLY", "READ-WRITE", "REFERRAL", "SERVERBUG", "TEMPFAIL", "TOOBIG", "TOOMANY", "TRYCREATE",
    "UIDNEXT", "UIDNOTSTICKY", "UIDREQUIRED", "UIDVALIDITY", "UNAVAILABLE", "UNDEFINED-FILTER", "UNKNOWN-CTE", "UNSEEN",
    "URLMECH", "USEATTR",
))
# fmt: on


def registered(code: Code | None) -> str:
    """Return the code's name in brackets, or "[other]" for one that is not registered; "" without a code."""
    if code is None:
        return ""
    return f"[{code.name}] " if code.name in REGISTERED else "[other] "
