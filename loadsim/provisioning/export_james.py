"""Accounts and distribution lists of Apache James, as calls of its webadmin (HTTP), and as a shell script of them.

https://james.apache.org/server/manage-webadmin.html: "Create a domain", "Create a user", "Creating address aliases",
"Creating address group". A list is a group. All calls may be repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from loadsim.errors import ConfigError
from loadsim.model.ports import Account

WEBADMIN = "http://127.0.0.1:8000"
"""James's default."""


class Call(NamedTuple):
    """One PUT of webadmin: the path below its address, and the JSON to send (with a user's password), or ""."""

    path: str
    body: str


def james_calls(accounts: Sequence[Account], lists: Mapping[str, Sequence[str]]) -> Iterator[Call]:
    """Yield the calls that create the domains, the accounts and the lists, in this order.

    Raises `ConfigError` if James cannot express an account; see `virtual_hosting`.
    """
    by_address = virtual_hosting(accounts)
    addresses = (*(account.address for account in accounts), *lists)
    for domain in sorted({address.rpartition("@")[2].lower() for address in addresses}):
        yield Call(f"/domains/{quote(domain, safe='')}", "")
    for account in accounts:
        # force: change the password of an account that exists
        yield Call(f"/users/{quote(account.login, safe='')}?force", json.dumps({"password": account.password}))
        if by_address and account.login != account.address:
            yield Call(
                f"/address/aliases/{quote(account.login, safe='')}/sources/{quote(account.address, safe='')}", ""
            )
    for address, members in lists.items():
        for member in members:
            yield Call(f"/address/groups/{quote(address, safe='')}/{quote(member, safe='')}", "")


def virtual_hosting(accounts: Sequence[Account]) -> bool:
    """Return James's setting `enableVirtualHosting`: whether users log on with an address.

    Without it, they log on with the local part of their address. Raises `ConfigError` if the accounts differ in this.
    """
    by_address = "@" in accounts[0].login
    for account in accounts:
        if by_address and "@" not in account.login:
            raise ConfigError(
                f"accounts: user {account.number}: expected to log on with an address, like user"
                f" {accounts[0].number}, for James, found {account.login}"
            )
        local = account.address.partition("@")[0]
        if not by_address and account.login != local:
            raise ConfigError(
                f"accounts: user {account.number}: expected to log on as {local}, for James, found {account.login}"
            )
    return by_address


def james_script(accounts: Iterable[Account], lists: Mapping[str, Sequence[str]]) -> str:
    """Return a shell script that creates the accounts and lists through webadmin, with curl. Keep it secret.

    curl reads all calls from its standard input, so passwords are in no arguments, and one connection is enough.
    """
    population = tuple(accounts)
    setting = "true" if virtual_hosting(population) else "false"
    calls = "next\n".join(map(_curl_config, james_calls(population, lists)))
    return SCRIPT.format(setting=setting, webadmin=WEBADMIN, calls=calls)


def _curl_config(call: Call) -> str:
    body = f"header = {_quoted('Content-Type: application/json')}\ndata = {_quoted(call.body)}\n" if call.body else ""
    return f'path = {_quoted(call.path)}\nrequest = "PUT"\n{body}fail-with-body\nsilent\nshow-error\n'


def _quoted(text: str) -> str:
    """Quote a value of curl's configuration (curl(1), --config)."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


SCRIPT = """\
#!/bin/sh
# Creates loadsim's accounts and distribution lists on Apache James, through its webadmin. It may run again.
# usernames: usersrepository.xml needs <enableVirtualHosting>{setting}</enableVirtualHosting>
# usage: sh james.sh [WEBADMIN], default {webadmin}; if webadmin needs a token, set JAMES_TOKEN
set -eu
webadmin=${{1:-{webadmin}}}

# Only the shell's own commands see the token and the passwords, and curl by its standard input.
calls() {{
  while IFS= read -r line; do
    case $line in
      'path = "'*)
        printf 'url = "%s%s\\n' "$webadmin" "${{line#path = ?}}"
        if [ -n "${{JAMES_TOKEN-}}" ]; then printf 'header = "Authorization: Bearer %s"\\n' "$JAMES_TOKEN"; fi
        ;;
      *) printf '%s\\n' "$line" ;;
    esac
  done
}}

calls <<'END' | curl --fail-early --config -
{calls}END
"""
