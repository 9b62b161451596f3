"""The choice of a log-on method of those that a server offers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loadsim.errors import ServerRefused
from loadsim.model.log_on import LOGIN_COMMAND, SCRAM_METHODS, TOKEN_METHODS, WITH_AUTHZID
from loadsim.model.ports import Account, Endpoint

LONGEST_SHOWN = 120
"""The most characters of a server's offer in an error."""

_BY_PASSWORD = {
    True: (*SCRAM_METHODS, "plain", LOGIN_COMMAND, "login", "cram-md5"),
    False: (*SCRAM_METHODS, "cram-md5", "plain", LOGIN_COMMAND, "login"),
}
"""The order of `auto` with and without TLS. Over TLS, CRAM-MD5 protects nothing, and servers must keep passwords."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The methods of a server on a connection: SASL mechanisms in capitals, and whether IMAP's LOGIN may be used."""

    mechanisms: frozenset[str]
    login_command: bool = False
    encrypted: bool = False

    def has(self, method: str) -> bool:
        if method == LOGIN_COMMAND:
            return self.login_command
        return method.upper() in self.mechanisms

    def shown(self) -> str:
        names = [*sorted(self.mechanisms), *(["the command LOGIN"] if self.login_command else [])]
        text = ", ".join(names) or "none"
        return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."


_used: set[str] = set()
"""The methods of this process so far, with their services, such as "IMAP plain"."""


def used_methods() -> list[str]:
    """Return the methods that were chosen in this process, with their services."""
    return sorted(_used)


def choose(service: str, endpoint: Endpoint, account: Account, offer: Offer, refusal: str) -> str:
    """Return the log-on method for a service (IMAP or SMTP). Raises `ServerRefused` of this kind without one."""
    method = chosen(endpoint, account, offer)
    if method is None:
        raise ServerRefused(refusal, missing(endpoint, account, offer))
    _used.add(f"{service} {method}")
    return method


def chosen(endpoint: Endpoint, account: Account, offer: Offer) -> str | None:
    """Return the first offered of the scenario's methods; without any, the strongest that the secret allows.

    None means that the server offers none of them. A method that a scenario names is never replaced by another.
    """
    if endpoint.methods:
        return next(filter(offer.has, endpoint.methods), None)
    for method in _automatic(endpoint, account, offer):
        if offer.has(method) and (account.authzid is None or method in WITH_AUTHZID):
            return method
    return None


def _automatic(endpoint: Endpoint, account: Account, offer: Offer) -> Iterator[str]:
    if account.token_file is not None:
        yield from TOKEN_METHODS
    if account.password:
        yield from _BY_PASSWORD[offer.encrypted]
    if endpoint.client_certificate is not None:
        yield "external"


def missing(endpoint: Endpoint, account: Account, offer: Offer) -> str:
    """Return the error for a server that offers none of the methods."""
    if endpoint.methods:
        expected = " or ".join(endpoint.methods)
    else:
        expected = f"a method for {_secrets(endpoint, account)}"
        if account.authzid is not None:
            expected += " with an authorisation identity"
    return f"expected {expected}, the server offers {offer.shown()}"


def _secrets(endpoint: Endpoint, account: Account) -> str:
    has: Sequence[tuple[str, object]] = (
        ("a token", account.token_file),
        ("a password", account.password),
        ("a client certificate", endpoint.client_certificate),
    )
    return " or ".join(name for name, secret in has if secret)
