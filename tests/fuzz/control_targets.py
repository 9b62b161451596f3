"""Targets that peers and mailboxes speak to: links and manifests."""

import json
from random import Random

from loadsim.cluster.reliable_channel import ReliableChannel
from loadsim.model.ports import Account
from loadsim.provisioning.manifest import RejectedManifest, compose, parse

from .mutate import Make, mutated, odd_document
from .target import Target


def _check(error: ValueError) -> None:
    """A peer's mistake is one line, which an event shows."""
    text = str(error)
    if isinstance(error, UnicodeError | json.JSONDecodeError) or not text.isprintable() or len(text) > 500:
        raise AssertionError(f"expected one short line, found {type(error).__name__}: {text[:100]!r}")


LINKS = (b'heard 0\n1 {"on":true}\n2 {"over":true}\nheard 1\n', b"heard 0\nheard 2\n1 x\n1 x\n2 y\n3 z\n")


def _link(data: bytes) -> None:
    received: list[bytes] = []
    said: list[bytes] = []
    link = ReliableChannel(received.append)
    link.send(b"a\n")
    link.send(b"b\n", replaceable=True)
    link.attach(said.append)
    lines = data.splitlines(keepends=True)
    try:
        for line in lines:
            link.feed(line)
        link.beat()
    except ValueError as error:
        _check(error)
    assert len(received) <= len(lines)


ACCOUNT = Account(3, "user3", "user3@sim.test", "secret")
_, _MESSAGE = compose(ACCOUNT, ["Folder 01", "Folder 02", "Sent Items"])
MANIFEST = _MESSAGE.partition(b"\r\n\r\n")[2].rstrip()


def _manifest(data: bytes) -> None:
    assert parse(data, ACCOUNT) in (None, parse(MANIFEST, ACCOUNT)), "another signature was accepted"


def _odd_manifest(random: Random) -> bytes:
    words = ["folders", "account", "first_account", "signature", "INBOX", "a/b", "Folder 01"]
    return json.dumps(odd_document(random, json.loads(MANIFEST), words)).encode()


def _either(first: Make, second: Make) -> Make:
    def make(random: Random) -> bytes:
        return (first if random.random() < 0.5 else second)(random)

    return make


TARGETS = (
    Target("link", mutated(LINKS, (b"heard ", b"\n", b"1 ", b"2 ", b"0 ", b"-1", b" ")), _link),
    Target(
        "manifest",
        _either(
            mutated((MANIFEST,), (b'"folders"', b'"account"', b'"signature"', *b": , { } [ ] null true".split())),
            _odd_manifest,
        ),
        _manifest,
        (RejectedManifest,),
    ),
)
