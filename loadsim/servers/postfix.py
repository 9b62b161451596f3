"""A private Postfix, which passes mail from SMTP on to another server in its instance by LMTP."""

from __future__ import annotations

import json
import pwd
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadsim.model.ports import Account
from loadsim.provisioning.export import PUBLIC, postfix_aliases, postfix_mailboxes, write_table
from loadsim.servers.command import run
from loadsim.servers.master import Master
from loadsim.servers.private import Directory

PROGRAM = "/usr/lib/postfix/sbin/master"
LARGEST_MESSAGE_BYTES = 32 * 1024 * 1024
LMTP_CONCURRENCY = 20
"""Concurrent deliveries. The server behind Postfix needs more processes than this, or it would drop connections."""

_MAIN_CF = """\
compatibility_level = 3.6
queue_directory = {files.queue_files}
data_directory = {files.data}
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
maillog_file = {files.log}
maillog_file_prefixes = {files.log.parent}

inet_interfaces = {address}
inet_protocols = ipv4
myhostname = mail.localdomain
mydestination =
mynetworks = 127.0.0.0/8
smtpd_peername_lookup = no

# Mail for the simulated users only, in tables of the type that this Postfix is built for: hash, cdb or lmdb.
virtual_mailbox_domains = {domains}
virtual_mailbox_maps = $default_database_type:{files.mailboxes}
virtual_alias_domains =
virtual_alias_maps = $default_database_type:{files.aliases}
virtual_alias_expansion_limit = {recipients}
virtual_transport = lmtp:unix:{lmtp_socket}
smtpd_relay_restrictions = reject_unauth_destination
local_recipient_maps =
local_transport = error:no local mail here
default_transport = error:no mail leaves this server
relay_transport = error:no mail leaves this server

# Members of two lists, and recipients who are also members, get one copy.
enable_original_recipient = no
duplicate_filter_limit = {copies}
lmtp_destination_concurrency_limit = {deliveries}

smtpd_sasl_auth_enable = yes
{sasl}
smtpd_tls_security_level = {level}
{certificate}
# All clients come from one address, and quickly.
default_process_limit = {processes}
smtpd_client_connection_count_limit = 0
smtpd_client_connection_rate_limit = 0
in_flow_delay = 0s
message_size_limit = {largest_bytes}
mailbox_size_limit = 0
"""
"""Postfix accepts mail for the domains, delivers it by LMTP, and relays nothing."""


class Postfix:
    """A private Postfix's files in an instance's directory, which the owner of its sockets can enter."""

    def __init__(self, root: Path) -> None:
        self.conf = root / "postfix" / "conf"  # main.cf, master.cf and the tables
        self.mailboxes = self.conf / "mailboxes"  # virtual_mailbox_maps
        self.aliases = self.conf / "aliases"  # virtual_alias_maps
        self.queue_files = root / "postfix" / "queue"  # queue_directory
        self.data = root / "postfix" / "data"  # data_directory
        self.log = root / "log" / "postfix.log"

    def directories(self) -> tuple[Directory, ...]:
        return (
            Directory(self.log.parent),
            Directory(self.conf.parent),
            Directory(self.conf),
            Directory(self.queue_files),
            Directory(self.data, 0o700, pwd.getpwnam("postfix").pw_uid),
        )

    def configure(
        self,
        accounts: Sequence[Account],
        lists: Mapping[str, Sequence[str]],
        address: str,
        smtp_port: int,
        *,
        lmtp_socket: Path,
        sasl: str,
        keys: Path | None = None,
        tls: str = "none",
    ) -> None:
        """Write main.cf, master.cf and the tables. `sasl` has the lines of main.cf that set who checks passwords.

        `keys` is the directory of server.pem and server.key, unless `tls` is none.
        """
        write_table(self.mailboxes, postfix_mailboxes(accounts), PUBLIC)
        write_table(self.aliases, postfix_aliases(lists), PUBLIC)
        users = (account.address for account in accounts)
        recipients = max(1000, max(map(len, lists.values()), default=0) + 100)
        main = _MAIN_CF.format(
            files=self,
            address=address,
            domains=" ".join(sorted({mailbox.rpartition("@")[2] for mailbox in (*lists, *users)})),
            recipients=recipients,
            copies=10 * recipients,
            lmtp_socket=lmtp_socket,
            deliveries=LMTP_CONCURRENCY,
            sasl=sasl,
            level="none" if tls == "none" else "may",
            certificate=f"smtpd_tls_cert_file = {keys}/server.pem\nsmtpd_tls_key_file = {keys}/server.key\n"
            if keys
            else "",
            processes=max(100, len(accounts) + 20),
            largest_bytes=LARGEST_MESSAGE_BYTES,
        )
        write_table(self.conf / "main.cf", main, PUBLIC)
        write_table(self.conf / "master.cf", master_cf(address, smtp_port, tls), PUBLIC)

    def start(self, within: Callable[[Sequence[str]], Sequence[str]] = list) -> Master:
        """Compile the tables (a missing one causes temporary failures), create the queue, and start the master.

        The master starts after the same check as with `postfix start`, but as our own child. The environment lets it
        write to the log before its log service runs. `within` returns the command that starts it with a different view
        of the file system.
        """
        conf = str(self.conf)
        for table in (self.mailboxes, self.aliases):
            run("postmap", ("-c", conf, str(table)))
        run("postfix", ("-c", conf, "check"))
        environment = {"POSTLOG_SERVICE": str(self.queue_files / "public" / "postlog"), "POSTLOG_HOSTNAME": "localhost"}
        return Master("postfix", within([PROGRAM, "-c", conf]), self.log, environment=environment)

    def version(self) -> str:
        return run("postconf", ("-c", str(self.conf), "-h", "mail_version")).strip()

    def queue(self) -> list[dict[str, Any]]:
        """Return the messages that Postfix has accepted but not delivered, in the form of `postqueue -j`."""
        return [json.loads(line) for line in run("postqueue", ("-c", str(self.conf), "-j")).splitlines()]


def master_cf(address: str, smtp_port: int, tls: str) -> str:
    """Return Postfix's master.cf: one SMTP listener, no chroots, no delivery agent except LMTP."""
    wrapper = "\n  -o smtpd_tls_wrappermode=yes" if tls == "implicit" else ""
    return f"""\
# service type private unpriv chroot wakeup maxproc command
{address}:{smtp_port} inet n - n - - smtpd{wrapper}
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
showq unix n - n - - showq
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
lmtp unix - - n - - lmtp
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
"""
