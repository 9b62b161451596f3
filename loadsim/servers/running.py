"""The interface of servers that loadsim starts, and the check of their accounts and lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from loadsim.errors import ConfigError
from loadsim.model.ports import Account, Services


class RunningServer(Protocol):
    """A mail server started by loadsim, ready for its users at `services`; leaving the `with` block stops it."""

    services: Services

    def describe(self) -> str:
        """Return the name and versions on one line, for people and for the log."""

    def stop(self) -> None:
        """Stop the server, and wait until none of its processes is left. A second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def check_population(
    accounts: Iterable[Account], lists: Mapping[str, Sequence[str]]
) -> tuple[tuple[Account, ...], dict[str, tuple[str, ...]]]:
    """Return the accounts and lists in the form that servers expect. Raises `ConfigError` if they conflict.

    Logins and addresses must be unique, and lists' members must be accounts. Names go into line-oriented tables and
    protocols, so none may contain white space, a colon or a control character.
    """
    population = tuple(accounts)
    if not population:
        raise ConfigError("accounts: expected at least one account, found none")
    logins: set[str] = set()
    addresses: set[str] = set()
    for account in population:
        user = f"accounts: user {account.number}"
        for name, taken in ((account.login, logins), (account.address.lower(), addresses)):
            if not name or ":" in name or not name.isprintable() or " " in name:
                raise ConfigError(f"{user}: expected a name without white space and colons, found {name!r}")
            if name in taken:
                raise ConfigError(f"{user}: expected a unique name, found {name!r} twice")
            taken.add(name)
        if not account.password.isprintable() or not account.password:
            raise ConfigError(f"{user}: expected a password of printable characters")
        if account.address.count("@") != 1:
            raise ConfigError(f"{user}: expected user@domain, found {account.address!r}")
    for address, members in lists.items():
        if address.lower() in addresses:
            raise ConfigError(f"lists: {address}: expected a unique address, found an account's")
        for member in members:
            if member.lower() not in addresses:
                raise ConfigError(f"lists: {address}: expected members that have an account, found {member!r}")
    return population, {address: tuple(members) for address, members in lists.items()}
