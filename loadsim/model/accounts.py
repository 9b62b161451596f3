"""Who the simulated users are on the server: names and passwords by a pattern, or from a table."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import PlainValidator

from loadsim.errors import ConfigError
from loadsim.files import read_text
from loadsim.model.ports import Account
from loadsim.model.yaml_reader import refused, show

MOST_TABLE_BYTES = 1 << 28
"""The largest table of accounts: some five million users."""

_INDEX = re.compile(r"\{index(?::(0?[1-9]?)d?)?\}")
"""{index}, {index:5} or {index:05d}: the user's number, perhaps padded, as in Python's format strings."""

_LOCAL_PART = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
"""RFC 5321 section 4.1.2: Dot-string; quoted ones are for nobody."""

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


def _domain(value: object) -> str:
    if not isinstance(value, str) or not _DOMAIN.fullmatch(value) or len(value) > 255:
        raise refused("a domain such as loadsim.test")
    return value.lower()


Domain = Annotated[str, PlainValidator(_domain)]


def _fill(pattern: str, index: int) -> str:
    return _INDEX.sub(lambda match: format(index, f"{match[1] or ''}d"), pattern)


def _address(user: str, domain: str) -> str:
    return user if "@" in user else f"{user}@{domain}"


def address_problem(address: str, domain: str) -> str | None:
    """What is expected where this is not an address in the domain; None when it is one."""
    local, _, own = address.rpartition("@")
    if own.lower() == domain and _LOCAL_PART.fullmatch(local) and len(local) <= 64:
        return None
    return f"an address in {domain}"


@dataclass(frozen=True, slots=True)
class AccountPattern:
    """Names and passwords as functions of the user's number (from 1), which `{index}` stands for.

    A user name without @ is the log-on name, and its address is in the scenario's domain.
    """

    user: str = "user{index:05d}"
    password: str = field(default="secret-{index}", repr=False)
    manifest_key: str | None = field(default=None, repr=False)

    def account(self, index: int, domain: str) -> Account:
        """The account of user `index`."""
        login = _fill(self.user, index)
        return Account(index, login, _address(login, domain), _fill(self.password, index), self.manifest_key)

    def number(self, address: str, domain: str) -> int | None:
        """Which user has this address; None when it is nobody's. The inverse of `account`."""
        parts = _INDEX.split(_address(self.user, domain))[::2]
        match = re.fullmatch(r"\s*(\d+)".join(map(re.escape, parts)), address, re.ASCII | re.IGNORECASE)
        if match is None or len(set(map(int, match.groups()))) != 1:
            return None
        index = int(match[1])
        return index if self.account(index, domain).address.lower() == address.lower() else None

    def problem(self, domain: str, users: int) -> str | None:
        """What is expected where this pattern does not give each user an address of its own; None when it does."""
        if not _INDEX.search(self.user):
            return "a pattern that contains {index}"
        if re.search(r"[{}]", _INDEX.sub("", self.user)):
            return "no other field than {index}, such as {index:05d}"
        return address_problem(self.account(users, domain).address, domain)


@dataclass(frozen=True, slots=True)
class AccountTable:
    """Accounts out of a CSV file with the columns user, password and, if it is not the user, address."""

    csv: str
    rows: tuple[Account, ...] = field(repr=False)
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the addresses."""
        numbers = {account.address.lower(): account.number for account in self.rows}
        object.__setattr__(self, "_numbers", numbers)

    def account(self, index: int, domain: str) -> Account:
        """The account in row `index` (from 1)."""
        return self.rows[index - 1]

    def number(self, address: str, domain: str) -> int | None:
        """Which user has this address; None when it is nobody's."""
        return self._numbers.get(address.lower())


def read_table(path: Path, domain: str, manifest_key: str | None = None) -> AccountTable:
    """Read a table of accounts, which share the manifest key. Raises ConfigError, one line that shows no password."""
    text = read_text(path, str(path), "utf-8-sig", MOST_TABLE_BYTES)
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = next(lines, [])
        if sorted(columns) not in (["password", "user"], ["address", "password", "user"]):
            raise ConfigError(f"{path}: line 1: expected the columns user, password and perhaps address, found others")
        rows = [(lines.line_num, dict(zip(columns, row, strict=True))) for row in lines if row]
    except ValueError:
        line = f"{path}: line {lines.line_num}"
        raise ConfigError(f"{line}: expected {len(columns)} columns, found more or fewer") from None
    except csv.Error:
        raise ConfigError(f"{path}: line {lines.line_num}: expected CSV, found something else") from None
    return AccountTable(str(path.resolve()), tuple(_accounts(str(path), rows, domain, manifest_key)))


def _accounts(
    name: str, rows: Sequence[tuple[int, dict[str, str]]], domain: str, manifest_key: str | None
) -> list[Account]:
    accounts: list[Account] = []
    seen: set[str] = set()
    for number, (line, row) in enumerate(rows, start=1):
        address = row.get("address") or _address(row["user"], domain)
        problem = address_problem(address, domain)
        if problem:
            raise ConfigError(f"{name}: line {line}: expected {problem}, found {show(address)}")
        if not row["user"] or not row["user"].isprintable():
            raise ConfigError(f"{name}: line {line}: expected a user, found {show(row['user'])}")
        if not row["password"] or not row["password"].isprintable():
            raise ConfigError(f"{name}: line {line}: expected a password, found none, or one that cannot be sent")
        if row["user"] in seen or address.lower() in seen:
            raise ConfigError(f"{name}: line {line}: expected each user once, found {show(row['user'])} again")
        seen |= {row["user"], address.lower()}
        accounts.append(Account(number, row["user"], address, row["password"], manifest_key))
    return accounts
