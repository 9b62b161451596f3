"""Responses of IMAP servers, most of them from RFCs, and what they mean."""

# ruff: noqa: E501 - the table of answers is easier to read with one answer to a line

from collections.abc import Sequence
from itertools import pairwise

from loadsim.protocols.imap.responses import (
    Address,
    Capability,
    Condition,
    Continuation,
    Envelope,
    Exists,
    Expunged,
    Fetched,
    Leaf,
    ListEntry,
    MailboxStatus,
    Multipart,
    Response,
    ResponseCode,
    Search,
    Tagged,
    Unknown,
)
from loadsim.protocols.imap.sets import NumberSet

TERRY = (Address(b"Terry Gray", None, b"gray", b"cac.washington.edu"),)
IMAP_LIST = Address(None, None, b"imap", b"cac.washington.edu")


def found(*numbers: int) -> NumberSet:
    return NumberSet.of((number, number) for number in numbers)


DIALOGUE: Sequence[tuple[bytes, Response | None]] = [
    (b"* OK [CAPABILITY IMAP4rev2 STARTTLS AUTH=PLAIN] ready", Condition("OK", ResponseCode("CAPABILITY", "IMAP4rev2 STARTTLS AUTH=PLAIN"), "ready")),
    (b"* PREAUTH IMAP4rev2 server logged in as Smith", Condition("PREAUTH", None, "IMAP4rev2 server logged in as Smith")),
    (b"* BYE Autologout; idle for too long", Condition("BYE", None, "Autologout; idle for too long")),
    (b"* BYE", Condition("BYE", None, "")),
    (b"* ok a brace at the end is text here {5}", Condition("OK", None, "a brace at the end is text here {5}")),
    (b"a1 NO so it is here {5}", Tagged("a1", "NO", None, "so it is here {5}")),
    (b"+ and here {3}", Continuation("and here {3}")),
    (b"* 172 EXISTS", Exists(172)),
    (b"* 44 expunge", Expunged(44)),
    (b"* 1 RECENT", None),
    (b"* FLAGS (\\Answered \\Flagged)", None),
    (b"* XYZZY anything (\"unbalanced", Unknown("XYZZY")),
    (b"* 4 expunged (\"unbalanced", Unknown("4 EXPUNGED")),
    (b"* OK [UIDVALIDITY 3857529045] UIDs valid", Condition("OK", ResponseCode("UIDVALIDITY", "3857529045"), "UIDs valid")),
    (b"* OK [PERMANENTFLAGS (\\Deleted \\*)] Limited", Condition("OK", ResponseCode("PERMANENTFLAGS", "(\\Deleted \\*)"), "Limited")),
    (b"A003 OK [APPENDUID 38505 3955] APPEND completed", Tagged("A003", "OK", ResponseCode("APPENDUID", "38505 3955"), "APPEND completed")),
    (b"A004 OK [COPYUID 38505 304,319:320 3956:3958] Done", Tagged("A004", "OK", ResponseCode("COPYUID", "38505 304,319:320 3956:3958"), "Done")),
    (b"A004 NO [TRYCREATE]", Tagged("A004", "NO", ResponseCode("TRYCREATE", ""), "")),
    (b"A5 BAD", Tagged("A5", "BAD", None, "")),
    (b"A6 OK [closed never", Tagged("A6", "OK", None, "[closed never")),
    (b"A6 ok [(no name)] text", Tagged("A6", "OK", None, "[(no name)] text")),
    (b"A6 No [ALERT]at once\rwith ] and [x]", Tagged("A6", "NO", ResponseCode("ALERT", ""), "at once\rwith ] and [x]")),
    (b"* NO [closed never", Condition("NO", None, "[closed never")),
    (b"+", Continuation("")),
    (b"+ idling", Continuation("idling")),
    (b"* CAPABILITY imap4rev1 IDLE LITERAL+", Capability(frozenset({"IMAP4REV1", "IDLE", "LITERAL+"}))),
    (b'* LIST (\\Noselect) "/" ~/Mail/foo', ListEntry(frozenset({"\\noselect"}), "/", "~/Mail/foo")),
    (b'* LIST () NIL INBOX', ListEntry(frozenset(), None, "INBOX")),
    (b'* LIST (\\Marked \\HasNoChildren) "." "Sent \\"Items\\""', ListEntry(frozenset({"\\marked", "\\hasnochildren"}), ".", 'Sent "Items"')),
    (b'* LIST () "/" {9}\r\na ]{7}("b', ListEntry(frozenset(), "/", 'a ]{7}("b')),
    (b'* LIST () "/" "~peter/mail/&U,BTFw-/&ZeVnLIqe-"', ListEntry(frozenset(), "/", "~peter/mail/台北/日本語")),  # RFC 3501 5.1.3
    (b"* STATUS blurdybloop (MESSAGES 231 UIDNEXT 44292)", MailboxStatus("blurdybloop", {"MESSAGES": 231, "UIDNEXT": 44292})),
    (b"* STATUS \"a b\" ()", MailboxStatus("a b", {})),
    (b"* SEARCH 2 84 882", Search(found(2, 84, 882))),
    (b"* SEARCH", Search(found())),
    (b"* SEARCH 2 5 (MODSEQ 917162500)", Search(found(2, 5))),  # RFC 7162 section 3.1.5
    (b'* ESEARCH (TAG "A282") UID ALL 4:5,9', Search(found(4, 5, 9))),  # RFC 9051 section 7.3.4
    (b'* ESEARCH (TAG "A284")', Search(found())),
    (b"* 23 FETCH (FLAGS (\\Seen) UID 4827313 RFC822.SIZE 44827)", Fetched(23, 4827313, frozenset({"\\Seen"}), 44827, None, None, {})),
    (b"* 1 FETCH (FLAGS ())", Fetched(1, None, frozenset(), None, None, None, {})),
    (b"* 1 FETCH ()", Fetched(1, None, None, None, None, None, {})),
    (b'* 2 FETCH (INTERNALDATE "17-Jul-1996 02:44:25 -0700" MODSEQ (624140003) X (a ("b" {1}\r\n)) NIL) UID 9)', Fetched(2, 9, None, None, None, None, {})),
    (b"* 2 FETCH (BODY[1] {12}\r\n* 9 EXISTS\r\n BODY[2.1] NIL body[Text]<0> \"a\\\\b\" UID 3)",
        Fetched(2, 3, None, None, None, None, {"1": b"* 9 EXISTS\r\n", "2.1": None, "TEXT": b"a\\b"})),
    (b"* 2 FETCH (BODY[HEADER.FIELDS (X-LOADSIM)] {2}\r\n\r\n)", Fetched(2, None, None, None, None, None, {"HEADER.FIELDS (X-LOADSIM)": b"\r\n"})),
    (b"* 2 FETCH (UID 7 BODY[1.MIME] {3}\r\na)b)", Fetched(2, 7, None, None, None, None, {"1.MIME": b"a)b"})),
    (b"* 2 fetch (body[1] {3}\r\n))) UID 7)", Fetched(2, 7, None, None, None, None, {"1": b")))"})),
    (b"* 2 FETCH (BODY[1] {1}\r\na BODY[2] {1}\r\nb)", Fetched(2, None, None, None, None, None, {"1": b"a", "2": b"b"})),
    (b"* 2 FETCH (BODY[] ~{3}\r\n\x00)\xff)", Fetched(2, None, None, None, None, None, {"": b"\x00)\xff"})),
    (b'* 12 FETCH (ENVELOPE ("Wed, 17 Jul 1996 02:23:25 -0700 (PDT)" "IMAP4rev2 WG mtg summary and minutes" '
        b'(("Terry Gray" NIL "gray" "cac.washington.edu")) (("Terry Gray" NIL "gray" "cac.washington.edu")) '
        b'(("Terry Gray" NIL "gray" "cac.washington.edu")) ((NIL NIL "imap" "cac.washington.edu")) '
        b'((NIL NIL "minutes" "CNRI.Reston.VA.US")("John Klensin" NIL "KLENSIN" "MIT.EDU")) NIL NIL '
        b'"<B27397-0100000@cac.washington.ed>"))',
        Fetched(12, None, None, None, Envelope(
            b"Wed, 17 Jul 1996 02:23:25 -0700 (PDT)", b"IMAP4rev2 WG mtg summary and minutes", TERRY, TERRY, TERRY, (IMAP_LIST,),
            (Address(None, None, b"minutes", b"CNRI.Reston.VA.US"), Address(b"John Klensin", None, b"KLENSIN", b"MIT.EDU")),
            (), None, b"<B27397-0100000@cac.washington.ed>"), None, {})),
    (b'* 1 FETCH (ENVELOPE (NIL {7}\r\nA\r\n ("B NIL NIL NIL NIL NIL NIL NIL NIL))',
        Fetched(1, None, None, None, Envelope(None, b'A\r\n ("B', (), (), (), (), (), (), None, None), None, {})),
    (b'* 12 FETCH (BODYSTRUCTURE ("TEXT" "PLAIN" ("CHARSET" "US-ASCII") NIL NIL "7BIT" 3028 92))',
        Fetched(12, None, None, None, None, Leaf("text/plain", {"charset": b"US-ASCII"}, "7bit", 3028, None, {}), {})),
    # RFC 9051 section 7.5.2, the example of BODYSTRUCTURE, with a disposition
    (b'* 1 FETCH (BODYSTRUCTURE (("TEXT" "PLAIN" ("CHARSET" "US-ASCII") NIL NIL "7BIT" 1152 23)'
        b'("TEXT" "PLAIN" ("CHARSET" "US-ASCII" "NAME" "cc.diff") "<9607@cac>" "Compiler diff" "BASE64" 4554 73 NIL ("attachment" ("filename" "cc.diff")) NIL) "MIXED"))',
        Fetched(1, None, None, None, None, Multipart("mixed", (
            Leaf("text/plain", {"charset": b"US-ASCII"}, "7bit", 1152, None, {}),
            Leaf("text/plain", {"charset": b"US-ASCII", "name": b"cc.diff"}, "base64", 4554, "attachment", {"filename": b"cc.diff"}))), {})),
    (b'* 1 FETCH (BODYSTRUCTURE (("image" "bmp" NIL NIL NIL "base64" 10 NIL ("inline" NIL))("message" "rfc822" NIL NIL NIL "7bit" 342 '
        b'(NIL "s" NIL NIL NIL NIL NIL NIL NIL NIL) ("text" "plain" NIL NIL NIL "7bit" 8 1) 9 NIL ("attachment" ("filename" "m.eml"))) "mixed" ("boundary" "x") NIL))',
        Fetched(1, None, None, None, None, Multipart("mixed", (
            Leaf("image/bmp", {}, "base64", 10, "inline", {}),
            Leaf("message/rfc822", {}, "7bit", 342, "attachment", {"filename": b"m.eml"}))), {})),
    # A server may list an attached message without its envelope, body and lines.
    (b'* 1 FETCH (BODYSTRUCTURE ("message" "rfc822" NIL NIL NIL "7bit" 342 NIL ("attachment" ("filename" "m.eml"))))',
        Fetched(1, None, None, None, None, Leaf("message/rfc822", {}, "7bit", 342, "attachment", {"filename": b"m.eml"}), {})),
    # pymap 0.36: the disposition is the header field
    (b'* 1 FETCH (BODYSTRUCTURE ("image" "bmp" NIL NIL NIL "base64" 4 NIL "inline; filename=\\"dot 1.bmp\\"; size=4" NIL NIL))',
        Fetched(1, None, None, None, None, Leaf("image/bmp", {}, "base64", 4, "inline", {"filename": b"dot 1.bmp", "size": b"4"}), {})),
]  # fmt: skip


def cut(stream: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[a:b] for a, b in pairwise(edges)]
