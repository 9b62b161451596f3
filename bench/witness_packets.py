"""Times of a run's tasks by its packets: from TCP segments to tasks, without loadsim's drivers."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

DELETED_ITEMS = b"Deleted Items"
_COMMAND = re.compile(rb"(?P<tag>[A-Za-z0-9.]+) (?P<text>(?:UID )?[A-Z]+.*)", re.DOTALL)
_ANSWER = re.compile(rb"(?P<tag>[A-Za-z0-9.]+) (?:OK|NO|BAD)\b")
_INITIAL = re.compile(rb"(?:[A-Za-z0-9.]+ AUTHENTICATE|AUTH) PLAIN (?P<secret>\S+)", re.IGNORECASE)


class Segment(NamedTuple):
    """One TCP segment of a connection; `data` is its payload.

    A client's port alone names no connection: the kernel gives the same one for the way to another server.
    """

    at_ns: int
    ports: tuple[int, int]  # the client's, the server's
    from_client: bool
    sequence: int
    syn: bool
    data: bytes


class Line(NamedTuple):
    """One line of a connection: when its first byte and when its last was on the wire."""

    began_ns: int
    ended_ns: int
    from_client: bool
    text: bytes


class Witnessed(NamedTuple):
    """A task by its packets; all submissions are `SEND`, with any answer.

    As in a log, its beginning is put off by the time in which the server waited for the next command.
    """

    task: str
    login: str
    began_ns: int
    ended_ns: int


def lines(segments: Iterable[Segment]) -> tuple[int | None, list[Line]]:
    """The client's SYN of one connection, and its lines in order of their last byte. Bytes sent again count once."""
    began_ns = None
    found: list[Line] = []
    expected: dict[bool, int] = {}
    pending = {True: b"", False: b""}
    pending_ns = {True: 0, False: 0}
    for at_ns, _, from_client, sequence, syn, data in segments:
        if syn:
            if from_client and began_ns is None:
                began_ns = at_ns
            expected[from_client] = sequence + 1 & 0xFFFF_FFFF
            continue
        again = (expected.get(from_client, sequence) - sequence + 2**31 & 0xFFFF_FFFF) - 2**31
        new = data[max(again, 0) :]
        if not new:
            continue
        expected[from_client] = sequence + len(data) & 0xFFFF_FFFF
        first_ns = pending_ns[from_client] if pending[from_client] else at_ns
        *whole, rest = (pending[from_client] + new).split(b"\n")
        for text in whole:
            found.append(Line(first_ns, at_ns, from_client, text.rstrip(b"\r")))
            first_ns = at_ns
        pending[from_client], pending_ns[from_client] = rest, first_ns
    return began_ns, found


def tasks(segments: Iterable[Segment]) -> Iterator[Witnessed]:
    """The log-ons, reads, moves and submissions of all connections; what began before the capture is left out."""
    connections: dict[tuple[int, int], list[list[Segment]]] = {}
    for segment in segments:
        of_ports = connections.setdefault(segment.ports, [])
        if segment.syn and segment.from_client and not (of_ports and of_ports[-1][-1].syn):
            of_ports.append([])
        if of_ports:
            of_ports[-1].append(segment)
    for of_ports in connections.values():
        for connection in of_ports:
            began_ns, said = lines(connection)
            login = next(filter(None, (_login(line.text) for line in said if line.from_client)), None)
            if began_ns is not None and login is not None:
                is_smtp = any(line.text[:3] == b"220" for line in said[:1])
                yield from (_smtp if is_smtp else _imap)(login, began_ns, said)


def _login(text: bytes) -> str | None:
    """Return the user who logs on with this line, None without a log-on."""
    match = _INITIAL.match(text)
    if match is None:
        return None
    try:
        return base64.b64decode(match["secret"], validate=True).split(b"\0")[1].decode()
    except (binascii.Error, IndexError, UnicodeDecodeError):
        return None


def _smtp(login: str, began_ns: int, said: list[Line]) -> Iterator[Witnessed]:
    """From the SYN to the reply after the message: the one that follows 354. Only a connection's first has the SYN."""
    accepted = False
    for line, waited_ns in _waits(said):
        if line.from_client:
            continue
        if accepted:
            yield Witnessed("SEND", login, began_ns + waited_ns, line.ended_ns)
            return
        accepted = line.text.startswith(b"354")


def _waits(said: list[Line]) -> Iterator[tuple[Line, int]]:
    """Yield each line, and for how long, until then, the server had answered all and waited for the client."""
    waited_ns = 0
    before: Line | None = None
    for line in said:
        if line.from_client and before is not None and not before.from_client:
            waited_ns += line.began_ns - before.ended_ns
        yield line, waited_ns
        before = line


def _imap(login: str, began_ns: int, said: list[Line]) -> Iterator[Witnessed]:
    """LOGON to the first IDLE's continuation; READ and MOVE from DONE, where that stands in front."""
    sent: dict[bytes, tuple[int, bytes]] = {}
    done_ns: int | None = None  # this and the next two less what the server had waited until then
    reading_ns: int | None = None
    idling = logged_on = False
    for line, waited_ns in _waits(said):
        if line.from_client:
            if line.text == b"DONE":
                done_ns = line.began_ns - waited_ns
            elif match := _COMMAND.fullmatch(line.text):
                start_ns = line.began_ns - waited_ns if done_ns is None else done_ns
                done_ns = None
                text = match["text"]
                idling = text == b"IDLE"
                sent[match["tag"]] = start_ns, text
                if b"BODYSTRUCTURE" in text:
                    reading_ns = start_ns
        elif line.text.startswith(b"+"):
            if idling and not logged_on:
                yield Witnessed("LOGON", login, began_ns + waited_ns, line.ended_ns)
                logged_on = True
        elif (match := _ANSWER.match(line.text)) and match["tag"] in sent:
            start_ns, text = sent.pop(match["tag"])
            if text.startswith(b"UID STORE") and rb"\Seen" in text and reading_ns is not None:
                yield Witnessed("READ", login, reading_ns + waited_ns, line.ended_ns)
                reading_ns = None
            elif text.startswith(b"UID MOVE") and DELETED_ITEMS not in text:
                yield Witnessed("MOVE", login, start_ns + waited_ns, line.ended_ns)
            elif text.startswith(b"SELECT"):
                reading_ns = None
