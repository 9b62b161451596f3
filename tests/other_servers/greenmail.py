"""A private GreenMail: IMAP and SMTP in one Java process, all mail in memory, from Maven Central.

GreenMail is a server for tests. It has no distribution lists, and creates a mailbox for each unknown recipient.
"""

import imaplib
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from loadsim.errors import ConfigError
from loadsim.model.ports import Account, Endpoint, Services
from loadsim.provisioning.export import PUBLIC, SECRET, write_table
from loadsim.servers.master import POLL_S, START_LIMIT_S, Master
from loadsim.servers.private import LOOPBACK, PrivateServer, free_port, on_free_ports, start_masters
from loadsim.servers.running import check_population
from other_servers.java import find_programs, java_command, prepare_directory

ARTIFACT = "greenmail-standalone"
SERIES = "2.1"
MAIN = "com.icegreen.greenmail.standalone.GreenMailStandaloneRunner"

LISTENING = "Started services"
"""Text in its log when all ports are bound. It creates the accounts after that."""

LOGGING = """\
<Configuration>
  <Appenders>
    <File name="log" fileName="{log}"><PatternLayout pattern="%d %-5p %c{{1}}: %m%n"/></File>
  </Appenders>
  <Loggers>
    <Logger name="com.icegreen.greenmail.util.GreenMail" level="debug"/>
    <Root level="info"><AppenderRef ref="log"/></Root>
  </Loggers>
</Configuration>
"""


def start_greenmail(
    accounts: Iterable[Account],
    lists: Mapping[str, Sequence[str]],
    directory: Path,
    *,
    imap_port: int | None = None,
    smtp_port: int | None = None,
) -> PrivateServer:
    """Start an instance for these accounts on loopback, and wait until the last of them can log on.

    `directory` is created if missing. Free ports are chosen for those not given. Raises `ConfigError` if there are
    lists, GreenMail or Java is missing, it cannot express an account, or it does not start.
    """
    population, lists = check_population(accounts, lists)
    if lists:
        raise ConfigError(
            f"server: greenmail: expected a scenario with lists: {{count: 0}}, since GreenMail has no distribution"
            f" lists, found {len(lists)} of them; or --set lists.count=0, here and for the run"
        )
    users = user_options(population)
    found = find_programs("greenmail", ARTIFACT, SERIES)
    directory = prepare_directory(directory)
    log = directory / "greenmail.log"
    secret = directory / "users.args"
    command = java_command(
        "greenmail",
        directory,
        f"@{secret}",  # an argument file (java(1)), since other users can see arguments
        f"-Dlog4j2.configurationFile={write_table(directory / 'log4j2.xml', LOGGING.format(log=log), PUBLIC)}",
        "-Dgreenmail.startup.timeout=20000",
        # greenmail.hostname would also open its API, which needs no password, on port 8080.
        f"-Dgreenmail.imap.hostname={LOOPBACK}",
        f"-Dgreenmail.smtp.hostname={LOOPBACK}",
        f"-Dgreenmail.pop3.hostname={LOOPBACK}",
    )

    def start(imap_port: int, smtp_port: int) -> PrivateServer:
        imap, smtp, pop3 = (Endpoint(LOOPBACK, port) for port in (imap_port, smtp_port, free_port()))
        write_table(secret, users, SECRET)
        services = Services(imap, smtp, pop3=pop3)
        ports = [f"-Dgreenmail.{name}.port={each.port}" for name, each in services.endpoints.items()]
        arguments = [*command, *ports, "-cp", found.class_path, MAIN]

        def await_ready(master: Master) -> None:
            master.await_greeting(LOOPBACK, imap_port, b"* OK")
            master.await_greeting(LOOPBACK, smtp_port, b"220")
            _await_account(population[-1], imap, master)

        try:
            masters = start_masters([(lambda: Master("greenmail", arguments, log, LISTENING), await_ready)])
        finally:
            secret.unlink(missing_ok=True)
        notes = ["All mail is in memory.", "An unknown recipient gets a mailbox."]
        return PrivateServer(services, masters, f"GreenMail {found.version}", notes)

    return on_free_ports(LOOPBACK, imap_port, smtp_port, start)


def user_options(accounts: Sequence[Account]) -> str:
    """Return the accounts as a Java argument file. Keep it secret.

    Its option has `local part:password@domain`, separated by commas. All log on with their address, or all with its
    local part. Passwords are ASCII without commas.
    """
    by_address = all(account.login == account.address for account in accounts)
    parts = (account.address.partition("@") for account in accounts)
    users = [f"{local}:{each.password}@{domain}" for each, (local, _, domain) in zip(accounts, parts, strict=True)]
    quoted = ",".join(users).replace("\\", "\\\\").replace('"', '\\"')
    login = "email" if by_address else "local_part"
    return f'-Dgreenmail.users.login={login}\n"-Dgreenmail.users={quoted}"\n'


def _await_account(account: Account, imap: Endpoint, master: Master) -> None:
    """Wait until this account, which is created last, can log on. Raises `ConfigError` after the time limit."""
    deadline_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline_s and master.pids():
        with (
            suppress(imaplib.IMAP4.error, OSError),
            imaplib.IMAP4(imap.host, imap.port, timeout=START_LIMIT_S) as session,
        ):
            session.login(account.login, account.password)
            return
        time.sleep(POLL_S)
    raise ConfigError(f"server: greenmail: expected to create the accounts, its log has: {master.first_error()}")
