"""A private Exim, which receives mail by SMTP and delivers it into Maildirs.

Written for Exim 4.96 to 4.100 (Debian 12 to sid). Its configuration file and the name of its user are compiled into it,
so it runs in a view of /etc of its own (see `mounts`).
"""

import grp
import hashlib
import os
import pwd
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from loadsim.model.ports import Account
from loadsim.provisioning.export import PUBLIC, write_table
from loadsim.servers.master import Master
from loadsim.servers.postfix import LARGEST_MESSAGE_BYTES
from loadsim.servers.private import Directory
from other_servers.mounts import View

PROGRAM = "/usr/sbin/exim4"
USER = "Debian-exim"
READABLE_BY_GROUP = 0o640


class Exim:
    """The files of a private Exim in the directory of an instance. `etc` is what its view lays over /etc.

    `mail` has a directory with a Maildir for each login, which belong to `mail_user`.
    """

    def __init__(self, root: Path, etc: Path, mail: Path, mail_user: str) -> None:
        self.etc = etc
        self.mail = mail
        self.mail_user = mail_user
        self.conf = etc / "exim4"
        self.mailboxes = self.conf / "mailboxes"  # address: login
        self.lists = self.conf / "lists"  # address: members
        self.passwords = self.conf / "passwords"  # login: SHA-256 of the password
        self.spool = root / "exim" / "spool"
        self.logs = root / "exim" / "log"

    def directories(self) -> tuple[Directory, ...]:
        uid, _ = self._ids()
        return (
            Directory(self.conf),
            Directory(self.spool.parent),
            Directory(self.spool, 0o750, uid),
            Directory(self.logs, 0o750, uid),
        )

    def configure(
        self, accounts: Sequence[Account], lists: Mapping[str, Sequence[str]], address: str, smtp_port: int
    ) -> None:
        """Write the configuration and its tables. The view's /etc/passwd has Exim's user, if the machine's has not."""
        _, gid = self._ids()
        for path, table in (
            (self.mailboxes, lsearch((account.address, account.login) for account in accounts)),
            (self.lists, lsearch((name, ",\n  ".join(members)) for name, members in lists.items() if members)),
            (self.passwords, lsearch((account.login, _digest(account.password)) for account in accounts)),
        ):
            os.chown(write_table(path, table, READABLE_BY_GROUP), -1, gid)
        users = (account.address for account in accounts)
        domains = frozenset(mailbox.rpartition("@")[2] for mailbox in (*lists, *users))
        write_table(self.conf / "exim4.conf", self._configuration(domains, len(accounts), address, smtp_port), PUBLIC)
        if not _exists(USER):
            uid, gid = self._ids()
            for name, line in (
                ("passwd", f"{USER}:x:{uid}:{gid}::/nonexistent:/usr/sbin/nologin\n"),
                ("group", f"{USER}:x:{gid}:\n"),
            ):
                write_table(self.etc / name, Path("/etc", name).read_text() + line, PUBLIC)

    def start(self, view: View) -> Master:
        return Master("exim", view.command([PROGRAM, "-bdf", "-q1m"]), self.logs / "mainlog")

    def version(self, view: View) -> str:
        return view.run(PROGRAM, "-bV").split()[2]

    def _ids(self) -> tuple[int, int]:
        """Return the user and group of Exim: those of the package, or those of the mailboxes if it is only unpacked."""
        name = USER if _exists(USER) else self.mail_user
        return pwd.getpwnam(name).pw_uid, grp.getgrnam(name).gr_gid

    def _configuration(self, domains: frozenset[str], users: int, address: str, smtp_port: int) -> str:
        """Return exim4.conf: it accepts mail for the domains, delivers it at once into Maildirs, and relays none."""
        known = "${lookup {%s} lsearch {/etc/exim4/passwords} {$value} fail}"
        correct = "${if eqi {${sha256:%s}} {" + known + "}}"
        return f"""\
exim_user = {USER}
exim_group = {USER}
spool_directory = {self.spool}
split_spool_directory
log_file_path = {self.logs}/%slog
pid_file_path = {self.spool}/exim.pid
keep_environment =
primary_hostname = mail.localdomain
disable_ipv6
local_interfaces = {address}
daemon_smtp_ports = {smtp_port}
daemon_startup_retries = 0
notifier_socket =
domainlist local_domains = {" : ".join(sorted(domains))}

acl_smtp_rcpt = recipient
host_lookup =
rfc1413_query_timeout = 0s
tls_advertise_hosts =
message_size_limit = {LARGEST_MESSAGE_BYTES}

# All clients come from one address, and quickly.
smtp_accept_max = {max(100, 2 * users + 20)}
smtp_accept_queue_per_connection = 0
smtp_accept_max_per_connection = 0
smtp_connect_backlog = 1000

begin acl
recipient:
  accept domains = +local_domains
         verify = recipient
  deny message = no mail leaves this server

begin routers
lists:
  driver = redirect
  domains = +local_domains
  data = ${{lookup {{$local_part@$domain}} lsearch {{/etc/exim4/lists}}}}
  forbid_file
  forbid_pipe
mailboxes:
  driver = accept
  domains = +local_domains
  address_data = ${{lookup {{$local_part@$domain}} lsearch {{/etc/exim4/mailboxes}} {{$value}} fail}}
  transport = maildir

begin transports
maildir:
  driver = appendfile
  maildir_format
  directory = {self.mail}/$address_data/Maildir
  user = {self.mail_user}
  group = {self.mail_user}
  return_path_add

begin retry
* * F,2h,1m

begin authenticators
plain:
  driver = plaintext
  public_name = PLAIN
  server_condition = {correct % ("$auth3", "$auth2")}
  server_set_id = $auth2
login:
  driver = plaintext
  public_name = LOGIN
  server_prompts = Username:: : Password::
  server_condition = {correct % ("$auth2", "$auth1")}
  server_set_id = $auth1
"""


def lsearch(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table for Exim's linear search; a quoted key may hold any characters."""
    return "".join('"' + key.replace("\\", "\\\\").replace('"', '\\"') + f'": {value}\n' for key, value in rows)


def _digest(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()


def _exists(user: str) -> bool:
    return any(entry.pw_name == user for entry in pwd.getpwall())
