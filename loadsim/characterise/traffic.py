"""Mail traffic as logs show it: counters by mailbox, hour and minute. Names are hashed as they arrive."""

from __future__ import annotations

import math
import secrets
from collections import Counter, deque
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

HOUR_S = 3600
MOST_UNDECIDED = 100_000
"""Messages whose sender is not known as a mailbox yet. The oldest is then taken as mail from outside."""

BUCKETS_PER_DOUBLING = 16
"""Sizes are counted in buckets of 4.4 %."""


@dataclass(slots=True)
class MailboxCounts:
    """One user's counts. `local` is the hash of the name before the @; `bare` if the log has no more of it.

    `stored` counts deliveries that the mailbox's own server logged; they also appear in `received` if Postfix's log is
    there.
    """

    local: int
    bare: bool
    sent: int = 0
    received: int = 0
    stored: int = 0
    log_ons: int = 0

    def add(self, other: MailboxCounts) -> None:
        self.sent += other.sent
        self.received += other.received
        self.stored += other.stored
        self.log_ons += other.log_ons


@dataclass(slots=True)
class HourCounts:
    lines: int = 0
    sent: int = 0
    received: int = 0
    stored: int = 0
    log_ons: int = 0


class _Undecided(NamedTuple):
    sender: int
    when: int
    recipients: int
    inside: int


class Sizes:
    """Message sizes in logarithmic buckets."""

    def __init__(self) -> None:
        self.buckets: Counter[int] = Counter()
        self.messages = self.total_bytes = self.max_bytes = 0

    def add(self, size_bytes: int) -> None:
        self.buckets[int(BUCKETS_PER_DOUBLING * math.log2(max(size_bytes, 1)))] += 1
        self.messages += 1
        self.total_bytes += size_bytes
        self.max_bytes = max(self.max_bytes, size_bytes)

    @property
    def median_bytes(self) -> float:
        """The median to within a bucket, as its geometric middle."""
        passed = 0
        for bucket in sorted(self.buckets):
            passed += self.buckets[bucket]
            if 2 * passed >= self.messages:
                return float(2 ** ((bucket + 0.5) / BUCKETS_PER_DOUBLING))
        return 0.0


@dataclass(slots=True)
class Clients:
    """Log-ons by kind. `programs` has names that programs give themselves (RFC 2971), at most 50."""

    services: Counter[str] = field(default_factory=Counter)
    methods: Counter[str] = field(default_factory=Counter)
    programs: Counter[str] = field(default_factory=Counter)
    log_ons: int = 0
    encrypted: int = 0
    ipv6: int = 0
    failed: int = 0
    sessions_ended: int = 0
    bodies: int = 0
    expunged: int = 0


class Traffic:
    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self.mailboxes: dict[int, MailboxCounts] = {}
        self.hours: dict[int, HourCounts] = {}
        self.minutes: Counter[int] = Counter()
        self.sizes = Sizes()
        self.clients = Clients()
        self.counts: Counter[str] = Counter()
        self.recipients = self.recipients_squared = 0  # of messages that users sent
        self.inside = 0  # deliveries of these messages to mailboxes here
        self.most_recipients = 0
        self.software: Counter[str] = Counter()
        self._undecided: deque[_Undecided] = deque()

    # --- names ---

    def _hash(self, name: str) -> int:
        return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), key=self._key, digest_size=8).digest())

    def _parts(self, name: str) -> tuple[str, str]:
        """Return the name before the @ in small letters and without its +extension, and the domain; "" if absent."""
        local, at, domain = name.lower().strip("<>").rpartition("@")
        if not at:
            local, domain = domain, ""
        return local.partition("+")[0] or local, domain

    def name_of(self, name: str) -> int:
        local, domain = self._parts(name)
        return self._hash(f"{local}@{domain}" if domain else local)

    def mailbox(self, name: str) -> MailboxCounts:
        """Return a user's counters; the name is an address or a log-on name."""
        key = self.name_of(name)
        found = self.mailboxes.get(key)
        if found is None:
            local, domain = self._parts(name)
            found = self.mailboxes[key] = MailboxCounts(self._hash(local), not domain)
        return found

    def hour(self, when: int) -> HourCounts:
        number = when // HOUR_S
        found = self.hours.get(number)
        if found is None:
            found = self.hours[number] = HourCounts()
        return found

    # --- events ---

    def delivered(self, name: str, when: int) -> None:
        self.mailbox(name).received += 1
        self.hour(when).received += 1

    def stored(self, name: str, when: int) -> None:
        self.mailbox(name).stored += 1
        self.hour(when).stored += 1

    def logged_on(self, name: str, when: int) -> None:
        self.mailbox(name).log_ons += 1
        self.hour(when).log_ons += 1

    def message(
        self, when: int, size_bytes: int, recipients: int, inside: int, *, login: str = "", sender: str = ""
    ) -> None:
        """Count an accepted message. It is a user's if they authenticated, or if its sender has a mailbox here."""
        self.counts["messages"] += 1
        self.minutes[when // 60] += 1
        self.sizes.add(size_bytes)
        self.most_recipients = max(self.most_recipients, recipients)
        if login:
            self.counts["authenticated"] += 1
            self._sent(self.mailbox(login), when, recipients, inside)
        elif sender:
            key = self.name_of(sender)
            if found := self.mailboxes.get(key):
                self._sent(found, when, recipients, inside)
                return
            self._undecided.append(_Undecided(key, when, recipients, inside))
            if len(self._undecided) > MOST_UNDECIDED:
                self._undecided.popleft()
                self.counts["undecided"] += 1

    def _sent(self, mailbox: MailboxCounts, when: int, recipients: int, inside: int) -> None:
        mailbox.sent += 1
        self.hour(when).sent += 1
        self.recipients += recipients
        self.recipients_squared += recipients * recipients
        self.inside += inside

    def settle(self) -> None:
        """Decide what needed the whole log: senders with mailboxes, names without a domain, and who logs deliveries."""
        for one in self._undecided:
            if found := self.mailboxes.get(one.sender):
                self._sent(found, one.when, one.recipients, one.inside)
        self._undecided.clear()
        # A name without a domain is the address with this name before its @, if there is only one.
        addresses: dict[int, list[MailboxCounts]] = {}
        for mailbox in self.mailboxes.values():
            if not mailbox.bare:
                addresses.setdefault(mailbox.local, []).append(mailbox)
        for key, mailbox in list(self.mailboxes.items()):
            same = addresses.get(mailbox.local, ()) if mailbox.bare else ()
            if len(same) == 1:
                same[0].add(self.mailboxes.pop(key))
        received, stored = (
            sum(getattr(one, name) for one in self.mailboxes.values()) for name in ("received", "stored")
        )
        if stored > 2 * received:  # Postfix's log has no more than the mail of the machine itself
            counted: list[MailboxCounts | HourCounts] = [*self.mailboxes.values(), *self.hours.values()]
            for each in counted:
                each.received = each.stored
        if received or stored:
            self.counts["unmatched"] = sum(1 for one in self.mailboxes.values() if not one.received)
