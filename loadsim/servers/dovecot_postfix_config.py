"""The configuration of a private Dovecot 2.3 (Debian 12), made from its directory, its population and its port."""

from __future__ import annotations

from pathlib import Path

from loadsim.servers.command import run
from loadsim.servers.postfix import LMTP_CONCURRENCY

TLS_MODES = ("none", "starttls", "implicit")


class Layout:
    """The files and directories of one instance. The servers' users can enter `root` and all directories above it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mail = root / "mail"  # the mailboxes: a directory per login
        self.tls = root / "tls"  # the authority's and the server's certificates and keys
        self.ca_file = self.tls / "ca.pem"  # the authority that clients verify against
        self.dovecot_log = root / "log" / "dovecot.log"

        self.dovecot_conf = root / "dovecot" / "dovecot.conf"  # the only configuration file
        self.dovecot_extra = root / "dovecot" / "extra.conf"  # settings of its user's own
        self.passwords = root / "dovecot" / "passwords"  # passdb
        self.users = root / "dovecot" / "users"  # userdb
        self.dovecot_run = root / "dovecot" / "run"  # sockets and pid file
        self.lmtp_socket = self.dovecot_run / "lmtp-postfix"  # takes mail from Postfix
        self.auth_socket = self.dovecot_run / "auth-postfix"  # checks passwords for Postfix


def dovecot_conf(layout: Layout, address: str, imap_port: int, sessions: int, tls: str) -> str:
    """Return dovecot.conf: IMAP, LMTP for Postfix, and its authentication; one imap process per session.

    Processes are not shared between sessions, so that a slow disk for one user is not a slow server for another.
    Limits count twice the `sessions`: a lost session and the one that replaces it overlap.
    """
    most = 2 * sessions + 100
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

default_process_limit = {most}
default_client_limit = {4 * most + 1000}
service imap-login {{
  # Shared by all sessions that are logging on, or use TLS.
  service_count = 0
  process_min_avail = 2
  process_limit = 4
  client_limit = {most}
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
  process_limit = {most}
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

# Further settings, such as log-on methods or another mail_location, if this file exists.
!include_try {layout.dovecot_extra}
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
