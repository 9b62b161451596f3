"""A private Dovecot (IMAP, LMTP) and Postfix (SMTP): the reference server, from Debian's packages.

It shares only the programs with an installed mail system: configuration, queue, mailboxes, logs and sockets are in a
directory of its own. Both masters run in the foreground as our children. Each has a session of its own, which tells its
processes from those of other mail servers on the machine.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from loadsim.errors import ConfigError
from loadsim.model.ports import Account, Endpoint, Services
from loadsim.model.scenario_sections import is_loopback
from loadsim.provisioning.export import (
    PUBLIC,
    SECRET,
    dovecot_passwords,
    dovecot_users,
    postfix_aliases,
    postfix_mailboxes,
    write_table,
)
from loadsim.servers.command import run
from loadsim.servers.dovecot_postfix_config import (
    LONGEST_SOCKET_PATH,
    TLS_MODES,
    Layout,
    dovecot_conf,
    main_cf,
    make_certificates,
    master_cf,
)
from loadsim.servers.master import Master, PortTaken
from loadsim.servers.running import RunningServer, check_population

PROGRAMS = {
    "dovecot": "/usr/sbin/dovecot",
    "dovecot-imapd": "/usr/lib/dovecot/imap",
    "dovecot-lmtpd": "/usr/lib/dovecot/lmtp",
    "postfix": "/usr/lib/postfix/sbin/master",
}
"""Debian's packages, each with a program that it installs."""

LOOPBACK = "127.0.0.1"

PORTS = range(20000, 32768)
"""Ports below the kernel's range for outgoing connections: none of these takes a port between choice and use."""
PORT_ATTEMPTS = 5
INOTIFY = Path("/proc/sys/fs/inotify")


class DovecotPostfix(RunningServer):
    """A running instance. `notes` are sentences about changes that it made on the machine.

    With TLS, the `ca_file` of its services is the authority made for it.
    """

    def __init__(self, layout: Layout, services: Services, masters: Sequence[Master], notes: Sequence[str]) -> None:
        self.layout = layout
        self.services = services
        self.notes = tuple(notes)
        self._masters = tuple(masters)

    def describe(self) -> str:
        dovecot = run("dovecot", ("--version",)).split()[0]
        postfix = run("postconf", ("-c", str(self.layout.postfix_conf), "-h", "mail_version")).strip()
        return f"Dovecot {dovecot} + Postfix {postfix} (private instance on this machine)"

    def doveadm(self, *arguments: str) -> str:
        """Return the output of `doveadm` for this instance. Raises `ConfigError` if it fails."""
        return run("doveadm", ("-c", str(self.layout.dovecot_conf), *arguments))

    def queue(self) -> list[dict[str, Any]]:
        """Return the messages that Postfix has accepted but not delivered, in the form of `postqueue -j`."""
        return [json.loads(line) for line in run("postqueue", ("-c", str(self.layout.postfix_conf), "-j")).splitlines()]

    def pids(self) -> frozenset[int]:
        return frozenset().union(*(master.pids() for master in self._masters))

    def stop(self) -> None:
        """Stop Postfix, then Dovecot, and wait until no process of either is left."""
        for master in reversed(self._masters):
            master.stop()


def start_dovecot_postfix(
    accounts: Iterable[Account],
    lists: Mapping[str, Sequence[str]],
    directory: Path,
    *,
    imap_port: int | None = None,
    smtp_port: int | None = None,
    tls: str = "none",
    address: str = LOOPBACK,
) -> DovecotPostfix:
    """Start an instance for these accounts and lists (address -> member addresses), and wait until both servers answer.

    `directory` is created if missing; mailboxes from an earlier start are kept. Free ports are chosen for those not
    given. `tls` is none, starttls or implicit, for both services, with an authority of its own. It listens on one IPv4
    `address` of this machine. Raises `ConfigError` if packages are missing, the user is not root, the directory cannot
    be used, or a server does not start.
    """
    if tls not in TLS_MODES:
        raise ConfigError(f"server: tls: expected one of {', '.join(TLS_MODES)}, found {tls!r}")
    check_machine()
    check_address(address)
    population, lists = check_population(accounts, lists)
    notes = make_room_for_idling(len(population))
    if not is_loopback(address):
        notes.append(
            f"It listens on {address}: anyone who can reach it can log on by guessing a simulated user's password."
        )
    layout = Layout(directory.resolve())
    check_not_running(layout)
    prepare_directory(layout)
    if tls != "none":
        make_certificates(layout, address)
    domains = frozenset(address.rpartition("@")[2] for address in (*lists, *(user.address for user in population)))
    dovecot_user = pwd.getpwnam("dovecot")
    os.chown(write_table(layout.passwords, dovecot_passwords(population), SECRET), dovecot_user.pw_uid, -1)
    write_table(layout.users, dovecot_users(population), PUBLIC)
    write_table(layout.mailboxes, postfix_mailboxes(population), PUBLIC)
    write_table(layout.aliases, postfix_aliases(lists), PUBLIC)
    largest_list = max(map(len, lists.values()), default=0)
    main = main_cf(layout, address, domains, len(population), largest_list, tls)
    write_table(layout.postfix_conf / "main.cf", main, PUBLIC)

    ca_file = None if tls == "none" else str(layout.ca_file)
    for attempt in range(1, PORT_ATTEMPTS + 1):
        imap = Endpoint(address, imap_port or free_port(address), tls, ca_file)
        smtp = Endpoint(address, smtp_port or free_port(address), tls, ca_file)
        write_table(layout.dovecot_conf, dovecot_conf(layout, address, imap.port, len(population), tls), PUBLIC)
        write_table(layout.postfix_conf / "master.cf", master_cf(address, smtp.port, tls), PUBLIC)
        try:
            return DovecotPostfix(layout, Services(imap, smtp), _start_masters(layout, imap, smtp), notes)
        except PortTaken:
            if attempt == PORT_ATTEMPTS or None not in (imap_port, smtp_port):
                raise
    raise AssertionError("the last attempt returns or raises")


def _start_masters(layout: Layout, imap: Endpoint, smtp: Endpoint) -> list[Master]:
    """Start Dovecot, then Postfix, and wait until each answers. If one fails, both are stopped."""
    masters: list[Master] = []
    try:
        for start, endpoint, greeting in ((start_dovecot, imap, b"* OK"), (start_postfix, smtp, b"220")):
            masters.append(start(layout))
            masters[-1].await_greeting(endpoint.host, endpoint.port, b"" if endpoint.tls == "implicit" else greeting)
    except BaseException:
        for master in reversed(masters):
            master.stop()
        raise
    return masters


def check_machine() -> None:
    """Raise `ConfigError` unless the packages are installed, in a supported version, and the user is root."""
    missing = [package for package, program in PROGRAMS.items() if not Path(program).exists()]
    if missing:
        raise ConfigError(
            f"server: dovecot-postfix: expected {', '.join(missing)} to be installed: apt-get install"
            " dovecot-imapd dovecot-lmtpd postfix"
        )
    version = run("dovecot", ("--version",)).split()[0]
    if not version.startswith("2.3."):
        raise ConfigError(f"server: dovecot-postfix: expected Dovecot 2.3, found {version}")
    if os.geteuid() != 0:
        raise ConfigError("server: dovecot-postfix: expected to be root, as Postfix demands: run it with sudo")


def make_room_for_idling(users: int, settings: Path = INOTIFY) -> list[str]:
    """Raise the kernel's limits on inotify if they are too low: an idling imap process takes one instance.

    The limits are per user id, and all imap processes have the same id. Return sentences about the changes. Raises
    `ConfigError`, with the command, if the kernel's settings cannot be written.
    """
    notes: list[str] = []
    for name, needed in (("max_user_instances", 2 * users + 256), ("max_user_watches", 8 * users + 1024)):
        setting = settings / name
        found = int(setting.read_text())
        if found >= needed:
            continue
        try:
            setting.write_text(str(needed))
        except OSError:
            raise ConfigError(
                f"server: dovecot-postfix: fs.inotify.{name}: expected at least {needed}, found {found}:"
                f" sysctl -w fs.inotify.{name}={needed}"
            ) from None
        notes.append(f"Raised fs.inotify.{name} from {found} to {needed}, which stays until the machine restarts.")
    return notes


def check_not_running(layout: Layout) -> None:
    """Raise `ConfigError` if an instance runs in this directory, perhaps left by a process that was killed."""
    with suppress(FileNotFoundError, ValueError):
        pid = int((layout.dovecot_run / "master.pid").read_text())
        if str(layout.dovecot_conf).encode() in (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0"):
            raise ConfigError(
                f"server: directory: expected no running server in {layout.root}, found process {pid} (kill {pid})"
            )


def prepare_directory(layout: Layout) -> None:
    """Create the directories. Raises `ConfigError` if the servers' users cannot enter them, or paths are too long."""
    root = layout.root
    if not re.fullmatch(r"[\w./-]+", str(root), re.ASCII):
        raise ConfigError(f"server: directory: expected a path of letters, digits and ._-/, found {str(root)!r}")
    longest = max(len(str(path)) for path in (layout.lmtp_socket, layout.auth_socket)) + 10
    if longest > LONGEST_SOCKET_PATH:
        raise ConfigError(
            f"server: directory: expected at most {LONGEST_SOCKET_PATH - longest + len(str(root))} characters, since"
            f" it holds sockets, found {len(str(root))}: {root}"
        )
    root.mkdir(mode=0o711, parents=True, exist_ok=True)
    for above in (root, *root.parents):
        if not above.stat().st_mode & 0o001:
            raise ConfigError(
                f"server: directory: expected that other users can enter {above}, found mode"
                f" {above.stat().st_mode & 0o777:04o}: choose another directory, such as /tmp"
            )
    dovecot, postfix = pwd.getpwnam("dovecot"), pwd.getpwnam("postfix")
    for path, mode, owner in (
        (layout.dovecot_conf.parent, 0o755, 0),
        (layout.dovecot_run, 0o755, 0),
        (layout.dovecot_log.parent, 0o755, 0),
        (layout.mail, 0o700, dovecot.pw_uid),
        (layout.tls, 0o711, 0),
        (layout.postfix_conf.parent, 0o755, 0),
        (layout.postfix_conf, 0o755, 0),
        (layout.postfix_queue, 0o755, 0),
        (layout.postfix_data, 0o700, postfix.pw_uid),
    ):
        path.mkdir(exist_ok=True)
        path.chmod(mode)
        os.chown(path, owner, -1)


def start_dovecot(layout: Layout) -> Master:
    return Master(
        "dovecot", [PROGRAMS["dovecot"], "-F", "-c", str(layout.dovecot_conf)], layout.dovecot_log, "starting up for"
    )


def start_postfix(layout: Layout) -> Master:
    """Compile Postfix's tables (a missing one causes temporary failures), create its queue, start its master.

    The master starts as by `postfix start` after the same check, but as our own child. The environment lets it write
    to the log before its own log service runs.
    """
    conf = str(layout.postfix_conf)
    for table in (layout.mailboxes, layout.aliases):
        run("postmap", ("-c", conf, f"hash:{table}"))
    run("postfix", ("-c", conf, "check"))
    environment = {"POSTLOG_SERVICE": str(layout.postfix_queue / "public" / "postlog"), "POSTLOG_HOSTNAME": "localhost"}
    command = [PROGRAMS["postfix"], "-c", conf]
    return Master("postfix", command, layout.postfix_log, "daemon started", environment)


def check_address(address: str) -> None:
    """Raise `ConfigError` unless this machine has the address."""
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            raise ConfigError(f"server: expected an address of this machine to listen on, found {address}") from None


def free_port(address: str = LOOPBACK) -> int:
    """Return a free port of this address. Another process may take it before the server binds it."""
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
