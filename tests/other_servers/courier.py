"""A private Courier (IMAP, POP3) and Exim (SMTP), which share Maildirs, from Debian's packages.

The programs are unpacked in a directory. Courier's configuration and the socket of its authentication have fixed paths.
So both servers run in a view of /etc and /run of their own (see `mounts`); all files are in a directory of the
instance. Written for Courier-IMAP 5.0 to 6.0 (Debian 12 to sid).
"""

import hashlib
import os
import pwd
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from loadsim.model.ports import Account, Endpoint, Services
from loadsim.provisioning.export import PUBLIC, SECRET, write_table
from loadsim.servers.master import Master
from loadsim.servers.private import (
    LOOPBACK,
    Directory,
    PrivateServer,
    check_programs,
    free_port,
    on_free_ports,
    prepare_directories,
    start_masters,
)
from loadsim.servers.running import check_population
from other_servers.exim import Exim
from other_servers.mounts import View

USER = "mail"
"""Owner of the Maildirs."""

AUTHDAEMOND = """\
set -a
. /etc/courier/authdaemonrc
exec "$(awk 'END { print $NF }' /usr/sbin/authdaemond)"
"""
"""The start as by /usr/sbin/authdaemond, whose last word is the program, but in the foreground."""

SERVICE = """\
set -a
. "/etc/courier/$1"
umask "${IMAP_UMASK:-022}"
exec /usr/sbin/couriertcpd -address="$2" -maxprocs="$4" -maxperip="$4" -listen=1000 $TCPDOPTS "$3" "$5" "$6" Maildir
"""
"""The start as by /usr/lib/courier/imapd and pop3d, but in the foreground and without the list of refused addresses.

Its arguments are imapd or pop3d, address, port, the number of sessions, which Debian limits to 40, and to 20 or fewer
from one address, and the programs before and after the log-on.
"""

PROGRAMS = {
    "imapd": ("/usr/lib/courier/courier/imaplogin", "/usr/bin/imapd"),
    "pop3d": ("/usr/lib/courier/courier/courierpop3login", "/usr/lib/courier/courier/courierpop3d"),
}


class Layout:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.etc = root / "etc"  # laid over /etc
        self.conf = self.etc / "courier"
        self.run = root / "run"  # /run of its processes
        self.auth_socket = self.run / "courier" / "authdaemon" / "socket"
        self.mail = root / "mail"  # the mailboxes: one Maildir per login
        self.auth_log = root / "log" / "authdaemond.log"
        self.log = root / "log"

    def directories(self) -> tuple[Directory, ...]:
        uid = pwd.getpwnam(USER).pw_uid
        return (
            Directory(self.etc),
            Directory(self.conf),
            Directory(self.run),
            Directory(self.auth_socket.parents[1]),
            Directory(self.auth_socket.parent),
            Directory(self.mail, 0o700, uid),
            Directory(self.log),
        )


def start_courier(
    accounts: Iterable[Account],
    lists: Mapping[str, Sequence[str]],
    directory: Path,
    *,
    imap_port: int | None = None,
    smtp_port: int | None = None,
    further: int = 0,
) -> PrivateServer:
    """Start Courier and Exim for these accounts and lists (address -> member addresses), and wait until both answer.

    `directory` is created if missing; mailboxes from an earlier start are kept. Free ports are chosen for those not
    given. Beyond one each, the users may have `further` connections to mailboxes. Raises `ConfigError` if packages are
    missing, the user is not root or may not mount, the directory cannot be used, or a server does not start.
    """
    check_programs("courier", {})
    population, lists = check_population(accounts, lists)
    layout = Layout(directory.resolve())
    front = Exim(layout.root, layout.etc, layout.mail, USER)
    view = View(layout.etc, ((layout.run, "/run"),))
    prepare_directories(layout.root, (*layout.directories(), *front.directories()), (layout.auth_socket,))
    make_maildirs(layout, population)
    write_table(layout.conf / "authdaemonrc", 'authmodulelist="authuserdb"\ndaemons=5\n', PUBLIC)
    write_table(layout.conf / "userdb", userdb(layout, population), SECRET)
    view.run("makeuserdb", "-f", str(layout.conf / "userdb"))

    def start(imap_port: int, smtp_port: int) -> PrivateServer:
        most = 2 * (len(population) + further) + 100  # a lost session and the one that replaces it overlap
        pop3_port = free_port()
        front.configure(population, lists, LOOPBACK, smtp_port)
        masters = start_masters(
            (
                (lambda: start_authdaemond(layout, view), lambda one: one.await_socket(layout.auth_socket)),
                (
                    lambda: start_service(layout, view, "imapd", imap_port, most),
                    lambda one: one.await_greeting(LOOPBACK, imap_port, b"* OK"),
                ),
                (
                    lambda: start_service(layout, view, "pop3d", pop3_port, most),
                    lambda one: one.await_greeting(LOOPBACK, pop3_port, b"+OK"),
                ),
                (lambda: front.start(view), lambda one: one.await_greeting(LOOPBACK, smtp_port, b"220")),
            )
        )
        mail = Endpoint(LOOPBACK, imap_port, "none"), Endpoint(LOOPBACK, smtp_port, "none")
        services = Services(*mail, pop3=Endpoint(LOOPBACK, pop3_port, "none"))
        return PrivateServer(services, masters, describe(front, view), [])

    return on_free_ports(LOOPBACK, imap_port, smtp_port, start)


def make_maildirs(layout: Layout, accounts: Sequence[Account]) -> None:
    """Create missing Maildirs: Courier refuses the log-on of a user who has none."""
    user = pwd.getpwnam(USER)
    for account in accounts:
        home = layout.mail / account.login
        for path in (home, home / "Maildir", *(home / "Maildir" / name for name in ("cur", "new", "tmp"))):
            if not path.exists():
                path.mkdir(mode=0o700)
                os.chown(path, user.pw_uid, user.pw_gid)


def userdb(layout: Layout, accounts: Sequence[Account]) -> str:
    """Return the table of accounts for Courier's makeuserdb(8), with digests of the passwords. Keep it secret."""
    user = pwd.getpwnam(USER)
    lines: list[str] = []
    for account in accounts:
        home = layout.mail / account.login
        digest = b64encode(hashlib.sha256(account.password.encode()).digest()).decode()
        fields = (f"uid={user.pw_uid}", f"gid={user.pw_gid}", f"home={home}", f"mail={home}/Maildir")
        lines.append(f"{account.login}\t{'|'.join((*fields, f'systempw={{SHA256}}{digest}'))}\n")
    return "".join(lines)


def start_authdaemond(layout: Layout, view: View) -> Master:
    layout.auth_socket.unlink(missing_ok=True)
    return Master("authdaemond", view.command(["/bin/sh", "-c", AUTHDAEMOND]), layout.auth_log)


def start_service(layout: Layout, view: View, name: str, port: int, sessions: int) -> Master:
    command = ["/bin/sh", "-c", SERVICE, "sh", name, LOOPBACK, str(port), str(sessions), *PROGRAMS[name]]
    return Master("couriertcpd", view.command(command), layout.log / f"{name}.log")


def describe(front: Exim, view: View) -> str:
    found = re.search(r"Courier-IMAP ([\d.]+)", view.run("/usr/bin/imapd", "--version"))
    return f"Courier {found[1] if found else 'of unknown version'} + Exim {front.version(view)}"
