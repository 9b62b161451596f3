"""What a server says before anybody logs on is recorded, whatever it says, and nothing waits for it for long."""

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


def says(greeting: bytes, **answers: bytes) -> Talk:
    """Greets, and answers each command by the word in it; `%` stands for the command's first word."""

    def talk(stream: BufferedRWPair) -> None:
        stream.write(greeting)
        stream.flush()
        for line in stream:
            words = line.split()
            answer = next((answers[word.decode()] for word in words if word.decode() in answers), b"% BAD\r\n")
            stream.write(answer.replace(b"%", words[0]))
            stream.flush()

    return talk


SMTP = says(b"220-mail\r\n220 ready\r\n", EHLO=b"250-mail\r\n250-SIZE 100\r\n250 AUTH PLAIN\r\n", QUIT=b"221 bye\r\n")
IMAP = says(
    b"* OK ready\r\n",
    CAPABILITY=b"* CAPABILITY IMAP4rev1 ID\r\n% OK\r\n",
    ID=b'* ID ("name" "Mailer" "version" "7")\r\n% OK\r\n',
)


def test_what_is_said() -> None:
    assert asked(IMAP, SMTP) == {
        "imap_greeting": "OK ready",
        "imap_capabilities": ["IMAP4rev1", "ID"],
        "imap_identity": "name Mailer version 7",
        "smtp_greeting": "mail ready",
        "smtp_extensions": ["SIZE 100", "AUTH PLAIN"],
    }


def _hangs_up(_: BufferedRWPair) -> None:
    """Says nothing, and closes."""


def _is_silent(stream: BufferedRWPair) -> None:
    stream.read()


def _never_ends(stream: BufferedRWPair) -> None:
    for _ in range(100):
        stream.write(b"* " * 10_000)
        stream.flush()


@pytest.mark.parametrize("talk", [_hangs_up, _is_silent, _never_ends, says(b"hello\r\n"), says(b"\xff\x1b[2J\r\n")])
def test_what_is_no_mail_server_has_said_nothing(talk: Talk) -> None:
    """Whatever it does instead, the other service is asked all the same."""
    found = asked(talk, SMTP)
    assert found["smtp_greeting"] == "mail ready"
    assert found["imap_capabilities"] is None
    found = asked(IMAP, talk)
    assert found["imap_greeting"] == "OK ready"
    assert (found["smtp_greeting"], found["smtp_extensions"]) == (None, None)


def test_a_greeting_is_harmless() -> None:
    """Control sequences are shown and not obeyed, what is too long is cut."""
    found = asked(says(b"* OK \x1b[2J" + b"x" * 2000 + b"\r\n", CAPABILITY=b"% BAD no\r\n"), SMTP)
    greeting = found["imap_greeting"]
    assert isinstance(greeting, str)
    assert greeting.startswith("OK \\x1b[2Jxxx") and len(greeting) <= 500
    assert found["imap_capabilities"] is None


def test_the_embedded_server(embedded_server: StartEmbedded) -> None:
    found = greetings(embedded_server(numbered_accounts(1)).services)
    assert "IMAP4rev1" in found["imap_capabilities"]
    assert found["smtp_greeting"] and found["smtp_extensions"]


@pytest.mark.system
@pytest.mark.parametrize("tls", ["none", "starttls", "implicit"])
def test_dovecot_and_postfix(tls: str, dovecot_postfix: StartDovecotPostfix) -> None:
    found = greetings(dovecot_postfix(numbered_accounts(1), tls=tls).services)
    assert "Dovecot" in found["imap_greeting"]
    assert "Dovecot" in found["imap_identity"]
    assert "IMAP4rev1" in found["imap_capabilities"]
    assert "Postfix" in found["smtp_greeting"]
    assert "PIPELINING" in found["smtp_extensions"]
