"""A private Dovecot's configuration, derived from its release, directory, population and port."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from loadsim.servers.command import run
from loadsim.servers.postfix import LMTP_CONCURRENCY

TLS_MODES = ("none", "starttls", "implicit")


class Layout:
    """One instance's files and directories. The servers' users can enter `root` and all directories above it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mail = root / "mail"  # the mailboxes: a directory per login
        self.public = root / "public"  # the public folder, in a Maildir of all users
        self.tls = root / "tls"  # the authority's and the server's certificates and keys
        self.ca_file = self.tls / "ca.pem"  # the authority that clients verify against
        self.dovecot_log = root / "log" / "dovecot.log"

        self.dovecot_conf = root / "dovecot" / "dovecot.conf"  # the only configuration file
        self.dovecot_extra = root / "dovecot" / "extra.conf"  # the user's own settings
        self.passwords = root / "dovecot" / "passwords"  # passdb
        self.users = root / "dovecot" / "users"  # userdb
        self.dovecot_run = root / "dovecot" / "run"  # sockets and pid file
        self.lmtp_socket = self.dovecot_run / "lmtp-postfix"  # takes mail from Postfix
        self.auth_socket = self.dovecot_run / "auth-postfix"  # checks passwords for Postfix


class Dialect(NamedTuple):
    """One release series' settings for use in `dovecot_conf`; `{}` in a setting is a path."""

    version: str
    cleartext: str
    passdb: str
    userdb: str
    user: str
    mailboxes: str
    location: str
    unlimited_requests: str
    unlimited_memory: str
    unlimited_deliveries: str
    certificate: str
    key: str


DIALECTS = {
    (2, 3): Dialect(
        version="",
        cleartext="disable_plaintext_auth = no",
        passdb="passdb {{\n  driver = passwd-file\n  args = username_format=%u {}\n}}",
        userdb="userdb {{\n  driver = passwd-file\n  args = username_format=%u {}\n}}",
        user="%u",
        mailboxes="mail_location = {format}:{}",
        location="location = maildir:{}",
        unlimited_requests="service_count = 0",
        unlimited_memory="vsz_limit = 0",
        unlimited_deliveries="",
        certificate="ssl_cert = <{}",
        key="ssl_key = <{}",
    ),
    (2, 4): Dialect(
        # Releases 2.4.1 to 2.4.5 accept these; earlier releases refuse a later version.
        version="dovecot_config_version = 2.4.1\ndovecot_storage_version = 2.4.0",
        cleartext="auth_allow_cleartext = yes",
        passdb="passdb passwd-file {{\n  passwd_file_path = {}\n}}",
        userdb="userdb passwd-file {{\n  passwd_file_path = {}\n}}",
        user="%{user}",  # %u is a literal since 2.4: all users would share one home
        mailboxes="mail_driver = {format}\nmail_path = {}",
        location="mail_driver = maildir\n  mail_path = {}",
        unlimited_requests="restart_request_count = unlimited",
        unlimited_memory="vsz_limit = unlimited",
        unlimited_deliveries="lmtp_user_concurrency_limit = unlimited",  # 10 would defer mail that 2.3 delivers
        certificate="ssl_server_cert_file = {}",
        key="ssl_server_key_file = {}",
    ),
}
"""By the first two numbers of Dovecot's version. Newer releases use the last entry."""


_CONF = """\
{dialect.version}
protocols = imap lmtp{pop3}
listen = {address}
hostname = localhost
base_dir = {layout.dovecot_run}
state_dir = {layout.root}/dovecot/state
instance_name = loadsim-{imap_port}
log_path = {layout.dovecot_log}

ssl = {ssl}
{keys}
{dialect.cleartext}
auth_mechanisms = plain login
auth_failure_delay = 0
# Names as they are: by default, some characters are refused, capitals become small letters, and +x is cut off.
auth_username_chars =
auth_username_format = {dialect.user}
recipient_delimiter =
{passdb}
{userdb}

first_valid_uid = 1
mail_uid = dovecot
mail_gid = dovecot
mail_home = {layout.mail}/{dialect.user}
{mailboxes}
mail_max_userip_connections = 0
namespace inbox {{
  inbox = yes
  separator = /
}}
{shared}

default_process_limit = {most}
default_client_limit = {clients}
{dialect.unlimited_deliveries}
service imap-login {{
  # Shared by all sessions that are logging on, or use TLS.
  {dialect.unlimited_requests}
  process_min_avail = 2
  process_limit = 4
  client_limit = {most}
  {dialect.unlimited_memory}
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
  process_limit = {most}
  vsz_limit = 1G
}}
{pop3_services}service lmtp {{
  client_limit = 1
  process_limit = {deliveries}
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

# Further settings, such as log-on methods or another format of mailboxes, if this file exists.
!include_try {layout.dovecot_extra}
"""


_POP3 = """\
service pop3-login {{
  {dialect.unlimited_requests}
  process_limit = 4
  client_limit = {most}
  {dialect.unlimited_memory}
  inet_listener pop3 {{
    port = {clear}
  }}
  inet_listener pop3s {{
    port = {encrypted}
    ssl = yes
  }}
}}
service pop3 {{
  client_limit = 1
  process_limit = {most}
}}
"""


_SHARED = """\
namespace public {{
  type = public
  separator = /
  prefix = Public/
  subscriptions = no
  {location}
  mailbox "{folder}" {{
    auto = create
  }}
}}"""
"""A namespace of all users, who may do everything in it."""


def dovecot_conf(
    dialect: Dialect,
    layout: Layout,
    address: str,
    imap_port: int,
    sessions: int,
    tls: str,
    public_folder: str | None = None,
    pop3_port: int = 0,
) -> str:
    """Return dovecot.conf: IMAP, LMTP for Postfix, and its authentication; one imap process per session.

    With a `pop3_port`, POP3, too.

    Sessions do not share processes, so that one user's slow disk does not slow down the server for another. Limits
    allow for twice the `sessions`, as a lost session and its replacement may overlap. With a public folder, there is a
    shared namespace.
    """
    most = 2 * sessions + 100
    clear, encrypted = (0, imap_port) if tls == "implicit" else (imap_port, 0)
    pop3_clear, pop3_encrypted = (0, pop3_port) if tls == "implicit" else (pop3_port, 0)
    pop3 = _POP3.format(dialect=dialect, most=most, clear=pop3_clear, encrypted=pop3_encrypted)
    keys = f"{dialect.certificate.format(layout.tls / 'server.pem')}\n{dialect.key.format(layout.tls / 'server.key')}"
    shared = ""
    if public_folder is not None:
        folder = public_folder.replace("\\", r"\\").replace('"', r"\"")
        shared = _SHARED.format(location=dialect.location.format(layout.public), folder=folder)
    return _CONF.format(
        dialect=dialect,
        layout=layout,
        address=address,
        imap_port=imap_port,
        clear=clear,
        encrypted=encrypted,
        pop3=" pop3" if pop3_port else "",
        pop3_services=pop3 if pop3_port else "",
        most=most,
        clients=4 * most + 1000,
        ssl="no" if tls == "none" else "yes",
        keys="" if tls == "none" else keys,
        passdb=dialect.passdb.format(layout.passwords),
        userdb=dialect.userdb.format(layout.users),
        mailboxes=dialect.mailboxes.format("~/Maildir", format="maildir"),
        shared=shared,
        deliveries=5 * LMTP_CONCURRENCY,
    )


def make_certificates(layout: Layout, address: str) -> None:
    """Make a private authority and a certificate for localhost and the address, valid for a year.

    Raises `ConfigError` if the openssl command is missing or fails.
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
