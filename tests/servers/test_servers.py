"""The servers that loadsim starts for itself: they take mail, hand it out, and leave nothing behind."""

import asyncio
import gc
import imaplib
import os
import select
import signal
import smtplib
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
import yaml
from mailservers import DOMAIN, StartDovecotPostfix, StartEmbedded, idling, inbox, logged_on, numbered_accounts, submit
from patience import PATIENCE_S
from processes import ended, refuses
from pymap.imap import IMAPServer

from loadsim.errors import ConfigError
from loadsim.model.ports import Account
from loadsim.servers.dovecot_postfix import DovecotPostfix, make_room_for_idling, start_dovecot_postfix
from loadsim.servers.embedded import LOG_NAME, EmbeddedServer, start_embedded
from loadsim.servers.embedded_child import imap_connection, mailboxes
from loadsim.servers.postfix import LMTP_CONCURRENCY
from loadsim.servers.private import free_port
from loadsim.servers.running import check_population

MESSAGE = b"From: user2@example.test\r\nTo: all@example.test\r\nSubject: hello\r\n\r\n.a dot\r\nand an end\r\n"
EVERYBODY = f"all@{DOMAIN}"
FEW = f"few@{DOMAIN}"
ACCOUNTS = numbered_accounts(6)
LISTS = {EVERYBODY: [account.address for account in ACCOUNTS], FEW: [account.address for account in ACCOUNTS[:3]]}
LOADSIM = [sys.executable, "-c", "import sys; from loadsim.cli import main; sys.exit(main())"]


@pytest.fixture(scope="module")
def embedded(embedded_server: StartEmbedded) -> EmbeddedServer:
    return embedded_server(ACCOUNTS, LISTS)


@pytest.fixture(scope="module")
def real(dovecot_postfix: StartDovecotPostfix) -> DovecotPostfix:
    return dovecot_postfix(ACCOUNTS, LISTS)


def hang_up(client: imaplib.IMAP4) -> None:
    """Close a session without a word, also after a TLS handshake that failed."""
    with suppress(OSError):
        client.shutdown()


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize(
    ("accounts", "lists", "complaint"),
    [
        ([], {}, "at least one account"),
        ([Account(1, "a", "a@x", "p"), Account(2, "a", "b@x", "p")], {}, "'a' twice"),
        ([Account(1, "a", "a@x", "p"), Account(2, "b", "A@X", "p")], {}, "'a@x' twice"),
        ([Account(1, "a b", "a@x", "p")], {}, "a name without white space and colons"),
        ([Account(1, "a:b", "a@x", "p")], {}, "a name without white space and colons"),
        ([Account(1, "a", "a", "p")], {}, "user@domain"),
        ([Account(1, "a", "a@x", "")], {}, "a password"),
        ([Account(1, "a", "a@x", "hush\nhush")], {}, "a password"),
        ([Account(1, "a", "a@x", "p")], {"A@x": ["a@x"]}, "an account's"),
        ([Account(1, "a", "a@x", "p")], {"l@x": ["b@x"]}, "'b@x'"),
    ],
)
def test_contradictory_populations_are_refused(
    accounts: list[Account], lists: dict[str, list[str]], complaint: str
) -> None:
    """Names that a server cannot tell apart, or cannot take, are refused in one line without the password."""
    with pytest.raises(ConfigError) as refused:
        check_population(accounts, lists)
    line = str(refused.value)
    assert complaint in line
    assert "\n" not in line
    assert "hush" not in line


def test_embedded_delivers_once_to_each_recipient(embedded: EmbeddedServer) -> None:
    """A user on two lists who is also named gets one copy, byte for byte; others get none."""
    before = {account.login: inbox(embedded, account) for account in ACCOUNTS}
    refused = submit(embedded.services, ACCOUNTS[1].address, [FEW, FEW, ACCOUNTS[0].address.upper()], MESSAGE)
    assert refused == {}
    for account in ACCOUNTS:
        arrived = inbox(embedded, account)[len(before[account.login]) :]
        if account.address in LISTS[FEW]:
            assert arrived == [b"Return-Path: <user2@example.test>\r\n" + MESSAGE]
        else:
            assert arrived == []


def test_embedded_refuses_unknown_recipients(embedded: EmbeddedServer) -> None:
    """An unknown recipient is refused at RCPT with 550, and does not harm the others."""
    there = len(inbox(embedded, ACCOUNTS[3]))
    strangers = [f"nobody@{DOMAIN}", "user1@elsewhere.test"]
    refused = submit(embedded.services, ACCOUNTS[0].address, [*strangers, ACCOUNTS[3].address], MESSAGE)
    assert {address: code for address, (code, _) in refused.items()} == dict.fromkeys(strangers, 550)
    assert len(inbox(embedded, ACCOUNTS[3])) == there + 1


def test_embedded_checks_passwords(embedded: EmbeddedServer) -> None:
    smtp = embedded.services.smtp
    with smtplib.SMTP(smtp.host, smtp.port, timeout=PATIENCE_S) as client:
        client.login(ACCOUNTS[0].login, ACCOUNTS[0].password)
    with (
        smtplib.SMTP(smtp.host, smtp.port, timeout=PATIENCE_S) as client,
        pytest.raises(smtplib.SMTPAuthenticationError),
    ):
        client.login(ACCOUNTS[0].login, ACCOUNTS[1].password)
    impostor = Account(1, ACCOUNTS[0].login, ACCOUNTS[0].address, ACCOUNTS[1].password)
    with pytest.raises(imaplib.IMAP4.error, match="AUTHENTICATIONFAILED"), logged_on(embedded, impostor):
        pass


def test_embedded_keeps_a_waiting_connection() -> None:
    """The collector ends no session that waits for a command. With pymap's ProxyProtocolReader, 3.13's does."""

    async def waits() -> bytes:
        config, login = await mailboxes([])
        serving = partial(imap_connection, IMAPServer(login, config))
        async with await asyncio.start_server(serving, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            assert (await reader.readline()).startswith(b"* OK")
            gc.collect()
            writer.write(b"1 LOGOUT\r\n")
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            return answer

    with asyncio.Runner() as runner:
        assert b"\r\n1 OK" in runner.run(waits())


def test_embedded_shows_no_password(server_directory: Path) -> None:
    """No password in its arguments, environment or log; the log is for its owner."""
    with start_embedded(ACCOUNTS, LISTS, server_directory) as server:
        with pytest.raises(imaplib.IMAP4.error), logged_on(server, Account(1, "user1", "user1@x", "hush-hush")):
            pass
        process = Path("/proc") / str(server.pid)
        seen = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    log = server_directory / LOG_NAME
    seen += log.read_bytes()
    assert not [account for account in ACCOUNTS if account.password.encode() in seen]
    assert b"hush-hush" not in seen
    assert log.stat().st_mode & 0o777 == 0o600


def test_embedded_stop_leaves_nothing(server_directory: Path) -> None:
    """After stop, also with clients still there, no process and no port is left; a second stop does nothing."""
    with ExitStack() as stack:
        server = stack.enter_context(start_embedded(ACCOUNTS, LISTS, server_directory))
        endpoint = server.services.imap
        stack.enter_context(socket.create_connection((endpoint.host, endpoint.port)))
        assert "not a measurement" in server.describe()
        server.stop()
        assert ended(server.pid)
        assert refuses(endpoint.port)
        assert refuses(server.services.smtp.port)


def test_embedded_ends_with_its_parent(server_directory: Path) -> None:
    program = f"""
import os, signal, sys
from pathlib import Path
from loadsim.model.ports import Account
from loadsim.servers.embedded import start_embedded
server = start_embedded([Account(1, "a", "a@x", "p")], {{}}, Path({str(server_directory)!r}))
print(server.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    parent = run_python("-c", program)
    assert parent.returncode == -signal.SIGKILL
    assert ended(int(parent.stdout))


def test_embedded_states_why_it_did_not_start(server_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that dies early is a ConfigError with the last line that it said."""
    broken = server_directory / "aiosmtpd"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise SystemExit('the dog ate it')\n")
    monkeypatch.setenv("PYTHONPATH", str(server_directory))
    with pytest.raises(ConfigError, match="the dog ate it") as refused:
        start_embedded(ACCOUNTS, LISTS, server_directory)
    assert "\n" not in str(refused.value)


@pytest.mark.system
def test_each_recipient_gets_one_copy_by_doveadm_too(real: DovecotPostfix) -> None:
    """All users log on and wait; a message to two lists and one of their members reaches each once."""
    before = {account.login: len(inbox(real, account)) for account in ACCOUNTS}
    with ExitStack() as stack:
        counts = {account.login: stack.enter_context(idling(real, account)) for account in ACCOUNTS}
        sent = submit(real.services, ACCOUNTS[1].address, [EVERYBODY, FEW, ACCOUNTS[0].address], MESSAGE)
        assert sent == {}
        told = {login: next_count() for login, next_count in counts.items()}
    assert told == {login: count + 1 for login, count in before.items()}
    for account in ACCOUNTS:
        status = real.doveadm("-f", "tab", "mailbox", "status", "-u", account.login, "messages", "INBOX")
        assert int(status.splitlines()[1].split("\t")[1]) == told[account.login]
        assert inbox(real, account)[-1].endswith(MESSAGE.partition(b"\r\n\r\n")[2])


@pytest.mark.system
def test_one_user_accepts_deliveries_over_all_lmtp_connections(real: DovecotPostfix) -> None:
    """Postfix would try a deferred message again after five minutes; Dovecot 2.4 defers above 10 by default."""
    address, before = ACCOUNTS[2].address, len(inbox(real, ACCOUNTS[2]))
    with ExitStack() as stack:
        clients = [smtplib.LMTP(str(real.layout.lmtp_socket), timeout=PATIENCE_S) for _ in range(LMTP_CONCURRENCY)]
        replies = []
        for client in map(stack.enter_context, clients):
            client.ehlo_or_helo_if_needed()
            replies += [client.mail(address)[0], client.rcpt(address)[0]]
        replies += [client.data(MESSAGE)[0] for client in clients]
    assert replies == [250] * 3 * LMTP_CONCURRENCY
    assert len(inbox(real, ACCOUNTS[2])) == before + LMTP_CONCURRENCY


@pytest.mark.system
def test_any_characters_of_a_local_part_are_accepted(dovecot_postfix: StartDovecotPostfix) -> None:
    """Capitals, and the characters of a local part (RFC 5321 section 4.1.2)."""
    names = ["User.One", *(f"a{sign}b" for sign in "#$&*+/=?^_`{|}~-"), "=c"]
    accounts = [Account(number, name, f"{name}@{DOMAIN}", "secret") for number, name in enumerate(names, 1)]
    everybody = [account.address for account in accounts]
    server = dovecot_postfix(accounts, {FEW: everybody})
    with ExitStack() as stack:
        counts = {account.login: stack.enter_context(idling(server, account)) for account in accounts}
        assert submit(server.services, everybody[0], [FEW], MESSAGE) == {}
        assert {login: next_count() for login, next_count in counts.items()} == dict.fromkeys(names, 1)
        assert submit(server.services, everybody[1], everybody, MESSAGE) == {}
        assert {login: next_count() for login, next_count in counts.items()} == dict.fromkeys(names, 2)


@pytest.mark.system
def test_no_mail_leaves_the_real_server(real: DovecotPostfix) -> None:
    """Addresses outside are refused even to those who authenticated; so are unknown users of the domain."""
    smtp = real.services.smtp
    with smtplib.SMTP(smtp.host, smtp.port, timeout=PATIENCE_S) as client:
        client.login(ACCOUNTS[0].login, ACCOUNTS[0].password)
        with pytest.raises(smtplib.SMTPRecipientsRefused) as refused:
            client.sendmail(ACCOUNTS[0].address, ["somebody@example.org", f"nobody@{DOMAIN}"], MESSAGE)
    codes = {address: code for address, (code, _) in refused.value.recipients.items()}
    assert codes == {"somebody@example.org": 554, f"nobody@{DOMAIN}": 550}
    assert real.queue() == []


@pytest.mark.system
@pytest.mark.parametrize("tls", ["starttls", "implicit"])
def test_tls_is_verified_by_its_own_authority(dovecot_postfix: StartDovecotPostfix, tls: str) -> None:
    """With the instance's authority both services are trusted, by address and by name; without it neither is."""
    server = dovecot_postfix(ACCOUNTS[:1], tls=tls)
    imap, smtp = server.services.imap, server.services.smtp
    assert imap.tls == smtp.tls == tls
    assert imap.ca_file is not None
    account = ACCOUNTS[0]

    def use(host: str, trust: ssl.SSLContext) -> None:
        with ExitStack() as stack:
            if tls == "implicit":
                mail = imaplib.IMAP4_SSL(host, imap.port, ssl_context=trust, timeout=PATIENCE_S)
                stack.callback(hang_up, mail)
                sending = stack.enter_context(smtplib.SMTP_SSL(host, smtp.port, context=trust, timeout=PATIENCE_S))
            else:
                mail = imaplib.IMAP4(host, imap.port, timeout=PATIENCE_S)
                stack.callback(hang_up, mail)
                mail.starttls(trust)
                sending = stack.enter_context(smtplib.SMTP(host, smtp.port, timeout=PATIENCE_S))
                sending.starttls(context=trust)
            mail.login(account.login, account.password)
            sending.login(account.login, account.password)

    for host in ("127.0.0.1", "localhost"):
        use(host, ssl.create_default_context(cafile=imap.ca_file))
    with pytest.raises(ssl.SSLCertVerificationError):
        use("127.0.0.1", ssl.create_default_context())


@pytest.mark.system
def test_real_server_stop_leaves_nothing(server_directory: Path) -> None:
    """After stop, also with a client in the middle of a session, no process and no port is left; mail is kept."""
    with ExitStack() as stack:
        server = stack.enter_context(start_dovecot_postfix(ACCOUNTS, LISTS, server_directory))
        imap, smtp = server.services.imap, server.services.smtp
        with idling(server, ACCOUNTS[0]) as next_count:
            submit(server.services, ACCOUNTS[1].address, [ACCOUNTS[0].address], MESSAGE)
            assert next_count() == 1
        client = stack.enter_context(socket.create_connection((imap.host, imap.port)))
        client.sendall(b"1 LOGIN %b %b\r\n" % (ACCOUNTS[0].login.encode(), ACCOUNTS[0].password.encode()))
        client.recv(4096)
        pids = server.pids()
        assert len(pids) > 5
        server.stop()
        assert not server.pids()
        assert all(ended(pid) for pid in pids)
        assert refuses(imap.port)
        assert refuses(smtp.port)
        server.stop()
    with start_dovecot_postfix(ACCOUNTS, LISTS, server_directory) as again:
        assert len(inbox(again, ACCOUNTS[0])) == 1


@pytest.mark.system
def test_a_running_instance_is_left_alone(real: DovecotPostfix) -> None:
    """A second start in the directory of a running instance is refused, and the first does not notice."""
    root = real.layout.dovecot_conf.parents[1]
    logs = {path: path.stat().st_ino for path in (root / "log").iterdir()}
    with pytest.raises(ConfigError, match="no running server"):
        start_dovecot_postfix(ACCOUNTS[:1], {}, root)
    assert {path: path.stat().st_ino for path in (root / "log").iterdir()} == logs
    with logged_on(real, ACCOUNTS[5]) as client:
        assert client.select("INBOX")[0] == "OK"


@pytest.mark.system
@pytest.mark.parametrize("service", ["imap_port", "smtp_port"])
def test_a_taken_port_is_refused(server_directory: Path, service: str) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as somebody:
        ports = {"imap_port": free_port(), "smtp_port": free_port()} | {service: somebody.getsockname()[1]}
        with pytest.raises(ConfigError, match="Address already in use") as refused:
            start_dovecot_postfix(ACCOUNTS, LISTS, server_directory, **ports)
        assert "\n" not in str(refused.value)
    assert all(refuses(port) for port in ports.values())


@pytest.mark.system
@pytest.mark.parametrize(
    ("name", "complaint"), [("with space", "letters, digits"), ("x" * 100, "characters"), ("closed/inside", "enter")]
)
def test_unusable_directories_are_refused(server_directory: Path, name: str, complaint: str) -> None:
    """A path that configuration files, sockets or the servers' users cannot take is refused in one line."""
    (server_directory / "closed").mkdir(mode=0o700)
    with pytest.raises(ConfigError, match=complaint) as refused:
        start_dovecot_postfix(ACCOUNTS, LISTS, server_directory / name)
    assert "\n" not in str(refused.value)


def test_inotify_limits_are_raised_and_named(tmp_path: Path) -> None:
    """Limits that are too low for the users are raised, once, with a sentence about it; high ones stay."""
    (tmp_path / "max_user_instances").write_text("128\n")
    (tmp_path / "max_user_watches").write_text("500000\n")
    (note,) = make_room_for_idling(1000, tmp_path)
    raised = int((tmp_path / "max_user_instances").read_text())
    assert raised >= 1000
    assert f"from 128 to {raised}" in note
    assert (tmp_path / "max_user_watches").read_text() == "500000\n"
    assert make_room_for_idling(1000, tmp_path) == []


def test_inotify_limits_that_cannot_be_raised_name_the_command(tmp_path: Path) -> None:
    """Where the kernel's setting cannot be written, the error is the command that raises it."""
    unwritable = Path("/proc/sys/kernel/ngroups_max")  # read-only even for root
    (tmp_path / "max_user_instances").symlink_to(unwritable)
    users = int(unwritable.read_text())
    with pytest.raises(ConfigError, match=r"sysctl -w fs\.inotify\.max_user_instances=\d+$"):
        make_room_for_idling(users, tmp_path)


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "three.yaml"
    path.write_text(
        "server: embedded\ndomain: three.test\naccounts: {user: 'u{index}', password: 'pw-{index}'}\n"
        "topology: [{profile: loadsim-5.5/medium, users: 3}]\n"
    )
    yield path


def serve_and_ask_to_stop(arguments: list[str], request: signal.Signals) -> str:
    """Run the verb until it says that it is ready, log on as a user of the scenario, send the signal; what it said."""
    command = [*LOADSIM, "server", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = ""
        for line in process.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        else:
            pytest.fail(f"it ended: {said}{process.stderr.read()}")
        imap = yaml.safe_load(said)["server"]["imap"]
        with imaplib.IMAP4(imap["host"], imap["port"], timeout=PATIENCE_S) as client:
            assert client.login("u3", "pw-3")[0] == "OK"
        process.send_signal(request)
        assert process.wait(PATIENCE_S) == 0, process.stderr.read()
        assert refuses(imap["port"])
        said += process.stdout.read()
    return said


@pytest.mark.parametrize("request_to_end", [signal.SIGINT, signal.SIGTERM])
def test_server_embedded_runs_until_asked(scenario: Path, request_to_end: signal.Signals) -> None:
    said = serve_and_ask_to_stop(["embedded", str(scenario)], request_to_end)
    assert "not a measurement" in said
    assert said.endswith(
        "# Stopping: with full mailboxes, this may take a minute.\n# Stopped; its files were removed.\n"
    )


@pytest.mark.system
def test_server_dovecot_postfix_runs_until_asked(scenario: Path, server_directory: Path) -> None:
    imap, smtp = free_port(), free_port()
    arguments = ["dovecot-postfix", str(scenario), "--imap-port", str(imap), "--smtp-port", str(smtp)]
    said = serve_and_ask_to_stop([*arguments, "--dir", str(server_directory)], signal.SIGTERM)
    block = yaml.safe_load(said)["server"]
    assert (block["imap"]["port"], block["smtp"]["port"]) == (imap, smtp)
    assert (server_directory / "log" / "dovecot.log").exists()
    assert said.endswith("\n# Stopped.\n")


@pytest.mark.system
def test_servers_end_with_a_killed_command(scenario: Path, server_directory: Path) -> None:
    """Dovecot and Postfix do not outlive `loadsim server`, although it is killed."""
    ports = ["--imap-port", str(free_port()), "--smtp-port", str(free_port())]
    command = [*LOADSIM, "server", "dovecot-postfix", str(scenario), "--dir", str(server_directory), *ports]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any("Ctrl-C" in line for line in process.stdout)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        masters = [os.pidfd_open(int(child)) for child in children]
        assert len(masters) >= 2
        process.kill()
    for master in masters:
        assert select.select([master], [], [], PATIENCE_S)[0], "a master lives on"
        os.close(master)
