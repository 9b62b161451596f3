"""Bad input, as a stranger gives it: one clear line, exit status 2, nothing half done, and before there is any load."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BytesIO, TextIOWrapper
from pathlib import Path
from ssl import SSLContext, SSLError
from typing import Any

import pytest
import yaml
from imap_script import certificate
from patience import PATIENCE_S
from timing_samples import done, write_sample

from loadsim.cli import BAD_INPUT, INTERRUPTED, VERBS, main, open_standard_streams
from loadsim.engine.channel import start_process
from loadsim.engine.coordinator import Coordinator
from loadsim.engine.event_log import Events
from loadsim.errors import LONGEST_SERVER_LINE, ServerLost, ServerRefused, printable

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("place")]

PASSWORD = "hunter2-{index}"
SMALL = {"window": "1s", "hits": 1}
"""Limits within which a small run can be valid: otherwise a warning says that it cannot."""
GROUP = "topology: [{profile: loadsim-5.5/light, users: 2}]\n"
FEW: dict[str, Any] = {"topology": [{"profile": "loadsim-5.5/light", "users": 2}], "run": {"day_length": "20s"}}

Capture = pytest.CaptureFixture[str]


def written(**changes: Any) -> str:
    document = {"server": "embedded", "limits": SMALL, **FEW, **changes}
    Path("own.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return "own.yaml"


def on(imap: int, smtp: int, **changes: Any) -> str:
    server = {"imap": {"host": "127.0.0.1", "port": imap}, "smtp": {"host": "127.0.0.1", "port": smtp}}
    for service, keys in changes.pop("endpoints", {}).items():
        server[service] |= keys
    accounts = {"user": "user{index}", "password": PASSWORD}
    limits = {"command": "2s", **SMALL, **changes.pop("limits", {})}
    return written(**{"server": server, "accounts": accounts, "limits": limits} | changes)


def refusal(capsys: Capture, *arguments: str) -> str:
    """The line that the command says; all that holds for every refusal is held here."""
    before = sorted(Path().rglob("*"))
    try:
        status = main(arguments)
    except SystemExit as end:
        assert isinstance(end.code, int)
        status = end.code
    out, said = capsys.readouterr()
    assert status == BAD_INPUT, said
    assert out == ""
    *progress, line = said.splitlines()
    told_before = r"(inspect|clean): \d+ of \d+ accounts|Planning the day of \d+ users once, .*|Planning[^:]*: \d+ %.*"
    assert all(re.fullmatch(told_before, told) for told in progress), progress
    assert said.endswith("\n") and line.isprintable()
    assert re.match(r"loadsim[ a-z-]*: ", line)
    assert "hunter2" not in line
    assert sorted(Path().rglob("*")) == before
    return line


COMPARE = ("compare", "--base", "a", "--new", "b")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "loadsim: the following arguments are required: COMMAND; see loadsim --help"),
        (("run", "a", "b\x1b[2J"), "unrecognized arguments: b\\x1b[2J"),
        (("chek",), "loadsim: argument COMMAND: invalid choice: 'chek' (perhaps check); see loadsim --help"),
        (("log", "answer", "a", "--commandos"), "unrecognized arguments: --commandos (perhaps --commands); see"),
        (("server", "dovecot-postfix", "quickstart", "--imap-port", "0"), "a whole number from 1 to 65535, found '0'"),
        (
            ("run", "quickest"),
            "scenario: expected one of dovecot-postfix, mapi-quickstart, medium, mixed, quickstart, storm, today, or",
        ),
        (("run", "none.yaml"), "none.yaml: expected a file that can be read, found: No such file or directory"),
        (("plan", "quickstart", "--set", "topology.0.users=0"), "topology.0.users: expected a whole number of at"),
        (("plan", "quickstart", "--set", "topology=[{profile: loadsim-5.0/light, users: 1}]"), "expected at least 2"),
        (("report", "none"), "loadsim: none: expected a timing log or a run directory"),
        ((*COMPARE, "--looks", "2.5"), "expected a whole number from 1 to 100, found '2.5'"),
        ((*COMPARE, "--max-regression", "five"), "such as 5% or 0.05, from 0% to 100%, found 'five'"),
        (("log", "answer", f"--end={'9' * 400}", "run"), "argument --end: expected h:mm, h:mm:ss or seconds"),
        (("new", "own.yaml"), "NAME: expected letters, digits, - and _, without .yaml, which is added, found 'own."),
        (("new", "own", "--host", "a b"), "expected letters, digits and the characters - . : _ / @, found 'a b'"),
        (("new", "own", "--host", "mail.example.com:143"), "--host: expected a host without a port, found"),
        (("show", "scenario"), "'scenario' (perhaps scenarios; choose from "),
        (("show", "profiles", "a", "b"), "unrecognized arguments: b"),
        (("server", "dovecot-postfix", "quickstart", "--listen", "0.0.0.0"), "--listen: expected an IPv4 address"),
        (("capacity", "quickstart", "--width", "1%", "--from", "4,8"), "--from: expected"),
        (("capacity", "quickstart", "--from", "0"), "--from: expected"),
        (("capacity", "quickstart", "--width", "0.5%"), "--width: expected"),
        (("capacity", "quickstart", "--pause", "-1s"), "--pause: expected"),
        (("monitor", "--probe", "host", "--name", "mx1", "--set", "run.seed=1"), "--set run: expected"),
        (("client", "--cluster", "127.0.0.1:1", "--name", "a-1", "--runs", "/proc/x"), "--runs /proc/x: expected"),
    ],
)
def test_wrong_arguments_are_rejected(capsys: Capture, arguments: tuple[str, ...], says: str) -> None:
    assert says in refusal(capsys, *arguments)


def test_each_command_has_a_help_text(capsys: Capture) -> None:
    for arguments, named in ((["--help"], VERBS), *(([verb, "--help"], (verb,)) for verb in VERBS)):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        out, said = capsys.readouterr()
        assert (end.value.code, said) == (0, "")
        assert all(verb in out for verb in named)


@pytest.mark.parametrize("verb", ["run", "plan", "init"])
def test_each_command_rejects_a_wrong_file_in_one_line(capsys: Capture, verb: str) -> None:
    """It names file and key, without control characters."""
    Path("own.yaml").write_text(f'server: embedded\n"\\e[31m": x\n{GROUP}', encoding="utf-8")
    assert refusal(capsys, verb, "own.yaml").startswith("loadsim: own.yaml: \\x1b[31m: expected one of the keys")


def test_a_ca_file_without_certificates_is_rejected(capsys: Capture) -> None:
    Path("ca.pem").write_text("hello")
    line = refusal(capsys, "run", on(1, 1, endpoints={"imap": {"tls": "implicit", "ca_file": "ca.pem"}}))
    assert re.search(r"ca_file: expected a readable file of PEM certificates, found \S+/ca\.pem: none in it$", line)


def test_an_embedded_server_cannot_be_initialised(capsys: Capture) -> None:
    """`init` and `clean` say why there is nothing to do on a server that runs only during a run."""
    for verb in ("init", "clean"):
        expected = "server: expected a running server, found embedded, which runs only during loadsim run"
        assert refusal(capsys, verb, written()).startswith(f"loadsim: own: {expected}")


def test_a_monitor_that_cannot_start_writes_nothing(capsys: Capture) -> None:
    """Without a probe, and with a wrong name."""
    assert "at least one probe" in refusal(capsys, "monitor", "--name", "mx1")
    assert "--name: expected a-z, 0-9 and -" in refusal(capsys, "monitor", "--probe", "host", "--name", "MX 1")


def test_a_monitor_with_a_closed_stream_ends(place: Path, capsys: Capture) -> None:
    """Its output takes the header of the log, and no sample: it ends by itself, and not well."""
    kept, (soft, hard) = os.dup(1), resource.getrlimit(resource.RLIMIT_FSIZE)
    with (place / "stream").open("wb") as stream:
        os.dup2(stream.fileno(), 1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400, hard))  # the header has 257 bytes
    try:
        assert main(["monitor", "--probe", "host", "--name", "mx1"]) == BAD_INPUT
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        os.dup2(kept, 1)
        os.close(kept)
    assert len(capsys.readouterr().err.splitlines()) == 2  # the samples that were lost, and the end


@pytest.mark.parametrize("closed", [False, True])
def test_a_missing_standard_stream_is_the_null_device(closed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the next file that is opened, such as a log, would take its place."""
    kept = os.dup(0)
    monkeypatch.setattr(sys, "stdin", None)
    try:
        if closed:
            os.close(0)
        open_standard_streams()
        assert (sys.stdin.fileno(), os.fstat(0).st_rdev) == (0, Path(os.devnull).stat().st_rdev)
    finally:
        os.dup2(kept, 0)
        os.close(kept)


@pytest.mark.parametrize("where", ["file", "file/below", "/proc/nowhere"])
@pytest.mark.parametrize(
    "command",
    [
        ("run", "own.yaml", "--out"),
        ("topology", "export", "own.yaml", "--format", "csv", "--out"),
        ("server", "embedded", "own.yaml", "--dir"),
    ],
)
def test_unwritable_places_are_rejected(capsys: Capture, command: tuple[str, ...], where: str) -> None:
    """A file, what lies below a file, and what the system refuses, are told with the place and the reason."""
    Path("file").touch()
    written()
    assert re.search(rf"{where}\S*: expected .*, found: [A-Z]", refusal(capsys, *command, where))


@pytest.mark.parametrize("verb", ["run", "init", "clean"])
def test_source_addresses_of_other_machines_are_rejected(capsys: Capture, verb: str) -> None:
    """No verb connects from an address of another machine (RFC 5737 reserves it for documentation)."""
    path = on(1, 1, client={"source_addresses": ["192.0.2.1"]})
    line = refusal(capsys, verb, path)
    assert line.startswith(
        "loadsim: own: client.source_addresses: expected addresses of this machine, found 192.0.2.1: Cannot assign"
    )


def test_an_engine_that_cannot_start_leaves_nothing(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line of the engine that cannot make its log is the command's; what others had made by then goes."""
    reluctant = (
        "import json, pathlib, sys\n"
        "log = json.loads(sys.stdin.readline())['begin']['log']\n"
        "pathlib.Path(log).write_text('begun')\n"
        "print(json.dumps({'refused': 'x.tlog: expected to write a timing log, found: no space'}), flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = (sys.executable, "-c", reluctant)
    monkeypatch.setattr(
        "loadsim.runs.local.Coordinator", partial(Coordinator, open_channel=lambda _: start_process(command))
    )
    assert main(["run", written(), "--out", "runs/first", "--engines", "2"]) == BAD_INPUT
    out, said = capsys.readouterr()
    assert (out, said.splitlines()[-1]) == ("", "loadsim: x.tlog: expected to write a timing log, found: no space")
    assert list(Path().iterdir()) == [Path("own.yaml")]


def test_an_export_does_not_overwrite_its_source(capsys: Capture) -> None:
    """The scenario's own table of accounts is not written over, which would lose the rows that are not used."""
    rows = "user,password\n" + "".join(f"u{index},hunter2\n" for index in range(5))
    Path("accounts.csv").write_text(rows)
    Path("accounts.csv").chmod(0o600)
    path = on(1, 1, accounts={"csv": "accounts.csv"})
    line = refusal(capsys, "topology", "export", path, "--format", "csv")
    assert line == "loadsim: --out .: expected a directory without the scenario's own table, found accounts.csv"
    assert Path("accounts.csv").read_text() == rows


def test_a_scenarios_name_cannot_lead_out_of_runs(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """A scenario's name becomes a part of the run directory's name, and no path out of `runs`."""
    made: list[Path] = []

    def note(path: Path) -> list[Path]:
        made.append(path)
        raise KeyboardInterrupt

    monkeypatch.setattr("loadsim.runs.directory.make_directories", note)
    assert main(["run", written(name="../../a b/c")]) == INTERRUPTED
    (path,) = made
    assert path.parent == Path("runs") and re.fullmatch(r"\d{8}T\d{6}-\.\.-\.\.-a-b-c", path.name)


def test_a_directory_of_runs_is_rejected(capsys: Capture) -> None:
    """The newest runs in it are named. A directory whose runs have no logs has none."""
    for name in ("20260101T000000-a", "20260102T000000-b", "20260104T000000-d", "20260103T000000-c"):
        (Path("runs") / name / "logs").mkdir(parents=True)
        (Path("runs") / name / "logs" / "engine-0.tlog").touch()
    (Path("runs") / "20260105T000000-empty" / "logs").mkdir(parents=True)
    assert refusal(capsys, "report", "runs") == (
        "loadsim: runs: expected a timing log or a run directory with logs/*.tlog, found none; runs in it:"
        " runs/20260104T000000-d, runs/20260103T000000-c, runs/20260102T000000-b, and 1 more"
    )


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def imap(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    capabilities: bytes = b"IMAP4rev1 AUTH=PLAIN SASL-IR",
    log_on: Callable[[bytes], bytes] = lambda _: b"OK welcome",
    secured: SSLContext | None = None,
) -> None:
    """An IMAP server that lets people in, or not, and then knows nothing."""
    writer.write(b"* OK [CAPABILITY " + capabilities + b"] ready\r\n")
    while line := await reader.readline():
        tag, verb, *rest = line.split()
        if verb == b"CAPABILITY":
            writer.write(b"* CAPABILITY " + capabilities + b"\r\n" + tag + b" OK\r\n")
        elif verb == b"STARTTLS" and secured:
            writer.write(tag + b" OK go ahead\r\n")
            await writer.start_tls(secured)
        elif verb == b"AUTHENTICATE":
            writer.write(tag + b" " + log_on(rest[-1]) + b"\r\n")
        elif verb == b"LOGOUT":
            writer.write(b"* BYE\r\n" + tag + b" OK\r\n")
            return
        else:
            writer.write(tag + b" BAD \x1b[31mred\x07\r\n")


async def smtp(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    extensions: bytes = b"AUTH PLAIN",
    log_on: Callable[[bytes], bytes] = lambda _: b"235 welcome",
    secured: SSLContext | None = None,
) -> None:
    """An SMTP server that lets people in, or not."""
    writer.write(b"220 ready\r\n")
    while line := await reader.readline():
        verb, *rest = line.split()
        if verb == b"EHLO":
            writer.write(b"250-mail\r\n250 " + extensions + b"\r\n")
        elif verb == b"STARTTLS" and secured:
            writer.write(b"220 go ahead\r\n")
            await writer.start_tls(secured)
        elif verb == b"AUTH":
            writer.write(log_on(rest[-1]) + b"\r\n")
        elif verb == b"QUIT":
            writer.write(b"221 bye\r\n")
            return
        else:
            writer.write(b"500 what?\r\n")


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def hangs_up(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    """Closes at once."""


@contextmanager
def serving(*handlers: tuple[Handler, SSLContext | None]) -> Iterator[list[int]]:
    """Servers in a thread, since the command has an event loop of its own; their ports."""
    loop = asyncio.new_event_loop()
    open_now: set[asyncio.Task[None]] = set()

    async def serve(handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now.add(task)
        try:
            with suppress(ConnectionError, SSLError, asyncio.IncompleteReadError):
                await handler(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError, SSLError, TimeoutError):
                await writer.wait_closed()
            open_now.discard(task)

    async def start() -> list[asyncio.Server]:
        return [
            await asyncio.start_server(partial(serve, handler), "127.0.0.1", 0, ssl=context)
            for handler, context in handlers
        ]

    async def stop(servers: list[asyncio.Server]) -> None:
        for server in servers:
            server.close()
        for task in list(open_now):
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)

    servers = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield [server.sockets[0].getsockname()[1] for server in servers]
    finally:
        asyncio.run_coroutine_threadsafe(stop(servers), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, SSLContext]]:
    """Certificates for this host and for another: the file of each, and a server's context."""
    names = {"ours": "IP:127.0.0.1", "another": "DNS:mail.example.org"}
    return {which: certificate(tmp_path_factory.mktemp(which), name) for which, name in names.items()}


RIGHT = "is tls: {} right for this port?"
SILENT = "; is the server overloaded, or does this port begin with TLS (tls: implicit)?"
TRUST = "; set server.{service}.ca_file to the authority that signed it, and host to a name that it contains"


@pytest.mark.parametrize("service", ["imap", "smtp"])
@pytest.mark.parametrize(
    ("mode", "served", "trusted", "says"),
    [
        ("implicit", "ours", None, "TLS certificate: self-signed certificate" + TRUST),
        ("implicit", "another", "another", "certificate is not valid for '127.0.0.1'." + TRUST),
        ("implicit", None, "ours", "TLS handshake: WRONG_VERSION_NUMBER; " + RIGHT.format("implicit")),
        ("starttls", "ours", None, "TLS certificate: self-signed certificate" + TRUST),
        ("starttls", "another", "another", "certificate is not valid for '127.0.0.1'." + TRUST),
        ("starttls", None, "ours", RIGHT.format("starttls")),
        ("none", "ours", None, SILENT),
    ],
)
def test_wrong_tls_settings_are_named_with_a_remedy(
    capsys: Capture,
    tls: dict[str, tuple[Path, SSLContext]],
    service: str,
    mode: str,
    served: str | None,
    trusted: str | None,
    says: str,
) -> None:
    """An untrusted certificate, one of another host, and the wrong kind of TLS are named with the key to set."""
    context = tls[served][1] if served else None
    handlers: dict[str, tuple[Handler, SSLContext | None]] = {"imap": (imap, None), "smtp": (smtp, None)}
    if mode != "starttls":
        handlers[service] = (handlers[service][0], context)
    elif context and service == "imap":
        handlers["imap"] = (partial(imap, capabilities=b"IMAP4rev1 STARTTLS", secured=context), None)
    elif context:
        handlers["smtp"] = (partial(smtp, extensions=b"STARTTLS", secured=context), None)
    keys = {"tls": mode} | ({"ca_file": str(tls[trusted][0])} if trusted else {})
    with serving(handlers["imap"], handlers["smtp"]) as ports:
        path = on(*ports, endpoints={service: keys}, limits={"command": "500ms" if mode == "none" else "10s"})
        line = refusal(capsys, "run", path)
    where = f"127.0.0.1:{ports[service == 'smtp']}"
    assert line.startswith(f"loadsim: server: {service}: expected a mail server at {where}, found: ")
    assert line.endswith(says.format(service=service))


@pytest.mark.parametrize(
    ("service", "handler", "says"),
    [
        ("imap", silent, ": no answer to connect" + SILENT),
        ("imap", hangs_up, ": connection lost"),
        ("imap", smtp, " an SMTP server (IMAP syntax: "),
        ("smtp", silent, ": no answer to CONNECT" + SILENT),
        ("smtp", hangs_up, ": lost at CONNECT"),
        ("smtp", imap, " an IMAP server (no SMTP at CONNECT: "),
    ],
)
def test_a_server_of_another_protocol_is_named(capsys: Capture, service: str, handler: Handler, says: str) -> None:
    """A server of another kind is named with its address and its behaviour."""
    handlers: dict[str, Handler] = {"imap": imap, "smtp": smtp} | {service: handler}
    with serving((handlers["imap"], None), (handlers["smtp"], None)) as ports:
        line = refusal(capsys, "run", on(*ports, limits={"command": "500ms" if handler is silent else "10s"}))
    where = f"127.0.0.1:{ports[service == 'smtp']}"
    assert line.startswith(f"loadsim: server: {service}: expected a mail server at {where}, found{says}")


async def stalls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Greets, and answers nothing."""
    writer.write(b"* OK ready\r\n")
    await reader.read()


def test_a_server_that_has_greeted_has_the_right_port(capsys: Capture) -> None:
    with serving((stalls, None), (smtp, None)) as ports:
        line = refusal(capsys, "run", on(*ports, limits={"command": "500ms"}))
    assert line.endswith(", found: no answer to CAPABILITY")


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_wrong_probes_are_named_together_before_anything_is_planned(capsys: Capture, verb: str) -> None:
    """Also by a plan, whose user edits the file: the names of probes, and of their settings."""
    scenario = written(probes={"hos": {}, "host": {"nosuch": 1}, "postfix": {}})
    assert main([verb, scenario]) == BAD_INPUT
    assert capsys.readouterr().err.splitlines() == [
        "loadsim: own: probes: expected installed probes (command, host, postfix, prometheus), found 'hos'",
        "loadsim: probe host: expected one of the settings disks, groups, found 'nosuch'",
    ]


@pytest.mark.parametrize("verb", ["check", "run"])
def test_an_unreachable_server_is_one_line(capsys: Capture, verb: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        port = taken.getsockname()[1]
        assert main([verb, on(port, port)]) == BAD_INPUT
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("Planning")]
    assert lines == [
        f"loadsim: server: smtp: expected a mail server at 127.0.0.1:{port}, found: connection refused; is the server"
        " running (loadsim server dovecot-postfix SCENARIO starts one), and is server.smtp.port right?"
    ]


@pytest.mark.parametrize(("verb", "service", "other"), [("check", "smtp", "IMAP"), ("init", "imap", "SMTP")])
def test_swapped_ports_are_named(capsys: Capture, verb: str, service: str, other: str) -> None:
    with serving((smtp, None), (imap, None)) as ports:
        line = refusal(capsys, verb, on(*ports))
    assert line.startswith(f"loadsim: server: {service}: expected a mail server at ")
    assert re.search(rf", found an {other} server \(.+\); are server.imap.port and server.smtp.port right\?$", line), (
        line
    )


def no_account(user: str, place: str = "the scenario") -> str:
    """Return what a line says after a refused password, which comes from this place."""
    return (
        f"; either the server has no account {user} (loadsim topology export writes them), or its password is not the"
        f" one in {place}"
    )


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ({"password_env": "OF_THE_TEST"}, "OF_THE_TEST (accounts.password_env)"),
        ({"password": PASSWORD}, "the scenario"),
    ],
)
@pytest.mark.parametrize("verb", ["check", "init"])
def test_the_source_of_a_wrong_password_is_named(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, verb: str, source: dict[str, str], named: str
) -> None:
    """It is named, unlike the password, on a refused log-on at either service; the account may be missing, too."""
    monkeypatch.setenv("OF_THE_TEST", PASSWORD)
    refuses_imap = partial(imap, log_on=lambda _: b"NO [AUTHENTICATIONFAILED] wrong")
    refuses_smtp = partial(smtp, log_on=lambda _: b"535 5.7.8 wrong")
    with serving((refuses_imap, None), (refuses_smtp, None)) as ports:
        line = refusal(capsys, verb, on(*ports, accounts={"user": "user{index}", **source}))
    first = line.removesuffix(" (1 more account failed)")
    assert first.endswith(f"wrong{no_account('user1', named)}")
    assert first != line or verb == "check"


def lets_in(*numbers: int) -> tuple[Handler, SSLContext | None]:
    """An IMAP server that has the accounts with these numbers only."""

    def log_on(plain: bytes) -> bytes:
        number = int(b64decode(plain).split(b"\0")[1].removeprefix(b"user"))
        return b"OK welcome" if number in numbers else b"NO [AUTHENTICATIONFAILED] wrong"

    return partial(imap, log_on=log_on), None


@pytest.mark.parametrize("verb", ["check", "run"])
def test_more_users_than_accounts_are_rejected(capsys: Capture, verb: str) -> None:
    """The line names the last account, which is missing, and one that is not."""
    forty = [{"profile": "loadsim-5.5/light", "users": 40}]
    with serving(lets_in(*range(1, 31)), (smtp, None)) as ports:
        line = refusal(capsys, verb, on(*ports, topology=forty, lists={"count": 0}))
    assert line.startswith(
        "loadsim: account user40 (user40@loadsim.test): expected to log on, the server answered: NO "
    )
    assert line.endswith("; account user1 (user1@loadsim.test) logs on"), line


def test_a_refused_submission_is_one_line(capsys: Capture) -> None:
    """A refused AUTH is told with account and answer, on one line, and without the credentials that it repeats."""
    said = partial(smtp, log_on=lambda plain: b"535-5.7.8 wrong:\r\n535 5.7.8 " + plain + b"\x1b[2J")
    with serving((imap, None), (said, None)) as ports:
        line = refusal(capsys, "run", on(*ports))
    assert line == (
        "loadsim: account user1 (user1@loadsim.test): expected to log on over SMTP,"
        " the server answered: 535 5.7.8 wrong: 5.7.8 ***\\x1b[2J" + no_account("user1")
    )


def test_a_servers_text_is_one_printable_line() -> None:
    """Line ends, control sequences and signs that turn the way of writing become harmless; the length is bounded."""
    assert printable("plain \u00fc") == "plain \u00fc"
    assert printable("a\r\nb\tc\x1b[2J\u202e\udcff") == "a  b c\\x1b[2J\\u202e\\udcff"
    failure = ServerRefused("NO [\x1b] SELECT", "\x00" * 1000)
    assert failure.kind == "NO [\\x1b] SELECT"
    assert len(failure.line) == LONGEST_SERVER_LINE and failure.line.endswith("...")
    assert str(ServerLost("BYE", "x\ny")) == "BYE: x y"


def test_a_servers_text_cannot_split_an_event() -> None:
    """A server's text cannot end a line of events.jsonl, nor hold what a terminal would obey."""
    with Path("events.jsonl").open("w", encoding="utf-8") as told:
        Events(told).failed("SEND", 1, ServerRefused("550\n", 'no\n{"event": "over"}\x1b[2J\u2028'))
    text = Path("events.jsonl").read_text(encoding="utf-8")
    assert text.count("\n") == 1 and len(text.splitlines()) == 1 and "\x1b" not in text


LOADSIM = [sys.executable, "-m", "loadsim"]

"""The command, whose users never come to the end of their day."""


@pytest.mark.parametrize(
    ("verb", "request_to_end", "impatient"),
    [
        ("run", signal.SIGTERM, False),
        ("run", signal.SIGINT, True),
        ("init", signal.SIGHUP, True),
        ("clean", signal.SIGINT, False),
    ],
)
def test_a_request_to_end_before_the_load_gets_one_line(
    verb: str, request_to_end: signal.Signals, impatient: bool
) -> None:
    """While mailboxes are visited, asked once, or over and over: no directory stays, and no trace is shown."""
    came = threading.Event()

    async def never_ready(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        came.set()
        with suppress(ConnectionError):
            await reader.read()

    with serving((never_ready, None), (smtp, None)) as ports:
        path = on(*ports, limits={"command": "60s"})
        before = sorted(Path().rglob("*"))
        ended = asked([*LOADSIM, verb, path], lambda _: came.wait(60), request_to_end, impatient)
        assert ended == (INTERRUPTED, "loadsim: interrupted\n")
    assert sorted(Path().rglob("*")) == before


def test_a_server_ends_with_success_after_repeated_signals() -> None:
    """Signals stop it: exit status 0, and no file is left."""
    where: list[Path] = []

    def tells_where_it_is(process: subprocess.Popen[str]) -> bool:
        assert process.stdout is not None
        assert process.stdout.readline() == "# Starting embedded with 2 accounts: this takes a few seconds.\n"
        where.append(Path(process.stdout.readline().strip().rpartition(", in ")[2]))
        return where[0].is_dir()

    command = [*LOADSIM, "server", "embedded", written()]
    assert asked(command, tells_where_it_is, signal.SIGTERM, impatient=True) == (0, "")
    assert not where[0].exists()


def asked(
    command: list[str], begun: Callable[[subprocess.Popen[str]], object], request: signal.Signals, impatient: bool
) -> tuple[int, str]:
    """Exit status and complaints of a command that is asked to end when it has begun; if impatient, until it does."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert begun(process)
            process.send_signal(request)
            while impatient and process.poll() is None:
                process.send_signal(request)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.002)
            _, said = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()  # should it not have ended, it would never
    return process.returncode, said


@pytest.mark.parametrize(("word", "meant"), [("--pni", "--pin"), ("-pin", "--pin"), ("--engine-s=2", "--engines")])
def test_a_mistyped_option_has_a_suggestion(capsys: Capture, word: str, meant: str) -> None:
    assert f": {word} (perhaps {meant}); see loadsim run --help" in refusal(capsys, "run", "quickstart", word)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_characters_missing_in_the_terminals_encoding_are_escaped(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """Neither the letters of a name, nor a path that is no text, turns an answer into a bug of ours."""
    name = os.fsdecode(b"\xce\xb1\xff")
    Path(name).mkdir()
    write_sample(Path(name) / "a.tlog", [done("READ", 1000, 5)], header={"name": name[0]})
    Path("another").mkdir()
    write_sample(Path("another") / "a.tlog", [done("READ", 1000, 5)], header={"run": "r2"})
    several = ["report", name, "another", "-o", f"{encoding}.md"]
    for verb in (["compare", "--base", name, "--new", name], ["log", "check", name], ["report", name], several):
        streams = {stream: TextIOWrapper(BytesIO(), encoding, "strict") for stream in ("stdout", "stderr")}
        with monkeypatch.context() as terminal:
            for stream, shown in streams.items():
                terminal.setattr(sys, stream, shown)
            status = main(verb)
        for shown in streams.values():
            shown.flush()
        assert b"Traceback" not in streams["stderr"].buffer.getvalue()  # type: ignore[attr-defined]
        assert status == (BAD_INPUT if verb[0] == "compare" else 0)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_standard_output_is_one_line(unbuffered: str) -> None:
    """Found at the write, or at the end of the process, which only a process has."""
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*LOADSIM, "show", "profiles", "loadsim-5.5/light"],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (BAD_INPUT, "loadsim: output not written: No space left on device\n")
