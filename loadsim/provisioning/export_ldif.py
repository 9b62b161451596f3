"""Accounts and distribution lists as LDIF (RFC 2849), for servers that look up users in a directory."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence

from loadsim.model.ports import Account

_SAFE = re.compile(r"[\x01-\x09\x0b\x0c\x0e-\x1f\x21-\x39\x3b\x3d-\x7f][\x01-\x09\x0b\x0c\x0e-\x7f]*(?<! )")
"""RFC 2849: SAFE-STRING, without a space at its end."""

_SPECIAL = re.compile(r'[,+"\\<>;=\0]|^[ #]| $')
"""RFC 4514 section 2.4: characters of a value in a name that need an escape."""


def ldif(accounts: Sequence[Account], lists: Mapping[str, Sequence[str]]) -> str:
    """Return a tree of all users (inetOrgPerson, RFC 2798) and lists (groupOfNames, RFC 4519). Keep it secret.

    Its suffix is made of the domain (RFC 2247). Lists without members are left out: groupOfNames needs one. They have
    `mail`, which groupOfNames lacks, by extensibleObject (RFC 4512 section 4.3). There is no line with a version:
    OpenLDAP's slapadd takes it for an entry without a name.
    """
    if not accounts:
        return ""
    domain = accounts[0].domain
    suffix = ",".join(f"dc={label}" for label in domain.split("."))
    people, groups = f"ou=people,{suffix}", f"ou=groups,{suffix}"
    names = {account.address.lower(): f"uid={_escaped(account.login)},{people}" for account in accounts}
    entries: list[Iterable[str]] = [
        _entry(suffix, ("top", "dcObject", "organization"), dc=[domain.partition(".")[0]], o=[domain]),
        _entry(people, ("top", "organizationalUnit"), ou=["people"]),
        _entry(groups, ("top", "organizationalUnit"), ou=["groups"]),
    ]
    entries += (_person(account, names[account.address.lower()]) for account in accounts)
    for address, members in lists.items():
        if members:
            name = address.rpartition("@")[0]
            named = [names[member.lower()] for member in members]
            classes = ("top", "groupOfNames", "extensibleObject")
            entries.append(_entry(f"cn={_escaped(name)},{groups}", classes, cn=[name], mail=[address], member=named))
    return "\n".join("".join(lines) for lines in entries)


def _person(account: Account, name: str) -> Iterator[str]:
    login = account.login
    classes = ("top", "person", "organizationalPerson", "inetOrgPerson")
    yield from _entry(name, classes, uid=[login], cn=[login], sn=[login], mail=[account.address])
    yield f"userPassword:: {b64encode(account.password.encode()).decode()}\n"  # hidden from a glance at the file


def _entry(name: str, classes: Sequence[str], **attributes: Sequence[str]) -> Iterator[str]:
    yield _line("dn", name)
    yield from (_line("objectClass", each) for each in classes)
    yield from (_line(key, value) for key, values in attributes.items() for value in values)


def _line(key: str, value: str) -> str:
    if _SAFE.fullmatch(value):
        return f"{key}: {value}\n"
    return f"{key}:: {b64encode(value.encode()).decode()}\n"


def _escaped(value: str) -> str:
    return _SPECIAL.sub(lambda match: "\\00" if match[0] == "\0" else "\\" + match[0], value)
