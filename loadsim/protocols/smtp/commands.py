"""Commands and messages as bytes (RFC 5321 sections 4.1.1 and 4.5.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from loadsim.errors import ServerRefused
from loadsim.model.ports import Endpoint
from loadsim.protocols.sasl.authenticate import Dialogue
from loadsim.protocols.sasl.choice import Offer
from loadsim.protocols.sasl.exchange import Exchange

_LONG_BYTES = 8192
"""From this size on, numpy searches a message several times faster than `bytes` methods do."""

_CR, _LF, _DOT = b"\r\n."
_LINE_END = re.compile(rb"\r\n|\n|\r")


class SmtpCommand(NamedTuple):
    """A command's line, with its name in the sub-timings."""

    verb: str
    line: bytes


GREETING = SmtpCommand("CONNECT", b"")
"""Sends nothing, as the server begins (RFC 5321 section 3.1)."""

AUTH, EHLO, LHLO, MAIL, RCPT = "AUTH", "EHLO", "LHLO", "MAIL", "RCPT"
DATA = SmtpCommand("DATA", b"DATA\r\n")
STARTTLS = SmtpCommand("STARTTLS", b"STARTTLS\r\n")
RESET = SmtpCommand("RSET", b"RSET\r\n")
QUIT = b"QUIT\r\n"


def ehlo(host: str, verb: str = EHLO) -> SmtpCommand:
    """Return EHLO, or LHLO, with an address literal as its name (RFC 5321 sections 4.1.1.1 and 4.1.3)."""
    name = f"IPv6:{host.partition('%')[0]}" if ":" in host else host
    return SmtpCommand(verb, f"{verb} [{name}]\r\n".encode())


@lru_cache(maxsize=16)
def extensions(lines: tuple[bytes, ...]) -> Mapping[str, str]:
    """Parse the reply to EHLO: keywords in capitals, with their parameters (RFC 5321 section 4.1.1.1).

    "AUTH=PLAIN", as servers wrote before RFC 4954, counts as "AUTH PLAIN". A server offers all users the same, so the
    cache lets all connections share one mapping.
    """
    offered: dict[str, str] = {}
    for line in lines[1:]:
        keyword, _, parameters = line.decode("utf-8", "replace").upper().replace("AUTH=", "AUTH ").partition(" ")
        offered[keyword] = f"{offered[keyword]} {parameters}" if keyword in offered else parameters
    return MappingProxyType(offered)


LONGEST_LINE_BYTES = 512
"""The longest command line, including its CRLF (RFC 5321 section 4.5.3.1.4). Postfix cuts AUTH at 2048."""


def dialogue_of(exchange: Exchange) -> Dialogue:
    """Return an exchange's dialogue, in which a long initial response, such as a token, waits for the server."""
    return Dialogue(exchange, LONGEST_LINE_BYTES - len(f"AUTH {exchange.mechanism} \r\n"))


def no_starttls() -> ServerRefused:
    return ServerRefused("no STARTTLS", "the server does not offer it")


def auth(words: Sequence[bytes]) -> SmtpCommand:
    """Return AUTH (RFC 4954 section 4) with these words."""
    return SmtpCommand(AUTH, b"AUTH %b\r\n" % b" ".join(words))


def offer_of(endpoint: Endpoint, offered: Mapping[str, str]) -> Offer | None:
    """Return the log-on methods that a server offers; None if users do not log on."""
    if not endpoint.auth or ("AUTH" not in offered and not endpoint.methods):
        return None
    return Offer(frozenset(offered.get("AUTH", "").split()), encrypted=endpoint.tls != "none")


def mail(sender: str, message: bytes, offered: Mapping[str, str], envelope_id: str | None = None) -> SmtpCommand:
    """Return MAIL FROM, with SIZE (RFC 1870) and 8BITMIME (RFC 6152) if they are offered and apply.

    With `envelope_id`, a delivery receipt returns the header only (RFC 3461 sections 4.3 and 4.4).
    """
    line = f"MAIL FROM:<{sender}>"
    if "SIZE" in offered:
        line += f" SIZE={len(message)}"
    if "8BITMIME" in offered and not message.isascii():
        line += " BODY=8BITMIME"
    if envelope_id is not None:
        line += f" RET=HDRS ENVID={envelope_id}"
    return SmtpCommand(MAIL, line.encode() + b"\r\n")


def rcpt(recipient: str, notifies: bool = False) -> SmtpCommand:
    """Return RCPT TO; if it `notifies`, the server reports success, too (RFC 3461 section 4.1)."""
    notify = b" NOTIFY=SUCCESS,FAILURE" if notifies else b""
    return SmtpCommand(RCPT, b"RCPT TO:<%b>%b\r\n" % (recipient.encode(), notify))


def wire_format(message: bytes) -> tuple[bytes, bytes]:
    """Return the message with CRLF line ends, doubled leading dots and the final dot, without a copy if possible.

    RFC 5321 sections 2.3.8 and 4.5.2. A lone CR or LF becomes CRLF: servers that read line ends differently could end
    the message early.
    """
    if not _has_whole_line_ends(message):
        message = _LINE_END.sub(b"\r\n", message)
    if _has_leading_dots(message):
        message = message.replace(b"\r\n.", b"\r\n..")
    if message.startswith(b"."):
        message = b"." + message
    return message, b".\r\n" if message.endswith(b"\r\n") else b"\r\n.\r\n"


def _has_whole_line_ends(message: bytes) -> bool:
    """Return whether each CR precedes an LF, and each LF follows a CR."""
    if len(message) < _LONG_BYTES:
        return message.count(b"\r") == message.count(b"\r\n") == message.count(b"\n")
    octets = np.frombuffer(message, np.uint8)
    return (
        not message.startswith(b"\n")
        and not message.endswith(b"\r")
        and (octets[:-1] == _CR).tobytes() == (octets[1:] == _LF).tobytes()
    )


def _has_leading_dots(message: bytes) -> bool:
    """Return whether a line other than the first begins with a dot; lines end with CRLF.

    Most of a long message is Base64, which has no dots, so the search ends at the last one.
    """
    stop = message.rfind(b".") + 1
    if stop < _LONG_BYTES:
        return message.find(b"\r\n.", 0, stop) >= 0
    octets = np.frombuffer(message, np.uint8, stop)
    return bool(((octets[:-1] == _LF) & (octets[1:] == _DOT)).any())
