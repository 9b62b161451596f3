"""Reply codes: those that accept a message, and the names under which refusals are counted."""

from __future__ import annotations

SERVICE_CLOSING = 421
"""The server ends the connection; the reply to any command (RFC 5321 section 4.2.1)."""

_CHANNEL_CLOSING = 221

# RFC 5321 section 4.2.3, RFC 7504, RFC 4954 section 6, RFC 3207 section 4, RFC 1985 (ETRN), RFC 5248 section 2.4.
_REGISTERED = frozenset(
    {421, 432, 450, 451, 452, 453, 454, 455, 458, 459, 500, 501, 502, 503, 504, 521, 523, 524, 525, 530, 534, 535, 538}
    | {550, 551, 552, 553, 554, 555, 556}
)


def accepts_message(code: int) -> bool:
    """Return True if this reply to the final dot accepts the message: any 2yz except 221, which only answers QUIT."""
    return code // 100 == 2 and code != _CHANNEL_CLOSING


def kind_of(code: int, verb: str) -> str:
    """Return the kind of a refusal, such as "550 RCPT"; codes that no RFC registers share "other 5yz RCPT".

    The server chooses the code, and each kind is a row of its own in every snapshot.
    """
    return f"{code if code in _REGISTERED else f'other {code // 100}yz'} {verb}"
