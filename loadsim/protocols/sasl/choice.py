"""The choice of a log-on method of those that a server offers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from loadsim.model.log_on import LOGIN_COMMAND, TOKEN_METHODS, WITH_AUTHZID
from loadsim.model.ports import Account, Endpoint
from loadsim.protocols.sasl.scram import Binding

LONGEST_SHOWN = 120
"""The most characters of a server's offer in an error."""

_SCRAM = ("scram-sha-256-plus", "scram-sha-1-plus", "scram-sha-256", "scram-sha-1")
_BY_PASSWORD = {
    True: (*_SCRAM, "plain", LOGIN_COMMAND, "login", "cram-md5"),
    False: (*_SCRAM, "cram-md5", "plain", LOGIN_COMMAND, "login"),
}
"""The order of `auto` with and without TLS. Over TLS, CRAM-MD5 protects nothing, and servers must keep passwords."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The methods of a server on a connection: SASL mechanisms in capitals, and whether IMAP's LOGIN may be used.

    `binding` is the connection's channel binding; None if it has none.
    """

    mechanisms: frozenset[str]
    login_command: bool = False
    encrypted: bool = False
    binding: Binding | None = None

    @classmethod
    def of(cls, names: Iterable[str], *, login_command: bool, encrypted: bool, binding: Binding | None) -> Offer:
        """Return the offer of a server that lists these mechanisms."""
        return cls(frozenset(map(str.upper, names)), login_command, encrypted, binding)

    def has(self, method: str) -> bool:
        """Return whether a method can be used."""
        if method == LOGIN_COMMAND:
            return self.login_command
        return method.upper() in self.mechanisms and (self.binding is not None or not method.endswith("-plus"))

    def shown(self) -> str:
        """Return the offer for an error."""
        names = [*sorted(self.mechanisms), *(["the command LOGIN"] if self.login_command else [])]
        text = ", ".join(names) or "none"
        return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."


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
    if account.token is not None:
        yield from TOKEN_METHODS
    if account.password:
        for method in _BY_PASSWORD[offer.encrypted]:
            # In TLS 1.3, Python has a binding that few servers know; a scenario may name it.
            if not method.endswith("-plus") or (offer.binding is not None and offer.binding.kind == "tls-unique"):
                yield method
    if endpoint.client_certificate is not None:
        yield "external"


def missing(endpoint: Endpoint, account: Account, offer: Offer) -> str:
    """Return the error for a server that offers none of the methods."""
    if endpoint.methods:
        expected = " or ".join(endpoint.methods)
        unbound = [method for method in endpoint.methods if method.upper() in offer.mechanisms]
        if unbound and offer.binding is None:
            return f"{' and '.join(unbound)} need a channel binding, which this connection does not have"
    else:
        expected = f"a method for {_secrets(endpoint, account)}"
        if account.authzid is not None:
            expected += " with an authorisation identity"
    return f"expected {expected}, the server offers {offer.shown()}"


def _secrets(endpoint: Endpoint, account: Account) -> str:
    has: Sequence[tuple[str, object]] = (
        ("a token", account.token),
        ("a password", account.password),
        ("a client certificate", endpoint.client_certificate),
    )
    return " or ".join(name for name, found in has if found)
