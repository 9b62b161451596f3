"""`loadsim check` and runs on Dovecot behind a proxy that contradicts itself: each lie is named by its rule."""

from __future__ import annotations

import imaplib
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from any_server import started
from lying_proxy import Answers, Rewrites, lying_proxy, stores_nothing, unwritten
from mailservers import StartDovecotPostfix
from small_runs import loadsim, on, population_of, written

from loadsim.protocols.imap.state_rules import RULES
from loadsim.scenario.scenario import load_scenario
from loadsim.servers.dovecot_postfix import DovecotPostfix

pytestmark = pytest.mark.system
NIGHTLY = pytest.mark.nightly(part="runs")


def another_body() -> Rewrites:
    """Each part 1 is that of the first message that was read."""
    first: list[bytes] = []

    def rewrite(line: bytes, literal: bytes) -> bytes:
        if not (found := re.search(rb"BODY\[1\] \{\d+\}\r\n\Z", line)):
            return line + literal
        first.append(literal)
        return line[: found.start()] + b"BODY[1] {%d}\r\n" % len(first[0]) + first[0]

    return rewrite


def lines(pattern: bytes, instead: Callable[[re.Match[bytes]], bytes]) -> Callable[[], Rewrites]:
    compiled = re.compile(pattern)
    return lambda: lambda line, literal: compiled.sub(instead, line) + literal


def numbered(pattern: bytes) -> Callable[[], Rewrites]:
    """Each match is another number."""
    number = count(1)
    return lines(pattern, lambda _: b"%d" % next(number))


def once_longer(pattern: bytes) -> Callable[[], Rewrites]:
    """The second match of a text is longer."""
    times = Counter[bytes]()

    def instead(found: re.Match[bytes]) -> bytes:
        times[found[0]] += 1
        return found[0] + b"x" * (times[found[0]] == 2)

    return lines(pattern, instead)


def once(pattern: bytes, instead: bytes) -> Callable[[], Rewrites]:
    """Only the first match is another."""
    first = count()
    return lines(pattern, lambda found: found[0] if next(first) else instead)


def other_copies() -> Rewrites:
    """The texts of the copies of the first three messages are others."""
    whole = count(1)

    def rewrite(line: bytes, literal: bytes) -> bytes:
        copied = b" BODY[] " in line and next(whole) > 3
        return line + (literal.replace(b"e", b"E") if copied else literal)

    return rewrite


def expunges_nothing() -> Answers:
    """OK to the first UID EXPUNGE, which is not done."""
    expunges = count()

    def answer(command: bytes) -> bytes | None:
        if b" UID EXPUNGE " not in command or next(expunges):
            return None
        return b"* 1 EXPUNGE\r\n" + command.split()[0] + b" OK Expunge completed.\r\n"

    return answer


LIES: Sequence[tuple[str, Callable[[], Rewrites]]] = [
    ("copy-differs", other_copies),
    ("exists-shrinks", lines(rb"\S+ OK .*Fetch completed", lambda found: b"* 0 EXISTS\r\n" + found[0])),
    ("expunge-not-asked", lines(rb"\S+ OK .*Move completed", lambda found: b"* 1 EXPUNGE\r\n" + found[0])),
    ("expunge-out-of-turn", lines(rb"\S+ OK .*Store completed.*\r\n", lambda found: found[0] + b"* 1 EXPUNGE\r\n")),
    ("fetch-without-data", lines(rb"\* \d+ FETCH .*BODYSTRUCTURE.*\r\n", lambda _: b"")),
    ("flags-lost", lines(rb"(FETCH \(.*)\\Seen", lambda found: found[1])),
    ("message-changed", once_longer(rb'"<c\d+\.\d+\.check-')),  # its Message-ID, the second time that it is listed
    ("message-not-arrived", lines(rb"(COPYUID \d+ \d+ )\d+", lambda found: found[1] + b"4711")),
    ("number-out-of-range", lines(rb"\* \d+ EXPUNGE", lambda _: b"* 4711 EXPUNGE")),
    (
        "number-out-of-range",
        lines(rb"\S+ OK .*Fetch completed", lambda found: b"* 4711 FETCH (FLAGS ())\r\n" + found[0]),
    ),
    ("size-wrong", another_body),
    ("size-wrong", lines(rb"RFC822\.SIZE \d+", lambda _: b"RFC822.SIZE 14")),
    ("uid-changed", lines(rb"(?<=UID )(\d+)(?= BODYSTRUCTURE)", lambda found: b"%d" % (int(found[0]) + 1))),
    ("uid-not-ascending", once(rb"(?<=\* 2 FETCH \(UID )\d+", b"1")),
    ("uidnext-shrinks", lines(rb"UIDNEXT \d+", lambda _: b"UIDNEXT 1")),
    ("uidvalidity-changed", numbered(rb"(?<=UIDVALIDITY )\d+")),
]
"""Rules, and lies that break them."""

DEEDS: Sequence[tuple[str, Callable[[], Answers]]] = [
    ("moved-still-there", lambda: stores_nothing),
    ("uid-reused", expunges_nothing),
]
"""Rules, and deeds that are answered, and not done."""

NOT_MADE = "idle-silent"
"""It takes minutes; the check notes that no mail was announced."""


def test_the_check_makes_a_case_for_each_rule() -> None:
    assert {rule for rule, _ in (*LIES, *DEEDS)} == {"copy-differs", *(rule.name for rule in RULES)} - {NOT_MADE}


@pytest.fixture(scope="module")
def server(dovecot_postfix: StartDovecotPostfix, tmp_path_factory: pytest.TempPathFactory) -> DovecotPostfix:
    path = written(tmp_path_factory.mktemp("lies") / "small.yaml")
    return dovecot_postfix(*population_of(load_scenario(str(path))))


def behind(server: DovecotPostfix, port: int, path: Path) -> Path:
    settings = on(server.services)
    settings["server"]["imap"]["port"] = port
    return written(path, **settings)


def broken(document: Any) -> set[str]:
    """Return the rules that a check found broken, also after others."""
    return {
        one["finding"]["values"]["rule"] for one in document["mail"] if one["subject"] == "state" and one["finding"]
    }


def named_by_check(server: DovecotPostfix, path: Path, rule: str, **lies: Any) -> None:
    """With exit status 1, and as a failed test case."""
    with lying_proxy(server.services.imap.port, **lies) as port:
        ended = loadsim("check", behind(server, port, path / "small.yaml"), "--json", "--junit", path / "check.xml")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    document = json.loads(ended.stdout)
    found = [one["values"] for one in document["findings"] if one["code"] == "server-state-wrong"]
    assert rule in broken(document)
    assert all(values["section"].startswith("RFC ") and values["folder"] for values in found)
    failures = ElementTree.parse(path / "check.xml").findall(".//failure")
    assert any(found[0]["rule"] in str(each.get("message")) for each in failures)


@pytest.mark.parametrize(
    ("rule", "lie"), [pytest.param(*each, marks=[] if each[1] is another_body else NIGHTLY) for each in LIES]
)
def test_a_rewritten_answer_is_named_by_the_check(
    server: DovecotPostfix, tmp_path: Path, rule: str, lie: Callable[[], Rewrites]
) -> None:
    named_by_check(server, tmp_path, rule, rewrites=lie())


@NIGHTLY
@pytest.mark.parametrize(("rule", "deed"), DEEDS)
def test_an_acknowledged_command_without_effect_is_named_by_the_check(
    server: DovecotPostfix, tmp_path: Path, rule: str, deed: Callable[[], Answers]
) -> None:
    named_by_check(server, tmp_path, rule, answers=deed())


def test_an_unaltered_server_passes_the_check_through_the_proxy(server: DovecotPostfix, tmp_path: Path) -> None:
    with lying_proxy(server.services.imap.port, rewrites=unwritten) as port:
        scenario = behind(server, port, tmp_path / "small.yaml")
        ended = loadsim("check", scenario, "--json", "--junit", tmp_path / "check.xml")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    document = json.loads(ended.stdout)
    assert [one["finding"] for one in document["mail"] if one["subject"] == "state"] == [None]
    assert document["leftovers"] == []
    assert not ElementTree.parse(tmp_path / "check.xml").findall(".//failure")


@NIGHTLY
def test_a_run_names_a_server_that_does_nothing(server: DovecotPostfix, tmp_path: Path) -> None:
    """OK to MOVE and STORE that are not done misses a criterion by the state, too, not by the audit alone."""
    with lying_proxy(server.services.imap.port, answers=stores_nothing) as port:
        scenario = behind(server, port, tmp_path / "small.yaml")
        options = ("--set", "client.check_state=100%", "--set", "run.audit=no", "--set", "limits.drain=2s")
        ended = loadsim("run", "--no-report", scenario, "--out", tmp_path / "out", *options)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    score = json.loads((tmp_path / "out" / "score.json").read_text())
    rules = {one["values"]["rule"] for one in score["findings"] if one["code"] == "server-state-wrong"}
    assert rules >= {"expunge-not-asked"}


@pytest.mark.nightly(part="servers")
def test_a_fault_of_a_real_server_is_named(tmp_path: Path) -> None:
    """GreenMail 2.1 states another RFC822.SIZE than it sends, as imaplib sees, and programs that read it."""
    with started("greenmail", tmp_path, users=2, day_s=20) as site:
        account, message = site.accounts[-1], b"From: a@b.test\r\nSubject: x\r\n\r\n" + b"line\r\n" * 20
        with imaplib.IMAP4(site.services.imap.host, site.services.imap.port) as raw:
            raw.login(account.login, account.password)
            raw.append("INBOX", "", "", message)
            raw.select("INBOX")
            ((stated, sent), _) = raw.fetch("1", "(RFC822.SIZE BODY.PEEK[])")[1]
            assert sent == message and b"RFC822.SIZE %d " % len(message) not in stated
            raw.store("1", "+FLAGS", r"(\Deleted)")
            raw.expunge()
        options = (
            "--set",
            "client.check_state=100%",
            "--set",
            "topology.0.program=thunderbird",
            "--set",
            "run.audit=no",
        )
        ended = loadsim("run", "--no-report", site.path, "--out", tmp_path / "out", *options)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    score = json.loads((tmp_path / "out" / "score.json").read_text())
    assert "size-wrong" in [one["values"].get("rule") for one in score["findings"]]


@pytest.mark.nightly(part="servers")
def test_the_check_makes_the_cases_in_which_greenmail_is_wrong(tmp_path: Path) -> None:
    """An idling session is sent each EXPUNGE of another one twice, as imaplib sees."""
    with started("greenmail", tmp_path, users=2, day_s=20) as site:
        account, endpoint = site.accounts[-1], site.services.imap
        with (
            imaplib.IMAP4(endpoint.host, endpoint.port) as acts,
            imaplib.IMAP4(endpoint.host, endpoint.port) as watches,
        ):
            for client in (acts, watches):
                client.login(account.login, account.password)
            acts.append("INBOX", "", "", b"From: a@b.test\r\n\r\nline\r\n")
            for client in (acts, watches):
                client.select("INBOX")
            watches.send(b"i1 IDLE\r\n")
            assert watches.readline().startswith(b"+")
            acts.store("1", "+FLAGS", r"(\Deleted)")
            acts.expunge()
            received = [watches.readline()]
            watches.send(b"DONE\r\ni2 NOOP\r\n")
            while not received[-1].startswith(b"i2 "):
                received.append(watches.readline())
            assert received.count(b"* 1 EXPUNGE\r\n") == 2
        ended = loadsim("check", site.path, "--json")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert broken(json.loads(ended.stdout)) >= {"size-wrong", "expunge-not-asked", "number-out-of-range"}
