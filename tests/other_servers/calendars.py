"""A private Radicale and a private xandikos: CalDAV servers from the package index, with the accounts of a scenario.

Each is one process, which keeps its calendars in files below a directory. Its users have the principals
/LOGIN/, and at first no calendars. They receive no mail, and need no lists.
"""

import base64
import hashlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from loadsim.model.ports import Account, Endpoint, Services
from loadsim.provisioning.export import SECRET, write_table
from loadsim.servers.dovecot_postfix_config import Layout, make_certificates
from loadsim.servers.master import Master
from loadsim.servers.private import LOOPBACK, PrivateServer, on_free_ports, start_masters
from loadsim.servers.running import check_population


def start_radicale(
    accounts: Iterable[Account], lists: Mapping[str, Sequence[str]], directory: Path, *, caldav_port: int | None = None
) -> PrivateServer:
    """Start Radicale without TLS, and wait until it answers; without a port, a free one is chosen.

    By default, it serves eight connections at a time, and idle ones count. Here it serves two hundred.
    """
    population, _ = check_population(accounts, lists)
    users = write_table(directory / "users", "".join(f"{each.login}:{each.password}\n" for each in population), SECRET)
    options = ("--config", "", "--storage-filesystem-folder", str(directory / "calendars"))
    options += ("--server-max-connections", "200", "--auth-type", "htpasswd", "--auth-htpasswd-filename", str(users))
    options += ("--auth-htpasswd-encryption", "plain")

    def start(port: int) -> PrivateServer:
        command = _module("radicale", *options, "--server-hosts", f"{LOOPBACK}:{port}")
        return _started("Radicale", command, directory, Endpoint(LOOPBACK, port))

    return on_free_ports(LOOPBACK, caldav_port, caldav_port, lambda port, _: start(port))


def start_xandikos(
    accounts: Iterable[Account], lists: Mapping[str, Sequence[str]], directory: Path, *, caldav_port: int | None = None
) -> PrivateServer:
    """Start xandikos with TLS, without which it checks no passwords, and wait until it answers.

    Its own certificate would not be valid for an address, so it gets one.
    """
    population, _ = check_population(accounts, lists)
    lines = (f"{each.login}:{{SHA}}{_sha1(each.password)}\n" for each in population)
    users = write_table(directory / "users", "".join(lines), SECRET)
    keys, state = Layout(directory), directory / "state"
    keys.tls.mkdir(parents=True, exist_ok=True)
    make_certificates(keys, LOOPBACK)
    (state / "certs").mkdir(parents=True, exist_ok=True)
    for name, own in (("server.pem", "selfsigned.crt"), ("server.key", "selfsigned.key")):
        (keys.tls / name).rename(state / "certs" / own)
    options = ("--directory", str(directory / "calendars"), "--state-dir", str(state), "--no-detect-systemd")
    options += ("--autocert", "--htpasswd", str(users), "--listen-address", LOOPBACK)

    def start(port: int) -> PrivateServer:
        command = _module("xandikos", "multi-user", *options, "--port", str(port))
        endpoint = Endpoint(LOOPBACK, port, "implicit", str(keys.tls / "ca.pem"))
        return _started("xandikos", command, directory, endpoint)

    return on_free_ports(LOOPBACK, caldav_port, caldav_port, lambda port, _: start(port))


def _module(name: str, *arguments: str) -> list[str]:
    """Return a command that runs a module of this environment; -P keeps the working directory out of its path."""
    return [sys.executable, "-P", "-m", name, *arguments]


def _sha1(password: str) -> str:
    return base64.b64encode(hashlib.sha1(password.encode()).digest()).decode()


def _started(name: str, command: Sequence[str], directory: Path, endpoint: Endpoint) -> PrivateServer:
    log = directory / f"{name.lower()}.log"

    def ready(master: Master) -> None:
        master.await_greeting(endpoint.host, endpoint.port, b"")

    masters = start_masters([(lambda: Master(name.lower(), command, log), ready)])
    return PrivateServer(Services(caldav=endpoint), masters, f"{name} {version(name)}", [])
