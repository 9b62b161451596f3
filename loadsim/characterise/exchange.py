"""Exchange's message tracking log: messages by message id, from their submission to their deliveries.

Source: Microsoft, "Message tracking", event types and fields in the log.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass, field

from loadsim.characterise.traffic import Traffic
from loadsim.errors import ConfigError

MOST_OPEN = 200_000
"""The most messages at once. The oldest is then counted; its events come within seconds."""

NEEDED = ("date-time", "source", "event-id", "message-id", "recipient-address", "total-bytes", "sender-address")

_PROBES = ("healthmailbox", "systemmailbox", "inboundproxy", "maildeliveryprobe", "discoverysearch")
"""Beginnings of the addresses with which Exchange watches itself."""


@dataclass(slots=True)
class _Tracked:
    """A message. `recipients` is by file, hence by server: each server's own events are in order."""

    when: int
    sender: str
    submitted: bool = False
    size: int = 0
    recipients: Counter[str] = field(default_factory=Counter)
    inside: int = 0


class ExchangeLog:
    def __init__(self, traffic: Traffic, most_open: int = MOST_OPEN) -> None:
        self._traffic = traffic
        self._most_open = most_open
        self._messages: dict[str, _Tracked] = {}
        self._columns: dict[str, dict[str, int]] = {}
        self._widths: dict[str, int] = {}

    def line(self, file: str, when: int | None, text: str) -> bool:
        """Take a line of a file; return False if it is unknown. Raises `ConfigError` if the header lacks a field."""
        if text.startswith(("#", "\xef\xbb\xbf#")):
            if "#Fields:" in text:
                self._header(file, text)
            return True
        if when is None:
            return False
        columns = self._columns.get(file)
        if columns is None:
            raise ConfigError(f"{file}: expected the line #Fields: before the first event, found none")
        if not any(event in text for event in (",RECEIVE,", ",DELIVER,", ",SUBMIT,", ",FAIL,", ",EXPAND,", ",DSN,")):
            return text.count(",") >= len(NEEDED)
        try:
            row = next(csv.reader([text], strict=True))
        except csv.Error:
            return False
        if len(row) != self._widths[file]:
            return False
        self._event(file, when, {name: row[at] for name, at in columns.items()})
        return True

    def _header(self, file: str, text: str) -> None:
        names = [name.strip() for name in text.partition("#Fields:")[2].split(",")]
        if missing := [name for name in NEEDED if name not in names]:
            raise ConfigError(f"{file}: #Fields: expected the field {missing[0]}, found {len(names)} fields without it")
        wanted = (*NEEDED, "recipient-count")
        self._columns[file] = {name: names.index(name) for name in wanted if name in names}
        self._widths[file] = len(names)

    def _event(self, file: str, when: int, row: dict[str, str]) -> None:
        event, source, counts = row["event-id"], row["source"], self._traffic.counts
        names = [name for name in row["recipient-address"].split(";") if name]
        if row["sender-address"].lower().startswith(_PROBES) or any(n.lower().startswith(_PROBES) for n in names):
            counts["probes"] += 1
            return
        if event == "FAIL":
            counts["bounced"] += len(names) or 1
            return
        message = self._message(when, row)
        if event == "DELIVER" and source == "STOREDRIVER":
            message.inside += len(names)
            for name in names:
                self._traffic.delivered(name, when)
        elif event == "EXPAND":  # the members take the list's place
            message.recipients[file] += len(names) - 1
        elif (event == "RECEIVE" and source in ("STOREDRIVER", "SMTP")) or event in ("SUBMIT", "DSN"):
            count, size = row.get("recipient-count", ""), row["total-bytes"]
            message.submitted |= source == "STOREDRIVER"
            message.recipients[file] = max(message.recipients[file], _number(count) or len(names))
            message.size = message.size or _number(size)

    def _message(self, when: int, row: dict[str, str]) -> _Tracked:
        found = self._messages.get(row["message-id"])
        if found is None:
            found = self._messages[row["message-id"]] = _Tracked(when, row["sender-address"])
            if len(self._messages) > self._most_open:
                self._finish(self._messages.pop(next(iter(self._messages))))
        return found

    def _finish(self, message: _Tracked) -> None:
        if not message.size:
            self._traffic.counts["begun_before"] += 1
            return
        login = message.sender if message.submitted else ""
        recipients = max(message.recipients.values())
        self._traffic.message(
            message.when, message.size, recipients, message.inside, login=login, sender=message.sender
        )

    def end(self) -> None:
        for message in self._messages.values():
            self._finish(message)
        self._messages.clear()


def _number(text: str) -> int:
    """Return a field's number; 0 if it has none, or more digits than a size can have."""
    return int(text) if text.isdecimal() and len(text) <= 15 else 0
