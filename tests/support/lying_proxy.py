"""An IMAP proxy that lies: it answers some commands itself, or changes what the server sends. It speaks no TLS."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

Answers = Callable[[bytes], bytes | None]
"""Returns the answer to a whole command, in place of the server's; None to pass it on."""

_LITERAL = re.compile(rb"\{(\d+)(\+?)\}\r\n\Z")


def stores_nothing(command: bytes) -> bytes | None:
    """OK to an APPEND to Sent Items, to a STORE of flags, and to a MOVE, none of which is done."""
    tag, _, rest = command.partition(b" ")
    if rest.startswith(b'APPEND "Sent Items"'):
        return tag + b" OK Append completed.\r\n"
    if re.match(rb"UID STORE [\d,:]+ \+FLAGS\.SILENT \((?!\\Deleted)", rest):
        return tag + b" OK Store completed.\r\n"
    if moved := re.match(rb"UID MOVE ([\d,:]+) ", rest):
        ends = [tuple(map(int, part.split(b":"))) for part in moved[1].split(b",")]
        messages = sum(each[-1] - each[0] + 1 for each in ends)
        return (
            b"* OK [COPYUID 1 %b %b] Moved.\r\n" % (moved[1], moved[1])
            + b"* 1 EXPUNGE\r\n" * messages
            + tag
            + b" OK Move completed.\r\n"
        )
    return None


def honest(_: bytes) -> bytes | None:
    return None


def altered(line: bytes, literal: bytes) -> bytes:
    """The first byte of each body and part is another, but of manifests, which are JSON."""
    alters = re.search(rb"BODY\[(TEXT|\d)\]", line) and literal[:1] not in b"{"
    return bytes([literal[0] ^ 1]) + literal[1:] if alters else literal


def unaltered(_: bytes, literal: bytes) -> bytes:
    return literal


Rewrites = Callable[[bytes, bytes], bytes]
"""Returns what the client gets in place of a line of the server and the literal behind it."""


def unwritten(line: bytes, literal: bytes) -> bytes:
    return line + literal


def bare(line: bytes, literal: bytes) -> bytes:
    """Send texts with LF for CRLF, and their size so."""
    if not (b"BODY[TEXT]" in line or b"BODY[1]" in line):
        return line + literal
    text = literal.replace(b"\r\n", b"\n")
    return re.sub(rb"\{\d+\}", b"{%d}" % len(text), line) + text


@contextmanager
def lying_proxy(
    port: int,
    answers: Answers = honest,
    alters: Callable[[bytes, bytes], bytes] = unaltered,
    rewrites: Rewrites = unwritten,
) -> Iterator[int]:
    """The port of a proxy before the server on this port of the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        open_sockets: list[socket.socket] = [listener]

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                server = socket.create_connection(("127.0.0.1", port))
                open_sockets.extend((client, server))
                threading.Thread(target=_commands, args=(client, server, answers), daemon=True).start()
                threading.Thread(target=_responses, args=(server, client, alters, rewrites), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            for each in open_sockets:
                _end(each)


def _end(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()


def _commands(client: socket.socket, server: socket.socket, answers: Answers) -> None:
    """Pass on commands, each once it is whole; literals are asked for in the server's name."""
    try:
        with client.makefile("rb") as lines:
            while command := _whole(lines, client):
                answer = answers(command)
                if answer is None:
                    server.sendall(_unwaiting(command))
                else:
                    client.sendall(answer)
    except OSError:
        pass
    finally:
        _end(server)


def _whole(lines: BinaryIO, client: socket.socket) -> bytes:
    command = b""
    while line := lines.readline():
        command += line
        literal = _LITERAL.search(line)
        if literal is None:
            return command
        if not literal[2]:
            client.sendall(b"+ OK\r\n")
        command += lines.read(int(literal[1]))
    return b""


def _unwaiting(command: bytes) -> bytes:
    """The command with a literal that needs no permission (LITERAL+, RFC 7888): the client has it already."""
    return (
        re.sub(rb"\{(\d+)\}\r\n", rb"{\1+}\r\n", command, count=1)
        if _LITERAL.search(command.split(b"\r\n", 1)[0] + b"\r\n")
        else command
    )


def _responses(
    server: socket.socket, client: socket.socket, alters: Callable[[bytes, bytes], bytes], rewrites: Rewrites
) -> None:
    try:
        with server.makefile("rb") as lines:
            while line := lines.readline():
                literal = _LITERAL.search(line)
                body = alters(line, lines.read(int(literal[1]))) if literal else b""
                client.sendall(rewrites(line, body))
    except OSError:
        pass
    finally:
        _end(client)
