"""Targets that peers and mailboxes speak to: control lines, links, snapshots, manifests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from loadsim.cluster.channel import FROM_A_WORKER
from loadsim.cluster.placement import TO_A_WORKER
from loadsim.cluster.prepare import FROM_A_PREPARER
from loadsim.cluster.reliable_channel import ReliableChannel, lines_in
from loadsim.engine.control import FROM_A_MEMBER, TO_A_MEMBER, Snapshot, decode
from loadsim.engine.participant import RemoteControl
from loadsim.engine.snapshot import LiveSnapshot, Recent, total
from loadsim.model.ports import Account
from loadsim.provisioning.manifest import RejectedManifest, compose, parse

from .mutate import Make, changed, mutated, odd_document
from .target import Target
from .virtual import play

SNAPSHOT: dict[str, Any] = {
    "phase": "work",
    "at_s": 1.5,
    "users": 2,
    "users_on": 2,
    "tasks": {"READ": {"ok": 3, "timeout": 1}},
    "accepted_undelivered": 0,
    "sessions_lost": 0,
    "generator_late_most_s": 0.1,
    "service_times": {"READ": {"10": 3}},
    "service_s": {"READ": 0.3},
    "failures": {"READ": {"no answer": 1}},
    "late_busy_s": 0.0,
    "lag_p99_ms": 1.0,
    "cpu_share": None,
    "rss_bytes": 1000,
    "heard": 1,
}
PREPARED = dict.fromkeys(("changed", "folders_created", "folders_deleted", "removed", "reflagged"), 0)
LINES: Sequence[dict[str, Any]] = (
    {"log on": True}, {"start": 1_000_000_000}, {"accepted": [["n1.0", 2], ["rabc", 1]]}, {"drain": True},
    {"drained": True}, {"stop": True}, {"stop": ["abort_on", "why"]}, {"given up": "why"}, {"begin": {"users": 1}},
    {"clock": [1, 2, 3, 4]}, {"ready": 12}, {"refused": "one line"}, {"on": True}, {"snapshot": SNAPSHOT},
    {"finished": True}, {"event": {"event": "x", "users": 2}}, {"over": True}, {"progress": ["check", 1, 2]},
    {"prepared": {"accounts": 1, "put": 1, "start_state": None, **PREPARED}},
)  # fmt: skip
WORDS = sorted({*(each.kind for each in (*FROM_A_WORKER, *TO_A_WORKER)), *SNAPSHOT})
JSON_WORDS = (*(json.dumps(word).encode() for word in WORDS), *b": , { } [ ] null true".split(), b"\n")


MOST_LINES = 100
"""Each line is read by all tables, which takes its time."""


def _lines(random: Random) -> bytes:
    data = b""
    for _ in range(random.choice((1, 1, 2, 4))):
        line = json.dumps(odd_document(random, random.choice(LINES), WORDS)).encode() + b"\n"
        data += changed(random, line, JSON_WORDS) if random.random() < 0.15 else line
    return data


class _Led:
    """An engine that does nothing, and relies on what it is told."""

    def mails_accepted(self, messages: Sequence[tuple[str, int]]) -> None:
        for message, user in messages:
            assert isinstance(message, str) and 0 < user < 2**32

    def snapshot(self) -> LiveSnapshot:
        raise AssertionError

    def stop(self) -> None:
        pass

    def give_up(self, why: str) -> None:
        assert isinstance(why, str)


def _control(data: bytes) -> None:
    """Each line to all who may get it."""

    async def main(_: object) -> None:
        said: list[bytes] = []
        leader = RemoteControl(said.append)
        leader.controlled = _Led()
        recent = Recent(30.0)
        for line in data.splitlines(keepends=True)[:MOST_LINES]:
            for known in (FROM_A_MEMBER, TO_A_MEMBER, FROM_A_WORKER, TO_A_WORKER, FROM_A_PREPARER):
                try:
                    message = decode(line, known)
                    if isinstance(message, Snapshot):
                        recent.add(message.snapshot)
                        json.dumps(total([message.snapshot, message.snapshot]).done)
                        if recent.stretch:
                            recent.stretch.about_ms("READ", 95)
                    elif known is TO_A_MEMBER:
                        leader.receive(message)
                except ValueError as error:
                    _check(error)

    play(lambda *_: None, main)


def _check(error: ValueError) -> None:
    """A peer's mistake is one line, which an event shows."""
    text = str(error)
    if isinstance(error, UnicodeError | json.JSONDecodeError) or not text.isprintable() or len(text) > 500:
        raise AssertionError(f"expected one short line, found {type(error).__name__}: {text[:100]!r}")


LINKS = (b'heard 0\n1 {"on":true}\n2 {"over":true}\nheard 1\n', b"heard 0\nheard 2\n1 x\n1 x\n2 y\n3 z\n")


def _link(data: bytes) -> None:
    heard: list[bytes] = []
    said: list[bytes] = []
    link = ReliableChannel(heard.append)
    link.send(b"a\n")
    link.send(b"b\n", replaceable=True)
    link.attach(said.append)
    lines = data.splitlines(keepends=True)
    try:
        for line in lines_in(lines):
            link.feed(line)
        link.beat()
    except ValueError as error:
        _check(error)
    assert len(heard) <= len(lines)


ACCOUNT = Account(3, "user3", "user3@sim.test", "secret")
_, _MESSAGE = compose(ACCOUNT, ["Folder 01", "Folder 02", "Sent Items"])
MANIFEST = _MESSAGE.partition(b"\r\n\r\n")[2].rstrip()


def _manifest(data: bytes) -> None:
    assert parse(data, ACCOUNT) == parse(MANIFEST, ACCOUNT), "another signature was accepted"


def _odd_manifest(random: Random) -> bytes:
    words = ["folders", "account", "first_account", "signature", "INBOX", "a/b", "Folder 01"]
    return json.dumps(odd_document(random, json.loads(MANIFEST), words)).encode()


def _either(first: Make, second: Make) -> Make:
    def make(random: Random) -> bytes:
        return (first if random.random() < 0.5 else second)(random)

    return make


TARGETS = (
    Target("control", _lines, _control, (), memory_per_byte=4000),
    Target("link", mutated(LINKS, (b"heard ", b"\n", b"1 ", b"2 ", b"0 ", b"-1", b" ")), _link),
    Target(
        "manifest",
        _either(mutated((MANIFEST,), (b'"folders"', b'"account"', b'"signature"', *JSON_WORDS)), _odd_manifest),
        _manifest,
        (RejectedManifest,),
    ),
)
