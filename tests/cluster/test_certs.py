"""The certificate of a cluster, held against OpenSSL, and against Dask's own scheduler, worker and client."""

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import psutil
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from dask_clusters import quiet_dask
from patience import PATIENCE_S

from loadsim.cli import BAD_INPUT, main
from loadsim.cluster import certs
from loadsim.cluster.address import control_address
from loadsim.cluster.agent import Agent, serve
from loadsim.cluster.controller import scheduler_at
from loadsim.cluster.own_dask import PAGES_ADDRESS, Client, Scheduler, Security, Worker
from loadsim.cluster.security import access_to, mutual_tls
from loadsim.errors import ConfigError

__all__ = ["quiet_dask"]

pytestmark = pytest.mark.usefixtures("quiet_dask")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of a cluster; tests that change anything make one of their own."""
    return made(tmp_path_factory.mktemp("certs") / "cluster")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("other") / "cluster")


def made(directory: Path) -> Path:
    certs.make(directory, 90)
    return directory


def openssl(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def verified(authority: Path, certificate: Path, *options: str | Path) -> bool:
    """Return if `openssl verify`, at its strictest, accepts the certificate as one of the authority."""
    return openssl("verify", "-x509_strict", *options, "-CAfile", authority, certificate).returncode == 0


def test_openssl_verifies_the_certificate_as_its_own_authority(place: Path, other: Path) -> None:
    """As server and as client, at its strictest; that of another cluster, never."""
    for purpose in ("sslserver", "sslclient"):
        assert verified(place / "cert.pem", place / "cert.pem", "-purpose", purpose)
    assert not verified(other / "cert.pem", place / "cert.pem")


def test_a_certificate_has_the_stated_key_and_validity(place: Path) -> None:
    text = openssl("x509", "-in", place / "cert.pem", "-noout", "-text").stdout
    assert "NIST CURVE: P-256" in text
    assert "Signature Algorithm: ecdsa-with-SHA256" in text
    ends = [
        openssl("x509", "-in", place / "cert.pem", "-noout", "-checkend", str((90 + more) * 86400)) for more in (-1, 1)
    ]
    assert [end.returncode for end in ends] == [0, 1]


def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    """Files are 0600 and the directory 0700 with any umask."""
    before = os.umask(0)
    try:
        directory = made(tmp_path / "cluster")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (directory, *directory.iterdir())}
    assert modes == {"cluster": 0o700, "cert.pem": 0o600, "key.pem": 0o600}


def test_an_existing_directory_is_not_overwritten(tmp_path: Path) -> None:
    """Anything in the directory's place stays as it is."""
    directory = tmp_path / "cluster"
    directory.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"cluster: expected a directory that does not exist yet"):
        made(directory)
    directory.unlink()
    made(directory)
    before = [path.read_bytes() for path in sorted(directory.iterdir())]
    with pytest.raises(ConfigError, match=r"cluster: expected a directory that does not exist yet"):
        made(directory)
    assert [path.read_bytes() for path in sorted(directory.iterdir())] == before


NO_CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def swap_key(directory: Path) -> None:
    key = made(directory / "other") / "key.pem"
    (directory / "key.pem").write_bytes(key.read_bytes())


def encrypt_key(directory: Path) -> None:
    key = load_pem_private_key((directory / "key.pem").read_bytes(), None)
    (directory / "key.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word"))
    )


def take_an_unknown_curve(directory: Path) -> None:
    """The package cryptography has no SM2."""
    key = directory / "key.pem"
    assert openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:SM2", "-out", key).returncode == 0
    made_of = ("-new", "-key", key, "-subj", "/CN=cluster", "-out", directory / "cert.pem")
    assert openssl("req", "-x509", *made_of).returncode == 0


def sign_by_another(directory: Path) -> None:
    """As the authority of a company does."""
    other, path = made(directory / "other"), directory / "cert.pem"
    by = ("-CA", other / "cert.pem", "-CAkey", other / "key.pem", "-set_serial", "1")
    assert openssl("x509", "-in", path, *by, "-out", path).returncode == 0


def expire(directory: Path) -> None:
    shutil.rmtree(directory)
    certs.make(directory, 0)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda directory: (directory / "key.pem").chmod(0o640),
            r"key\.pem: expected a key that only its owner can read, found mode 0640",
        ),
        (
            lambda directory: (directory / "cert.pem").write_text(NO_CERTIFICATE),
            r"cert\.pem: expected a certificate in PEM",
        ),
        (swap_key, r"key\.pem: expected the key to the certificate in this directory, found another"),
        (encrypt_key, r"key\.pem: expected an unencrypted private key in PEM"),
        (
            lambda directory: (directory / "cert.pem").unlink(),
            r"cert\.pem: expected a file of the cluster's certificate, found",
        ),
        (take_an_unknown_curve, r"cert\.pem: expected a certificate in PEM, found something else"),
        (sign_by_another, r"cert\.pem: expected a certificate that is its own authority, .* found one of another"),
        (expire, r"cert\.pem: expected a certificate that is valid now"),
    ],
)
def test_a_certificate_with_a_fault_is_refused(tmp_path: Path, damage: Callable[[Path], object], said: str) -> None:
    """In one line that names the file, before anybody connects."""
    directory = made(tmp_path / "cluster")
    certs.check(directory)
    damage(directory)
    with pytest.raises(ConfigError, match=said):
        certs.check(directory)


@asynccontextmanager
async def scheduler(directory: Path) -> AsyncIterator[Scheduler]:
    async with (
        asyncio.timeout(PATIENCE_S),
        Scheduler(
            protocol="tls", host="127.0.0.1", port=0, dashboard_address=PAGES_ADDRESS, security=mutual_tls(directory)
        ) as running,
    ):
        yield running


def worker(address: str, security: Security) -> Worker:
    return Worker(address, nthreads=1, host="127.0.0.1", dashboard_address=PAGES_ADDRESS, security=security)


def test_members_connect_over_tls(place: Path) -> None:
    """Controller, client and a controlling process connect over TLS; the controller runs a function on the client."""

    async def work() -> None:
        security = mutual_tls(place)
        async with scheduler(place) as controller:
            assert controller.address.startswith("tls://")
            async with (
                worker(controller.address, security),
                Client(controller.address, security=controller.security, asynchronous=True) as control,
            ):
                assert list((await control.run(os.getpid)).values()) == [os.getpid()]

    asyncio.run(work())


PAGES = ("/", "/status", "/workers", "/info/main/workers.html", "/health", "/metrics", "/json/counts.json")
"""Pages of Dask, some of which bokeh adds (`distributed/http`, `distributed/dashboard`)."""


def status(url: str) -> int | None:
    """Return the HTTP status that this page is answered with; None where no HTTP is spoken."""
    try:
        with urlopen(url, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except HTTPError as refusal:
        refusal.close()
        return refusal.code
    except OSError:
        return None


def test_dask_serves_no_pages(place: Path, tmp_path: Path) -> None:
    """Scheduler and client answer 404 to every page with bokeh installed, and open that port on loopback only."""
    import bokeh  # noqa: F401  # without it Dask has no dashboard, and this test would prove nothing

    async def work() -> None:
        access = access_to(control_address("localhost:0", listens=True), place)
        joined = asyncio.Event()
        async with asyncio.timeout(PATIENCE_S), scheduler_at(access, lambda _: None) as address:
            agent = asyncio.create_task(
                serve(address.for_dask, "first", Agent(tmp_path, ()), access.security, "127.0.0.1", joined=joined.set)
            )
            await joined.wait()
            listening = [each.laddr for each in psutil.Process().net_connections("inet") if each.status == "LISTEN"]
            assert len(listening) >= 4  # each has a port for Dask's own protocol and one for pages
            assert {where.ip for where in listening} <= {"127.0.0.1", "::1"}
            found = [
                await asyncio.to_thread(status, f"http://127.0.0.1:{where.port}{page}")
                for where in listening
                for page in PAGES
            ]
            assert found.count(404) == 2 * len(PAGES)
            assert set(found) == {404, None}
            agent.cancel()
            with suppress(asyncio.CancelledError):
                await agent

    asyncio.run(work())


def test_the_port_sends_nothing_to_clients_without_a_certificate(place: Path, other: Path) -> None:
    """OpenSSL's own client at Dask's port: a member is greeted, anybody else is shown the door, plain TCP too."""

    def asked(address: str, *options: str | Path) -> tuple[str, bytes]:
        """Return s_client's words on the handshake, and the bytes that the port sent."""
        connect = ("-connect", address, "-CAfile", place / "cert.pem", "-verify_return_error")
        done = subprocess.run(
            ["openssl", "s_client", *connect, "-quiet", *options],
            input=b"",
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.stderr.decode(), done.stdout

    def member(address: str) -> None:
        """Greeted: Dask speaks first."""
        host, _, port = address.partition(":")
        context = ssl.create_default_context(cafile=place / "cert.pem")
        context.check_hostname = False
        context.load_cert_chain(place / "cert.pem", place / "key.pem")
        plain = socket.create_connection((host, int(port)), PATIENCE_S)
        with context.wrap_socket(plain, server_hostname=host) as secured:
            assert secured.version() == "TLSv1.3"
            assert secured.recv(1)

    def plain(address: str) -> bytes:
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port)), PATIENCE_S) as sock:
            sock.sendall(b"\0" * 64)
            try:
                return sock.recv(1)
            except ConnectionResetError:
                return b""

    async def work() -> None:
        async with scheduler(place) as controller:
            address = controller.address.removeprefix("tls://")
            await asyncio.to_thread(member, address)
            for options, alert in (
                ((), "certificate required"),
                (("-cert", other / "cert.pem", "-key", other / "key.pem"), "unknown ca"),
                (("-tls1_2",), "protocol version"),
            ):
                said, sent = await asyncio.to_thread(asked, address, *options)
                assert alert in said
                assert sent == b""
            assert await asyncio.to_thread(plain, address) in (b"", b"\x15")  # nothing, or a TLS alert
            assert not controller.workers

    asyncio.run(work())


@pytest.mark.parametrize(
    ("text", "written"), [("1", "127.0.0.1:1"), (":0", "127.0.0.1:0"), ("0.0.0.0", "0.0.0.0:8786")]
)
def test_an_address_to_listen_at_may_be_a_port(text: str, written: str) -> None:
    assert str(control_address(text, "--listen", listens=True)) == written
    if ":8786" not in written:
        with pytest.raises(ConfigError):
            control_address(text)


@pytest.mark.parametrize("text", ["", "http://a:1", "a:0", "a:x", ":1", "u@a:1", "tls://a:1"])
def test_a_malformed_cluster_address_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--cluster: expected HOST\[:PORT\], found "):
        control_address(text)


@pytest.mark.parametrize("host", ["127.9.9.9", "[::1]", "localhost", "10.9.8.1", "0.0.0.0", "127.0.0.1.example.test"])
def test_plain_tcp_is_for_loopback(place: Path, host: str) -> None:
    address = control_address(f"{host}:8786")
    if host in ("127.9.9.9", "[::1]", "localhost"):
        assert access_to(address, None).address.protocol == "tcp"
    else:
        with pytest.raises(ConfigError, match="expected --certs DIR"):
            access_to(address, None)
    assert access_to(address, place).address.protocol == "tls"


def test_the_command_makes_a_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "cluster"
    assert main(["cluster", "certs", str(directory)]) == 0
    assert capsys.readouterr().out.startswith(f"{directory}: the cluster's certificate and its key; copy it to")
    certs.check(directory)
    assert main(["cluster", "certs", str(directory)]) == BAD_INPUT
