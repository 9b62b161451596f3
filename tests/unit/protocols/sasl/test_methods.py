"""Log-on methods by the examples of their RFCs, servers that cheat, the choice of a method, and tokens."""

import asyncio
import base64
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadsim.errors import GeneratorFailed, ProtocolError, ServerRefused, TaskFailed
from loadsim.model.ports import Account, Endpoint
from loadsim.protocols.sasl import authenticate, choice, scram, tokens
from loadsim.protocols.sasl.authenticate import Dialogue
from loadsim.protocols.sasl.choice import Offer, missing
from loadsim.protocols.sasl.exchange import Exchange, decoded
from loadsim.protocols.sasl.masking import without_password
from loadsim.protocols.sasl.scram import Scram, saslprep

USER = Account(1, "user", "user@loadsim.test", "pencil")
ENDPOINT = Endpoint("server.example.com", 143)


def exchange_of(method: str, account: Account, token: str = "") -> Exchange:
    return authenticate.exchange_of(method, ENDPOINT, account, token)


def initial_of(exchange: Exchange) -> bytes:
    return Dialogue(exchange, 8000).words[1]


def test_scram_sha_1_agrees_with_the_rfcs_example() -> None:
    """RFC 5802 section 5."""
    exchange = Scram("SCRAM-SHA-1", USER, nonce="fyko+d2lbbFgONRv9qkxdawL")
    assert exchange.initial() == b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL"
    challenge = b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
    assert exchange.respond(challenge) == (
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    )
    assert exchange.respond(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=") == b""
    exchange.succeed()


FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram_sha_256() -> Scram:
    return Scram("SCRAM-SHA-256", USER, nonce="rOprNGfwEbeRWgbNEkqO")


def test_scram_sha_256_agrees_with_the_rfcs_example() -> None:
    """RFC 7677 section 3."""
    exchange = scram_sha_256()
    assert exchange.initial() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.respond(FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert exchange.respond(FINAL) == b""
    exchange.succeed()


def test_single_message_methods_agree_with_their_examples() -> None:
    """RFC 4616 section 4, RFC 7628 section 4.1, and the example of Google's documentation of XOAUTH2."""
    tim = Account(1, "tim", "tim@x.test", "tanstaaftanstaaf")
    assert exchange_of("plain", tim).initial() == b"\0tim\0tanstaaftanstaaf"
    ursel = replace(tim, authcid="Kurt", authzid="Ursel", password="xipj3plmq")
    assert exchange_of("plain", ursel).initial() == b"Ursel\0Kurt\0xipj3plmq"
    user = Account(1, "user@example.com", "user@example.com", "")
    bearer = exchange_of("oauthbearer", user, "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==").initial()
    assert bearer is not None and base64.b64encode(bearer) == (
        b"bixhPXVzZXJAZXhhbXBsZS5jb20sAWhvc3Q9c2VydmVyLmV4YW1wbGUuY29tAXBvcnQ9MTQzAWF1dGg9QmVhcmVyIHZGOWRmdDRxbVRjMk52"
        b"YjNSbGNrQmhiSFJoZG1semRHRXVZMjl0Q2c9PQEB"
    )
    google = Account(1, "someuser@example.com", "someuser@example.com", "")
    assert initial_of(exchange_of("xoauth2", google, "ya29.vF9dft4qmTc2Nvb3RlckBhdHRhdmlzdGEuY29tCg")) == (
        b"dXNlcj1zb21ldXNlckBleGFtcGxlLmNvbQFhdXRoPUJlYXJlciB5YTI5LnZGOWRmdDRxbVRjMk52YjNSbGNrQmhkSFJoZG1semRHRXVZMjl0"
        b"Q2cBAQ=="
    )
    assert initial_of(exchange_of("external", user)) == b"="
    assert exchange_of("external", replace(user, authzid="other")).initial() == b"other"


def test_challenge_methods_agree_with_their_examples() -> None:
    """RFC 2195 section 2, and LOGIN."""
    tim = Account(1, "tim", "tim@x.test", "tanstaaftanstaaf")
    exchange = exchange_of("cram-md5", tim)
    assert exchange.initial() is None
    challenge = b"<1896.697170952@postoffice.reston.mci.net>"
    assert exchange.respond(challenge) == b"tim b913a602c7eda7a495b4e6e7334d3890"
    exchange.succeed()
    login = exchange_of("login", tim)
    assert [login.respond(b"Username:"), login.respond(b"Password:")] == [b"tim", b"tanstaaftanstaaf"]
    with pytest.raises(ProtocolError, match="another challenge"):
        login.respond(b"Again:")


@pytest.mark.parametrize(
    ("text", "prepared"),
    [("I\u00adX", "IX"), ("user", "user"), ("USER", "USER"), ("\u00aa", "a"), ("\u2168", "IX"), ("a\u00a0b", "a b")],
)
def test_saslprep_agrees_with_the_rfcs_examples(text: str, prepared: str) -> None:
    """RFC 4013 section 3."""
    assert saslprep(text) == prepared


@pytest.mark.parametrize("text", ["\u0007", "\u0627\u0031", "\ue000"])
def test_saslprep_rejects_prohibited_characters(text: str) -> None:
    with pytest.raises(ValueError, match=r"prohibits|both directions"):
        saslprep(text)
    with pytest.raises(ServerRefused, match="no SCRAM password"):
        Scram("SCRAM-SHA-256", replace(USER, password=text), nonce="rOprNGfwEbeRWgbNEkqO").respond(FIRST)


@pytest.mark.parametrize(
    ("challenge", "says"),
    [
        (FIRST.replace(b"rOpr", b"xOpr"), "SCRAM-SHA-256 nonce: expected ours, extended by the server's"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce: expected ours, extended"),
        (b"r=rOprNGfwEbeRWgbNEkqO" + b"x" * 2000 + b",s=W22Z,i=4096", "nonce: expected at most 1024"),
        (FIRST.replace(b"i=4096", b"i=4095"), "iterations: expected 4096 to 1000000, found 4095"),
        (FIRST.replace(b"i=4096", b"i=1000001"), "iterations: expected 4096 to 1000000, found 1000001"),
        (FIRST.replace(b"i=4096", b"i=" + b"9" * 100), "iterations: expected a number"),
        (FIRST.replace(b"i=4096", b"i=-1"), "iterations: expected a number"),
        (FIRST.replace(b"s=W22Z", b"s=%%%%"), "salt: expected Base64"),
        (FIRST.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s="), "salt: expected 1 to 1024"),
        (b"m=ext," + FIRST, "message: expected the attributes r, s, i"),
        (b"", "message: expected the attributes r, s, i"),
        (b"\xff\xfe", "message: expected the attributes r, s, i"),
        (FINAL, "message: expected the attributes r, s, i"),
    ],
)
def test_a_malformed_first_server_message_is_a_protocol_error(challenge: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        scram_sha_256().work(challenge)
    with pytest.raises(ProtocolError, match=says):
        scram_sha_256().respond(challenge)


def test_a_wrong_or_missing_server_signature_is_a_protocol_error() -> None:
    """A server that does not know the password; and success without any signature."""
    exchange = scram_sha_256()
    exchange.respond(FIRST)
    with pytest.raises(ProtocolError, match="SCRAM-SHA-256 without a signature"):
        exchange.succeed()
    with pytest.raises(ProtocolError, match="SCRAM-SHA-256 server signature: the server does not know the password"):
        exchange.respond(FINAL.replace(b"6rri", b"7rri"))
    other = scram_sha_256()
    other.respond(FIRST)
    assert other.respond(b"e=invalid-proof,x") == b"" and other.reason() == "invalid-proof"
    with pytest.raises(ProtocolError, match="without a signature"):
        other.succeed()
    with pytest.raises(ProtocolError, match="another challenge"):
        other.respond(FINAL)


@given(st.binary(max_size=200) | st.builds(lambda rest: b"r=rOprNGfwEbeRWgbNEkqO" + rest, st.binary(max_size=60)))
def test_any_first_server_message_is_answered_or_rejected(challenge: bytes) -> None:
    """Any message is answered or refused, and nothing else."""
    with suppress(ProtocolError):
        scram_sha_256().work(challenge)


@given(st.text(max_size=40), st.sampled_from(["plain", "login", "cram-md5", "xoauth2", "oauthbearer", "external"]))
def test_any_challenges_come_to_an_end(challenge: str, method: str) -> None:
    exchange = exchange_of(method, USER, "token")
    try:
        for _ in range(4):
            exchange.respond(decoded(challenge, exchange.mechanism))
    except ProtocolError:
        return
    raise AssertionError("a mechanism without an end")


def test_a_too_long_challenge_is_rejected() -> None:
    with pytest.raises(ProtocolError, match="CRAM-MD5 challenge: more than 8192 characters"):
        decoded("A" * 8193, "CRAM-MD5")


def test_keys_are_derived_once() -> None:
    """All log-ons of a user share the slow calculation, which the first may do in a thread."""
    user = replace(USER, password="a password of this test only")
    first = Scram("SCRAM-SHA-256", user, nonce="n")
    work = first.work(b"r=nx,s=c2FsdA==,i=4096")
    assert work is not None
    work()
    assert Scram("SCRAM-SHA-256", user, nonce="m").work(b"r=mx,s=c2FsdA==,i=4096") is None
    assert Scram("SCRAM-SHA-256", user, nonce="m").work(b"r=mx,s=c2FsdHM=,i=4096") is not None


def test_few_keys_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that changes the salt each time does not fill the memory."""
    monkeypatch.setattr(scram, "_keys", kept := dict[object, object]())
    monkeypatch.setattr(scram, "MOST_CACHED", 3)
    for salt in range(10):
        scram.keys_of("sha1", "x", bytes([salt]), 4096)
    assert len(kept) == 3


METHODS = "PLAIN LOGIN CRAM-MD5 SCRAM-SHA-1 SCRAM-SHA-256 XOAUTH2 OAUTHBEARER EXTERNAL"
ALL = frozenset(METHODS.split())


def chosen(endpoint: Endpoint, account: Account, offer: Offer) -> str | None:
    """The method of a first log-on."""

    async def choosing() -> str | None:
        return choice.chosen(endpoint, account, offer)

    return asyncio.run(choosing())


@pytest.mark.parametrize(
    ("offer", "account", "method"),
    [
        (Offer(ALL, True, True), USER, "scram-sha-256"),
        (Offer(ALL - {"SCRAM-SHA-256"}, True, True), USER, "scram-sha-1"),
        (Offer(frozenset({"PLAIN", "CRAM-MD5"}), True, True), USER, "plain"),
        (Offer(frozenset({"PLAIN", "CRAM-MD5"}), True, False), USER, "cram-md5"),
        (Offer(frozenset({"LOGIN"}), True, True), USER, "login-command"),
        (Offer(frozenset({"LOGIN"}), False, True), USER, "login"),
        (Offer(ALL, True, True), replace(USER, token_file="x"), "oauthbearer"),
        (Offer(ALL - {"OAUTHBEARER"}, True, True), replace(USER, token_file="x"), "xoauth2"),
        (Offer(frozenset({"PLAIN"}), True, True), replace(USER, token_file="x"), "plain"),
        (Offer(frozenset({"PLAIN"}), True, True), replace(USER, token_file="x", password=""), None),
        (Offer(frozenset({"LOGIN"}), True, True), replace(USER, authzid="other"), None),
        (Offer(frozenset({"GSSAPI"}), False, True), USER, None),
    ],
)
def test_the_strongest_offered_method_is_chosen(offer: Offer, account: Account, method: str | None) -> None:
    assert chosen(ENDPOINT, account, offer) == method


def test_a_certificate_is_used_without_another_secret() -> None:
    endpoint = replace(ENDPOINT, client_certificate="x")
    assert chosen(endpoint, replace(USER, password=""), Offer(ALL, True, True)) == "external"
    assert chosen(endpoint, USER, Offer(ALL, True, True)) == "scram-sha-256"


def test_a_named_method_is_not_replaced() -> None:
    """In the order of the scenario, and no other; the error names both sides, and not at any length."""
    endpoint = replace(ENDPOINT, methods=("scram-sha-1", "plain"))
    assert chosen(endpoint, USER, Offer(ALL)) == "scram-sha-1"
    assert chosen(endpoint, USER, Offer(frozenset({"PLAIN"}))) == "plain"
    refused = Offer(frozenset({"LOGIN"}), True)
    assert chosen(endpoint, USER, refused) is None
    assert missing(endpoint, USER, refused) == "expected scram-sha-1 or plain, the server offers LOGIN, login-command"
    assert len(missing(endpoint, USER, Offer(frozenset("x" * 50 + str(number) for number in range(99))))) < 200


@pytest.fixture(autouse=True)
def no_tokens(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tokens, "_known", {})
    yield


def jwt(expires: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expires}).encode()).decode().rstrip("=")
    return f"e30.{claims}.c2ln"


@pytest.mark.parametrize(
    ("content", "token"),
    [("abc\n", "abc"), ('{"access_token": "a.b-c_d~e+/==", "expires_in": 3599}', "a.b-c_d~e+/=="), (jwt(0), jwt(0))],
)
def test_a_token_is_read_from_a_file(tmp_path: Path, content: str, token: str) -> None:
    """Alone on its line, or in the answer of a token endpoint. A new one takes effect at once."""
    file = tmp_path / "token"
    file.write_text(content)
    assert tokens.current(str(file)) == token
    file.write_text("next")
    assert tokens.current(str(file)) == "next"
    assert tokens.known(str(file)) == [token, "next"]


@pytest.mark.parametrize("content", ["", "two words", "a\1b", "{", '{"token": "x"}', "[1]"])
def test_a_file_without_a_token_is_rejected(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)
    with pytest.raises(
        GeneratorFailed, match=r"token_file: .*/token: expected a token \(RFC 6750\), or JSON"
    ) as failed:
        tokens.current(str(tmp_path / "token"))
    assert failed.value.kind == "no token" and "words" not in str(failed.value)


def test_a_missing_token_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(GeneratorFailed, match="expected a file that can be read, found: No such file"):
        tokens.current(str(tmp_path / "none"))


def test_a_refused_tokens_error_states_its_expiry(tmp_path: Path) -> None:
    """The server's reason, and that the token says of itself that it has expired."""
    (tmp_path / "token").write_text(expired := jwt(1_000_000_000))
    account = replace(USER, password="", token_file=str(tmp_path / "token"))

    async def perform(exchange: Exchange) -> None:
        assert exchange.respond(b'{"status":"invalid_token","scope":"mail"}') == b"\1"
        raise ServerRefused("NO [AUTHENTICATIONFAILED] AUTHENTICATE", "NO failed")

    with pytest.raises(ServerRefused) as failed:
        asyncio.run(authenticate.log_on("IMAP", ENDPOINT, account, Offer(frozenset({"OAUTHBEARER"})), "", perform))
    reasons = "oauthbearer: invalid_token: the token expired at 2001-09-09 01:46:40 UTC"
    assert failed.value.line == f"({reasons}) NO failed" and expired not in str(failed.value)


@pytest.mark.parametrize("challenge", [b"", b"{", b"[]", b'{"status": "<script>"}', b'{"status": {}}', b"[" * 5000])
def test_a_malformed_reason_is_replaced(challenge: bytes) -> None:
    exchange = exchange_of("xoauth2", USER, "token")
    assert exchange.respond(challenge) == b"" and exchange.reason() == "the token was refused"
    with pytest.raises(ProtocolError, match="XOAUTH2 success"):
        exchange.succeed()


def test_each_form_of_a_secret_is_masked(tmp_path: Path) -> None:
    """The messages of all methods, as a server may repeat them; other words in Base64 stay."""
    (tmp_path / "token").write_text("a-token-of-mine")
    account = replace(USER, authzid="other", token_file=str(tmp_path / "token"))
    token = tokens.current(str(tmp_path / "token"))
    sent: list[bytes] = []
    for method in ("plain", "xoauth2", "oauthbearer"):
        sent.append(initial_of(exchange_of(method, account, token)))
    for method, challenges in (("login", [b"", b""]), ("cram-md5", [b"<1>"]), ("scram-sha-1", [])):
        exchange = exchange_of(method, account)
        sent += [base64.b64encode(exchange.respond(challenge)) for challenge in challenges][-1:]
    bound = scram_sha_256()
    sent += [base64.b64encode(bound.respond(FIRST)), b"pencil", b"a-token-of-mine"]
    for each in sent:
        text = each.decode()
        for form in (text, text.rstrip("=")):
            masked = without_password(f"535 {form} is wrong, QUJDREVGR0g= is not", account)
            assert masked == "535 *** is wrong, QUJDREVGR0g= is not", each


def test_a_failure_in_an_exchange_shows_no_secret() -> None:
    """No exception of the log-on's own has a secret in its text or its representation."""
    shown = (
        repr(exchange_of("plain", USER))
        + repr(exchange_of("scram-sha-1", USER))
        + repr(exchange_of("xoauth2", USER, "tok"))
    )
    assert "pencil" not in shown and "tok" not in shown.replace("token", "")
    with pytest.raises(TaskFailed) as failed:
        exchange_of("plain", USER).respond(b"pencil")
    assert "pencil" not in str(failed.value)
