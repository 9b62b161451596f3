"""Greetings of servers are recorded before any log-on, with any content and within a time limit."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedRWPair

import pytest
from mailservers import StartDovecotPostfix, StartEmbedded, numbered_accounts
from patience import PATIENCE_S

from loadsim.model.ports import Endpoint, Services
from loadsim.monitor.server_banner import greetings

Talk = Callable[[BufferedRWPair], None]


@contextmanager
def talking(talk: Talk) -> Iterator[Endpoint]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_S)

        def serve() -> None:
            connection, _ = listening.accept()
            connection.settimeout(PATIENCE_S)
            with connection, suppress(OSError), connection.makefile("rwb") as stream:
                talk(stream)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Endpoint("127.0.0.1", listening.getsockname()[1])
        finally:
            thread.join()


def asked(imap: Talk, smtp: Talk) -> dict[str, object]:
    with ExitStack() as stack:
        endpoints = [stack.enter_context(talking(talk)) for talk in (imap, smtp)]
        return greetings(Services(*endpoints, command_limit_s=0.5))


def says(greeting: bytes) -> Talk:
    def talk(stream: BufferedRWPair) -> None:
        stream.write(greeting)
        stream.flush()
        stream.read()

    return talk


SMTP = says(b"220-mail\r\n220 ready\r\n")
IMAP = says(b"* OK ready\r\n")


def test_greetings_are_recorded() -> None:
    assert asked(IMAP, SMTP) == {"imap_greeting": "OK ready", "smtp_greeting": "mail ready"}


def _hangs_up(_: BufferedRWPair) -> None:
    """Says nothing, and closes."""


def _is_silent(stream: BufferedRWPair) -> None:
    stream.read()


def _never_ends(stream: BufferedRWPair) -> None:
    for _ in range(100):
        stream.write(b"* " * 10_000)
        stream.flush()


@pytest.mark.parametrize("talk", [_hangs_up, _is_silent, _never_ends, says(b"hello\r\n"), says(b"\xff\x1b[2J\r\n")])
def test_anything_but_a_mail_server_has_no_greeting(talk: Talk) -> None:
    """The other service is asked in any case."""
    found = asked(talk, SMTP)
    assert found["smtp_greeting"] == "mail ready"
    found = asked(IMAP, talk)
    assert found["imap_greeting"] == "OK ready"
    assert found["smtp_greeting"] is None


def test_greetings_are_escaped_and_cut() -> None:
    """Control sequences are shown and not obeyed, what is too long is cut."""
    found = asked(says(b"* OK \x1b[2J" + b"x" * 2000 + b"\r\n"), SMTP)
    greeting = found["imap_greeting"]
    assert isinstance(greeting, str)
    assert greeting.startswith("OK \\x1b[2Jxxx") and len(greeting) <= 500


def test_the_embedded_server_has_greetings(embedded_server: StartEmbedded) -> None:
    found = greetings(embedded_server(numbered_accounts(1)).services)
    assert found["imap_greeting"] and found["smtp_greeting"]


@pytest.mark.system
@pytest.mark.parametrize("tls", ["none", "starttls", "implicit"])
def test_dovecot_and_postfix_have_greetings(tls: str, dovecot_postfix: StartDovecotPostfix) -> None:
    found = greetings(dovecot_postfix(numbered_accounts(1), tls=tls).services)
    assert "Dovecot" in str(found["imap_greeting"])
    assert "Postfix" in str(found["smtp_greeting"])
