"""A private Dovecot (IMAP, LMTP) and Postfix (SMTP) on loopback: the reference server, from Debian's packages.

It shares nothing with an installed mail system but the programs: configuration, queue, mailboxes, logs and sockets lie
in a directory of its own. Both masters run in the foreground as our children, each in a session of its own, so that
what belongs to it can be told from any other mail server on the machine.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from loadsim.errors import ConfigError
from loadsim.model.ports import Account, Endpoint, Services
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
from loadsim.servers.running import check_population
from loadsim.topology.export import (
    PUBLIC,
    SECRET,
    dovecot_passwords,
    dovecot_users,
    postfix_aliases,
    postfix_mailboxes,
    write_table,
)

PROGRAMS = {
    "dovecot": "/usr/sbin/dovecot",
    "dovecot-imapd": "/usr/lib/dovecot/imap",
    "dovecot-lmtpd": "/usr/lib/dovecot/lmtp",
    "postfix": "/usr/lib/postfix/sbin/master",
}
"""Debian's packages, and what each must have brought."""

START_LIMIT_S = 60.0
STOP_LIMIT_S = 15.0
POLL_S = 0.02
PORTS = range(20000, 32768)
"""Below the kernel's range for outgoing connections, so that none of those takes a port between choice and use."""
PORT_ATTEMPTS = 5
INOTIFY = Path("/proc/sys/fs/inotify")


class DovecotPostfix:
    """A running instance. `notes` say what was changed on the machine for it, in whole sentences."""

    def __init__(self, layout: Layout, services: Services, masters: Sequence[Master], notes: Sequence[str]) -> None:
        self._layout = layout
        self._services = services
        self._masters = tuple(masters)
        self.notes = tuple(notes)

    @property
    def services(self) -> Services:
        """Where it listens; with TLS, `ca_file` is the authority made for it."""
        return self._services

    @property
    def dovecot_conf(self) -> Path:
        """Dovecot's configuration file, for tools that want it."""
        return self._layout.dovecot_conf

    @property
    def postfix_conf(self) -> Path:
        """Postfix's configuration directory."""
        return self._layout.postfix_conf

    def describe(self) -> str:
        """Names and versions of both."""
        dovecot = run("dovecot", ("--version",)).split()[0]
        postfix = run("postconf", ("-c", str(self.postfix_conf), "-h", "mail_version")).strip()
        return f"Dovecot {dovecot} + Postfix {postfix} (private instance on this machine)"

    def doveadm(self, *arguments: str) -> str:
        """What `doveadm` says about this instance; `ConfigError` when it fails."""
        return run("doveadm", ("-c", str(self.dovecot_conf), *arguments))

    def queue(self) -> list[dict[str, Any]]:
        """The messages that Postfix has accepted and not delivered, as `postqueue -j` describes them."""
        return [json.loads(line) for line in run("postqueue", ("-c", str(self.postfix_conf), "-j")).splitlines()]

    def pids(self) -> frozenset[int]:
        """All processes of this instance that are alive."""
        return frozenset().union(*(master.pids() for master in self._masters))

    def stop(self) -> None:
        """Stop Postfix, then Dovecot, and wait until no process of either is left."""
        for master in reversed(self._masters):
            master.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Master:
    """A master process that we started, and everything that it starts: one session of the operating system."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, started: str, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start the command, which writes `log`, and there `started` as soon as it listens on its ports.

        `environment` is what it has beside our own.
        """
        self.name = name
        self._log = log
        self._started = started
        self._output = output = log.with_suffix(".out")
        log.unlink(missing_ok=True)
        # Into a file, not a pipe: a daemon that inherits a pipe keeps whoever reads it waiting.
        with output.open("wb") as said:
            self._process = subprocess.Popen(  # noqa: S603
                ["/bin/sh", "-c", 'ulimit -S -n "$(ulimit -H -n)"; exec "$@"', "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def pids(self) -> frozenset[int]:
        """The living processes of its session (proc(5): the sixth field of stat, after the name in parentheses)."""
        found: set[int] = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(FileNotFoundError, ProcessLookupError):
                    state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                    if int(session) == self._process.pid and state != "Z":
                        found.add(int(entry.name))
        return frozenset(found)

    def check_alive(self) -> None:
        """`ConfigError` with its complaint when it has ended."""
        if self._process.poll() is not None:
            raise ConfigError(f"server: {self.name}: expected to start, it ended and said: {self.first_complaint()}")

    def has_started(self) -> bool:
        """Whether its log says that it listens."""
        return self._log.exists() and self._started in self._log.read_text(errors="replace")

    def first_complaint(self) -> str:
        """The first complaint on its standard error or in its log: what comes after follows from it."""
        lines = [
            line
            for file in (self._output, self._log)
            if file.exists()
            for line in file.read_text(errors="replace").splitlines()
            if line.strip()
        ]
        complaints = [line for line in lines if re.search(r"\b(fatal|error)\b", line, re.IGNORECASE)]
        return (complaints or lines[-1:] or ["nothing"])[0].strip()

    def port_taken(self) -> bool:
        """Whether it ended because somebody else listens on its port."""
        return self._process.poll() is not None and "Address already in use" in self.first_complaint()

    def stop(self) -> None:
        """Ask the master to end, then what it leaves behind, then insist; does nothing the second time.

        Dovecot's imap processes outlive their master by ten seconds when clients are still there, unless asked.
        """
        if self._process.poll() is None:
            self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_LIMIT_S)
        for request in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, request)
            deadline_s = time.monotonic() + STOP_LIMIT_S
            while self.pids() and time.monotonic() < deadline_s:
                time.sleep(POLL_S)
        self._process.wait()


def start_dovecot_postfix(
    accounts: Iterable[Account],
    lists: Mapping[str, Sequence[str]],
    directory: Path,
    *,
    imap_port: int | None = None,
    smtp_port: int | None = None,
    tls: str = "none",
) -> DovecotPostfix:
    """Start an instance for these accounts and lists (address -> member addresses); returns when both servers answer.

    `directory` is made if need be; mailboxes that it holds from an earlier start are kept. Ports not given are chosen
    among those free. `tls` is none, starttls or implicit, for both services, with an authority of its own. Raises
    `ConfigError` when packages are missing, we are not root, the directory cannot be used, or a server does not start.
    """
    if tls not in TLS_MODES:
        raise ConfigError(f"server: tls: expected one of {', '.join(TLS_MODES)}, found {tls!r}")
    check_machine()
    population, lists = check_population(accounts, lists)
    notes = make_room_for_idling(len(population))
    layout = Layout(directory.resolve())
    check_not_running(layout)
    prepare_directory(layout)
    if tls != "none":
        make_certificates(layout)
    domains = frozenset(address.rpartition("@")[2] for address in (*lists, *(user.address for user in population)))
    dovecot_user = pwd.getpwnam("dovecot")
    os.chown(write_table(layout.passwords, dovecot_passwords(population), SECRET), dovecot_user.pw_uid, -1)
    write_table(layout.users, dovecot_users(population), PUBLIC)
    write_table(layout.mailboxes, postfix_mailboxes(population), PUBLIC)
    write_table(layout.aliases, postfix_aliases(lists), PUBLIC)
    largest_list = max(map(len, lists.values()), default=0)
    main = main_cf(layout, domains, len(population), largest_list, tls)
    write_table(layout.postfix_conf / "main.cf", main, PUBLIC)

    for attempt in range(PORT_ATTEMPTS):
        imap_at, smtp_at = imap_port or free_port(), smtp_port or free_port()
        write_table(layout.dovecot_conf, dovecot_conf(layout, imap_at, len(population), tls), PUBLIC)
        write_table(layout.postfix_conf / "master.cf", master_cf(smtp_at, tls), PUBLIC)
        ca_file = None if tls == "none" else str(layout.ca_file)
        services = Services(Endpoint("127.0.0.1", imap_at, tls, ca_file), Endpoint("127.0.0.1", smtp_at, tls, ca_file))
        masters: list[Master] = []
        try:
            masters.append(start_dovecot(layout))
            await_ready(masters[-1], imap_at, b"" if tls == "implicit" else b"* OK")
            masters.append(start_postfix(layout))
            await_ready(masters[-1], smtp_at, b"" if tls == "implicit" else b"220")
        except BaseException as failure:
            taken = masters and masters[-1].port_taken()
            for master in reversed(masters):
                master.stop()
            if not isinstance(failure, ConfigError) or not taken or attempt == PORT_ATTEMPTS - 1:
                raise
            if imap_port is not None and smtp_port is not None:
                raise
        else:
            return DovecotPostfix(layout, services, masters, notes)
    raise AssertionError("the last attempt returns or raises")


def missing_packages() -> list[str]:
    """Debian's packages that have yet to be installed."""
    return [package for package, program in PROGRAMS.items() if not Path(program).exists()]


def check_machine() -> None:
    """`ConfigError` unless we are root and the packages are there."""
    if missing := missing_packages():
        raise ConfigError(
            f"server: dovecot-postfix: expected {', '.join(missing)} to be installed: apt-get install"
            " dovecot-imapd dovecot-lmtpd postfix"
        )
    if os.geteuid() != 0:
        raise ConfigError("server: dovecot-postfix: expected to be root, as Postfix demands: run it with sudo")


def make_room_for_idling(users: int) -> list[str]:
    """Raise the kernel's limits on inotify where they are too low: an idling imap process takes one instance.

    They count per user id, and all imap processes have the same. Returns what was changed, as sentences; `ConfigError`
    with the command when the kernel's settings cannot be written.
    """
    notes: list[str] = []
    for name, needed in (("max_user_instances", 2 * users + 256), ("max_user_watches", 8 * users + 1024)):
        setting = INOTIFY / name
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
    """`ConfigError` when an instance lives in this directory, perhaps left by somebody who was killed."""
    with suppress(FileNotFoundError, ValueError):
        pid = int((layout.dovecot_run / "master.pid").read_text())
        if str(layout.dovecot_conf).encode() in (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0"):
            raise ConfigError(
                f"server: directory: expected no running server in {layout.root}, found process {pid}: kill {pid}"
            )


def prepare_directory(layout: Layout) -> None:
    """Make the directories; `ConfigError` when the servers' own users could not enter them, or paths are too long."""
    root = layout.root
    if not re.fullmatch(r"[\w./-]+", str(root), re.ASCII):
        raise ConfigError(f"server: directory: expected a path of letters, digits and ._-/, found {str(root)!r}")
    longest = max(len(str(path)) for path in (layout.lmtp_socket, layout.auth_socket)) + 10
    if longest > LONGEST_SOCKET_PATH:
        raise ConfigError(
            f"server: directory: expected at most {LONGEST_SOCKET_PATH - longest + len(str(root))} characters, since"
            f" sockets lie in it, found {len(str(root))}: {root}"
        )
    root.mkdir(mode=0o711, parents=True, exist_ok=True)
    for place in (root, *root.parents):
        if not place.stat().st_mode & 0o001:
            raise ConfigError(
                f"server: directory: expected that other users can enter {place}, found mode"
                f" {place.stat().st_mode & 0o777:04o}: choose another place, such as /tmp"
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
    """Start Dovecot's master."""
    return Master(
        "dovecot", [PROGRAMS["dovecot"], "-F", "-c", str(layout.dovecot_conf)], layout.dovecot_log, "starting up for"
    )


def start_postfix(layout: Layout) -> Master:
    """Compile Postfix's tables (a missing one counts as a temporary failure), let it make its queue, start its master.

    The master is started as `postfix start` does after the same check, but as our own child; the environment is what
    lets it write to the log before its own log service runs.
    """
    conf = str(layout.postfix_conf)
    for table in (layout.mailboxes, layout.aliases):
        run("postmap", ("-c", conf, f"hash:{table}"))
    run("postfix", ("-c", conf, "check"))
    environment = {"POSTLOG_SERVICE": str(layout.postfix_queue / "public" / "postlog"), "POSTLOG_HOSTNAME": "localhost"}
    command = [PROGRAMS["postfix"], "-c", conf]
    return Master("postfix", command, layout.postfix_log, "daemon started", environment)


def free_port() -> int:
    """A loopback port on which nobody listens now; whether it stays so shows when the server binds it."""
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def await_ready(master: Master, port: int, greeting: bytes) -> None:
    """Wait until it has its ports and greets like this (or accepts at all, when empty); `ConfigError` if it does not.

    The log is asked first: what answers on the port alone might be somebody else's server.
    """
    deadline_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline_s:
        master.check_alive()
        if master.has_started():
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=START_LIMIT_S) as connection:
                if not greeting or connection.recv(512).startswith(greeting):
                    return
        time.sleep(POLL_S)
    raise ConfigError(
        f"server: {master.name}: expected to answer on port {port} within {START_LIMIT_S:.0f} s,"
        f" it said: {master.first_complaint()}"
    )
