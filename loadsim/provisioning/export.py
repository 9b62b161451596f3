"""Accounts and distribution lists as the tables that mail servers read: Dovecot, Postfix, CSV."""

from __future__ import annotations

import csv
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path

from loadsim.errors import ConfigError
from loadsim.model.ports import Account

FORMATS = ("dovecot", "postfix", "csv")
ACCOUNTS_CSV = "accounts.csv"
SECRET = 0o600
PUBLIC = 0o644


def dovecot_passwords(accounts: Iterable[Account]) -> str:
    """A passdb `passwd-file` of Dovecot: `login:{PLAIN}password` per line. Keep it secret.

    Colons part the fields, so a password that holds one is written in base64, which Dovecot undoes.
    """
    return "".join(f"{account.login}:{_password(account.password)}\n" for account in accounts)


def _password(password: str) -> str:
    if ":" in password:
        return "{PLAIN.b64}" + b64encode(password.encode()).decode()
    return "{PLAIN}" + password


def dovecot_users(accounts: Iterable[Account]) -> str:
    """A userdb `passwd-file` of Dovecot: who has a mailbox, by login, and by address where that is another name.

    Delivery (LMTP) asks for the address; `userdb_user=` leads it to the mailbox of the login.
    """
    lines: list[str] = []
    for account in accounts:
        lines.append(f"{account.login}:::::::\n")
        if account.address != account.login:
            lines.append(f"{account.address}:::::::userdb_user={account.login}\n")
    return "".join(lines)


def postfix_mailboxes(accounts: Iterable[Account]) -> str:
    """A table for Postfix's `virtual_mailbox_maps`; only the keys matter when delivery is by LMTP."""
    return "".join(f"{account.address}\t{account.login}\n" for account in accounts)


def postfix_aliases(lists: Mapping[str, Sequence[str]]) -> str:
    """A table for Postfix's `virtual_alias_maps`: every list with its members, one to a continuation line."""
    return "".join(f"{address}\t" + ",\n\t".join(members) + "\n" for address, members in lists.items() if members)


def csv_accounts(accounts: Iterable[Account]) -> str:
    """CSV with the columns user, password, address, as a scenario's `accounts: {csv}` takes it. Keep it secret."""
    rows = ((account.login, account.password, account.address) for account in accounts)
    return _csv(("user", "password", "address"), rows)


def csv_lists(lists: Mapping[str, Sequence[str]]) -> str:
    """CSV with the columns list, member: one row for each member of each list."""
    return _csv(("list", "member"), ((address, member) for address, members in lists.items() for member in members))


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def export(
    accounts: Sequence[Account], lists: Mapping[str, Sequence[str]], layout: str, directory: Path
) -> tuple[Path, ...]:
    """Write the tables of one of `FORMATS` into `directory` (made if need be); the files written.

    Files that hold passwords are readable by their owner only. Raises `ConfigError` on another layout, or where the
    directory cannot be written to.
    """
    if layout == "dovecot":
        files = {
            "dovecot.passwd": (dovecot_passwords(accounts), SECRET),
            "dovecot.users": (dovecot_users(accounts), PUBLIC),
        }
    elif layout == "postfix":
        files = {
            "virtual_mailboxes": (postfix_mailboxes(accounts), PUBLIC),
            "virtual_aliases": (postfix_aliases(lists), PUBLIC),
        }
    elif layout == "csv":
        files = {ACCOUNTS_CSV: (csv_accounts(accounts), SECRET), "lists.csv": (csv_lists(lists), PUBLIC)}
    else:
        raise ConfigError(f"topology export: format: expected one of {', '.join(FORMATS)}, found {layout!r}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return tuple(write_table(directory / name, text, mode) for name, (text, mode) in files.items())
    except OSError as error:
        where = error.filename or directory
        raise ConfigError(f"{where}: expected to write a table there, found: {error.strerror}") from None


def write_table(path: Path, text: str, mode: int) -> Path:
    """Put the text into a new file of this mode, which it has before it has any contents; the path."""
    path.unlink(missing_ok=True)
    path.touch(mode=mode, exist_ok=False)
    path.chmod(mode)
    path.write_text(text, encoding="utf-8", newline="\n")
    return path
