"""Postfix's lines: messages by queue id, from their acceptance to their deliveries."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import NamedTuple

from loadsim.characterise.traffic import Traffic

MOST_OPEN = 200_000
"""The most queue ids at once; the oldest is then closed."""

QUEUED_AGAIN_S = 60
"""A message is counted this long after its last queue id is removed: sendmail, and hosts with files of their own, may
queue it again later."""

DAEMONS = frozenset(
    (
        *("anvil", "bounce", "cleanup", "defer", "discard", "dnsblog", "error", "flush", "lmtp", "local", "master"),
        *("oqmgr", "pickup", "pipe", "postfix-script", "postlog", "postlogd", "postscreen", "postsuper", "proxymap"),
        *("qmgr", "qmqpd", "relay", "retry", "scache", "sendmail", "showq", "smtp", "smtpd", "spawn", "tlsmgr"),
        *("tlsproxy", "trace", "trivial-rewrite", "verify", "virtual"),
    )
)

# Lines are hostile: no pattern may take more than linear time. An address with ">" makes a line unknown.
_QUEUE_ID = re.compile(r"[0-9A-F]{5,}|[0-9B-DF-HJ-NP-TV-Zb-df-hj-np-tv-z]{10,}")
"""Source: postconf(5), enable_long_queue_ids. Words such as `warning` have vowels in small letters."""

_FROM = re.compile(r"from=<([^>]*)>, size=(\d{1,15}), nrcpt=(\d{1,9}) \(queue active\)")
_TO = re.compile(r"to=<([^>]*)>, (?:orig_to=<[^>]*>, )?relay=([^ ,]*),.*? status=([a-z]+) \((.*)")
_LOGIN = "sasl_username="
_AFTER_LOGIN = re.compile(r", (?:sasl_sender|orig_queue_id|orig_client)=")
_ORIGINAL = re.compile(r"orig_queue_id=(\w+)")
_REPLY_ID = re.compile(r"(?:queued|forwarded) as (\w+)")
_MAILBOX_COMMAND = re.compile(
    r"delivered to (?:mailbox|maildir|command: .*(?:procmail|dovecot|maildrop|cyrus|deliver))"
)
_MAILBOX_PIPES = ("dovecot", "cyrus", "maildrop", "procmail")

_WITHOUT_FIGURE = (
    *("bcc", "connect ", "conversation with", "delivery", "disabling", "discard:", "dunno", "enabling PIX", "filter:"),
    *("hold:", "host ", "ignore:", "info:", "lost connection", "milter", "postmaster non-delivery", "placed on hold"),
    *("prepend", "redirect:", "reject_warning:", "released from hold", "replace:", "requeued", "resent-message-id="),
    *("sasl", "SASL", "sender delivery", "sender non-delivery"),
    *("Server certificate", "Cannot start TLS", "skipped,", "strip:", "timeout", "TLS ", "warning:"),
)
"""Beginnings of lines about a message that hold no figure."""


class _Delivery(NamedTuple):
    when: int
    name: str
    to_mailbox: bool
    may_be_filter: bool
    reply_id: str


class _Queued:
    """A message, under one or more queue ids: filters and further hosts give it new ones."""

    __slots__ = (
        "client",
        "deliveries",
        "ids",
        "login",
        "message_id",
        "open",
        "recipients",
        "seen_begin",
        "sender",
        "size",
        "when",
    )

    def __init__(self, when: int, seen_begin: bool) -> None:
        self.when = when
        self.seen_begin = seen_begin
        self.client = self.login = self.sender = self.message_id = ""
        self.size: int | None = None
        self.recipients = 0
        self.ids: set[str] = set()
        self.open: set[tuple[str, str]] = set()
        self.deliveries: list[_Delivery] = []


class PostfixLog:
    def __init__(self, traffic: Traffic, most_open: int = MOST_OPEN) -> None:
        self._traffic = traffic
        self._most_open = most_open
        self._open: dict[tuple[str, str], _Queued] = {}
        self._by_message_id: dict[str, _Queued] = {}
        self._removed: OrderedDict[_Queued, int] = OrderedDict()  # by time, which is the value

    def line(self, when: int, host: str, daemon: str, text: str) -> bool:
        """Take a line of a daemon on a host; return False if it is unknown."""
        queue_id, _, rest = text.partition(": ")
        if not _QUEUE_ID.fullmatch(queue_id.rstrip(":")):  # figures are in lines about messages
            self._traffic.counts["rejected"] += text.startswith(("NOQUEUE: reject:", "NOQUEUE: milter-reject:"))
            return True
        key = (host, queue_id)
        if rest.startswith("to=<"):
            return self._to(key, when, daemon, rest)
        if rest.startswith("from=<"):
            return self._from(key, when, rest)
        if rest == "removed":
            self._close(key, when)
        elif rest.startswith(("client=", "uid=")):
            self._begin(key, when, rest)
        elif rest.startswith("message-id="):
            self._message_id(key, when, rest.removeprefix("message-id="))
        elif rest.startswith(("reject:", "milter-reject:")):
            self._traffic.counts["rejected"] += 1
            if daemon == "cleanup":  # the whole message; smtpd rejects one recipient
                self._drop(key)
        else:
            return rest.startswith(_WITHOUT_FIGURE)
        return True

    def _begin(self, key: tuple[str, str], when: int, rest: str) -> None:
        if key in self._open:  # the id was reused; the line `removed` is missing
            self._close(key, when)
        message = _Queued(when, seen_begin=True)
        message.client = rest.partition(", ")[0]
        message.login = _AFTER_LOGIN.split(rest.partition(_LOGIN)[2], maxsplit=1)[0]
        original = _ORIGINAL.search(rest)
        if original and (before := self._open.get((key[0], original[1]))) and not message.login:
            message = before
        self._add(key, message, when)

    def _add(self, key: tuple[str, str], message: _Queued, when: int) -> None:
        message.open.add(key)
        message.ids.add(key[1])
        self._open[key] = message
        if len(self._open) > self._most_open:
            oldest = next(iter(self._open))
            self._traffic.counts["evicted"] += self._open[oldest].size is not None
            self._close(oldest, when)

    def _message_id(self, key: tuple[str, str], when: int, message_id: str) -> None:
        """Join the queue ids of a message. This is the first line of messages that Postfix itself makes or forwards."""
        own = self._open.get(key)
        if own is None:
            own = _Queued(when, seen_begin=True)
            self._add(key, own, when)
        if not message_id.strip("<>"):
            return
        first = self._by_message_id.get(message_id)
        if first is own:
            return
        # Two users' messages, or a further copy from the same client (of a list, to each recipient), are not one.
        if first is None or (first.login and own.login) or (first in self._removed and first.client == own.client):
            own.message_id = message_id
            self._by_message_id[message_id] = own
            return
        for each in own.open:
            self._open[each] = first
        self._removed.pop(first, None)
        first.open |= own.open
        first.ids |= own.ids
        first.login = first.login or own.login
        first.when = min(first.when, own.when)
        first.seen_begin = first.seen_begin and own.seen_begin
        first.deliveries += own.deliveries

    def _from(self, key: tuple[str, str], when: int, rest: str) -> bool:
        found = _FROM.match(rest)
        if found is None:
            if "status=expired" in rest or "status=force-expired" in rest:
                self._traffic.counts["bounced"] += 1
                return True
            return False
        message = self._known(key, when)
        size, recipients = int(found[2]), int(found[3])
        if message.size is None or size < message.size:  # filters add to it
            message.size = size
        message.sender = message.sender or found[1]
        message.recipients = max(message.recipients, recipients)
        return True

    def _known(self, key: tuple[str, str], when: int) -> _Queued:
        message = self._open.get(key)
        if message is None:
            message = _Queued(when, seen_begin=False)
            self._add(key, message, when)
        return message

    def _to(self, key: tuple[str, str], when: int, daemon: str, rest: str) -> bool:
        found = _TO.match(rest)
        if found is None:
            return False
        name, relay, status, reply = found.groups()
        if status in ("deliverable", "undeliverable"):  # a probe of the address: no mail
            self._drop(key)
            return True
        if status != "sent":
            self._traffic.counts[status if status in ("deferred", "bounced") else "other"] += 1
            return status in ("deferred", "bounced", "undelivered", "expired")
        to_mailbox = daemon in ("lmtp", "virtual")
        to_mailbox |= daemon == "local" and _MAILBOX_COMMAND.match(reply) is not None
        to_mailbox |= daemon == "pipe" and relay.startswith(_MAILBOX_PIPES)
        may_be_filter = daemon == "pipe" and not to_mailbox
        may_be_filter |= daemon.startswith("smtp") and ("[127." in relay or "[::1]" in relay)
        reply_id = _REPLY_ID.findall(reply)
        message = self._known(key, when)
        message.deliveries.append(_Delivery(when, name, to_mailbox, may_be_filter, reply_id[-1] if reply_id else ""))
        return True

    def _drop(self, key: tuple[str, str]) -> None:
        message = self._open.pop(key, None)
        if message is not None:
            message.open.discard(key)
            self._forget(message)

    def _forget(self, message: _Queued) -> None:
        if not message.open and self._by_message_id.get(message.message_id) is message:
            del self._by_message_id[message.message_id]

    def _close(self, key: tuple[str, str], when: int) -> None:
        message = self._open.pop(key, None)
        if message is not None:
            message.open.discard(key)
            if not message.open:
                self._removed[message] = when
        while self._removed:
            first, removed = next(iter(self._removed.items()))
            if removed >= when - QUEUED_AGAIN_S and len(self._removed) <= self._most_open:
                break
            self._removed.popitem(last=False)
            self._count(first)

    def _count(self, message: _Queued) -> None:
        self._forget(message)
        inside = 0
        for delivery in message.deliveries:
            passed_on = delivery.reply_id in message.ids or (delivery.may_be_filter and len(message.ids) > 1)
            if passed_on:
                self._traffic.counts["passed_on"] += 1
            elif delivery.to_mailbox:
                inside += 1
                self._traffic.delivered(delivery.name, delivery.when)
            else:
                self._traffic.counts["to_outside"] += 1
        if message.size is None:
            return
        if not message.seen_begin:
            self._traffic.counts["begun_before"] += 1
            return
        self._traffic.message(
            message.when, message.size, message.recipients, inside, login=message.login, sender=message.sender
        )

    def end(self) -> None:
        """Count the messages that are still queued."""
        for key in list(self._open):
            message = self._open.get(key)
            self._traffic.counts["still_queued"] += message is not None and message.size is not None
            self._close(key, 0)
        for message in self._removed:
            self._count(message)
        self._removed.clear()
