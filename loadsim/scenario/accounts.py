"""Accounts of simulated users: names and passwords from a pattern or a table; the section `accounts`."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from loadsim.documents.schema import Text
from loadsim.documents.typed import Reads, mismatch, show, strict
from loadsim.documents.yaml_reader import Origin, resolve_path
from loadsim.errors import ConfigError
from loadsim.files import read_text
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.ports import Account
from loadsim.passwords import from_environment, from_file, open_to_others
from loadsim.scenario.log_on import Pattern, fill, is_pattern

MOST_TABLE_BYTES = 1 << 28
"""The largest table of accounts: about five million users."""

_INDEX = re.compile(r"\{index(?::(0?[1-9]?)d?)?\}")
"""{index}, {index:5} or {index:05d}: the user's number, optionally padded as in Python's format strings."""

_LOCAL_PART = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
"""RFC 5321 section 4.1.2: Dot-string. Quoted local parts are not supported."""

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


def _domain(value: object) -> str:
    if not isinstance(value, str) or not _DOMAIN.fullmatch(value) or len(value) > 255:
        raise mismatch("a domain such as loadsim.test")
    return value.lower()


Domain = Annotated[str, Reads(_domain, "text")]


def _fill(pattern: str, index: int) -> str:
    return _INDEX.sub(lambda match: format(index, f"{match[1] or ''}d"), pattern)


def _address(user: str, domain: str) -> str:
    return user if "@" in user else f"{user}@{domain}"


def address_problem(address: str, domain: str) -> str | None:
    """Describe the address that was expected; None if this is one in the domain."""
    local, _, own = address.rpartition("@")
    if own.lower() == domain and _LOCAL_PART.fullmatch(local) and len(local) <= 64:
        return None
    return f"an address in {domain}"


@dataclass(frozen=True, slots=True)
class Identity:
    """Alternatives to logging on with an account's own name and password.

    `master` is the name that all passwords belong to. It follows `separator` in the log-on name (Dovecot's
    `user*master`). Without a separator, the user is the authorisation identity. `token_file` is a pattern for the paths
    of token files.
    """

    master: str | None = None
    separator: str | None = None
    token_file: str | None = None

    def of(self, account: Account) -> Account:
        if self == OWN:
            return account
        number, login = account.number, account.login
        authcid, authzid = self.master, None
        if self.master is not None and self.separator is not None:
            authcid = f"{login}{self.separator}{self.master}"
        elif self.master is not None:
            authzid = login
        token_file = None if self.token_file is None else fill(self.token_file, number, login)
        return replace(account, authcid=authcid, authzid=authzid, token_file=token_file)

    def document(self) -> dict[str, Any]:
        """Return the keys of the section `accounts`."""
        keys = {"token_file": self.token_file, "master": self.master, "master_separator": self.separator}
        return {key: value for key, value in keys.items() if value is not None}


OWN = Identity()
"""Users log on with their own names and passwords."""


@dataclass(frozen=True, slots=True)
class AccountPattern:
    """Names and passwords as functions of the user's number (from 1), which replaces `{index}`.

    A user name is the log-on name; without @, the address is this name in the scenario's domain.
    """

    user: str = "user{index:05d}"
    password: str = field(default="secret-{index}", repr=False)
    manifest_key: str | None = field(default=None, repr=False)
    identity: Identity = OWN
    password_source: str = field(default="", compare=False)

    def account(self, index: int, domain: str) -> Account:
        login = _fill(self.user, index)
        own = Account(
            *(index, login, _address(login, domain), _fill(self.password, index), self.manifest_key),
            first_address=_address(_fill(self.user, 1), domain),
            password_source=self.password_source,
        )
        return self.identity.of(own)

    def number(self, address: str, domain: str) -> int | None:
        parts = _INDEX.split(_address(self.user, domain))[::2]
        match = re.fullmatch(r"\s*(\d+)".join(map(re.escape, parts)), address, re.ASCII | re.IGNORECASE)
        if match is None or len(set(map(int, match.groups()))) != 1:
            return None
        index = int(match[1])
        return index if self.account(index, domain).address.lower() == address.lower() else None

    def problem(self, domain: str, users: int) -> str | None:
        """Describe the pattern that was expected; None if this one gives each user their own address."""
        if not _INDEX.search(self.user):
            return "a pattern that contains {index}"
        if re.search(r"[{}]", _INDEX.sub("", self.user)):
            return "no field but {index}, such as {index:05d}"
        return address_problem(self.account(users, domain).address, domain)


@dataclass(frozen=True, slots=True)
class AccountTable:
    """Accounts from a CSV file with the columns user, password and, if it is not the user, address."""

    csv: str
    rows: tuple[Account, ...] = field(repr=False)
    identity: Identity = OWN
    _numbers: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = {account.address.lower(): account.number for account in self.rows}
        object.__setattr__(self, "_numbers", numbers)

    def account(self, index: int, domain: str) -> Account:
        return self.identity.of(self.rows[index - 1])

    def number(self, address: str, domain: str) -> int | None:
        return self._numbers.get(address.lower())


def read_table(path: Path, domain: str, manifest_key: str | None = None) -> AccountTable:
    """Read a table of accounts that share the manifest key.

    Raises a one-line `ConfigError`, which shows no password.
    """
    text = read_text(path, str(path), "utf-8-sig", MOST_TABLE_BYTES)
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = next(lines, [])
        if sorted(columns) not in (["password", "user"], ["address", "password", "user"]):
            raise ConfigError(f"{path}: line 1: expected columns user, password and optionally address, found others")
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
        if row["user"].lower() in seen or address.lower() in seen:  # servers ignore case
            raise ConfigError(f"{name}: line {line}: expected each user once, found {show(row['user'])} again")
        seen |= {row["user"].lower(), address.lower()}
        first = accounts[0].address if accounts else address
        accounts.append(Account(number, row["user"], address, row["password"], manifest_key, first_address=first))
    return accounts


MASK = "***"
"""Written in place of passwords."""

PASSWORDS = ("password", "password_file", "password_env")
"""Keys that say where the password pattern comes from."""


@strict
@dataclass(frozen=True, slots=True)
class AccountsSection:
    """Either a pattern, with `user` and one source of passwords, or a table, `csv`."""

    user: Text | None = None
    """Pattern of log-on names: `{index}` is the user's number, `{index:05d}` pads it; names without @ get addresses in
    `domain`. Default: `user{index:05d}` on the embedded server."""
    password: Text | None = None
    """Pattern of passwords, never shown or stored. Default: `secret-{index}` on the embedded server."""
    password_file: Text | None = None
    """Instead of `password`: a file with the pattern on one line."""
    password_env: Text | None = None
    """Instead of `password`: an environment variable with the pattern."""
    csv: Text | None = None
    """Instead of names and passwords: a table with the columns `user`, `password` and, optionally, `address`."""
    manifest_key: Text | None = None
    """Key that signs each mailbox's manifest; accounts without passwords need one. Default: each password."""
    token_file: Pattern | None = None
    """File with the user's OAuth token, read at each log-on; its path may have the fields `{index}` and `{user}`."""
    master: Text | None = None
    """Name of a master user, who logs on as each user, and to whom all passwords belong."""
    master_separator: Text | None = None
    """Send user, separator and master as the log-on name, such as Dovecot's `*`."""

    def __post_init__(self) -> None:
        sources = [source for source in PASSWORDS if getattr(self, source) is not None]
        if self.csv is not None and (self.user is not None or sources):
            raise mismatch("either csv, or user and password", "both")
        if len(sources) > 1:
            raise mismatch(f"one of {', '.join(PASSWORDS)}", f"{' and '.join(sources)}")
        if self.master_separator is not None and self.master is None:
            raise mismatch("master with the master_separator", "no master")
        if self.csv is None and self.user is not None and not sources and self.manifest_key is not None:
            return  # tokens or certificates in place of passwords
        if self.csv is None and (self.user is None or not sources):
            found = "only a password" if sources else "only a user" if self.user else "neither"
            expected = "either csv, or user and password"
            if self.token_file is not None:
                expected = "a user, and a manifest_key (which signs manifests if there is no password)"
                found = "no manifest_key" if self.user else "no user"
            raise mismatch(expected, found)

    @property
    def has_password(self) -> bool:
        return self.csv is not None or any(getattr(self, source) is not None for source in PASSWORDS)


def prefer_set_password(document: dict[str, Any], origin: Origin) -> None:
    """Remove the file's source of passwords if the command line names a different one."""
    chosen = {source for source in PASSWORDS if ("accounts", source) in origin.overridden}
    accounts = document.get("accounts")
    if chosen and isinstance(accounts, dict):
        for source in PASSWORDS:
            if source not in chosen:
                accounts.pop(source, None)


def resolve_accounts(
    section: AccountsSection, domain: str, users: int, origin: Origin, directory: Path, passwords: bool
) -> AccountPattern | AccountTable:
    """Return a section's accounts; paths are relative to `directory`.

    Without `passwords`, no password is fetched. Raises `ConfigError` if there are fewer accounts than users.
    """
    identity = _identity(section, origin, directory)
    if section.csv is not None:
        table = read_table(resolve_path(section.csv, directory), domain, section.manifest_key)
        table = replace(table, identity=identity)
        if len(table.rows) < users:
            found = f"{len(table.rows)} rows"
            raise origin.error_saying(("accounts", "csv"), f"a row for each of {users} users", found)
        return table
    password = _password(section, origin, directory, passwords)
    pattern = AccountPattern(section.user or "", password, section.manifest_key, identity, _source_of(section))
    if problem := pattern.problem(domain, users):
        raise origin.error(("accounts", "user"), problem, pattern.user)
    return pattern


def _identity(section: AccountsSection, origin: Origin, directory: Path) -> Identity:
    """Return the way in which a section's accounts log on. A path without a field must belong to a file."""
    path = None
    if section.token_file is not None:
        path = resolve_path(section.token_file, directory)
        if not is_pattern(section.token_file):
            origin.check_file(("accounts", "token_file"), path, section.token_file)
    token_file = None if path is None else str(path.absolute())
    return Identity(section.master, section.master_separator, token_file)


def _password(section: AccountsSection, origin: Origin, directory: Path, fetched: bool) -> str:
    """Return the password pattern from the source that the scenario names."""
    if not section.has_password:
        return ""
    if section.password is not None or not fetched:
        return section.password or MASK
    if section.password_file is not None:
        return from_file(resolve_path(section.password_file, directory), origin.where(("accounts", "password_file")))
    return from_environment(section.password_env or "", origin.where(("accounts", "password_env")))


def _source_of(section: AccountsSection) -> str:
    """Return the key that names the password's source, and any variable; "" if the key has the password itself."""
    if section.password_env is not None:
        return f"{section.password_env} (accounts.password_env)"
    return "" if section.password_file is None else "accounts.password_file"


def exposed_passwords(section: AccountsSection | None, origin: Origin, directory: Path) -> tuple[Finding, ...]:
    """Return a finding for each password that other users of this machine may be able to read."""
    findings = []
    whole = ("accounts",) in origin.overridden and section is not None and section.password is not None
    if ("accounts", "password") in origin.overridden or whole:
        findings.append(finding(Code.PASSWORD_ON_COMMAND_LINE))
    for key in ("password_file", "csv", "token_file"):
        named = section and getattr(section, key)
        if named and not is_pattern(named) and open_to_others(path := resolve_path(named, directory)):
            findings.append(finding(Code.PASSWORD_FILE_OPEN, f"accounts.{key}", file=str(path)))
    return tuple(findings)
