"""A private Cyrus (IMAP, POP3, LMTP, JMAP, CalDAV) behind a private Postfix (SMTP), from Debian's packages.

Its programs are unpacked in a directory (see `mounts`). Configuration, mailboxes, queue and sockets are in a directory
of its own. Written for Cyrus 3.6 to 3.12 (Debian 12 to sid).
"""

import imaplib
import os
import pwd
import secrets
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from loadsim.errors import ConfigError
from loadsim.model.ports import Account, Endpoint, Services
from loadsim.provisioning.export import PUBLIC, SECRET, write_table
from loadsim.servers import postfix
from loadsim.servers.master import START_LIMIT_S, Master
from loadsim.servers.postfix import LMTP_CONCURRENCY, Postfix
from loadsim.servers.private import (
    LOOPBACK,
    Directory,
    PrivateServer,
    check_programs,
    free_port,
    on_free_ports,
    prepare_directories,
    start_masters,
    stopped_on_error,
)
from loadsim.servers.running import check_population
from other_servers.mounts import View

BIN = "/usr/lib/cyrus/bin"
USER = "mail"
"""User and group of Cyrus's processes: on each Debian, also if the package that creates `cyrus` is only unpacked."""

REALM = "localhost"
MECHANISMS = "PLAIN LOGIN CRAM-MD5 DIGEST-MD5 SCRAM-SHA-1 SCRAM-SHA-256"
ADMIN = "loadsim-admin"
"""User who creates the mailboxes, with a random password."""


class Layout:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.imapd_conf = root / "cyrus" / "imapd.conf"
        self.cyrus_conf = root / "cyrus" / "cyrus.conf"
        self.passwords = root / "cyrus" / "sasldb2"
        self.certificate = root / "cyrus" / "cert.pem"
        self.key = root / "cyrus" / "key.pem"
        self.token_keys = root / "cyrus" / "tokens"
        self.state = root / "cyrus" / "state"  # configdirectory: databases, and sockets of idling clients
        self.run = root / "cyrus" / "run"
        self.lmtp_socket = self.run / "lmtp"  # takes mail from Postfix
        self.mail = root / "mail"  # the mailboxes
        self.index = root / "cyrus" / "index"  # of words
        self.log = root / "log" / "cyrus.log"

    def directories(self) -> tuple[Directory, ...]:
        uid = pwd.getpwnam(USER).pw_uid
        return (
            Directory(self.imapd_conf.parent),
            Directory(self.token_keys),
            Directory(self.state, 0o755, uid),
            Directory(self.state / "socket", 0o755, uid),
            Directory(self.run, 0o755, uid),
            Directory(self.index, 0o700, uid),
            Directory(self.mail, 0o700, uid),
        )


def start_cyrus(
    accounts: Iterable[Account],
    lists: Mapping[str, Sequence[str]],
    directory: Path,
    *,
    imap_port: int | None = None,
    smtp_port: int | None = None,
    further: int = 0,
    jmap_port: int | None = None,
    caldav_port: int | None = None,
    public_folder: str | None = None,
    certificate: Path | None = None,
    token_key: str | None = None,
) -> PrivateServer:
    """Start Cyrus and Postfix for these accounts and lists (address -> member addresses), and wait until both answer.

    A login is the local part of its address, without dots. `directory` is created if missing; mailboxes from an earlier
    start are kept. Free ports are chosen for those of IMAP and SMTP that are not given; JMAP and CalDAV without a port
    are off. They are https with a `certificate`, whose key is in `key.pem` of its directory, and with a `token_key`,
    JMAP takes JSON Web Tokens of this key for HS256. Beyond one each, the users may have `further` connections to
    mailboxes. In a `public_folder`, all may post and expunge. Raises `ConfigError` if packages are missing, the user is
    not root, the directory cannot be used, or a server does not start.
    """
    check_programs("cyrus", {"postfix": postfix.PROGRAM})
    population, lists = check_population(accounts, lists)
    layout, front, view = Layout(directory.resolve()), Postfix(directory.resolve()), View()
    sockets = (layout.lmtp_socket, layout.state / "socket" / "idle")
    prepare_directories(layout.root, (*layout.directories(), *front.directories()), sockets)
    admin = Account(0, ADMIN, f"{ADMIN}@{REALM}", secrets.token_urlsafe())
    write_passwords(layout.passwords, USER, (*population, admin), view)
    sasl = write_sasl(front, population, view)

    if certificate is not None:
        write_secret(layout.certificate, certificate.read_text())
        write_secret(layout.key, certificate.with_name("key.pem").read_text())
    if token_key is not None:
        key = b64encode(token_key.encode()).decode()
        write_secret(layout.token_keys / "key", f"-----BEGIN HMAC KEY-----\n{key}\n-----END HMAC KEY-----\n")

    def start(imap_port: int, smtp_port: int) -> PrivateServer:
        web = {name: port for name, port in (("jmap", jmap_port), ("caldav", caldav_port)) if port is not None}
        domains = " ".join(sorted({account.domain for account in population}))
        http = HTTP.format(smtp=f"{LOOPBACK}:{smtp_port}", domains=domains, index=layout.index) if web else ""
        if certificate is not None:
            http += f"tls_server_cert: {layout.certificate}\ntls_server_key: {layout.key}\n"
        if token_key is not None:
            http += f"http_jwt_key_dir: {layout.token_keys}\n"
        sessions, is_https = len(population) + further, certificate is not None
        write_table(layout.imapd_conf, imapd_conf(layout) + http, PUBLIC)
        pop3_port = free_port()
        write_table(layout.cyrus_conf, cyrus_conf(layout, imap_port, pop3_port, web, is_https, sessions), PUBLIC)
        front.configure(population, lists, LOOPBACK, smtp_port, lmtp_socket=layout.lmtp_socket, sasl=sasl)
        # An error in imapd.conf ends this with a message, unlike the master.
        description = describe(layout, front, view)
        masters = start_masters(
            (
                (lambda: start_master(layout, view), lambda one: one.await_greeting(LOOPBACK, imap_port, b"* OK")),
                (lambda: front.start(view.command), lambda one: one.await_greeting(LOOPBACK, smtp_port, b"220")),
            )
        )
        with stopped_on_error(masters):
            create_mailboxes(imap_port, admin, population, public_folder)
        at = {"imap": imap_port, "smtp": smtp_port, "pop3": pop3_port}
        secure = {} if certificate is None else {"tls": "implicit", "ca_file": str(certificate)}
        endpoints = {name: Endpoint(LOOPBACK, port, "none") for name, port in at.items()}
        services = Services(**endpoints, **{name: Endpoint(LOOPBACK, port, **secure) for name, port in web.items()})
        return PrivateServer(services, masters, description, [])

    return on_free_ports(LOOPBACK, imap_port, smtp_port, start)


def write_secret(path: Path, content: str) -> None:
    """Write a file that only Cyrus's processes may read."""
    write_table(path, content, SECRET)
    os.chown(path, pwd.getpwnam(USER).pw_uid, -1)


def write_passwords(path: Path, user: str, accounts: Sequence[Account], view: View) -> None:
    """Write the database of SASL's plugin `sasldb` (Berkeley DB: login, realm and property, joined by NULs).

    One `db_load` takes them all; `saslpasswd2` would be a process for each account.
    """
    lines = ["VERSION=3", "format=print", "type=hash", "HEADER=END"]
    for account in accounts:
        for text in ("\0".join((account.login, REALM, "userPassword")), account.password):
            lines.append(" " + _printable(text))
    path.unlink(missing_ok=True)
    path.touch(mode=SECRET)
    view.run("db_load", str(path), stdin="\n".join((*lines, "DATA=END\n")))
    os.chown(path, pwd.getpwnam(user).pw_uid, -1)


def _printable(text: str) -> str:
    """Return text in the print format of db_dump(1): a backslash and two hexadecimal digits for all that is not."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\{byte:02x}" for byte in text.encode())


def write_sasl(front: Postfix, accounts: Sequence[Account], view: View) -> str:
    """Let Postfix check passwords with a database of its own. Return the lines for main.cf.

    Debian's Postfix up to 3.7 looks for SASL's settings in `sasl` of its configuration directory, and ignores
    `cyrus_sasl_config_path`; 3.10 and later follow that.
    """
    passwords, settings = front.conf / "sasldb2", front.conf / "sasl"
    write_passwords(passwords, "postfix", accounts, view)
    settings.mkdir(mode=0o755, exist_ok=True)
    lines = (
        "pwcheck_method: auxprop",
        "auxprop_plugin: sasldb",
        f"sasldb_path: {passwords}",
        f"mech_list: {MECHANISMS}",
    )
    write_table(settings / "smtpd.conf", "\n".join((*lines, "")), PUBLIC)
    return f"""\
smtpd_sasl_type = cyrus
smtpd_sasl_path = smtpd
smtpd_sasl_local_domain = {REALM}
cyrus_sasl_config_path = {settings}"""


def imapd_conf(layout: Layout) -> str:
    """Return imapd.conf: Debian's values where they concern clients, no delays or limits for one address.

    Mailboxes are created before the first log-on: with `autocreate_post`, a delivery fails for minutes if the user logs
    on at the same time ("Mailbox already exists").
    """
    return f"""\
configdirectory: {layout.state}
defaultpartition: default
partition-default: {layout.mail}
proc_path: {layout.run}/proc
mboxname_lockpath: {layout.run}/lock
idlesocket: {layout.run}/idle
notifysocket: {layout.run}/notify
lmtpsocket: {layout.lmtp_socket}
sievedir: {layout.root}/cyrus/sieve
cyrus_user: {USER}
cyrus_group: {USER}
servername: {REALM}
syslog_prefix: cyrus

altnamespace: no
unixhierarchysep: no
hashimapspool: yes
lmtp_downcase_rcpt: yes
admins: {ADMIN}

allowplaintext: yes
failedloginpause: 0
sasl_pwcheck_method: auxprop
sasl_auxprop_plugin: sasldb
sasl_sasldb_path: {layout.passwords}
sasl_mech_list: {MECHANISMS}
sasl_auto_transition: no
"""


HTTP = """
httpmodules: caldav jmap
calendar_user_address_set: {domains}
conversations: yes
conversations_db: twoskip
smtp_backend: host
smtp_host: {smtp}
jmap_pushpoll: 1s
search_engine: xapian
defaultsearchtier: t1
t1searchpartition-default: {index}
sync_log: yes
sync_log_channels: squatter
"""
"""JMAP and CalDAV. A look for states to push each second, by default each minute; Cyrus 3.6 pushes none.

Searches by JMAP need an index of words, which squatter extends as mail arrives. Cyrus delivers no invitations to
addresses whose domains are not in `calendar_user_address_set`.
"""


def cyrus_conf(
    layout: Layout, imap_port: int, pop3_port: int, web: Mapping[str, int], is_https: bool, sessions: int
) -> str:
    """Return cyrus.conf: IMAP, POP3, HTTP on the ports of `web`, LMTP for Postfix, and idled.

    Without idled, idling sessions look only each minute. The limit counts twice the `sessions`: a lost session and the
    one that replaces it overlap.
    """
    conf, most = f"-C {layout.imapd_conf}", 2 * sessions + 100
    limits, httpd = f'proto="tcp4" prefork=0 maxchild={most}', f"{BIN}/httpd {conf}{' -s' * is_https}"
    http = "\n".join(f'  {name} cmd="{httpd}" listen="{LOOPBACK}:{web[name]}" {limits}' for name in web)
    return f"""\
START {{
  recover cmd="{BIN}/ctl_cyrusdb {conf} -r"
}}
DAEMON {{
  idled cmd="{BIN}/idled {conf} -d"
  {f'squatter cmd="{BIN}/squatter {conf} -R -d"' if "jmap" in web else ""}
}}
SERVICES {{
  imap cmd="{BIN}/imapd {conf} -U 30" listen="{LOOPBACK}:{imap_port}" {limits}
  pop3 cmd="{BIN}/pop3d {conf} -U 30" listen="{LOOPBACK}:{pop3_port}" {limits}
{http}
  lmtpunix cmd="{BIN}/lmtpd {conf}" listen="{layout.lmtp_socket}" prefork=0 maxchild={2 * LMTP_CONCURRENCY}
}}
EVENTS {{
  checkpoint cmd="{BIN}/ctl_cyrusdb {conf} -c" period=30
  delprune cmd="{BIN}/cyr_expire {conf} -E 3" at=0401
}}
"""


def start_master(layout: Layout, view: View) -> Master:
    """Start Cyrus's master in the foreground. Its queue of connections is longer than the default of 32."""
    arguments = ("-C", str(layout.imapd_conf), "-M", str(layout.cyrus_conf), "-p", str(layout.run / "master.pid"))
    return Master("cyrus", view.command((f"{BIN}/master", *arguments, "-l", "1000", "-D")), layout.log)


def create_mailboxes(port: int, admin: Account, accounts: Sequence[Account], public_folder: str | None = None) -> None:
    """Create the mailboxes that are missing, without quota. Raises `ConfigError` if Cyrus refuses one."""
    with imaplib.IMAP4(LOOPBACK, port, timeout=START_LIMIT_S) as client:
        client.login(admin.login, admin.password)
        for name in (*(f"user.{account.login}" for account in accounts), *([public_folder] if public_folder else [])):
            answer, (text, *_) = client.create(name)
            if answer != "OK" and b"already exists" not in text:
                raise ConfigError(f"server: cyrus: expected to create the mailbox {name}, found: {text.decode()}")
        if public_folder:
            client.setacl(public_folder, "anyone", "lrite")


def describe(layout: Layout, front: Postfix, view: View) -> str:
    version = view.run(f"{BIN}/cyr_info", "-C", str(layout.imapd_conf), "version").split()[-1].partition("-")[0]
    return f"Cyrus {version} + Postfix {front.version()}"
