"""The faults of the IMAP server: a name, a sentence for the table, the command, the act."""

# ruff: noqa: E501 - a fault is a line of a table
from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from .acts import Act, Fault, Over, Strike, ahead, behind, closes, cuts, edits, floods, hangs, resets, says, trickles

if TYPE_CHECKING:
    from .links import Link

GARBAGE = bytes(range(256)) * 8
DEEP = 100_000
BOMB = b"=?utf-8?q?" + b"=41" * 20 + b"?= "
"""An encoded word of 72 bytes; 60 KB of them took an engine 11 s."""

PLAIN = (b"LITERAL+", b"LITERAL-")
"""Without these, a literal waits for the server's continuation."""

SIMPLE = (b"MOVE", b"UIDPLUS")
"""Without these, moving is COPY, STORE, SEARCH and EXPUNGE."""


def _in_fetch(item: bytes) -> Act:
    """An untagged FETCH of message 1 with this, before the answer."""
    return ahead(b"* 1 FETCH (UID 1 " + item + b")\r\n")


def handshake(act: Act) -> Act:
    """Agree to STARTTLS, then do this where TLS should begin."""

    async def then(link: Link, answer: bytes, tag: bytes) -> None:
        await link.send(answer)
        await act(link, answer, tag)
        raise Over

    return then


def _codes() -> Act:
    """Refuse each time with another response code."""
    number = itertools.count()

    async def act(link: Link, answer: bytes, tag: bytes) -> None:
        await link.send(tag + b" NO [X-%d] some reason\r\n" % next(number))

    return act


_ENVELOPE = {
    b"Subject": re.compile(rb'(ENVELOPE \("[^"]*") "[^"]*"'),
    b"From": re.compile(rb'(ENVELOPE \("[^"]*" "[^"]*" \(\()"[^"]*"'),
}
"""Patterns of the Subject and of the sender's name in an ENVELOPE."""


def _mail(name: bytes, value: bytes) -> Act:
    """Give each message this field, in ENVELOPE and in front of its header."""
    field = name + b": " + value + b"\r\n"
    literal = b" {%d}\r\n%b" % (len(value), value)

    async def act(link: Link, answer: bytes, tag: bytes) -> None:
        changed, rest = b"", answer
        while rest:
            line, _, rest = rest.partition(b"\r\n")
            if name in _ENVELOPE:
                line = _ENVELOPE[name].sub(lambda found: found[1] + literal, line)
            head, _, size = line.rpartition(b"{")
            if size[:-1].isdigit() and size.endswith(b"}"):
                length = int(size[:-1])
                more = field if b"HEADER" in head else b""
                changed += head + b"{%d}\r\n" % (length + len(more)) + more + rest[:length]
                rest = rest[length:]
            else:
                changed += line + b"\r\n"
        await link.change(answer, changed)

    return act


_STRUCTURE = rb"BODYSTRUCTURE \(.*\)(?= UID \d+\)\r\n)"


def _fault(name: str, about: str, at: str, act: Act, **more: object) -> Fault:
    return Fault(name, about, (Strike(at, act),), **more)  # type: ignore[arg-type]


# fmt: off
IMAP_FAULTS = (
    # --- the greeting ---
    _fault("greeting closed", "closes instead of a greeting", "GREETING", closes()),
    _fault("greeting reset", "resets instead of a greeting", "GREETING", resets()),
    _fault("greeting missing", "sends no greeting and stays", "GREETING", hangs()),
    _fault("greeting trickles", "sends a greeting without end, a byte a second", "GREETING", trickles(b"* OK x")),
    _fault("greeting garbage", "sends all byte values", "GREETING", says(GARBAGE)),
    _fault("greeting BYE", "greets with BYE", "GREETING", cuts(99, b"* BYE too busy\r\n")),
    _fault("greeting PREAUTH", "greets with PREAUTH, without any authentication", "GREETING", says(b"* PREAUTH in\r\n")),
    _fault("greeting of SMTP", "greets as an SMTP server", "GREETING", says(b"220 mail ESMTP\r\n")),
    _fault("greeting endless", "sends a line without end", "GREETING", floods(b"x", b"* OK "), most=2),
    _fault("greeting tagged", "greets with an unknown tag", "GREETING", says(b"t1 OK ready\r\n")),
    _fault("greeting of NULs", "sends NUL bytes", "GREETING", says(b"\0" * 4096 + b"\r\n")),
    # --- capabilities and authentication ---
    _fault("capabilities missing", "answers CAPABILITY with OK alone", "CAPABILITY", says(b"%t OK done\r\n")),
    _fault(
        "capabilities many",
        "names 20,000 capabilities",
        "CAPABILITY",
        ahead(b"* CAPABILITY IMAP4rev1 " + b" ".join(b"X%d" % number for number in range(20_000)) + b"\r\n"),
    ),
    _fault("capabilities hang", "never answers CAPABILITY", "CAPABILITY", hangs()),
    _fault("log-on refused", "refuses, and repeats what was sent", "AUTH", says(b"%t NO [AUTHENTICATIONFAILED] no\r\n")),
    _fault("log-on BAD", "answers BAD", "AUTH", says(b"%t BAD what\r\n")),
    _fault("log-on hangs", "never answers the log-on", "AUTH", hangs()),
    _fault("log-on challenged", "sends challenges without end", "AUTH", floods(b"+ \r\n"), most=2),
    _fault("log-on of another", "answers with another command's tag", "AUTH", says(b"t999 OK done\r\n")),
    _fault("log-on NUL", "has NUL bytes in its OK", "AUTH", says(b"%t OK \0\0\0\r\n")),
    # --- folders ---
    _fault("list cut", "closes within the list of folders", "LIST", cuts(20)),
    _fault("list empty", "lists no folder", "LIST", says(b"%t OK done\r\n")),
    _fault("list endless", "lists folders without end", "LIST", floods(b'* LIST () "/" "folder"\r\n'), most=2),
    _fault("list literal", "announces a folder name of 4 GiB", "LIST", hangs(b'* LIST () "/" {4294967295}\r\n')),
    _fault("list names", "lists names that are no modified UTF-7", "LIST", ahead(b'* LIST () "/" "&&&-\xff&AAA"\r\n')),
    _fault("list deep", "nests 100,000 lists", "LIST", ahead(b"* LIST " + b"(" * DEEP + b")" * DEEP + b' "/" a\r\n')),
    # --- SELECT ---
    _fault("EXISTS of 32 bits", "announces 4294967295 messages", "SELECT", edits(rb"\d+ EXISTS", b"4294967295 EXISTS")),
    _fault("EXISTS of 10^8", "announces 100,000,000 messages", "SELECT", edits(rb"\d+ EXISTS", b"100000000 EXISTS")),
    _fault("EXISTS of 80 bits", "announces 10^24 messages", "SELECT", edits(rb"\d+ EXISTS", b"1" + b"0" * 24 + b" EXISTS")),
    _fault("EXISTS negative", "announces -1 messages", "SELECT", edits(rb"\d+ EXISTS", b"-1 EXISTS")),
    _fault("EXISTS missing", "does not count messages", "SELECT", edits(rb"\* \d+ EXISTS\r\n", b"")),
    _fault("EXISTS of 5,000 digits", "counts with 5,000 digits", "SELECT", edits(rb"\d+ EXISTS", b"1" * 5000 + b" EXISTS")),
    _fault("UIDVALIDITY abc", "sends UIDVALIDITY abc", "SELECT", edits(rb"UIDVALIDITY \d+", b"UIDVALIDITY abc")),
    _fault("UIDVALIDITY missing", "sends no UIDVALIDITY", "SELECT", edits(rb"\* OK \[UIDVALIDITY[^\n]*\n", b"")),
    _fault("UIDVALIDITY empty", "sends an empty UIDVALIDITY", "SELECT", edits(rb"UIDVALIDITY \d+", b"UIDVALIDITY")),
    _fault("UIDVALIDITY of 80 bits", "sends a huge UIDVALIDITY", "SELECT", edits(rb"UIDVALIDITY \d+", b"UIDVALIDITY 1" + b"0" * 24)),
    _fault("UIDNEXT abc", "sends UIDNEXT abc", "SELECT", edits(rb"UIDNEXT \d+", b"UIDNEXT abc")),
    _fault("SELECT refused", "refuses SELECT", "SELECT", says(b"%t NO [NOPERM] no\r\n")),
    _fault("SELECT alone", "answers SELECT with OK alone", "SELECT", says(b"%t OK done\r\n")),
    _fault("SELECT resets", "resets at SELECT", "SELECT", resets()),
    _fault("SELECT hangs", "never answers SELECT", "SELECT", hangs()),
    # --- FETCH ---
    _fault("FETCH closed", "closes at FETCH", "FETCH", closes()),
    _fault("FETCH reset", "resets at FETCH", "FETCH", resets()),
    _fault("FETCH hangs", "never answers FETCH", "FETCH", hangs()),
    _fault("FETCH trickles", "sends a byte a second", "FETCH", trickles()),
    _fault("FETCH garbage", "sends all byte values for an answer", "FETCH", says(GARBAGE + b"\r\n")),
    _fault("FETCH refused", "refuses, each time with another response code", "FETCH", _codes()),
    _fault("FETCH empty", "answers OK and no data", "FETCH", says(b"%t OK done\r\n")),
    _fault("FETCH without end", "sends the data and no tagged end", "FETCH", edits(rb"t?\w+ OK [^\n]*\n\Z", b"")),
    _fault("FETCH twice", "sends each answer twice", "FETCH", behind(b"%t OK again\r\n")),
    _fault("FETCH of another", "ends with an unknown tag", "FETCH", says(b"zz9 OK done\r\n")),
    _fault("FETCH and BYE", "says BYE behind the answer", "FETCH", behind(b"* BYE enough\r\n")),
    _fault("FETCH and +", "sends unexpected continuations", "FETCH", ahead(b"+ go on\r\n" * 100)),
    _fault("literal of 4 GiB", "announces a literal of 4 GiB", "FETCH", hangs(b"* 1 FETCH (UID 1 BODY[1] {4294967295}\r\n")),
    _fault("literal endless", "sends a literal of 4 GiB", "FETCH", floods(b"x", b"* 1 FETCH (UID 1 BODY[1] {4294967295}\r\n"), most=2),
    _fault("literal of 80 bits", "announces a literal of 10^24 bytes", "FETCH", hangs(b"* 1 FETCH (BODY[1] {1" + b"0" * 24 + b"}\r\n")),
    _fault("literal negative", "announces a literal of -1 bytes", "FETCH", ahead(b"* 1 FETCH (UID 1 BODY[1] {-1}\r\nx)\r\n")),
    _fault("literal cut", "closes within a literal", "FETCH", cuts(99, b"* 1 FETCH (UID 1 BODY[1] {1000}\r\nxyz")),
    _fault("literals many", "sends 10,000 empty literals", "FETCH", _in_fetch(b"FLAGS (" + b"{0}\r\n " * 10_000 + b")")),
    _fault("parentheses deep", "nests 100,000 lists", "FETCH", _in_fetch(b"BODYSTRUCTURE " + b"(" * DEEP + b")" * DEEP)),
    _fault("parentheses open", "opens lists and closes none", "FETCH", ahead(b"* 1 FETCH (((((\r\n")),
    _fault("quote open", "opens a quoted string without end", "FETCH", floods(b"x", b'* 1 FETCH (UID 1 ENVELOPE ("'), most=2),
    _fault("NUL bytes", "sends NUL bytes within the data", "FETCH", _in_fetch(b"FLAGS (\0\0)")),
    _fault("UID 0", "gives messages the UID 0", "FETCH", edits(rb"UID \d+", b"UID 0")),
    _fault("UID of 80 bits", "gives messages a UID of 10^24", "FETCH", edits(rb"UID \d+", b"UID 1" + b"0" * 24)),
    _fault("size of 80 bits", "gives messages 10^24 bytes", "FETCH", edits(rb"RFC822.SIZE \d+", b"RFC822.SIZE 1" + b"0" * 24), unasked=("init, clean",)),
    _fault("messages unasked", "sends 20,000 unrequested messages", "FETCH", ahead(b"".join(b"* %d FETCH (UID %d FLAGS ())\r\n" % (n, n) for n in range(1, 20_001))), most=2),
    _fault("flood of bytes", "sends a line without end", "FETCH", floods(b"x", b"* "), most=2),
    _fault("flood of OK", "sends untagged OK without end", "FETCH", floods(b"* OK still there\r\n"), most=2),
    _fault("flood of FETCH", "sends messages without end", "FETCH", floods(b"* 1 FETCH (UID 1 FLAGS (\\Seen))\r\n"), most=2),
    _fault("flood of EXISTS", "announces new messages without end", "FETCH", floods(b"* 4294967295 EXISTS\r\n"), most=2),
    _fault("flood of EXPUNGE", "expunges without end", "FETCH", floods(b"* 1 EXPUNGE\r\n"), most=2),
    _fault("ESEARCH unasked", "sends ESEARCH ALL 1:999999, sixteen times", "FETCH", ahead(b"* ESEARCH UID ALL 1:999999\r\n" * 16)),
    _fault("vanished", "lets all messages vanish", "FETCH", ahead(b"* VANISHED 1:4294967295\r\n")),
    _fault("EXPUNGE of none", "expunges message 0 and one that is not there", "FETCH", ahead(b"* 0 EXPUNGE\r\n* 99999999 EXPUNGE\r\n")),
    # --- what mail contains ---
    _fault("Subject of 60 KB", "has encoded words of 60 KB for a Subject", "FETCH", _mail(b"Subject", b"" + BOMB * 850)),
    _fault("Subject folded", "has a Subject of 20,000 lines", "FETCH", _mail(b"Subject", b"a" + b"\r\n =?utf-8?q?x?=" * 20_000)),
    _fault("addresses of 60 KB", "has 10,000 nested comments for a sender", "FETCH", _mail(b"From", b"" + b"(" * 10_000 + b"a@b")),
    _fault("tag false", "has an X-LoadSim of numbers that no record holds", "FETCH", _mail(b"X-LoadSim", b"run=run-1; from=99999999999999999999; id=n; kind=x; sent=-1; body=")),
    _fault("structure odd", "has a structure of NILs", "FETCH", edits(_STRUCTURE, b"BODYSTRUCTURE (NIL NIL NIL)"), unasked=("init, clean",)),
    # --- IDLE ---
    _fault("IDLE hangs", "never agrees to IDLE", "IDLE", hangs()),
    _fault("IDLE refused", "refuses IDLE", "IDLE", says(b"%t NO no\r\n")),
    _fault("IDLE ends at once", "ends IDLE before it begins", "IDLE", says(b"%t OK done\r\n")),
    _fault("IDLE resets", "resets at IDLE", "IDLE", resets()),
    _fault("IDLE and BYE", "says BYE while the client idles", "IDLE", behind(b"* BYE shutting down\r\n")),
    _fault("IDLE and EXISTS", "announces 4294967295 messages while the client idles", "IDLE", behind(b"* 4294967295 EXISTS\r\n")),
    _fault("IDLE floods", "announces messages without end while the client idles", "IDLE", floods(b"* 3 EXISTS\r\n", b"+ idling\r\n"), most=2),
    _fault("IDLE garbage", "sends all byte values while the client idles", "IDLE", behind(GARBAGE)),
    _fault("DONE hangs", "never ends IDLE", "DONE", hangs()),
    _fault("DONE closed", "closes at DONE", "DONE", closes()),
    # --- APPEND, MOVE, COPY, STORE, EXPUNGE ---
    Fault("APPEND unfinished", "answers OK to an APPEND whose literal it has not got", (Strike("APPEND LITERAL", says(b"%t OK done\r\n")),), hides=PLAIN),
    Fault("APPEND literal refused", "refuses an APPEND's literal", (Strike("APPEND LITERAL", says(b"%t NO [TOOBIG] no\r\n")),), hides=PLAIN),
    Fault("APPEND literal hangs", "never lets an APPEND go on", (Strike("APPEND LITERAL", hangs()),), hides=PLAIN),
    _fault("APPEND refused", "refuses APPEND", "APPEND", says(b"%t NO [OVERQUOTA] full\r\n")),
    _fault("APPEND hangs", "never answers APPEND", "APPEND", hangs()),
    _fault("APPENDUID odd", "sends APPENDUID abc def", "APPEND", says(b"%t OK [APPENDUID abc def] done\r\n")),
    _fault("APPENDUID many", "sends APPENDUID 1 1:4294967295", "APPEND", says(b"%t OK [APPENDUID 1 1:4294967295] done\r\n")),
    _fault("COPYUID many", "sends COPYUID 1 1:999999 1:999999", "COPY|MOVE", says(b"* OK [COPYUID 1 1:999999 1:999999] x\r\n%t OK [COPYUID 1 1:999999 1:999999] done\r\n")),
    _fault("COPYUID of 32 bits", "sends COPYUID 1 1:4294967295 1:4294967295", "COPY|MOVE", says(b"* OK [COPYUID 1 1:4294967295 1:4294967295] x\r\n%t OK [COPYUID 1 1:4294967295 1:4294967295] done\r\n")),
    _fault("COPYUID odd", "sends COPYUID abc", "COPY|MOVE", says(b"* OK [COPYUID abc] x\r\n%t OK [COPYUID a b c] done\r\n")),
    _fault("MOVE without effect", "answers OK and has done nothing", "COPY|MOVE", says(b"%t OK done\r\n")),
    _fault("MOVE refused", "refuses, asking for CREATE", "COPY|MOVE", says(b"%t NO [TRYCREATE] no\r\n")),
    _fault("MOVE resets", "resets at MOVE and COPY", "COPY|MOVE", resets()),
    _fault("STORE hangs", "never answers STORE", "STORE", hangs()),
    _fault("STORE BAD", "answers BAD to STORE", "STORE", says(b"%t BAD no\r\n")),
    _fault("SEARCH many", "finds 1:4294967295", "SEARCH", says(b"* ESEARCH (TAG \"%t\") UID ALL 1:4294967295\r\n%t OK done\r\n"), hides=SIMPLE),
    _fault("SEARCH long", "finds 200,000 messages", "SEARCH", says(b"* SEARCH" + b"".join(b" %d" % n for n in range(1, 200_001)) + b"\r\n%t OK done\r\n"), hides=SIMPLE),
    _fault("SEARCH odd", "finds abc, -1 and 10^24", "SEARCH", says(b"* SEARCH abc -1 1" + b"0" * 24 + b"\r\n%t OK done\r\n"), hides=SIMPLE),
    _fault("EXPUNGE resets", "resets at EXPUNGE", "EXPUNGE", resets(), hides=SIMPLE),
    # --- what only init and clean do ---
    _fault("CREATE refused", "refuses CREATE, each time with another response code", "CREATE", _codes()),
    _fault("CREATE hangs", "never answers CREATE", "CREATE", hangs()),
    _fault("STATUS alone", "answers STATUS with OK alone", "STATUS", says(b"%t OK done\r\n")),
    _fault("STATUS without MESSAGES", "counts no messages", "STATUS", edits(rb"MESSAGES \d+ ?", b"")),
    _fault("STATUS of 80 bits", "counts 10^24 messages", "STATUS", edits(rb"MESSAGES \d+", b"MESSAGES 1" + b"0" * 24)),
    _fault("DELETE refused", "refuses DELETE", "DELETE", says(b"%t NO [INUSE] no\r\n")),
    _fault("DELETE resets", "resets at DELETE", "DELETE", resets()),
    # --- LOGOUT ---
    _fault("LOGOUT hangs", "never answers LOGOUT", "LOGOUT", hangs(), heals=False),
    _fault("LOGOUT closed", "closes at LOGOUT", "LOGOUT", closes(), heals=False),
    _fault("LOGOUT floods", "answers LOGOUT with BYE without end", "LOGOUT", floods(b"* BYE bye\r\n"), heals=False, most=2),
    # --- STARTTLS ---
    _fault("STARTTLS refused", "refuses STARTTLS", "STARTTLS", says(b"%t NO no\r\n"), tls=True),
    _fault("STARTTLS injected", "sends an answer in the clear behind its OK to STARTTLS", "STARTTLS", behind(b"* CAPABILITY IMAP4rev1 AUTH=PLAIN\r\nt2 OK done\r\n"), tls=True),
    _fault("handshake garbage", "sends garbage for a handshake", "STARTTLS", handshake(says(GARBAGE)), tls=True),
    _fault("handshake hangs", "never answers the handshake", "STARTTLS", handshake(hangs()), tls=True),
    _fault("handshake closed", "closes within the handshake", "STARTTLS", handshake(closes()), tls=True),
)
# fmt: on
