"""The states of an IMAP connection, and the events that lead from one to the next.

The table has every event that may occur in a state: the name of a command sent, or "literal" if one of its literals is
to follow; "+" for a continuation; the status of an answer. Any other event is the server's error. Commands are sent in
`READY`; `IDLING` ends as soon as there is one; in all other states they wait.

BYE may come in any state and ends none, as commands under way may still be answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from loadsim.errors import ProtocolError


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A state, and the failure for an answer that it does not allow."""

    name: str
    kind: str = ""
    line: str = ""

    def after(self, event: str) -> State:
        """Return the next state. Raises `ProtocolError` for an event that may not occur."""
        following = TRANSITIONS[self].get(event)
        if following is not None:
            return following
        if event == "+":
            raise ProtocolError("IMAP continuation", "no command waits for it")
        raise ProtocolError(self.kind, self.line)


GREETING = State("GREETING", "IMAP greeting", "expected OK, PREAUTH or BYE")
READY = State("READY")
LITERAL = State("LITERAL", "IMAP literal", "OK to a command that was not complete")
CHALLENGE = State("CHALLENGE")  # AUTHENTICATE waits for a challenge, or its end
RESPONSE = State("RESPONSE", "IMAP AUTHENTICATE", "OK before the response to a challenge")  # the caller owes it
IDLE = State("IDLE", "IMAP IDLE", "OK to a command that was not complete")
IDLING = State("IDLING", "IMAP IDLE", "the server ended it before DONE")
DONE = State("DONE")  # not all servers expect a command right after DONE (RFC 2177 section 3)
STARTTLS = State("STARTTLS")
HANDSHAKE = State("HANDSHAKE", "IMAP STARTTLS", "data in the clear behind the server's OK")
OVER = State("OVER")  # closed or lost: nothing is sent or read any more

TRANSITIONS: Mapping[State, Mapping[str, State]] = {
    GREETING: {"OK": READY, "PREAUTH": READY},
    READY: {"literal": LITERAL, "AUTHENTICATE": CHALLENGE, "IDLE": IDLE, "STARTTLS": STARTTLS},
    LITERAL: {"+": READY, "NO": READY, "BAD": READY},
    CHALLENGE: {"+": RESPONSE, "OK": READY, "NO": READY, "BAD": READY},
    RESPONSE: {"respond": CHALLENGE, "NO": READY, "BAD": READY},
    IDLE: {"+": IDLING, "NO": READY, "BAD": READY},
    IDLING: {"DONE": DONE},
    DONE: {"OK": READY, "NO": READY, "BAD": READY},
    STARTTLS: {"OK": HANDSHAKE, "NO": READY, "BAD": READY},
    HANDSHAKE: {"secured": READY},
    OVER: {},
}
"""The next state by state and event. In `READY`, other commands change nothing."""
