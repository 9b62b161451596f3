"""The choice among the log-on methods that a server offers."""

from __future__ import annotations

from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from loadsim.model.ports import Account, Endpoint
from loadsim.scenario.log_on import LOGIN_COMMAND, SCRAM_METHODS, TOKEN_METHODS, WITH_AUTHZID

LONGEST_SHOWN = 120
"""The most characters of a server's offer that an error quotes."""

_BY_PASSWORD = {
    True: (*SCRAM_METHODS, "plain", LOGIN_COMMAND, "login", "cram-md5"),
    False: (*SCRAM_METHODS, "cram-md5", "plain", LOGIN_COMMAND, "login"),
}
"""The order of `auto` with and without TLS. Over TLS, CRAM-MD5 protects nothing, yet makes servers store passwords."""


_BY_STORED_SECRET = frozenset({*SCRAM_METHODS, "cram-md5"})
"""Methods for which a server must store separate secrets, since it never receives the password."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The methods offered on a connection: SASL mechanisms in capitals, and whether LOGIN (POP3: USER) is allowed."""

    mechanisms: frozenset[str]
    login_command: bool = False
    encrypted: bool = False

    def has(self, method: str) -> bool:
        if method == LOGIN_COMMAND:
            return self.login_command
        return method.upper() in self.mechanisms

    def shown(self) -> str:
        names = [*sorted(self.mechanisms), *([LOGIN_COMMAND] if self.login_command else [])]
        text = ", ".join(names) or "none"
        return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."


@dataclass(slots=True)
class _Shown:
    """The results of log-ons in one run or preparation, each of which has its own event loop."""

    used: set[str] = field(default_factory=set)
    """Accepted methods with their services, such as "IMAP plain"."""
    keeps_secrets: dict[tuple[str, int], bool] = field(default_factory=dict)
    """By address: True if the server stores secrets for `_BY_STORED_SECRET`, False if not."""
    seconds: dict[tuple[str, int, int], bool] = field(default_factory=dict)
    """By address and user: True if the second method was accepted, False if it was not."""


_shown: WeakKeyDictionary[AbstractEventLoop, _Shown] = WeakKeyDictionary()


def _so_far() -> _Shown:
    return _shown.setdefault(get_running_loop(), _Shown())


def used_methods() -> list[str]:
    """Return the methods that were accepted in this run, with their services."""
    return sorted(_so_far().used)


def accepted(service: str, endpoint: Endpoint, method: str) -> None:
    """Record the method of a successful log-on to a service (IMAP or SMTP)."""
    _so_far().used.add(f"{service} {method}")
    if method in _BY_STORED_SECRET:
        _so_far().keeps_secrets[endpoint.host, endpoint.port] = True


def chosen(endpoint: Endpoint, account: Account, offer: Offer) -> str | None:
    """Return the first of the scenario's methods on offer; if it names none, the strongest that the user's secret
    allows.

    None if the server offers none of them. A method named by the scenario is never replaced by another.
    """
    if endpoint.methods:
        return next(filter(offer.has, endpoint.methods), None)
    usable = [method for method in _automatic(endpoint, account, offer) if _fits(method, account, offer)]
    address, shown = (endpoint.host, endpoint.port), _so_far()
    if shown.seconds.get((*address, account.number)) or not shown.keeps_secrets.get(address, True):
        usable.sort(key=_BY_STORED_SECRET.__contains__)
    return next(iter(usable), None)


def second(endpoint: Endpoint, account: Account, offer: Offer, refused: str) -> str | None:
    """Return the method to try after `auto`'s first one was `refused`; None if there is none.

    A server may offer SCRAM and CRAM-MD5 but store secrets for no users, or only for some, and refuse the others as if
    their password were wrong. The second method, tried once per user, sends it the password itself.
    """
    tried = _so_far().seconds.get((endpoint.host, endpoint.port, account.number))
    if endpoint.methods or refused not in _BY_STORED_SECRET or tried is False:
        return None
    return next((method for method in ("plain", LOGIN_COMMAND, "login") if _fits(method, account, offer)), None)


def tried_second(endpoint: Endpoint, account: Account, succeeded: bool) -> None:
    """Record how a log-on by the second method ended."""
    address, shown = (endpoint.host, endpoint.port), _so_far()
    shown.seconds[(*address, account.number)] = succeeded
    if succeeded:
        shown.keeps_secrets.setdefault(address, False)


def _fits(method: str, account: Account, offer: Offer) -> bool:
    return offer.has(method) and (account.authzid is None or method in WITH_AUTHZID)


def _automatic(endpoint: Endpoint, account: Account, offer: Offer) -> Iterator[str]:
    if account.token_file is not None:
        yield from TOKEN_METHODS
    if account.password:
        yield from _BY_PASSWORD[offer.encrypted]
    if endpoint.client_certificate is not None:
        yield "external"


def missing(endpoint: Endpoint, account: Account, offer: Offer) -> str:
    """Return the error text for a server that offers none of the methods."""
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
