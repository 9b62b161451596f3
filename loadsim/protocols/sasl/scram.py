"""SCRAM, the client's side (RFC 5802, RFC 7677): client and server prove to each other that they know the password.

A server cannot be trusted before its proof. Its nonce must extend ours, its iteration count must be within limits,
and its signature must be right before success counts.

Salting a password takes milliseconds. All of a user's log-ons share the result, as servers keep the same salt and
iterations.
"""

from __future__ import annotations

import hmac
import re
import secrets
import stringprep
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import new as new_hash
from hashlib import pbkdf2_hmac
from typing import NamedTuple
from unicodedata import ucd_3_2_0

from loadsim.errors import ProtocolError, ServerRefused
from loadsim.model.ports import Account
from loadsim.protocols.sasl.exchange import escaped_name, surplus

LEAST_ITERATIONS = 4096
"""RFC 7677 section 4. With fewer, a rogue server can guess the password faster from the proof."""

MOST_ITERATIONS = 1_000_000
"""0.4 s of CPU time for SHA-256 (0.39 us per iteration). OWASP's advice of 2023 is 600,000."""

LONGEST_NONCE = 1024
LONGEST_SALT = 1024

MOST_CACHED = 32_768
"""The most salted passwords that a process holds, about 400 bytes each; an engine has at most 15,000 users."""

_HASHES = {"SCRAM-SHA-1": "sha1", "SCRAM-SHA-256": "sha256"}
_PRINTABLE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")


_PROHIBITED: tuple[Callable[[str], bool], ...] = (
    stringprep.in_table_a1,  # unassigned in Unicode 3.2, as for stored strings
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


class Keys(NamedTuple):
    """The keys derived from a user's salted password."""

    client: bytes
    server: bytes


_keys: dict[tuple[str, str, bytes, int], Keys] = {}
"""Keys by hash, password, salt and iterations; the oldest are removed."""


def keys_of(hash_name: str, password: str, salt: bytes, iterations: int) -> Keys:
    """Return a password's keys, from the cache if they were calculated before."""
    known = _keys.get((hash_name, password, salt, iterations))
    if known is not None:
        return known
    salted = pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    client, server = (hmac.digest(salted, text, hash_name) for text in (b"Client Key", b"Server Key"))
    while len(_keys) >= MOST_CACHED:
        _keys.pop(next(iter(_keys)), None)
    return _keys.setdefault((hash_name, password, salt, iterations), Keys(client, server))


class _Parameters(NamedTuple):
    nonce: str
    salt: bytes
    iterations: int


@dataclass(slots=True, repr=False)
class Scram:
    mechanism: str
    account: Account
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    stage: int = 0  # responses made
    _parameters: _Parameters | None = None
    _signature: bytes = b""
    _refusal: str = ""

    def initial(self) -> bytes | None:
        return (self._gs2_header + self._first_bare).encode()

    def work(self, challenge: bytes) -> Callable[[], object] | None:
        """Return the calculation of the keys, unless an earlier log-on has done it."""
        if self.stage != 0:
            return None
        _, salt, iterations = self._parameters = self._server_first(challenge)
        key = (self._hash, self._password, salt, iterations)
        return None if key in _keys else lambda: keys_of(*key)

    def respond(self, challenge: bytes) -> bytes:
        """Return client-final-message, and then the empty response to server-final-message."""
        self.stage += 1
        if self.stage == 1:
            return self._prove(challenge)
        if self.stage == 2:
            self._verify(challenge)
            return b""
        raise surplus(self.mechanism)

    def succeed(self) -> None:
        """Raise `ProtocolError` unless the server has proved that it knows the password."""
        if self.stage < 2 or self._refusal:
            raise ProtocolError(
                f"{self.mechanism} without a signature", "the server did not prove that it is the server"
            )

    def reason(self) -> str:
        """Return the server's error, such as invalid-proof (RFC 5802 section 7)."""
        return self._refusal

    @property
    def _hash(self) -> str:
        return _HASHES[self.mechanism]

    @property
    def _password(self) -> str:
        return _prepared(self.account.password, "password")

    @property
    def _gs2_header(self) -> str:
        authzid = (
            "" if self.account.authzid is None else f"a={escaped_name(_prepared(self.account.authzid, 'authzid'))}"
        )
        return f"n,{authzid},"

    @property
    def _first_bare(self) -> str:
        return f"n={escaped_name(_prepared(self.account.name, 'name'))},r={self.nonce}"

    def _server_first(self, challenge: bytes) -> _Parameters:
        """Return the nonce, salt and iterations from server-first-message."""
        nonce, salt, iterations = self._attributes(challenge, "r", "s", "i")
        if len(nonce) > LONGEST_NONCE or not _PRINTABLE.fullmatch(nonce):
            raise self._wrong("nonce", f"expected at most {LONGEST_NONCE} printable characters")
        if not nonce.startswith(self.nonce) or nonce == self.nonce:
            raise self._wrong("nonce", "expected ours, extended by the server's")
        if len(salt) > LONGEST_SALT or not salt:
            raise self._wrong("salt", f"expected 1 to {LONGEST_SALT} characters")
        if not re.fullmatch(r"[1-9][0-9]{0,8}", iterations):
            raise self._wrong("iterations", "expected a number")
        if not LEAST_ITERATIONS <= int(iterations) <= MOST_ITERATIONS:
            raise self._wrong("iterations", f"expected {LEAST_ITERATIONS} to {MOST_ITERATIONS}, found {iterations}")
        return _Parameters(nonce, self._base64(salt, "salt"), int(iterations))

    def _prove(self, challenge: bytes) -> bytes:
        nonce, salt, iterations = self._parameters or self._server_first(challenge)
        without_proof = f"c={b64encode(self._gs2_header.encode()).decode()},r={nonce}"
        signed = b",".join((self._first_bare.encode(), challenge, without_proof.encode()))
        keys = keys_of(self._hash, self._password, salt, iterations)
        stored = new_hash(self._hash, keys.client).digest()
        signature = hmac.digest(stored, signed, self._hash)
        proof = bytes(key ^ mask for key, mask in zip(keys.client, signature, strict=True))
        self._signature = hmac.digest(keys.server, signed, self._hash)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _verify(self, challenge: bytes) -> None:
        """Check server-final-message: a signature, or an error, after which the server refuses."""
        if challenge.startswith(b"e="):
            error = challenge[2:].split(b",")[0].decode("utf-8", "replace")
            self._refusal = error if re.fullmatch(r"[a-z0-9-]{1,40}", error) else "other-error"
            return
        (signature,) = self._attributes(challenge, "v")
        if not hmac.compare_digest(self._base64(signature, "signature"), self._signature):
            raise self._wrong("server signature", "the server does not know the password")

    def _attributes(self, challenge: bytes, *names: str) -> list[str]:
        """Return the values of a message that begins with these attributes; extensions may follow."""
        try:
            parts = challenge.decode().split(",")
        except UnicodeDecodeError:
            parts = []
        values = [part[2:] for name, part in zip(names, parts, strict=False) if part.startswith(f"{name}=")]
        if len(values) < len(names):
            raise self._wrong("message", f"expected the attributes {', '.join(names)}")
        return values

    def _base64(self, text: str, what: str) -> bytes:
        try:
            return b64decode(text, validate=True)
        except (NotBase64, ValueError):
            raise self._wrong(what, "expected Base64") from None

    def _wrong(self, what: str, expected: str) -> ProtocolError:
        return ProtocolError(f"{self.mechanism} {what}", expected)


def _prepared(text: str, what: str) -> str:
    try:
        return saslprep(text)
    except ValueError as error:
        raise ServerRefused(
            f"no SCRAM {what}", f"expected text that SASLprep (RFC 4013) allows, found {error}"
        ) from None


def saslprep(text: str) -> str:
    """Prepare text for comparison (SASLprep, RFC 4013). Raises `ValueError` for prohibited characters."""
    if text.isascii() and text.isprintable():
        return text
    mapped = (
        " " if stringprep.in_table_c12(character) else character
        for character in text
        if not stringprep.in_table_b1(character)
    )
    prepared = ucd_3_2_0.normalize("NFKC", "".join(mapped))
    if any(prohibits(character) for character in prepared for prohibits in _PROHIBITED):
        raise ValueError("a character that SASLprep prohibits")
    if any(map(stringprep.in_table_d1, prepared)):  # RFC 3454 section 6: right-to-left text
        ends_right = stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])
        if any(map(stringprep.in_table_d2, prepared)) or not ends_right:
            raise ValueError("text in both directions")
    return prepared
