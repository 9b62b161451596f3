"""A private Dovecot (IMAP, LMTP, POP3) and Postfix (SMTP): the reference server, from Debian's packages.

It shares only its programs with an installed mail system: all its files are in a separate directory. Both masters are
our children, each in its own session, which sets its processes apart from other mail servers'.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from loadsim.errors import ConfigError
from loadsim.model.ports import Account, Endpoint, Services
from loadsim.provisioning.export import PUBLIC, SECRET, dovecot_passwords, dovecot_users, write_table
from loadsim.servers.command import run
from loadsim.servers.dovecot_postfix_config import DIALECTS, Dialect, Layout, dovecot_conf, make_certificates
from loadsim.servers.master import Master
from loadsim.servers.postfix import PROGRAM, Postfix
from loadsim.servers.private import (
    LOOPBACK,
    Directory,
    PrivateServer,
    check_address,
    check_programs,
    free_port,
    on_free_ports,
    prepare_directories,
    start_masters,
    strangers_note,
)
from loadsim.servers.running import check_population

DOVECOT = "/usr/sbin/dovecot"
PROGRAMS = {"dovecot-imapd": "/usr/lib/dovecot/imap", "dovecot-lmtpd": "/usr/lib/dovecot/lmtp", "postfix": PROGRAM}
"""Debian packages, each with a program that it installs."""

POP3_PROGRAM = Path("/usr/lib/dovecot/pop3")
"""Of the package dovecot-pop3d; without it, there is no POP3."""

INOTIFY = Path("/proc/sys/fs/inotify")


class DovecotPostfix(PrivateServer):
    """A running instance. With TLS, its services' `ca_file` is the authority made for it."""

    def __init__(
        self, layout: Layout, postfix: Postfix, services: Services, masters: Sequence[Master], notes: Sequence[str]
    ) -> None:
        super().__init__(services, masters, f"Dovecot {dovecot_version()} + Postfix {postfix.version()}", notes)
        self.layout = layout
        self.postfix = postfix

    def doveadm(self, *arguments: str) -> str:
        """Return the output of `doveadm` for this instance. Raises `ConfigError` if it fails."""
        return run("doveadm", ("-c", str(self.layout.dovecot_conf), *arguments))

    def queue(self) -> list[dict[str, Any]]:
        """Return the messages that Postfix has accepted but not delivered, in the form of `postqueue -j`."""
        return self.postfix.queue()


def start_dovecot_postfix(
    accounts: Iterable[Account],
    lists: Mapping[str, Sequence[str]],
    directory: Path,
    *,
    imap_port: int | None = None,
    smtp_port: int | None = None,
    tls: str = "none",
    address: str = LOOPBACK,
    further: int = 0,
    public_folder: str | None = None,
) -> DovecotPostfix:
    """Start an instance for these accounts and lists (address -> member addresses), and wait until both servers answer.

    `directory` is created if missing; mailboxes from an earlier start are kept. Ports not given are chosen from the
    free ones. `tls` is none, starttls or implicit, for both services, with a private authority. The instance listens on
    one IPv4 `address` of this machine. Users may have `further` connections to mailboxes, in addition to one each, and
    share a `public_folder`.
    Raises `ConfigError` if packages are missing, the user is not root, the directory cannot be used, or a server does
    not start.
    """
    dialect, newer = check_machine()
    check_address(address)
    population, lists = check_population(accounts, lists)
    sessions = len(population) + further
    notes = [*newer, *make_room_for_idling(sessions), *strangers_note(address)]
    layout, postfix = Layout(directory.resolve()), Postfix(directory.resolve())
    check_not_running(layout)
    prepare_directory(layout, postfix)
    if tls != "none":
        make_certificates(layout, address)
    dovecot_user = pwd.getpwnam("dovecot")
    os.chown(write_table(layout.passwords, dovecot_passwords(population), SECRET), dovecot_user.pw_uid, -1)
    write_table(layout.users, dovecot_users(population), PUBLIC)
    ca_file = None if tls == "none" else str(layout.ca_file)

    def start(imap_port: int, smtp_port: int) -> DovecotPostfix:
        pop3_port = free_port(address) if POP3_PROGRAM.exists() else 0
        conf = dovecot_conf(dialect, layout, address, imap_port, sessions, tls, public_folder, pop3_port)
        write_table(layout.dovecot_conf, conf, PUBLIC)
        postfix.configure(
            population,
            lists,
            address,
            smtp_port,
            lmtp_socket=layout.lmtp_socket,
            sasl=f"smtpd_sasl_type = dovecot\nsmtpd_sasl_path = {layout.auth_socket}",
            keys=None if tls == "none" else layout.tls,
            tls=tls,
        )

        masters = _start_both(layout, postfix, address, (imap_port, smtp_port), tls)
        imap, smtp, pop3 = (Endpoint(address, port, tls, ca_file) for port in (imap_port, smtp_port, pop3_port))
        services = Services(imap, smtp, pop3=pop3 if pop3_port else None)
        return DovecotPostfix(layout, postfix, services, masters, notes)

    return on_free_ports(address, imap_port, smtp_port, start)


def _start_both(layout: Layout, postfix: Postfix, address: str, ports: tuple[int, int], tls: str) -> list[Master]:
    """Start Dovecot, then Postfix. Over implicit TLS, any connection counts as a greeting."""

    def await_greeting(port: int, greeting: bytes) -> Callable[[Master], None]:
        return lambda master: master.await_greeting(address, port, b"" if tls == "implicit" else greeting)

    dovecot = [DOVECOT, "-F", "-c", str(layout.dovecot_conf)]
    return start_masters(
        (
            (lambda: Master("dovecot", dovecot, layout.dovecot_log), await_greeting(ports[0], b"* OK")),
            (postfix.start, await_greeting(ports[1], b"220")),
        )
    )


def check_machine() -> tuple[Dialect, list[str]]:
    """Return the installed Dovecot's dialect, and a sentence if it is newer than any release tested.

    Raises `ConfigError` unless the packages are installed, in a supported version, and the user is root.
    """
    check_programs("dovecot-postfix", PROGRAMS)
    return dialect_of(dovecot_version())


def dovecot_version() -> str:
    return run("dovecot", ("--version",)).split()[0]


def dialect_of(version: str) -> tuple[Dialect, list[str]]:
    """Return the dialect of a Dovecot version such as 2.4.1-4, and a sentence if it is newer than any release tested.

    Raises `ConfigError` if it is older than every dialect.
    """
    series = tuple(map(int, re.findall(r"\d+", version)[:2]))
    newest = max(DIALECTS)
    if series > newest:
        tried = ".".join(map(str, newest))
        return DIALECTS[newest], [f"Dovecot {version} is newer than {tried}, and is configured like that."]
    if series not in DIALECTS:
        known = " or ".join(".".join(map(str, numbers)) for numbers in DIALECTS)
        raise ConfigError(f"server: dovecot-postfix: expected Dovecot {known}, or newer, found {version}")
    return DIALECTS[series], []


def make_room_for_idling(sessions: int, settings: Path = INOTIFY) -> list[str]:
    """Raise the kernel's inotify limits if they are too low, as each idling imap process takes one instance.

    The limits are per user id, which all imap processes share. Return sentences about the changes. Raises
    `ConfigError`, with the command, if the kernel's settings cannot be written.
    """
    notes: list[str] = []
    for name, needed in (("max_user_instances", 2 * sessions + 256), ("max_user_watches", 8 * sessions + 1024)):
        setting = settings / name
        current = int(setting.read_text())
        if current >= needed:
            continue
        try:
            setting.write_text(str(needed))
        except OSError:
            raise ConfigError(
                f"server: dovecot-postfix: fs.inotify.{name}: expected at least {needed}, found {current}:"
                f" sysctl -w fs.inotify.{name}={needed}"
            ) from None
        notes.append(f"Raised fs.inotify.{name} from {current} to {needed} until the machine restarts.")
    return notes


def check_not_running(layout: Layout) -> None:
    """Raise `ConfigError` if an instance is running in this directory, perhaps left behind by a killed process."""
    with suppress(FileNotFoundError, ValueError):
        pid = int((layout.dovecot_run / "master.pid").read_text())
        if str(layout.dovecot_conf).encode() in (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0"):
            raise ConfigError(
                f"server: directory: expected no running server in {layout.root}, found process {pid} (kill {pid})"
            )


def prepare_directory(layout: Layout, postfix: Postfix) -> None:
    """Create the directories. Raises `ConfigError` if the servers' users cannot enter them, or a path is too long."""
    prepare_directories(
        layout.root,
        (
            Directory(layout.dovecot_conf.parent),
            Directory(layout.dovecot_run),
            Directory(layout.mail, 0o700, pwd.getpwnam("dovecot").pw_uid),
            Directory(layout.public, 0o700, pwd.getpwnam("dovecot").pw_uid),
            Directory(layout.tls, 0o711),
            *postfix.directories(),
        ),
        sockets=(layout.lmtp_socket, layout.auth_socket),
    )
