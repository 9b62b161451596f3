"""Accounts and distribution lists as tables for mail servers: Dovecot, Postfix, aliases, CSV."""

from __future__ import annotations

import csv
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path

from loadsim.errors import ConfigError
from loadsim.model.ports import Account

ACCOUNTS_CSV = "accounts.csv"
SECRET = 0o600
PUBLIC = 0o644

_NAME = re.compile(r"(?!#)[^!%':\s]+")


def dovecot_passwords(accounts: Iterable[Account]) -> str:
    """Return a Dovecot passdb `passwd-file`: one `login:{PLAIN}password` per line. Its contents are secret.

    Colons separate fields, so a password with a colon is written in Base64, which Dovecot decodes.
    """
    return "".join(f"{_name(account.login)}:{_password(account.password)}\n" for account in accounts)


def _name(name: str) -> str:
    """Return a name for the start of a line. Raises `ConfigError` for a name that a server would misread.

    A # begins a comment. Dovecot escapes apostrophes before it looks up a name, and expands %; Postfix takes % and !
    for routes.
    """
    if not name.isprintable() or not _NAME.fullmatch(name):
        expected = "names for Dovecot and Postfix without !, %, ', colon and white space, and no # in front"
        raise ConfigError(f"accounts: expected {expected}, found {name!r}")
    return name


def _password(password: str) -> str:
    if ":" in password:
        return "{PLAIN.b64}" + b64encode(password.encode()).decode()
    return "{PLAIN}" + password


def dovecot_users(accounts: Iterable[Account]) -> str:
    """Return a Dovecot userdb `passwd-file`: a line for each login, and for each address that is not the login.

    Delivery (LMTP) looks up the address; `userdb_user=` maps it to the login's mailbox.
    """
    lines: list[str] = []
    for account in accounts:
        lines.append(f"{_name(account.login)}:::::::\n")
        if account.address != account.login:
            lines.append(f"{_name(account.address)}:::::::userdb_user={account.login}\n")
    return "".join(lines)


def postfix_mailboxes(accounts: Iterable[Account]) -> str:
    """Return a table for Postfix's `virtual_mailbox_maps`. For delivery by LMTP, only the keys matter."""
    return "".join(f"{_name(account.address)}\t{account.login}\n" for account in accounts)


def postfix_aliases(lists: Mapping[str, Sequence[str]]) -> str:
    """Return a table for Postfix's `virtual_alias_maps`: each list with its members, one per continuation line."""
    return "".join(
        f"{address}\t" + ",\n\t".join(map(_name, members)) + "\n" for address, members in lists.items() if members
    )


def aliases(lists: Mapping[str, Sequence[str]]) -> str:
    """Return aliases(5) for sendmail, Exim (`lsearch`) and Postfix.

    Each list has its local part, a colon, and its members, one per continuation line.
    """
    return "".join(
        f"{address.rpartition('@')[0]}: " + ",\n  ".join(map(_name, members)) + "\n"
        for address, members in lists.items()
        if members
    )


def address_aliases(lists: Mapping[str, Sequence[str]]) -> str:
    """Return aliases by full address, one list per line: Courier needs the address, OpenSMTPD has no continuations."""
    return "".join(f"{address}: {', '.join(map(_name, members))}\n" for address, members in lists.items() if members)


def csv_accounts(accounts: Iterable[Account]) -> str:
    """Return CSV with the columns user, password, address, for a scenario's `accounts: {csv}`. Keep it secret."""
    rows = ((account.login, account.password, account.address) for account in accounts)
    return _csv(("user", "password", "address"), rows)


def csv_lists(lists: Mapping[str, Sequence[str]]) -> str:
    """Return CSV with the columns list and member: one row per list and member."""
    return _csv(("list", "member"), ((address, member) for address, members in lists.items() for member in members))


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


Files = Mapping[str, tuple[str, int]]
"""Text and mode of each file, by file name."""

_MAKERS: Mapping[str, Callable[[Sequence[Account], Mapping[str, Sequence[str]]], Files]] = {
    "dovecot": lambda accounts, _: {
        "dovecot.passwd": (dovecot_passwords(accounts), SECRET),
        "dovecot.users": (dovecot_users(accounts), PUBLIC),
    },
    "postfix": lambda accounts, lists: {
        "virtual_mailboxes": (postfix_mailboxes(accounts), PUBLIC),
        "virtual_aliases": (postfix_aliases(lists), PUBLIC),
    },
    "csv": lambda accounts, lists: {
        ACCOUNTS_CSV: (csv_accounts(accounts), SECRET),
        "lists.csv": (csv_lists(lists), PUBLIC),
    },
    "aliases": lambda _, lists: {
        "aliases": (aliases(lists), PUBLIC),
        "aliases.addresses": (address_aliases(lists), PUBLIC),
    },
}

FORMATS = tuple(_MAKERS)


def export(
    accounts: Sequence[Account], lists: Mapping[str, Sequence[str]], layout: str, directory: Path
) -> tuple[Path, ...]:
    """Write the tables in one of `FORMATS` into `directory`, which is created if missing. Return the files.

    Only their owner can read files with passwords. Raises `ConfigError`, and writes nothing, if the passwords are not
    the accounts' own, if a file exists with other contents, or if the directory is not writable.
    """
    files = _MAKERS[layout](accounts, lists)
    secret = any(mode == SECRET for _, mode in files.values())
    for account in accounts if secret else ():
        if account.authcid is not None or not account.password:
            found = "that of a master user" if account.authcid is not None else "none"
            raise ConfigError(
                f"topology export: accounts: expected each user's own password for format {layout}, found {found}"
            )
    try:
        for name, (text, _) in files.items():
            path = directory / name
            same = path.is_file() and path.read_bytes() == text.encode()
            if path.is_symlink() or (path.exists() and not same):
                raise ConfigError(
                    f"{path}: expected a new file, or one with the same contents, found other contents;"
                    " choose another directory (--out), or delete it"
                )
        directory.mkdir(parents=True, exist_ok=True)
        return tuple(write_table(directory / name, text, mode) for name, (text, mode) in files.items())
    except OSError as error:
        where = error.filename or directory
        raise ConfigError(f"{where}: expected to write a table there, found: {error.strerror}") from None


def write_table(path: Path, text: str, mode: int) -> Path:
    """Write a text into a new file, whose mode is set before its contents. Return the path."""
    path.unlink(missing_ok=True)
    path.touch(mode=mode, exist_ok=False)
    path.chmod(mode)
    path.write_text(text, encoding="utf-8", newline="\n")
    return path
