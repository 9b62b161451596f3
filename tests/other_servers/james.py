"""A private Apache James, memory app: IMAP and SMTP in one Java process, all mail in memory, from Maven Central.

Accounts and lists are created through its webadmin (HTTP), on a third port of loopback:
https://james.apache.org/server/manage-webadmin.html. A list is a group.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from loadsim.errors import ConfigError
from loadsim.model.ports import Account, Endpoint, Services
from loadsim.servers.master import START_LIMIT_S, Master
from loadsim.servers.private import LOOPBACK, PrivateServer, free_port, on_free_ports, start_masters
from loadsim.servers.running import check_population
from other_servers.james_config import KEYSTORE_PASSWORD, JamesLayout, write_configuration
from other_servers.java import find_programs, java_command, prepare_directory

ARTIFACT = "james-server-memory-app"
SERIES = "3.8"
MAIN = "org.apache.james.MemoryJamesServerMain"
STARTED = "JAMES server started"


class James(PrivateServer):
    """A running instance. `webadmin` is the port of its webadmin."""

    def __init__(self, services: Services, masters: Sequence[Master], description: str, webadmin: int) -> None:
        super().__init__(services, masters, description, ["All mail is in memory."])
        self.webadmin = webadmin


def start_james(
    accounts: Iterable[Account],
    lists: Mapping[str, Sequence[str]],
    directory: Path,
    *,
    imap_port: int | None = None,
    smtp_port: int | None = None,
    jmap_port: int | None = None,
) -> James:
    """Start an instance for these accounts and lists (address -> member addresses) on loopback, and wait for it.

    `directory` is created if missing. Free ports are chosen for those of IMAP and SMTP that are not given; JMAP without
    a port is off. Raises `ConfigError` if James or Java
    is missing, or it does not start.
    """
    population, lists = check_population(accounts, lists)
    by_address = "@" in population[0].login
    found = find_programs("james", ARTIFACT, SERIES)
    layout = JamesLayout(prepare_directory(directory))
    command = java_command(
        "james",
        layout.root,
        f"-Dworking.directory={layout.root}/",
        f"-Dlogback.configurationFile={layout.logging}",
        "-cp",
        found.class_path,
        MAIN,
    )

    def start(imap_port: int, smtp_port: int) -> James:
        webadmin, pop3_port = free_port(), free_port()
        ports = (imap_port, smtp_port, webadmin, pop3_port)
        write_configuration(layout, LOOPBACK, ports, population[0].domain, by_address, jmap_port)
        if jmap_port is not None:
            create_key(layout.conf / "keystore")

        def await_ready(master: Master) -> None:
            master.await_greeting(LOOPBACK, imap_port, b"* OK")
            master.await_greeting(LOOPBACK, smtp_port, b"220")
            for port in (webadmin, *([] if jmap_port is None else [jmap_port])):
                master.await_greeting(LOOPBACK, port, b"")
            call_webadmin(webadmin, james_calls(population, lists))

        masters = start_masters([(lambda: Master("james", command, layout.log, STARTED), await_ready)])
        imap, smtp, pop3 = (Endpoint(LOOPBACK, port) for port in (imap_port, smtp_port, pop3_port))
        services = Services(imap, smtp, pop3=pop3)
        return James(services, masters, f"Apache James {found.version}", webadmin)

    return on_free_ports(LOOPBACK, imap_port, smtp_port, start)


def create_key(keystore: Path) -> None:
    """Create the key without which JMAP does not start."""
    store = ("-keystore", str(keystore), "-storetype", "PKCS12", "-storepass", KEYSTORE_PASSWORD)
    if not keystore.exists():
        kind = ("-keyalg", "RSA", "-keysize", "2048", "-dname", "CN=james", "-alias", "james")
        subprocess.run(("keytool", "-genkeypair", *kind, *store), check=True, capture_output=True)


def call_webadmin(port: int, calls: Iterable[Call]) -> None:
    """Make the calls over one connection. Raises `ConfigError` with the first that fails, without its password."""
    with closing(HTTPConnection(LOOPBACK, port, timeout=START_LIMIT_S)) as webadmin:
        for call in calls:
            try:
                webadmin.request("PUT", call.path, call.body.encode(), {"Content-Type": "application/json"})
                answer = webadmin.getresponse()
                answer.read()
            except (OSError, HTTPException) as error:
                raise ConfigError(f"server: james: webadmin: PUT {call.path}: expected an answer: {error!r}") from None
            if answer.status not in range(200, 300):
                raise ConfigError(
                    f"server: james: webadmin: PUT {call.path}: expected success, found {answer.status} {answer.reason}"
                )


class Call(NamedTuple):
    """One PUT of webadmin: the path below its address, and the JSON to send (with a user's password), or ""."""

    path: str
    body: str


def james_calls(accounts: Sequence[Account], lists: Mapping[str, Sequence[str]]) -> Iterator[Call]:
    """Yield the calls that create the domains, the accounts and the lists, in this order."""
    by_address = "@" in accounts[0].login
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
