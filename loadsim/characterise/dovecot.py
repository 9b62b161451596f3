"""Dovecot's lines: log-ons, ends of sessions, and deliveries."""

from __future__ import annotations

import re

from loadsim.characterise.traffic import Traffic

MOST_PROGRAMS = 50
MOST_RECENT = 1000
"""Deliveries remembered: Sieve may store one in several folders."""

_LOG_ON = re.compile(r"([a-z0-9-]+)-login: (?:Info: )?(?:Login|Logged in): user=<([^>]+)>(.*)")
_METHOD = re.compile(r", method=([\w-]+)")
_ADDRESS = re.compile(r", rip=([0-9a-fA-F:.]+)")
_DELIVERY = re.compile(
    r"(?:lmtp|lda|deliver)\(([^)]+)\)((?:<[^ >]*>|\[[^ \]]*\])*): (?:Info: )?([\w+/-]{20,}(?::\w+)*: )?"
)
"""Group 2 or, before release 2.3, group 3 has the session."""

_STORED = re.compile(r"(?:: |, )(?:saved mail to [^:,]*|(?:[a-z]+ action: )?stored mail into mailbox '[^']*')$")
"""The end of a delivery's line. What precedes it is set by `deliver_log_format`, and may have words of senders."""

_EXPUNGED = re.compile(r"\b(?:expunged=|del=)(\d{1,9})\b")
_BODIES = re.compile(r"\b(?:body_count=|retr=)(\d{1,9})\b")
_PROGRAM = re.compile(r"(?:^|, )name=([A-Za-z][\w .+-]{0,39}?)(?:, |: user=|$)")
_SERVICE = re.compile(r"[a-z][a-z0-9-]*[(:<[]|(?:Warning|Error|Fatal|Panic|Debug|Info): ")


class DovecotLog:
    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._recent: dict[str, None] = {}

    def line(self, when: int, text: str) -> bool:
        """Take a line; return False if it is unknown."""
        clients = self._traffic.clients
        if "og" in text and (": user=<" in text) and (found := _LOG_ON.match(text)):
            service, name, rest = found.groups()
            method, address = _METHOD.search(rest), _ADDRESS.search(rest)
            self._traffic.logged_on(name, when)
            clients.log_ons += 1
            clients.services[service] += 1
            clients.methods[method[1].upper() if method else "unknown"] += 1
            clients.encrypted += ", TLS" in rest
            clients.ipv6 += address is not None and ":" in address[1]
            return True
        if text.startswith(("lmtp(", "lda(", "deliver(")) and ("saved mail to " in text or "stored mail into " in text):
            delivered, stored = _DELIVERY.match(text), _STORED.search(text)
            if delivered is None or stored is None:
                return False
            if not ((delivered[2] or delivered[3]) and self._stored_before(text[: stored.start()])):
                self._traffic.stored(_mailbox_of(delivered[1]), when)
            return True
        if text.startswith(("imap(", "pop3(")) and (bodies := _BODIES.search(text)):
            expunged = _EXPUNGED.search(text)
            clients.sessions_ended += 1
            clients.expunged += int(expunged[1]) if expunged else 0
            clients.bodies += int(bodies[1])
            return True
        if "ID sent: " in text and (program := _PROGRAM.search(text.partition("ID sent: ")[2])):
            if program[1] in clients.programs or len(clients.programs) < MOST_PROGRAMS:
                clients.programs[program[1]] += 1
            return True
        if "-login: " in text and "(auth" in text and "failed" in text:
            clients.failed += 1
            return True
        torn = "Login: user" in text or "Logged in: user" in text
        return not torn and _SERVICE.match(text) is not None

    def _stored_before(self, delivery: str) -> bool:
        """Return whether a line began in this way, with its session, recipient and message."""
        if delivery in self._recent:
            return True
        self._recent[delivery] = None
        if len(self._recent) > MOST_RECENT:
            del self._recent[next(iter(self._recent))]
        return False


def _mailbox_of(inside: str) -> str:
    """Return the name of the mailbox from the brackets: `user`, `pid, user`, or `user,address`."""
    parts = [part.strip("<> ") for part in inside.split(",")]
    return parts[1] if len(parts) > 1 and parts[0].isdigit() else parts[0]
