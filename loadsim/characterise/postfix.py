"""Postfix's lines: messages by queue id, from their acceptance to their deliveries."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from typing import NamedTuple

from loadsim.characterise.traffic import Traffic

MOST_OPEN = 200_000
"""The most queue ids at once; the oldest is then closed."""

MOST_FILTERS = 100

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
_TO = re.compile(r"to=<([^>]*)>, (?:orig_to=<([^>]*)>, )?relay=([^ ,]*),.*? status=([A-Za-z-]+) \((.*)")
_LOGIN = "sasl_username="
_AFTER_LOGIN = re.compile(r", (?:sasl_sender|orig_queue_id|orig_client)=")
_ORIGINAL = re.compile(r"orig_queue_id=(\w+)")
_REPLY_ID = re.compile(r"(queued|forwarded) as (\w+)")
_ANNOUNCED = "queued as "
_MAILBOX_COMMAND = re.compile(
    r"delivered to (?:mailbox|maildir|command: .*(?:procmail|dovecot|maildrop|cyrus|deliver))"
)
_MAILBOX_PIPES = ("dovecot", "cyrus", "maildrop", "procmail")

_WITHOUT_FIGURE = (
    *("bcc", "breaking line", "connect ", "conversation with", "delivery", "disabling", "discard:", "dunno"),
    *("enabling PIX", "filter:", "hold:", "host ", "ignore:", "info:", "lost connection", "milter"),
    *("placed on hold", "postmaster non-delivery"),
    *("prepend", "redirect:", "reject_warning:", "released from hold", "replace:", "requeued", "resent-message-id="),
    *("sasl", "SASL", "sender delay", "sender delivery", "sender non-delivery", "status=deferred"),
    *("Server certificate", "Cannot start TLS", "skipped,", "strip:", "timeout", "TLS ", "warning:"),
)
"""Beginnings of lines about a message that hold no figure."""


class _Final(NamedTuple):
    """The end of a recipient under one queue id: delivered, passed on, or bounced."""

    when: int
    key: tuple[str, str]
    name: str
    original: str
    relay: str
    to_mailbox: bool = False
    may_be_filter: bool = False
    reply_id: str = ""
    forwarded: bool = False
    bounced: bool = False


class _Queued:
    """A message, under one or more queue ids: filters and further hosts give it new ones."""

    __slots__ = (
        "awaited",
        "client",
        "finals",
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
        self.recipients: dict[tuple[str, str], int] = {}  # by host and queue id
        self.ids: set[str] = set()
        self.awaited: list[str] = []  # names of `PostfixLog._by_name` for queue ids that replies announce
        self.open: set[tuple[str, str]] = set()
        self.finals: list[_Final] = []

    def recipients_expanded(self) -> int:
        """Return the recipients of the message. local(8) expands a list itself, or forwards the message to members."""
        finals = Counter(final.key for final in self.finals)
        forwarded = [(final.key[0], final.reply_id) for final in self.finals if final.forwarded]
        expanded = {key: max(count, finals[key]) for key, count in self.recipients.items()}
        members = sum(expanded.pop(key, 1) for key in {*forwarded})
        return max(expanded.values(), default=1) + members - len(forwarded)


class PostfixLog:
    def __init__(self, traffic: Traffic, most_open: int = MOST_OPEN) -> None:
        self._traffic = traffic
        self._most_open = most_open
        self._open: dict[tuple[str, str], _Queued] = {}
        self._by_name: dict[str, _Queued] = {}  # message ids, queue ids, and queue ids that replies announce
        self._logins: dict[tuple[str, str], str] = {}  # of messages in a before-queue filter, by host and process
        self._filters: set[str] = set()  # relays that returned messages without naming their queue ids
        self._removed: OrderedDict[_Queued, int] = OrderedDict()  # by time, which is the value

    def line(self, when: int, host: str, daemon: str, process: str, text: str) -> bool:
        """Take a line of a daemon's process on a host; return False if it is unknown."""
        queue_id, _, rest = text.partition(": ")
        if not _QUEUE_ID.fullmatch(queue_id.rstrip(":")):  # figures are in lines about messages
            self._without_queue_id((host, process), queue_id, rest)
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

    def _without_queue_id(self, process: tuple[str, str], begin: str, rest: str) -> None:
        """Take a rejection, or a line about a before-queue filter (postconf(5), smtpd_proxy_filter).

        The filter returns the message to another smtpd, without its login.
        """
        if begin == "NOQUEUE":
            begin, _, rest = rest.partition(": ")
        if begin.startswith("client="):
            self._logins[process] = _login(begin)
            if len(self._logins) > self._most_open:
                del self._logins[next(iter(self._logins))]
        elif begin == "proxy-accept":
            login = self._logins.pop(process, "")
            announced = _REPLY_ID.findall(rest.partition("; from=<")[0])
            message = self._by_name.get(announced[-1][1]) if announced else None
            if message is not None:
                message.login = message.login or login
            elif login:
                self._traffic.counts["untraced"] += 1
        elif begin in ("reject", "milter-reject", "proxy-reject"):
            self._traffic.counts["rejected"] += 1

    def _begin(self, key: tuple[str, str], when: int, rest: str) -> None:
        if key in self._open:  # the id was reused; the line `removed` is missing
            self._close(key, when)
        message = _Queued(when, seen_begin=True)
        message.client = rest.partition(", ")[0]
        message.login = _login(rest)
        original = _ORIGINAL.search(rest)
        if original and (before := self._open.get((key[0], original[1]))) and not message.login:
            message = before
        self._add(key, message, when)

    def _add(self, key: tuple[str, str], message: _Queued, when: int) -> None:
        message.open.add(key)
        message.ids.add(key[1])
        self._open[key] = self._by_name[key[1]] = message
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
        if message_id.strip("<>"):
            first = self._by_name.get(message_id)
            # Two users' messages, or a further copy from the same client (of a list, to each recipient), are not one.
            if first is not None and not (
                (first.login and own.login) or (first in self._removed and first.client == own.client)
            ):
                self._join(first, own)
                return
            own.message_id = message_id
            self._by_name[message_id] = own
        if first := self._by_name.get(_ANNOUNCED + key[1]):
            self._join(first, own)

    def _announced(self, message: _Queued, queue_id: str) -> None:
        """Join a message without a message id to the queue id that its next server announces, now or later."""
        if later := self._by_name.get(queue_id):
            self._join(message, later)
        else:
            message.awaited.append(_ANNOUNCED + queue_id)
            self._by_name[_ANNOUNCED + queue_id] = message

    def _join(self, first: _Queued, own: _Queued) -> None:
        if first is own:
            return
        for each in own.open:
            self._open[each] = first
        self._removed.pop(own, None)
        if own.open:
            self._removed.pop(first, None)
        for name in (own.message_id, *own.ids, *own.awaited):
            if self._by_name.get(name) is own:
                self._by_name[name] = first
        first.open |= own.open
        first.ids |= own.ids
        first.awaited += own.awaited
        first.recipients |= own.recipients
        first.finals += own.finals
        first.login = first.login or own.login
        first.message_id = first.message_id or own.message_id
        first.sender = first.sender or own.sender
        first.when = min(first.when, own.when)
        first.seen_begin = first.seen_begin and own.seen_begin
        if first.size is None or (own.size is not None and own.size < first.size):
            first.size = own.size

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
        message.recipients[key] = max(message.recipients.get(key, 0), recipients)
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
        name, original, relay, status, reply = found.groups()
        if status.startswith(("deliverable", "undeliverable")):  # a probe of the address: no mail
            self._drop(key)
            return True
        if status == "sent":
            to_mailbox = daemon in ("lmtp", "virtual")
            to_mailbox |= daemon == "local" and _MAILBOX_COMMAND.match(reply) is not None
            to_mailbox |= daemon == "pipe" and relay.startswith(_MAILBOX_PIPES)
            may_be_filter = daemon == "pipe" and not to_mailbox
            may_be_filter |= daemon.startswith(("smtp", "lmtp")) and ("[127." in relay or "[::1]" in relay)
            verb, reply_id = (_REPLY_ID.findall(reply) or [("", "")])[-1]
            message = self._known(key, when)
            message.finals.append(
                _Final(when, key, name, original or "", relay, to_mailbox, may_be_filter, reply_id, verb == "forwarded")
            )
            if reply_id and not message.message_id:
                self._announced(message, reply_id)
            return True
        if status == "bounced" and key in self._open:
            self._open[key].finals.append(_Final(when, key, name, original or "", relay, bounced=True))
        status = "deferred" if status == "SOFTBOUNCE" else status
        self._traffic.counts[status] += status in ("deferred", "bounced")
        return status in ("deferred", "bounced", "undelivered", "expired")

    def _drop(self, key: tuple[str, str]) -> None:
        message = self._open.pop(key, None)
        if message is not None:
            message.open.discard(key)
            self._forget(message)

    def _forget(self, message: _Queued) -> None:
        if not message.open:
            for name in (message.message_id, *message.ids, *message.awaited):
                if self._by_name.get(name) is message:
                    del self._by_name[name]

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
        inside, untraced = 0, False
        ends = _ends(message) if any(final.may_be_filter for final in message.finals) else {}
        for final in message.finals:
            if final.bounced:
                continue
            returned = final.may_be_filter and any(
                key != final.key and relay != final.relay for key, relay in ends[final.name]
            )
            if returned and final.reply_id not in message.ids and len(self._filters) < MOST_FILTERS:
                self._filters.add(final.relay)
            if returned or final.reply_id in message.ids:
                self._traffic.counts["passed_on"] += 1
            elif final.to_mailbox and final.relay not in self._filters:
                inside += 1
                self._traffic.delivered(final.name, final.when)
            else:
                self._traffic.counts["to_outside"] += 1
                untraced |= final.relay in self._filters and not message.message_id
        if message.size is None:
            return
        if not message.seen_begin:
            self._traffic.counts["begun_before"] += 1
            return
        if untraced:  # the filter's copy is counted
            self._traffic.counts["untraced"] += 1
            return
        self._traffic.message(
            message.when,
            message.size,
            message.recipients_expanded(),
            inside,
            login=message.login,
            sender=message.sender,
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


def _login(rest: str) -> str:
    return _AFTER_LOGIN.split(rest.partition(_LOGIN)[2], maxsplit=1)[0]


def _ends(message: _Queued) -> dict[str, set[tuple[tuple[str, str], str]]]:
    """Return the queue ids and relays by recipient: one that a filter returned has two of each."""
    ends: dict[str, set[tuple[tuple[str, str], str]]] = {}
    for final in message.finals:
        for name in {final.name, final.original}:
            ends.setdefault(name, set()).add((final.key, final.relay))
    return ends
