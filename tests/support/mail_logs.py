"""Logs of mail servers as a generator writes them, which keeps its own counts: the oracle of `loadsim characterise`.

Lines follow the formats of Postfix 3.7, Dovecot 2.3 and amavis. The generator knows nothing of loadsim.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

HOSTS = ("mx1", "mx2")
NOISE = (
    ("kernel", "[  12.3] usb 1-1: new device"),
    ("CRON[77]", "(root) CMD (run-parts /etc/cron.hourly)"),
    ("sshd[9]", "Accepted publickey for carol from 192.0.2.9 port 22"),
    ("amavis[5]", "(00005-01) Passed CLEAN {RelayedInbound}, [192.0.2.7] <carol@example.net> -> <user1@example.test>"),
    ("postfix/smtpd[11]", "connect from unknown[2001:db8::7]"),
    (
        "postfix/smtpd[11]",
        "Anonymous TLS connection established from a[2001:db8::7]: TLSv1.3 with cipher X (256/256 bits)",
    ),
    ("postfix/smtpd[11]", "disconnect from unknown[2001:db8::7] ehlo=2 starttls=1 mail=1 quit=1 commands=5"),
    ("postfix/anvil[12]", "statistics: max connection rate 1/60s for (smtp:192.0.2.1) at Nov 30 04:00:00"),
    ("dovecot", "imap-login: Disconnected: Connection closed (no auth attempts in 1 secs): user=<>, rip=::1, lip=::1"),
    ("dovecot", "auth: Debug: client in: AUTH"),
)


@dataclass
class Truth:
    """Counts of what the generator wrote, by name where it is known."""

    sent: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)
    log_ons: Counter[str] = field(default_factory=Counter)
    hours: Counter[int] = field(default_factory=Counter)
    sizes: list[int] = field(default_factory=list)
    recipients: list[int] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)


class MailLog:
    """Writes messages into a log. Each method takes when it happens; `text` sorts the lines."""

    def __init__(self, begin: datetime, seed: int = 1, domain: str = "example.test") -> None:
        self.random = random.Random(seed)
        self.begin = begin
        self.domain = domain
        self.truth = Truth()
        self.lines: list[tuple[datetime, int, str, str, str]] = []
        self._messages = 0

    def address(self, user: int) -> str:
        return f"user{user}@{self.domain}"

    def line(self, when: datetime, host: str, program: str, text: str) -> None:
        self.lines.append((when, len(self.lines), host, program, text))

    def queue_id(self) -> str:
        """Ids are reused, on all hosts alike."""
        self._messages += 1
        return f"{0x4A0000 + 0x111 * (self._messages % 499):X}"

    def size(self) -> int:
        return max(600, round(self.random.lognormvariate(9.0, 1.2)))

    def _leg(
        self, when: datetime, host: str, queue_id: str, message_id: str, sender: str, size: int, count: int, client: str
    ) -> None:
        self.line(when, host, "postfix/smtpd[101]", f"{queue_id}: client={client}")
        self.line(when, host, "postfix/cleanup[102]", f"{queue_id}: message-id={message_id}")
        self.line(
            when, host, "postfix/qmgr[103]", f"{queue_id}: from=<{sender}>, size={size}, nrcpt={count} (queue active)"
        )

    def _to(self, when: datetime, host: str, daemon: str, queue_id: str, to: str, relay: str, status: str) -> None:
        delays = "delay=0.31, delays=0.1/0.01/0.1/0.1, dsn=2.0.0"
        self.line(
            when, host, f"postfix/{daemon}[104]", f"{queue_id}: to=<{to}>, relay={relay}, {delays}, status={status}"
        )

    def _removed(self, when: datetime, host: str, queue_id: str) -> None:
        self.line(when, host, "postfix/qmgr[103]", f"{queue_id}: removed")

    def _dovecot(self, when: datetime, host: str, to: str, message_id: str) -> None:
        self.line(when, host, "dovecot", f"lmtp({to})<7><q1>: msgid={message_id}: saved mail to INBOX")

    def message(
        self,
        when: datetime,
        sender: str,
        to: Sequence[str],
        *,
        user: str = "",
        host: str = "mx1",
        filtered: bool = False,
        outside: Sequence[str] = (),
        deferred: bool = False,
    ) -> None:
        """Write one message: from a user who authenticates as `user`, or from outside; `to` are mailboxes here."""
        truth, size, count = self.truth, self.size(), len(to) + len(outside)
        message_id, queue_id = f"<{self._messages}.{self.random.randrange(1 << 40)}@{self.domain}>", self.queue_id()
        address = self.random.choice(("192.0.2.5", "2001:db8::5"))
        login = f", sasl_method=PLAIN, sasl_username={user}" if user else ""
        self._leg(when, host, queue_id, message_id, sender, size, count, f"client[{address}]{login}")
        truth.sizes.append(size)
        if user or sender.endswith(f"@{self.domain}"):
            truth.sent[user or sender] += 1
            truth.recipients.append(count)
            truth.hours[when.hour] += 1
        last = queue_id
        then = when
        if filtered:
            last, then = self.queue_id(), when + timedelta(seconds=2)
            self._leg(then, host, last, message_id, sender, size + 400, count, "localhost[127.0.0.1]")
            reply = f"sent (250 2.0.0 from MTA(smtp:[127.0.0.1]:10025): 250 2.0.0 Ok: queued as {last})"
            for name in (*to, *outside):
                self._to(then, host, "smtp", queue_id, name, "127.0.0.1[127.0.0.1]:10024", reply)
            self._removed(then, host, queue_id)
        if deferred:
            truth.others["deferred"] += len(to)
            for name in to:
                self._to(then, host, "lmtp", last, name, f"{host}[private/l]", "deferred (host said: 451 4.2.2 later)")
            then += timedelta(minutes=20)
            again = f"{last}: from=<{sender}>, size={size}, nrcpt={count} (queue active)"
            self.line(then, host, "postfix/qmgr[103]", again)
        for name in to:
            self._to(then, host, "lmtp", last, name, f"{host}[private/l]", f"sent (250 2.0.0 <{name}> q1 Saved)")
            self._dovecot(then, host, name, message_id)
            truth.received[name] += 1
        for name in outside:
            status = "sent (250 2.0.0 Ok: queued as 99ZZ)"
            self._to(then, host, "smtp", last, name, "mx.example.net[2001:db8::25]:25", status)
            truth.others["to_outside"] += 1
        self._removed(then, host, last)

    def log_on(self, when: datetime, user: str, host: str = "mx1") -> None:
        session = "method=PLAIN, rip=2001:db8::8, lip=2001:db8::1, mpid=8, TLS, session=<s>"
        self.line(when, host, "dovecot", f"imap-login: Login: user=<{user}>, {session}")
        self.truth.log_ons[user] += 1

    def rejected(self, when: datetime) -> None:
        reason = "550 5.1.1 <gone@example.test>: Recipient address rejected: User unknown"
        self.line(when, "mx1", "postfix/smtpd[101]", f"NOQUEUE: reject: RCPT from unknown[192.0.2.6]: {reason}")
        self.truth.others["rejected"] += 1

    def bounced(self, when: datetime, user: str) -> None:
        """A user's message that comes back: its bounce has an own queue id, and no sender."""
        queue_id, bounce_id, message_id = self.queue_id(), self.queue_id(), f"<b{self._messages}@mx1>"
        self._leg(when, "mx1", queue_id, f"<o{self._messages}@x>", user, 900, 1, f"c[192.0.2.5], sasl_username={user}")
        self._to(when, "mx1", "smtp", queue_id, "gone@example.net", "mx.example.net[192.0.2.8]:25", "bounced (550 no)")
        self.line(when, "mx1", "postfix/cleanup[102]", f"{bounce_id}: message-id={message_id}")
        self.line(when, "mx1", "postfix/bounce[105]", f"{queue_id}: sender non-delivery notification: {bounce_id}")
        self.line(when, "mx1", "postfix/qmgr[103]", f"{bounce_id}: from=<>, size=2900, nrcpt=1 (queue active)")
        self._removed(when, "mx1", queue_id)
        self._to(when, "mx1", "lmtp", bounce_id, user, "mx1[private/l]", f"sent (250 2.0.0 <{user}> q1 Saved)")
        self._dovecot(when, "mx1", user, message_id)
        self._removed(when, "mx1", bounce_id)
        self.truth.sent[user] += 1
        self.truth.recipients.append(1)
        self.truth.hours[when.hour] += 1
        self.truth.sizes += [900, 2900]
        self.truth.received[user] += 1
        self.truth.others["bounced"] += 1

    def days(self, users: int, days: int, sent: float, from_outside: float, rate: Callable[[int], float]) -> None:
        """Write Poisson traffic; `rate` is a user's factor on what they send and receive. Hours 8 to 17 are busy."""
        everybody = [self.address(user) for user in range(1, users + 1)]
        for user, name in enumerate(everybody, 1):
            for day in range(days):
                for _ in range(self.poisson(sent * rate(user))):
                    to = self.random.sample([other for other in everybody if other != name], self.random.randint(1, 4))
                    outside = ("carol@example.net",) if self.random.random() < 0.2 else ()
                    filtered, late = self.random.random() < 0.5, self.random.random() < 0.1
                    host = self.random.choice(HOSTS)
                    at = self.moment(day)
                    self.message(at, name, to, user=name, host=host, filtered=filtered, outside=outside, deferred=late)
                for _ in range(self.poisson(from_outside * rate(user))):
                    self.message(self.moment(day), "dave@example.org", [name], host="mx2", filtered=True)
                for _ in range(self.poisson(2)):
                    self.log_on(self.moment(day), name.partition("@")[0] if user % 2 else name)
        for day in range(days):
            for _ in range(20):
                self.rejected(self.moment(day))
                program, text = self.random.choice(NOISE)
                self.line(self.moment(day), self.random.choice(HOSTS), program, text)
            self.bounced(self.moment(day), self.random.choice(everybody))

    def poisson(self, mean: float) -> int:
        count, left = 0, self.random.expovariate(1.0)
        while left < mean:
            count, left = count + 1, left + self.random.expovariate(1.0)
        return count

    def moment(self, day: int) -> datetime:
        hour = self.random.choice((*range(24), *(hour for hour in range(8, 18) for _ in range(4))))
        return self.begin + timedelta(days=day, hours=hour, seconds=self.random.randrange(3600))

    def ordered(self) -> list[tuple[datetime, int, str, str, str]]:
        return sorted(self.lines)


def rfc3164(lines: Iterable[tuple[datetime, int, str, str, str]]) -> str:
    return "".join(
        f"{when:%b} {when.day:2} {when:%H:%M:%S} {host} {program}: {text}\n" for when, _, host, program, text in lines
    )


def iso(lines: Iterable[tuple[datetime, int, str, str, str]]) -> str:
    return "".join(
        f"{when.isoformat(timespec='microseconds')}+01:00 {host} {program}: {text}\n"
        for when, _, host, program, text in lines
    )


def rfc5424(lines: Iterable[tuple[datetime, int, str, str, str]]) -> str:
    return "".join(
        f"<22>1 {when.isoformat(timespec='milliseconds')}Z {host} {program.partition('[')[0]} 12 - - {text}\n"
        for when, _, host, program, text in lines
    )
