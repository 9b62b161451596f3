"""Commands, and messages as they travel (RFC 5321 sections 4.1.1 and 4.5.2)."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from loadsim.model.ports import Account
from loadsim.protocols.sasl import plain

_LONG_BYTES = 8192
"""From here on, numpy looks through a message several times as fast as the methods of `bytes` do."""

_CR, _LF, _DOT = b"\r\n."
_LINE_END = re.compile(rb"\r\n|\n|\r")


class Command(NamedTuple):
    """A command by its name in the sub-timings. Each of `further` goes out when the server asks for more (3yz)."""

    verb: str
    line: bytes
    further: tuple[tuple[bytes, ...], ...] = ()


GREETING = Command("CONNECT", b"")
"""Nothing is sent: the server speaks first (RFC 5321 section 3.1)."""

STARTTLS = Command("STARTTLS", b"STARTTLS\r\n")
RESET = Command("RSET", b"RSET\r\n")
QUIT = b"QUIT\r\n"


def ehlo(host: str) -> Command:
    """EHLO with an address literal for a name (RFC 5321 sections 4.1.1.1 and 4.1.3)."""
    name = f"IPv6:{host.partition('%')[0]}" if ":" in host else host
    return Command("EHLO", b"EHLO [%b]\r\n" % name.encode())


@lru_cache(maxsize=16)
def extensions(lines: tuple[bytes, ...]) -> Mapping[str, str]:
    """What the reply to EHLO offers: keywords in capitals, with their parameters (RFC 5321 section 4.1.1.1).

    "AUTH=PLAIN", as servers wrote it before RFC 4954, counts as "AUTH PLAIN". A server says the same to everybody, and
    all connections share what it says.
    """
    offered: dict[str, str] = {}
    for line in lines[1:]:
        keyword, _, parameters = line.decode("utf-8", "replace").upper().replace("AUTH=", "AUTH ").partition(" ")
        offered[keyword] = f"{offered[keyword]} {parameters}" if keyword in offered else parameters
    return MappingProxyType(offered)


def auth_plain(account: Account) -> Command:
    """AUTH PLAIN with an initial response (RFC 4954 section 4, RFC 4616)."""
    return Command("AUTH", b"AUTH PLAIN %b\r\n" % plain(account))


def auth_login(account: Account) -> Command:
    """AUTH LOGIN, which no standard describes and some servers have nothing but: name and password on request."""
    login, password = (b64encode(text.encode()) + b"\r\n" for text in (account.login, account.password))
    return Command("AUTH", b"AUTH LOGIN\r\n", ((login,), (password,)))


def mail(sender: str, message: bytes, offered: Mapping[str, str]) -> Command:
    """MAIL FROM, with SIZE (RFC 1870) and 8BITMIME (RFC 6152) where they are offered and apply."""
    line = f"MAIL FROM:<{sender}>"
    if "SIZE" in offered:
        line += f" SIZE={len(message)}"
    if "8BITMIME" in offered and not message.isascii():
        line += " BODY=8BITMIME"
    return Command("MAIL", line.encode() + b"\r\n")


def rcpt(recipient: str) -> Command:
    """RCPT TO."""
    return Command("RCPT", b"RCPT TO:<%b>\r\n" % recipient.encode())


def data(message: bytes) -> Command:
    """DATA, with the message to be sent at the go-ahead."""
    return Command("DATA", b"DATA\r\n", (travelling(message),))


def travelling(message: bytes) -> tuple[bytes, bytes]:
    """The message with its lines ended by CRLF and its leading dots doubled, and its end; no copy if it is so already.

    RFC 5321 sections 2.3.8 and 4.5.2. A lone CR or LF becomes CRLF: between servers that see line ends differently it
    could end the message early.
    """
    if not _has_whole_line_ends(message):
        message = _LINE_END.sub(b"\r\n", message)
    if _has_leading_dots(message):
        message = message.replace(b"\r\n.", b"\r\n..")
    if message.startswith(b"."):
        message = b"." + message
    return message, b".\r\n" if message.endswith(b"\r\n") else b"\r\n.\r\n"


def _has_whole_line_ends(message: bytes) -> bool:
    """Whether each CR is followed by a LF, and each LF follows a CR."""
    if len(message) < _LONG_BYTES:
        return message.count(b"\r") == message.count(b"\r\n") == message.count(b"\n")
    octets = np.frombuffer(message, np.uint8)
    return (
        not message.startswith(b"\n")
        and not message.endswith(b"\r")
        and (octets[:-1] == _CR).tobytes() == (octets[1:] == _LF).tobytes()
    )


def _has_leading_dots(message: bytes) -> bool:
    """Whether a line other than the first begins with a dot; lines end with CRLF.

    Most of a long message is Base64, which has no dots: the last one is found from the end, in no time.
    """
    stop = message.rfind(b".") + 1
    if stop < _LONG_BYTES:
        return message.find(b"\r\n.", 0, stop) >= 0
    octets = np.frombuffer(message, np.uint8, stop)
    return bool(((octets[:-1] == _LF) & (octets[1:] == _DOT)).any())
