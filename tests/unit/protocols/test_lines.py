"""The kept lines of a session show no password, token or message text, even if the server repeats it."""

import re
from base64 import b64decode, b64encode
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fuzz.virtual import Loop, Transport, play
from fuzz.visit_targets import Observer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from virtual_runs import quiet, scenario_of

from loadsim.engine.event_log import Events, closed_at_last
from loadsim.errors import ConfigError, ServerRefused, TaskFailed
from loadsim.model.ports import INBOX, Account, Endpoint, Services
from loadsim.protocols.imap.commands import Literal, encode
from loadsim.protocols.imap.wire import ImapWire
from loadsim.protocols.lines import KEPT_BYTES, KEPT_LINES, MOST_TRACED_LINES, Trace, excerpt, text_of
from loadsim.protocols.registry import open_driver
from loadsim.scenario.log_on import LOGIN_COMMAND, METHODS, TOKEN_METHODS

BASIC = "basic"
CHALLENGES = {"login": 2, "cram-md5": 1, "xoauth2": 1, "oauthbearer": 1, "scram-sha-1": 1, "scram-sha-256": 1}
USER = "user"
CASES = [
    *((driver, method) for driver in ("imap", "aioimaplib", "smtp") for method in METHODS if method != "external"),
    ("mapi", BASIC),
]
CASES.remove(("smtp", LOGIN_COMMAND))


@dataclass
class Repeating:
    """A server that takes all messages of a log-on, then refuses it, and repeats them in its answer."""

    driver: str
    method: str
    taken: list[bytes] = field(default_factory=list)
    tag: bytes = b""
    left: int = 0

    def __call__(self, transport: Transport, written: bytes) -> None:
        if self.driver == "mapi":
            if found := re.search(rb"Authorization: (.*)\r\n", written):
                self.taken.append(found[1])
                transport.say(b"HTTP/1.1 401 wrong: %b\r\nContent-Length: 0\r\n\r\n" % found[1])
        elif not written:
            self.left = CHALLENGES.get(self.method, 0)
            transport.say(b"220 mail\r\n" if self.driver == "smtp" else b"* OK mail\r\n")
        else:
            for line in written.split(b"\r\n")[:-1]:
                transport.say(self.answer(line))

    def answer(self, line: bytes) -> bytes:
        is_smtp, mechanism = self.driver == "smtp", self.method.upper().encode()
        command = re.fullmatch(rb"(?:(\w+) )?(CAPABILITY|EHLO|LOGIN|AUTHENTICATE|AUTH|QUIT)\b ?(.*)", line)
        match command and command[2]:
            case b"CAPABILITY":
                own = b"" if self.method == LOGIN_COMMAND else b" AUTH=" + mechanism
                return b"* CAPABILITY IMAP4rev1 SASL-IR%b\r\n%b OK\r\n" % (own, line.split()[0])
            case b"EHLO":
                return b"250-mail\r\n250 AUTH %b\r\n" % mechanism
            case b"QUIT":
                return b"221 bye\r\n"
        if command:
            self.tag = command[1]
        self.taken.append(command[3] if command else line)
        if line.endswith(b"}"):
            return b"+ go on\r\n"
        if self.left:
            self.left -= 1
            return (b"334 %b\r\n" if is_smtp else b"+ %b\r\n") % b64encode(self.challenge())
        repeated = b" ".join(self.taken)
        return b"535 %b\r\n" % repeated if is_smtp else b"* OK %b\r\n%b NO %b\r\n" % (repeated, self.tag, repeated)

    def challenge(self) -> bytes:
        if self.method.startswith("scram"):
            first = b64decode(self.taken[0].split(b" ")[1])
            return b"r=%bx,s=c2FsdA==,i=4096" % first.rpartition(b"r=")[2]
        return b'{"status":"401"}' if self.method in TOKEN_METHODS else b"<1896.697170952@mail.test>"


@pytest.mark.parametrize("size", [5, 15, 25])
def test_secrets_repeated_by_a_server_are_masked(size: int) -> None:
    """In upper case or as Latin-1, whole or cut."""
    account = Account(1, USER, "user@sim.test", "geheim-\u00fc-Wort")
    for repeated in (account.password.upper().encode(), account.password.encode("latin-1")):
        line = (b"t1 NO " + b"x" * (KEPT_BYTES - 6 - size) + b"-" + repeated)[:KEPT_BYTES]
        shown = text_of(line, account, sent=False).lower()
        assert "gehe" not in shown and "wort" not in shown


class Keeping(Observer):
    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[bytes | int] = deque(maxlen=KEPT_LINES)


def kept_of(server: Repeating, account: Account) -> list[bytes | int]:
    """Log on in virtual time; return the lines that are kept."""
    endpoint = Endpoint("mail.test", 1, methods=() if server.method == BASIC else (server.method,))
    services = Services(endpoint, endpoint, 5.0, mapi=endpoint)
    observer = Keeping()

    async def main(_: Loop) -> None:
        driver = open_driver("imap" if server.driver == "smtp" else server.driver, services)
        session = driver.session(account, observer)
        with pytest.raises(TaskFailed):
            await (session.submission.check() if server.driver == "smtp" else session.mailbox.log_on())
        session.mailbox.abandon()

    play(server, main)
    return list(observer.lines)


SECRETS = (
    st.text(st.characters(min_codepoint=32, max_codepoint=0x17E, categories=["L", "N", "P", "S", "Zs"]), min_size=4)
    .map("Qž{}".format)
    .filter(lambda text: "*" not in text and text.strip() == text)
)  # no word of an excerpt
HARMLESS = b64encode(b"n,,").decode(), b64encode(USER.encode()).decode()
"""The beginnings of SCRAM's first message, which has name and nonce, and of the name alone."""

TOKENS = st.text("abcXYZ019-._~+/", min_size=6, max_size=200)


@pytest.mark.parametrize(("driver", "method"), CASES)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_log_on_shows_its_secret(driver: str, method: str, data: st.DataObject, tmp_path: Path) -> None:
    """No line shows a beginning of it or a value derived from it: neither the client's nor those that repeat it."""
    is_token = method in TOKEN_METHODS
    secret = data.draw(TOKENS if is_token else SECRETS)
    source = tmp_path / f"token-{abs(hash(secret))}"
    source.write_text(secret, encoding="utf-8")
    file = str(source) if is_token else None
    account = Account(1, USER, "user@sim.test", "" if is_token else secret, token_file=file)
    server = Repeating(driver, method)
    lines = kept_of(server, account)
    texts = excerpt(lines, account, lambda _: "")
    assert server.taken and len(texts) >= 2
    shown = "\n".join(texts)
    assert secret[:5] not in shown
    for word in re.findall(r"[A-Za-z0-9+/]{8,}", shown):
        assert secret[:5].encode() not in b64decode(word[: len(word) // 4 * 4])
    sent = {word for piece in server.taken for word in piece.decode().split()}
    assert not [word for word in sent if len(word) >= 16 and not word.startswith(HARMLESS) and word in shown]


TEXTS = st.lists(st.text("QWZ", min_size=4, max_size=60), min_size=1).map("\r\n".join)
"""Texts of mails: no protocol has a word of these letters."""

OTHER = Account(1, USER, "user@sim.test", "password")


FRAMES = ("{%d}\r\n%s", '"%.0s%s"', '"of "%.0s%s" "', '(("%.0s%s" NIL) {3}\r\nQWZ)')


@given(text=TEXTS, frame=st.sampled_from(FRAMES), padding=st.text("x", max_size=90))
def test_fetched_text_is_not_shown(text: str, frame: str, padding: str) -> None:
    """Neither from a literal nor from a quoted text; lines are cut anywhere in either."""
    quoted = frame % (len(text), text if frame.startswith("{") else text.replace("\r\n", " "))
    lines: deque[bytes | int] = deque(maxlen=KEPT_LINES)
    stream = f"* 1 FETCH (FLAGS (${padding}) BODY[1] {quoted} UID 7)\r\nt1 OK done\r\n".encode()
    list(ImapWire(keep=lines.append, read=lambda _: None).feed(stream))
    assert [len(line) <= KEPT_BYTES for line in lines] == [True, True]
    fetched, ended = excerpt(lines, OTHER, lambda _: "")
    assert fetched.startswith("S: * 1 FETCH (FLAGS (") and ended == "S: t1 OK done"
    assert not re.search("[QWZ]{3}", fetched)


@given(TEXTS, st.integers(-1, 1000), st.text("x", max_size=90))
def test_appended_text_is_not_shown(text: str, free_bytes: int, folder: str) -> None:
    first, *_ = encode(b"t1", b"APPEND", [folder.encode(), Literal(text.encode())], free_bytes)
    shown = text_of(first[:KEPT_BYTES], OTHER, sent=True)
    assert shown.startswith("C: t1 APPEND") and not re.search("[QWZ]{3}", shown)


REST = ("%s", "220 %s", "* NO %s", "* List of %s", "* 3 %s", "+ %s", "t99 OK %s", "* 3 EXISTS %s")
"""Lines of a text that look like an answer."""


def after_log_on(command: bytes) -> tuple[bytes, ...]:
    """The answer of a server to a command, without its tag."""
    if command.startswith(b"CAPABILITY"):
        return b"* CAPABILITY IMAP4rev1 AUTH=PLAIN SASL-IR", b" OK"
    if command.startswith(b"LIST"):
        return b'* LIST () "/" INBOX', b" OK"
    if command.startswith(b"SELECT"):
        return b"* 3 EXISTS", b"* OK [UIDVALIDITY 7] valid", b"* No room tomorrow", b" OK [READ-WRITE] done"
    return (b" OK",)


@pytest.mark.parametrize("driver", ["imap", "aioimaplib"])
@settings(max_examples=25)
@given(rest=st.lists(st.tuples(st.sampled_from(REST), st.text("QWZ", min_size=4)), min_size=1))
def test_the_rest_of_a_text_is_not_shown_as_an_answer(driver: str, rest: list[tuple[str, str]]) -> None:
    """A server that states a wrong length sends it where a response is due. What it says otherwise is shown."""
    text = [(frame % word).encode() for frame, word in rest]

    def serve(transport: Transport, written: bytes) -> None:
        if not written:
            transport.say(b"* OK mail\r\n")
        for line in written.splitlines():
            tag, _, command = line.partition(b" ")
            answers = [*after_log_on(command)]
            if b"FETCH" in command:
                answers = [b"* 1 FETCH (UID 1 BODY[1] {2}\r\nab)", *text, b" OK"]
            transport.say(*(answer + b"\r\n" for answer in answers[:-1]), tag + answers[-1] + b"\r\n")

    observer = Keeping()

    async def main(_: Loop) -> None:
        endpoint = Endpoint("mail.test", 1, methods=("plain",))
        mailbox = open_driver(driver, Services(endpoint, endpoint)).session(OTHER, observer).mailbox
        with suppress(TaskFailed):
            await mailbox.log_on()
            await mailbox.headers(INBOX, 50)
        mailbox.abandon()

    play(serve, main)
    shown = excerpt(observer.lines, OTHER, lambda _: "")
    assert not re.search("[QWZ]{3}", "\n".join(shown))
    assert any(re.fullmatch(r" C: \S+ (UID )?FETCH .*", line) for line in shown)
    assert {"S: * OK [UIDVALIDITY 7] valid", "S: * 3 EXISTS", "S: * No room tomorrow"} < {*shown}


@settings(max_examples=25)
@given(text=st.lists(st.sampled_from(["220 QWZ", "554 QWZ", "354 QWZ", "250-QWZ", "QWZ"]), min_size=1))
def test_a_repeated_message_is_not_shown(text: list[str]) -> None:
    """Neither in kept lines nor in an error; the words of the server's own are."""
    message = "\r\n".join(("From: user@sim.test", "", *text, "")).encode()
    is_message = False

    def serve(transport: Transport, written: bytes) -> None:
        nonlocal is_message
        if is_message:
            is_message = False
            transport.say(*(line.encode() + b"\r\n" for line in (*text, "250 thanks")))
            return
        if not written:
            transport.say(b"220 mail\r\n")
        for line in written.splitlines():
            is_message = line == b"DATA"
            transport.say(b"354 go on\r\n" if is_message else b"250 mine\r\n")

    observer, errors = Keeping(), list[str]()

    async def main(_: Loop) -> None:
        endpoint = Endpoint("mail.test", 1)
        submission = open_driver("imap", Services(endpoint, endpoint)).session(OTHER, observer).submission
        try:
            await submission.send("user@sim.test", ["user@sim.test"], message)
        except TaskFailed as failure:
            errors.append(str(failure))
        with suppress(TaskFailed):
            await submission.close()

    play(serve, main)
    shown = "\n".join([*excerpt(observer.lines, OTHER, lambda _: ""), *errors])
    assert "QWZ" not in shown
    assert "S: 354 go on" in shown and "S: 250 mine" in shown


@pytest.mark.parametrize("driver", ["imap", "aioimaplib"])
@pytest.mark.parametrize(
    "greeting", [b"SSH-2.0-OpenSSH_9.2p1\r\n", b"220 mail.test ESMTP\r\n", b"* OK mail", b"+OK POP3\n"]
)
def test_a_greeting_of_another_server_is_shown(driver: str, greeting: bytes) -> None:
    """No text and no secret is under way by then."""
    errors = list[str]()

    async def main(_: Loop) -> None:
        endpoint = Endpoint("mail.test", 1)
        mailbox = open_driver(driver, Services(endpoint, endpoint)).session(OTHER, Observer()).mailbox
        with pytest.raises(TaskFailed) as failed:
            await mailbox.log_on()
        errors.append(failed.value.line)

    play(lambda transport, written: None if written else transport.say(greeting), main)
    assert greeting.decode().rstrip().removesuffix(" mail") in errors[0]
    assert "***" not in errors[0]


def test_a_servers_own_words_are_shown() -> None:
    wrong = b"* 1 FETCH (BODY[1] {2}\r\nQWZQWZ QWZ"
    assert text_of(wrong, OTHER, sent=False) == "S: * 1 FETCH (BODY[1] {2 bytes}"
    for answer in ("* NO [ALERT] full", "t12 NO [LIMIT] full", "334 ok", "+ idling"):
        assert text_of(answer.encode(), OTHER, sent=False) == f"S: {answer}"
    assert text_of(b"550 5.1.1 no\x1b[2J", OTHER, sent=False) == "S: 550 5.1.1 no\\x1b[2J"


def test_a_trace_is_bounded_and_keeps_the_last_lines() -> None:
    written: list[tuple[bytes, bool]] = []
    trace = Trace(lambda line, sent: written.append((line, sent)))
    lines = [b"* %d EXISTS" % number if number % 3 else number for number in range(2 * MOST_TRACED_LINES)]
    for line in lines:
        trace.append(line)
    marked = [(line, number % 3 == 1) for number, line in enumerate(lines) if isinstance(line, bytes)]
    assert written == marked[:MOST_TRACED_LINES]
    assert [*trace] == lines[-KEPT_LINES:]


def test_a_trace_needs_an_existing_user(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"client\.trace: expected the number of a user, at most 2, found 3"):
        scenario_of(tmp_path, (quiet(), 2), client={"trace": 3})


def test_a_full_disk_loses_lines_and_ends_nothing() -> None:
    with closed_at_last(Path("/dev/full").open("w", encoding="utf-8")) as out:
        events = Events(out)
        events.failed("SEND", 1, ServerRefused("550 RCPT"), lambda: ["S: 550 no"])
        Trace(lambda line, _: events.write("line", line=line.decode())).append(b"550 no")
    assert events.unwritten == 2
