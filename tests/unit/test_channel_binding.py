"""SCRAM with channel binding over real TLS, through all drivers: accepted by the server, not by one between.

The server's side is written here from RFC 5802 and RFC 5929, with the server's own view of the connection.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ssl
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from imap_script import PATIENCE_S, certificate
from log_ons import EACH, USER, log_on_and_off

from loadsim.errors import ServerRefused, TaskFailed
from loadsim.model.ports import Endpoint, Services

SALT, ITERATIONS = b"salt of this server", 4096


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """A certificate for loopback, and the server's context with it."""
    return certificate(tmp_path_factory.mktemp("tls"), "IP:127.0.0.1")


class ScramServer:
    """One log-on by SCRAM-SHA-256-PLUS, as the server at this end of a connection sees it."""

    def __init__(self, bindings: dict[str, bytes]) -> None:
        self.bindings = bindings

    def first(self, message: str) -> str:
        """Answer client-first-message."""
        flag, authzid, self.bare = message.split(",", 2)
        assert authzid == "" and self.bare.startswith("n=user,r=")
        kind = flag.removeprefix("p=")
        self.expected = f"{flag},,".encode() + self.bindings[kind]
        self.answer = f"{self.bare[7:]}server,s={b64encode(SALT).decode()},i={ITERATIONS}"
        return self.answer

    def last(self, message: str) -> str:
        """Answer client-final-message."""
        without_proof, _, proof = message.rpartition(",p=")
        if b64decode(without_proof.split(",")[0].removeprefix("c=")) != self.expected:
            return "e=channel-bindings-dont-match"
        salted = hashlib.pbkdf2_hmac("sha256", USER.password.encode(), SALT, ITERATIONS)
        signed = f"{self.bare},{self.answer},{without_proof}".encode()
        client_key, server_key = (hmac.digest(salted, text, "sha256") for text in (b"Client Key", b"Server Key"))
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        assert bytes(a ^ b for a, b in zip(b64decode(proof), signature, strict=True)) == client_key
        return f"v={b64encode(hmac.digest(server_key, signed, 'sha256')).decode()}"


@asynccontextmanager
async def served(tls: tuple[Path, ssl.SSLContext], version: ssl.TLSVersion, between: bool) -> AsyncIterator[Services]:
    """An IMAP and an SMTP server with SCRAM-SHA-256-PLUS; `between`: their connection is not that of the client."""
    file, context = tls
    context.minimum_version = context.maximum_version = version
    der = ssl.PEM_cert_to_DER_cert(file.read_text())
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, imap: bool) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)

        async def ask(challenge: str) -> str:
            writer.write(f"{'+' if imap else '334'} {b64encode(challenge.encode()).decode()}\r\n".encode())
            return b64decode(await reader.readline()).decode()

        try:
            secured = writer.get_extra_info("ssl_object")
            bindings = {"tls-server-end-point": b"" if between else hashlib.sha256(der).digest()}
            if version == ssl.TLSVersion.TLSv1_2:
                bindings["tls-unique"] = b"" if between else secured.get_channel_binding("tls-unique")
            scram = ScramServer(bindings)
            writer.write(b"* OK ready\r\n" if imap else b"220 mail\r\n")
            async with asyncio.timeout(PATIENCE_S):
                while line := (await reader.readline()).decode().split():
                    tag = line[0]
                    if "SCRAM-SHA-256-PLUS" in line:
                        final = await ask(scram.first(b64decode(line[-1]).decode()))
                        verdict = scram.last(final)
                        assert await ask(verdict) == ""
                        done = verdict.startswith("v=")
                        no = f"{tag} NO no" if imap else "535 5.7.8 no"
                        writer.write(f"{(f'{tag} OK done' if imap else '235 done') if done else no}\r\n".encode())
                    elif "CAPABILITY" in line:
                        offer = "IMAP4rev1 SASL-IR AUTH=SCRAM-SHA-256 AUTH=SCRAM-SHA-256-PLUS"
                        writer.write(f"* CAPABILITY {offer}\r\n{tag} OK done\r\n".encode())
                    elif tag == "EHLO":
                        writer.write(b"250-mail\r\n250 AUTH SCRAM-SHA-256 SCRAM-SHA-256-PLUS\r\n")
                    elif tag == "QUIT":
                        writer.write(b"221 bye\r\n")
                        break
                    elif "LOGOUT" in line:
                        writer.write(f"* BYE\r\n{tag} OK bye\r\n".encode())
                        break
                    else:
                        raise AssertionError(line)
        except ConnectionError:
            pass
        finally:
            writer.close()
            running.discard(task)

    servers = [
        await asyncio.start_server(lambda r, w, imap=imap: serve(r, w, imap), "127.0.0.1", 0, ssl=context)
        for imap in (True, False)
    ]
    endpoints = [Endpoint("127.0.0.1", server.sockets[0].getsockname()[1], "implicit", str(file)) for server in servers]
    try:
        yield Services(*endpoints)
    finally:
        for server in servers:
            server.close()
        if running:
            await asyncio.wait(running, timeout=PATIENCE_S)


@pytest.mark.parametrize("driver", EACH)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_log_on_is_bound(driver: str, version: ssl.TLSVersion, tls: tuple[Path, ssl.SSLContext]) -> None:
    """By the scenario's word in both versions, twice: a resumed session has a binding of its own."""

    async def scenario() -> None:
        async with served(tls, version, between=False) as services:
            for _ in range(2):
                await log_on_and_off(driver, services, USER, ("scram-sha-256-plus",))
            if version == ssl.TLSVersion.TLSv1_2:
                await log_on_and_off(driver, services, USER, ())  # the default, too

    asyncio.run(scenario())


@pytest.mark.parametrize("driver", EACH)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_one_between_is_noticed(driver: str, version: ssl.TLSVersion, tls: tuple[Path, ssl.SSLContext]) -> None:
    """A server at the end of another connection refuses the proof, and the error has its reason."""
    failed: list[TaskFailed] = []

    async def scenario() -> None:
        async with served(tls, version, between=True) as services:
            with pytest.raises(ServerRefused) as refused:
                await log_on_and_off(driver, services, USER, ("scram-sha-256-plus",))
            failed.append(refused.value)

    asyncio.run(scenario())
    assert failed[0].line.startswith("(scram-sha-256-plus: channel-bindings-dont-match) ")
