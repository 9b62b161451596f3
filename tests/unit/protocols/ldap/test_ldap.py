"""LDAP messages against bytes that OpenLDAP's client and slapd exchanged, and servers that break the protocol."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from imap_script import Ear
from skipping import turns, within
from smtp_peers import ACCOUNT, LIMIT_S, PASSWORD

from loadsim.errors import TaskFailed
from loadsim.model.ports import Endpoint
from loadsim.protocols.ldap import messages
from loadsim.protocols.ldap.directory import LdapDirectories
from loadsim.protocols.ldap.messages import LARGEST_MESSAGE_BYTES, split

BASE = "ou=people,dc=example,dc=com"

SEARCH = (
    "30570201026352041b6f753d70656f706c652c64633d6578616d706c652c64633d636f6d0a01020a0100020102020100010100a11ca40b0402"
    "636e30058003757365a40d04046d61696c30058003757365300604046d61696c"
)
BIND = (
    "303d0201016038020103042a7569643d757365723030303030312c6f753d70656f706c652c64633d6578616d706c652c64633d636f6d800773"
    "656372657431"
)
ENTRY = bytes.fromhex(
    "30550201026450042a7569643d757365723030303030312c6f753d70656f706c652c64633d6578616d706c652c64633d636f6d302230200404"
    "6d61696c3118041675736572303030303031406578616d706c652e636f6d"
)
BOUND = bytes.fromhex("300c02010161070a010004000400")
EXCEEDED = bytes.fromhex("300c02010265070a010404000400")
"""Of `ldapsearch -z 2 "(|(cn=use*)(mail=use*))" mail`, recorded between it and slapd 2.5."""


def test_requests_are_those_of_another_client() -> None:
    assert messages.search(2, BASE, messages.begins("use"), 2).hex() == SEARCH
    assert messages.bind(1, f"uid=user000001,{BASE}", "secret1").hex() == BIND


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_responses_are_read_however_they_are_cut(size: int) -> None:
    stream, held, found = BOUND + ENTRY + EXCEEDED, bytearray(), []
    for at in range(0, len(stream), size):
        held += stream[at : at + size]
        found += split(held)
    bound, entry, done = found
    assert [message.size_bytes for message in found] == [len(BOUND), len(ENTRY), len(EXCEEDED)]
    assert messages.result_of(bound.content).code == messages.SUCCESS
    assert messages.addresses_of(entry.content) == ["user000001@example.com"]
    assert (done.id, messages.result_of(done.content).code) == (2, messages.SIZE_LIMIT_EXCEEDED)


def test_lengths_of_more_than_127_bytes_are_written_and_read() -> None:
    (message,) = split(bytearray(messages.search(300, BASE, messages.has("x" * 70_000), 2)))
    assert (message.id, message.operation) == (300, messages.SEARCH_REQUEST)


@asynccontextmanager
async def answering(*pieces: bytes | None) -> AsyncIterator[Endpoint]:
    """A server that sends the next piece for each request, None for the end."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError):
            for piece in pieces:
                if not await reader.read(1 << 16) or piece is None:
                    break
                writer.write(piece)
            else:
                await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Endpoint("127.0.0.1", server.sockets[0].getsockname()[1], path=BASE)
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()
        await turns()


def of(message_id: int, message: bytes) -> bytes:
    """The message with another id."""
    return message[:4] + bytes([message_id]) + message[5:]


DONE = EXCEEDED
NOTICE = bytes.fromhex("300c02010078070a013404000400")
WRONG = {
    "early": ([BOUND + EXCEEDED], "LDAP message"),
    "another id": ([of(9, DONE)], "LDAP message"),
    "another operation": ([of(1, BOUND)], "LDAP message"),
    "too many entries": ([of(1, ENTRY) * 11], "LDAP message"),
    "indefinite length": ([b"\x30\x80"], "LDAP message"),
    "a long tag": ([b"\x3f\x81\x01\x00"], "LDAP message"),
    "a huge message": ([b"\x30\x84" + (LARGEST_MESSAGE_BYTES + 1).to_bytes(4, "big")], "LDAP message"),
    "a value beyond its end": ([of(1, DONE[:8] + b"\x7f" + DONE[9:])], "LDAP message"),
    "an entry that is none": ([b"\x30\x07\x02\x01\x01\x64\x02\x04\x00"], "LDAP entry"),
    "no code": ([b"\x30\x07\x02\x01\x01\x65\x02\x04\x00"], "LDAP message"),
    "the end": ([None], "connection lost"),
    "a notice": ([NOTICE], "notice of disconnection"),
    "cut": ([of(1, DONE)[:9], None], "no answer to SEARCH"),
    "silence": ([b""], "no answer to SEARCH"),
}


@pytest.mark.parametrize(("pieces", "kind"), WRONG.values(), ids=WRONG)
async def test_a_server_that_breaks_the_protocol_fails_the_look_up(pieces: Sequence[bytes | None], kind: str) -> None:
    ear = Ear()
    async with answering(*pieces) as endpoint:
        directory = LdapDirectories(endpoint, LIMIT_S).of(ACCOUNT, ear)
        looking = asyncio.create_task(directory.resolve(["one@sim.test"]))
        await within(4 * LIMIT_S, looking)
        failure = looking.exception()
        await directory.close()
    assert isinstance(failure, TaskFailed)
    assert failure.kind == kind
    assert [outcome for _, outcome, *_ in ear.commands] == ["ok", failure.outcome]


async def test_a_refusal_that_repeats_the_password_does_not_show_it() -> None:
    text = f"no {PASSWORD}".encode()
    body = b"\x0a\x01\x31\x04\x00\x04" + bytes([len(text)]) + text
    refused = b"\x30" + bytes([len(body) + 5]) + b"\x02\x01\x01\x61" + bytes([len(body)]) + body
    async with answering(refused) as endpoint:
        directory = LdapDirectories(replace(endpoint, bind_dn="uid={user}"), LIMIT_S).of(ACCOUNT, Ear())
        with pytest.raises(TaskFailed) as raised:
            await directory.resolve(["one@sim.test"])
    assert raised.value.kind == "49 BIND"
    assert PASSWORD not in str(raised.value)
