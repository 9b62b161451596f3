"""Logs of a mail server of up to 10 GB: CPU time and memory of `loadsim characterise`.

Each second, a user of 20,000 sends a message to three others through a content filter, or one comes from outside, and
some users log on. All queue ids, sessions and times are new; the counts must be the generator's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.nullserver import pinned
from bench.part import Part
from bench.processes import Cpus
from bench.table import table
from loadsim.errors import ConfigError

USERS = 20_000
QUEUED_S = 30
"""Messages stay in the queue so long: as many are in it at once."""

FIRST_S = 1_772_323_200
"""2026-03-01, a midnight."""


class _Truth(NamedTuple):
    sent: int
    received: int
    log_ons: int


def measure(cpus: Cpus, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return a row for each size in bytes. Raises `ConfigError` for a wrong count."""
    rows = []
    for size_bytes in sizes:
        with tempfile.TemporaryDirectory() as place:
            log, out = Path(place) / "mail.log", Path(place) / "measured"
            truth = _write(log, size_bytes)
            row = {"bytes": log.stat().st_size, **_characterise(cpus, log, out)}
            figures = json.loads((out / "workload.json").read_text())
            found = _Truth(*(figures[name]["count"] for name in _Truth._fields))
            if found != truth or figures["lines"]["unknown"]:
                raise ConfigError(f"characterise: expected {truth}, found {found}, {figures['lines']}")
            row["lines"] = figures["lines"]["read"]
            print(f"characterise: {row}", file=sys.stderr, flush=True)
            rows.append(row)
    return rows


def _characterise(cpus: Cpus, log: Path, out: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "loadsim", "characterise", str(log), "--out", str(out)]
    with pinned(cpus.client):
        began_s = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise ConfigError(f"characterise: expected status 0, it ended with {process.returncode}")
    cpu_s = usage.ru_utime + usage.ru_stime
    return {"s": time.monotonic() - began_s, "cpu_s": cpu_s, "peak_kib": usage.ru_maxrss}


def _write(path: Path, size_bytes: int) -> _Truth:
    """Write a log of about this size; return its counts."""
    sent = received = log_ons = number = written = 0
    queued: deque[list[str]] = deque()
    with path.open("x", encoding="ascii") as file:
        while written < size_bytes:
            when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(FIRST_S + number))
            user = number * 7919 % USERS
            others = [(user + step) % USERS for step in (1, 2, 3)]
            inside = number % 3 == 0
            to = others if inside else others[:1]
            accepted, ended = _message(number, user, to, inside)
            queued.append(ended)
            lines = accepted + _log_on(number, user) + (queued.popleft() if len(queued) > QUEUED_S else [])
            written += file.write("".join(f"{when}.{number % 1_000_000:06}+00:00 mx {line}\n" for line in lines))
            sent, received, log_ons, number = sent + inside, received + len(to), log_ons + 1, number + 1
        for ended in queued:
            file.write("".join(f"{when}.999999+00:00 mx {line}\n" for line in ended))
    return _Truth(sent, received, log_ons)


def _address(user: int) -> str:
    return f"firstname.lastname{user}@department.example.org"


def _message(number: int, user: int, to: Sequence[int], inside: bool) -> tuple[list[str], list[str]]:
    """Return the lines until the content filter has returned a message, and those of its deliveries."""
    first, second, process = f"{2 * number + 0x4A0000:011X}", f"{2 * number + 0x4A0001:011X}", number % 30_000
    sender = _address(user) if inside else f"someone{number}@elsewhere.example.net"
    client = f"host-{number % 5000}.example.net[192.0.2.{number % 250}]"
    login = f", sasl_method=PLAIN, sasl_username={sender}" if inside else ""
    message_id = f"message-id=<{number:032x}@mail.example.net>"
    delays = "delay=0.31, delays=0.1/0.01/0.1/0.1, dsn=2.0.0, status=sent"
    size, smtpd = 2000 + number * 977 % 90_000, f"postfix/smtpd[{process}]"
    tls = "TLSv1.3 with cipher TLS_AES_256_GCM_SHA384 (256/256 bits)"
    accepted = [
        f"{smtpd}: connect from {client}",
        f"{smtpd}: Anonymous TLS connection established from {client}: {tls}",
        f"{smtpd}: {first}: client={client}{login}",
        f"postfix/cleanup[{process}]: {first}: {message_id}",
        f"postfix/qmgr[9]: {first}: from=<{sender}>, size={size}, nrcpt={len(to)} (queue active)",
        f"{smtpd}: disconnect from {client} ehlo=2 starttls=1 mail=1 rcpt={len(to)} data=1 quit=1 commands=7",
        f"postfix/smtpd[77]: {second}: client=localhost[127.0.0.1]",
        f"postfix/cleanup[{process}]: {second}: {message_id}",
        f"postfix/qmgr[9]: {second}: from=<{sender}>, size={size + 400}, nrcpt={len(to)} (queue active)",
        f"amavis[88]: ({process:05}-01) Passed CLEAN {{RelayedInbound}}, [192.0.2.7] <{sender}> -> <{_address(to[0])}>",
    ]
    reply = f"(250 2.0.0 from MTA(smtp:[127.0.0.1]:10025): 250 2.0.0 Ok: queued as {second})"
    accepted += [
        f"postfix/smtp[66]: {first}: to=<{_address(each)}>, relay=127.0.0.1[127.0.0.1]:10024, {delays} {reply}"
        for each in to
    ]
    accepted.append(f"postfix/qmgr[9]: {first}: removed")
    ended = []
    for each in to:
        name = _address(each)
        saved = f"(250 2.0.0 <{name}> {number:022x} Saved)"
        stored = f"sieve: msgid=<{number:032x}@mail.example.net>: stored mail into mailbox 'INBOX'"
        ended.append(f"dovecot: lmtp({name})<{process}><{number:022x}>: {stored}")
        ended.append(f"postfix/lmtp[55]: {second}: to=<{name}>, relay=mx[private/dovecot-lmtp], {delays} {saved}")
    return accepted, [*ended, f"postfix/qmgr[9]: {second}: removed"]


def _log_on(number: int, user: int) -> list[str]:
    name, session = _address(user), f"{number:016x}"
    addresses = "rip=2001:db8::8, lip=2001:db8::1"
    end = "in=1041 out=15022 deleted=1 expunged=1 trashed=0 hdr_count=9 hdr_bytes=2300 body_count=2 body_bytes=9000"
    return [
        f"dovecot: imap-login: Login: user=<{name}>, method=PLAIN, {addresses}, mpid=8, TLS, session=<{session}>",
        f"dovecot: imap({name})<8><{session}>: Disconnected: Logged out {end}",
        f"sshd[{number % 30_000}]: Disconnected from 192.0.2.{number % 250} port 22",
    ]


def shown(rows: Sequence[dict[str, Any]]) -> str:
    """Return CPU time and memory by size."""
    body = [
        [
            f"{row['bytes'] / 1e9:.3g}",
            f"{row['lines']:,}",
            f"{row['cpu_s']:,.1f} s",
            f"{row['bytes'] / row['cpu_s'] * 3600 / 1e9:.0f}",
            f"{row['peak_kib'] / 1024:.0f} MiB",
        ]
        for row in rows
    ]
    return table(["GB", "lines", "CPU time", "GB per hour of CPU time", "memory"], body)


MAIL_LOGS = Part(
    "characterise",
    measure,
    {f"`loadsim characterise` on logs of {USERS:,} users": shown},
    smallest=(20_000_000,),
    full=(200_000_000, 2_000_000_000, 10_000_000_000),
)
