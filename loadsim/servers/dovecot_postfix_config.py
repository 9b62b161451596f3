"""The configuration of a private Dovecot and Postfix, made from its directory, its population and its ports.

Written for Dovecot 2.3 and Postfix 3.7 (Debian 12).
"""

from __future__ import annotations

from pathlib import Path

from loadsim.servers.command import run

LARGEST_MESSAGE_BYTES = 32 * 1024 * 1024
TLS_MODES = ("none", "starttls", "implicit")
LONGEST_SOCKET_PATH = 107
LMTP_CONCURRENCY = 20
"""Concurrent deliveries. Dovecot's LMTP gets more processes than that, otherwise it would drop connections."""


class Layout:
    """The files and directories of one instance. The servers' users can enter `root` and all directories above it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mail = root / "mail"  # the mailboxes: one Maildir per login
        self.tls = root / "tls"  # the authority's and the server's certificates and keys
        self.ca_file = self.tls / "ca.pem"  # the authority that clients verify against
        self.dovecot_log = root / "log" / "dovecot.log"
        self.postfix_log = root / "log" / "postfix.log"

        self.dovecot_conf = root / "dovecot" / "dovecot.conf"  # the only configuration file
        self.dovecot_extra = root / "dovecot" / "extra.conf"  # settings of its user's own
        self.passwords = root / "dovecot" / "passwords"  # passdb
        self.users = root / "dovecot" / "users"  # userdb
        self.dovecot_run = root / "dovecot" / "run"  # sockets and pid file
        self.lmtp_socket = self.dovecot_run / "lmtp-postfix"  # takes mail from Postfix
        self.auth_socket = self.dovecot_run / "auth-postfix"  # checks passwords for Postfix

        self.postfix_conf = root / "postfix" / "conf"  # main.cf, master.cf and the tables
        self.mailboxes = self.postfix_conf / "mailboxes"  # virtual_mailbox_maps
        self.aliases = self.postfix_conf / "aliases"  # virtual_alias_maps
        self.postfix_queue = root / "postfix" / "queue"  # queue_directory
        self.postfix_data = root / "postfix" / "data"  # data_directory


def dovecot_conf(layout: Layout, address: str, imap_port: int, users: int, tls: str) -> str:
    """Return dovecot.conf: IMAP, LMTP for Postfix, and its authentication; one imap process per session.

    Processes are not shared between sessions, so that a slow disk for one user is not a slow server for another.
    Limits count twice the users: a lost session and the one that replaces it overlap.
    """
    sessions = 2 * users + 100
    clear, encrypted = (0, imap_port) if tls == "implicit" else (imap_port, 0)
    keys = f"ssl_cert = <{layout.tls / 'server.pem'}\nssl_key = <{layout.tls / 'server.key'}\n" if tls != "none" else ""
    return f"""\
protocols = imap lmtp
listen = {address}
hostname = localhost
base_dir = {layout.dovecot_run}
state_dir = {layout.root}/dovecot/state
instance_name = loadsim-{imap_port}
log_path = {layout.dovecot_log}

ssl = {"no" if tls == "none" else "yes"}
{keys}
disable_plaintext_auth = no
auth_mechanisms = plain login
auth_failure_delay = 0
passdb {{
  driver = passwd-file
  args = username_format=%u {layout.passwords}
}}
userdb {{
  driver = passwd-file
  args = username_format=%u {layout.users}
}}

first_valid_uid = 1
mail_uid = dovecot
mail_gid = dovecot
mail_home = {layout.mail}/%u
mail_location = maildir:~/Maildir
mail_max_userip_connections = 0
namespace inbox {{
  inbox = yes
  separator = /
}}

default_process_limit = {sessions}
default_client_limit = {4 * sessions + 1000}
service imap-login {{
  # Shared by all sessions that are logging on, or use TLS.
  service_count = 0
  process_min_avail = 2
  process_limit = 4
  client_limit = {sessions}
  vsz_limit = 0
  inet_listener imap {{
    port = {clear}
  }}
  inet_listener imaps {{
    port = {encrypted}
    ssl = yes
  }}
}}
service imap {{
  client_limit = 1
  process_limit = {sessions}
  vsz_limit = 1G
}}
service lmtp {{
  client_limit = 1
  process_limit = {5 * LMTP_CONCURRENCY}
  unix_listener {layout.lmtp_socket.name} {{
    mode = 0600
    user = postfix
  }}
}}
service auth {{
  unix_listener {layout.auth_socket.name} {{
    mode = 0600
    user = postfix
  }}
}}
service anvil {{
  # All users come from one address: it is not to be slowed down for the failures of some (auth penalty).
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
service auth-worker {{
  process_limit = 1
}}

# Further settings, such as log-on methods, if this file exists.
!include_try {layout.dovecot_extra}
"""


def main_cf(layout: Layout, address: str, domains: frozenset[str], users: int, largest_list: int, tls: str) -> str:
    """Return Postfix's main.cf: it accepts mail for the domains, delivers it to Dovecot, and relays none."""
    levels = {"none": "none", "starttls": "may", "implicit": "may"}
    keys = ""
    if tls != "none":
        keys = f"smtpd_tls_cert_file = {layout.tls / 'server.pem'}\nsmtpd_tls_key_file = {layout.tls / 'server.key'}\n"
    recipients = max(1000, largest_list + 100)
    return f"""\
compatibility_level = 3.6
queue_directory = {layout.postfix_queue}
data_directory = {layout.postfix_data}
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
mail_owner = postfix
setgid_group = postdrop
maillog_file = {layout.postfix_log}
maillog_file_prefixes = {layout.postfix_log.parent}
default_database_type = hash

inet_interfaces = {address}
inet_protocols = ipv4
myhostname = mail.localdomain
mydestination =
mynetworks = 127.0.0.0/8
smtpd_peername_lookup = no
disable_dns_lookups = yes

# Mail for the simulated users only.
virtual_mailbox_domains = {" ".join(sorted(domains))}
virtual_mailbox_maps = hash:{layout.mailboxes}
virtual_alias_domains =
virtual_alias_maps = hash:{layout.aliases}
virtual_alias_expansion_limit = {recipients}
virtual_transport = lmtp:unix:{layout.lmtp_socket}
smtpd_relay_restrictions = reject_unauth_destination
local_recipient_maps =
local_transport = error:no local mail here
default_transport = error:no mail leaves this server
relay_transport = error:no mail leaves this server

# Members of two lists, and recipients who are also members, get one copy.
enable_original_recipient = no
duplicate_filter_limit = {10 * recipients}
lmtp_destination_concurrency_limit = {LMTP_CONCURRENCY}

smtpd_sasl_auth_enable = yes
smtpd_sasl_type = dovecot
smtpd_sasl_path = {layout.auth_socket}
smtpd_tls_security_level = {levels[tls]}
{keys}
# All clients come from one address, and quickly.
default_process_limit = {max(100, users + 20)}
smtpd_client_connection_count_limit = 0
smtpd_client_connection_rate_limit = 0
in_flow_delay = 0s
message_size_limit = {LARGEST_MESSAGE_BYTES}
mailbox_size_limit = 0
"""


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


def make_certificates(layout: Layout, address: str) -> None:
    """Make an authority of our own and a certificate for localhost and the address, valid for a year.

    Raises `ConfigError` when the openssl command is missing or refuses.
    """
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    tls = layout.tls
    extensions = tls / "server.ext"
    extensions.write_text(
        "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\n"
        f"subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\nsubjectAltName=DNS:localhost,IP:{address}\n"
    )
    authority = ("-keyout", "ca.key", "-out", "ca.pem", "-days", "365", "-subj", "/CN=loadsim private authority")
    constraints = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    request = ("-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    signing = ("-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "server.pem")
    for arguments in (
        ("req", "-x509", *curve, *authority, *constraints),
        ("req", "-new", *curve, *request),
        ("x509", "-req", *signing, "-days", "365", "-extfile", extensions.name),
    ):
        run("openssl", arguments, cwd=tls)
