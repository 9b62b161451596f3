"""The certificates of a cluster, held against OpenSSL, and against Dask's own scheduler, worker and client."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import dask
import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from distributed import Client, Scheduler, Worker
from distributed.security import Security
from patience import PATIENCE_S

from loadsim.cli import BAD_INPUT, main
from loadsim.cluster import certs
from loadsim.cluster.address import control_address
from loadsim.cluster.agent import serve
from loadsim.cluster.bundle import CA_FILE, load_bundle
from loadsim.cluster.scheduler import scheduler_at
from loadsim.cluster.security import NO_PAGES, PAGES_ADDRESS, access_to, mutual_tls
from loadsim.errors import ConfigError

AT_THE_DOOR_S = 1.5
"""How long somebody is left to try, over and over again, what must not succeed."""

HOSTS = {
    "station": ["10.9.8.1", "station.example.test", "localhost", "127.0.0.1", "::1"],
    "clients/first": ["first"],
    "clients/second": ["second", "10.9.8.7", "second.example.test", "fd00::7"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster with two clients; tests that change anything make one of their own."""
    return made(tmp_path_factory.mktemp("certs") / "cluster", "first", "second=10.9.8.7,second.example.test,fd00::7")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster of the same names and another authority."""
    return made(tmp_path_factory.mktemp("other") / "cluster", "first")


def made(directory: Path, *clients: str) -> Path:
    """Make a cluster whose station is reached at 10.9.8.1 and station.example.test."""
    members = [certs.station(["10.9.8.1", "Station.example.test"]), *map(certs.client, clients)]
    certs.make(directory, members, 90)
    return directory


def openssl(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run openssl, whatever its exit status."""
    return subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def verified(authority: Path, certificate: Path, *options: str | Path) -> bool:
    """Whether `openssl verify`, at its strictest, takes the certificate as one of the authority."""
    return openssl("verify", "-x509_strict", *options, "-CAfile", authority, certificate).returncode == 0


def files(directory: Path) -> dict[str, bytes]:
    """What lies there, hidden files too."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


# --- what openssl says ---


@pytest.mark.parametrize("member", HOSTS)
def test_openssl_takes_every_member_at_its_hosts(place: Path, other: Path, member: str) -> None:
    """As server and as client, at the hosts that were named and no others; of another authority, never."""
    authority, certificate = place / "authority/ca.pem", place / member / "cert.pem"
    for purpose in ("sslserver", "sslclient"):
        assert verified(authority, certificate, "-purpose", purpose)
    for host in [*HOSTS[member], "10.9.8.8", "example.test"]:
        option = "-verify_ip" if ":" in host or host[0].isdigit() else "-verify_hostname"
        assert verified(authority, certificate, option, host) is (host in HOSTS[member]), host
    assert not verified(other / "authority/ca.pem", certificate)


def test_members_cannot_make_members(place: Path, tmp_path: Path) -> None:
    """What a client signs with its own key does not count, though the client's certificate is in order."""
    first = place / "clients/first"
    requested = openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
                        "/CN=station", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "request.pem")  # fmt: skip
    signed = openssl("x509", "-req", "-in", tmp_path / "request.pem", "-CA", first / "cert.pem", "-CAkey",
                     first / "key.pem", "-CAcreateserial", "-CAserial", tmp_path / "serial",
                     "-out", tmp_path / "cert.pem")  # fmt: skip
    assert requested.returncode == signed.returncode == 0
    chain = ("-untrusted", first / "cert.pem")
    refused = openssl("verify", *chain, "-CAfile", place / "authority/ca.pem", tmp_path / "cert.pem")
    assert refused.returncode != 0
    assert "invalid CA certificate" in refused.stderr


def test_keys_serials_and_validity(place: Path) -> None:
    """P-256, numbers that nobody can guess, valid for 90 days (the authority ten years) and not for longer."""
    serials = set()
    for certificate in place.rglob("cert.pem"):
        text = openssl("x509", "-in", certificate, "-noout", "-text").stdout
        assert "NIST CURVE: P-256" in text
        assert "Signature Algorithm: ecdsa-with-SHA256" in text
        serials.add(openssl("x509", "-in", certificate, "-noout", "-serial").stdout)
    assert len(serials) == 3
    assert all(len(serial) > 30 for serial in serials)
    for certificate, days in ((place / "station/cert.pem", 90), (place / "authority/ca.pem", 3650)):
        ends = [
            openssl("x509", "-in", certificate, "-noout", "-checkend", str((days + more) * 86400)) for more in (-1, 1)
        ]
        assert [end.returncode for end in ends] == [0, 1]


# --- files ---


def test_nobody_else_can_read_anything(tmp_path: Path) -> None:
    """Files are 0600 and directories 0700, whatever the umask."""
    before = os.umask(0)
    try:
        directory = made(tmp_path / "cluster", "first")
        certs.add(directory, [certs.client("second")], 10)
    finally:
        os.umask(before)
    everything = [directory, *directory.rglob("*")]
    assert len(everything) == 5 + 2 + 3 * 3 + 1
    for path in everything:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """Whatever stands where the directory would be made stays as it is, and nothing is left beside it."""
    directory = tmp_path / "cluster"
    directory.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"cluster: expected a directory that does not exist yet"):
        made(directory, "first")
    directory.unlink()
    made(directory, "first")
    before = files(directory)
    with pytest.raises(ConfigError, match=r"cluster: expected a directory that does not exist yet"):
        made(directory, "first")
    with pytest.raises(ConfigError, match="clients/first: expected a directory that does not exist yet"):
        certs.add(directory, [certs.client("late"), certs.client("first")], 30)
    assert files(directory) == before
    assert list(tmp_path.iterdir()) == [directory]


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    """Half a cluster would be taken for one: it is there as a whole, or not at all."""
    members = [certs.station(["10.9.8.1"]), certs.Member("client", "not/there", ("first",))]
    with pytest.raises(ConfigError, match="expected to make a new directory, found: No such file"):
        certs.make(tmp_path / "cluster", members, 10)
    assert list(tmp_path.iterdir()) == []


def test_a_client_is_added_by_the_same_authority(tmp_path: Path) -> None:
    """Its bundle is one of the cluster's, and the others are as they were. None outlives the authority."""
    directory = made(tmp_path / "cluster", "first")
    before = files(directory)
    certs.add(directory, [certs.client("late=10.9.8.9")], 30)
    assert verified(directory / "authority/ca.pem", directory / "clients/late/cert.pem", "-verify_ip", "10.9.8.9")
    after = files(directory)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {f"clients/late/{name}" for name in ("ca.pem", "cert.pem", "key.pem")}
    with pytest.raises(ConfigError, match="--days 3651: expected at most 3650"):
        certs.make(tmp_path / "longer", [certs.station(["10.9.8.1"])], 3651)
    with pytest.raises(ConfigError, match="--days 4000: expected at most 3649"):
        certs.add(directory, [certs.client("later")], 4000)


@pytest.mark.parametrize("text", ["", "a/b", "..", "-first", "first-", "f_1", "x" * 64, "ä", "=10.0.0.1"])
def test_what_no_client_is_called(text: str) -> None:
    """A name becomes a directory and a part of file names."""
    with pytest.raises(ConfigError, match="expected letters, digits and hyphens"):
        certs.client(text)


@pytest.mark.parametrize("host", ["", "10.0.0.256", "10.0.0", "*.example.test", "a..b", "fe80::1%eth0x/", "x" * 254])
def test_what_no_host_is(host: str) -> None:
    """Neither a name nor an address; wildcards are none that a cluster needs."""
    for refused in (lambda: certs.station([host]), lambda: certs.client(f"first={host}")):
        with pytest.raises(ConfigError, match="expected a host name or an IP address"):
            refused()


# --- reading ---


def break_mode(bundle: Path) -> None:
    (bundle / "key.pem").chmod(0o640)


def break_certificate(bundle: Path) -> None:
    (bundle / "cert.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")


def break_key(bundle: Path) -> None:
    (bundle / "key.pem").write_bytes((bundle.parent.parent / "station/key.pem").read_bytes())


def encrypt_key(bundle: Path) -> None:
    key = load_pem_private_key((bundle / "key.pem").read_bytes(), None)
    (bundle / "key.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word"))
    )


def lose_authority(bundle: Path) -> None:
    (bundle / "ca.pem").unlink()


def swap_authority(bundle: Path) -> None:
    """One with the same name, which is what a certificate names its issuer by, and another key."""
    key = ec.generate_private_key(ec.SECP256R1())
    resign(bundle / "ca.pem", key, key, timedelta(days=10))


def expire(bundle: Path) -> None:
    keys = [
        load_pem_private_key(path.read_bytes(), None)
        for path in (bundle / "key.pem", bundle.parent.parent / "authority/ca-key.pem")
    ]
    resign(bundle / "cert.pem", *keys, timedelta(seconds=-1))


def resign(path: Path, key, by, left: timedelta) -> None:
    """Replace a certificate by one for another key, or with another end."""
    old, now = x509.load_pem_x509_certificate(path.read_bytes()), datetime.now(UTC)
    builder = x509.CertificateBuilder(old.issuer, old.subject, key.public_key(), 1, now - timedelta(days=2), now + left)
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    path.write_bytes(builder.sign(by, hashes.SHA256()).public_bytes(Encoding.PEM))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (break_mode, r"key\.pem: expected a key that only its owner can read, found mode 0640"),
        (break_certificate, r"cert\.pem: expected a certificate in PEM"),
        (break_key, r"key\.pem: expected the key to the certificate in this directory, found another"),
        (encrypt_key, r"key\.pem: expected an unencrypted private key in PEM"),
        (lose_authority, r"ca\.pem: expected a file of the cluster's certificates, found: No such file"),
        (swap_authority, r"cert\.pem: expected a certificate of the authority in this directory, found one of another"),
        (expire, r"cert\.pem: expected a certificate that is valid now"),
    ],
)
def test_a_bundle_with_a_fault_is_refused(tmp_path: Path, damage, said: str) -> None:
    """In one line that names the file, before anybody connects."""
    bundle = made(tmp_path / "cluster", "first") / "clients/first"
    assert load_bundle(bundle).hosts == ("first",)
    damage(bundle)
    with pytest.raises(ConfigError, match=said):
        load_bundle(bundle)


# --- who gets in ---


@asynccontextmanager
async def scheduler(bundle: Path) -> AsyncIterator[Scheduler]:
    """Dask's scheduler on loopback with this bundle."""
    with dask.config.set(NO_PAGES):
        async with (
            asyncio.timeout(PATIENCE_S),
            Scheduler(
                protocol="tls",
                host="127.0.0.1",
                port=0,
                dashboard_address=PAGES_ADDRESS,
                security=mutual_tls(load_bundle(bundle)),
            ) as running,
        ):
            yield running


def worker(address: str, security: Security) -> Worker:
    """A worker of Dask for this scheduler, not started."""
    return Worker(address, nthreads=1, host="127.0.0.1", dashboard_address=PAGES_ADDRESS, security=security)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Dask tells of every connection; what it warns of here is what is meant to happen."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


def test_members_get_in(place: Path) -> None:
    """Station, client and whoever controls them speak over TLS; the station runs something on the client."""

    async def work() -> None:
        security = mutual_tls(load_bundle(place / "clients/first"))
        async with scheduler(place / "station") as station:
            assert station.address.startswith("tls://")
            async with (
                worker(station.address, security),
                Client(station.address, security=station.security, asynchronous=True) as control,
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
        return refusal.code
    except OSError:
        return None


def test_dask_serves_no_pages(place: Path, tmp_path: Path) -> None:
    """Scheduler and client answer 404 to every page with bokeh installed, and open that port on loopback only."""
    import bokeh  # noqa: F401  # without it Dask has no dashboard, and this test would prove nothing

    async def work() -> None:
        access = access_to(control_address("localhost:0", listens=True), place / "station")
        joined = asyncio.Event()
        async with asyncio.timeout(PATIENCE_S), scheduler_at(access, lambda _: None) as address:
            security = mutual_tls(load_bundle(place / "clients/first"))
            agent = asyncio.create_task(
                serve(address.for_dask, "first", tmp_path, security, "127.0.0.1", joined=joined.set)
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


@pytest.mark.parametrize("who", ["a stranger", "a stranger who trusts the station", "a member, with an impostor"])
def test_nobody_else_gets_in(place: Path, other: Path, who: str) -> None:
    """Neither as a worker, which tries again and again and is told nothing, nor as a controlling client.

    The station refuses a stranger who has its authority's certificate, which is no secret. Members do not go in where
    a scheduler has a client's bundle, at an address that is not in it.
    """
    security = mutual_tls(load_bundle((place if "impostor" in who else other) / "clients/first"))
    if "trusts" in who:
        security.tls_ca_file = str(place / "station" / CA_FILE)
    bundle = place / ("clients/second" if "impostor" in who else "station")

    async def work() -> None:
        async with scheduler(bundle) as station:
            with pytest.raises(OSError, match=None if "trusts" in who else "certificate does not match"):
                async with Client(station.address, security=security, asynchronous=True, timeout=AT_THE_DOOR_S):
                    pass
            outside = worker(station.address, security)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(AT_THE_DOOR_S), outside:
                    pass
            await outside.close()
            assert not station.workers
            assert list(station.clients) == ["fire-and-forget"]

    asyncio.run(work())


def test_without_a_certificate_the_port_says_nothing(place: Path, other: Path) -> None:
    """OpenSSL's own client at Dask's port: a member is greeted, anybody else is shown the door, plain TCP too."""

    def asked(address: str, *options: str | Path) -> tuple[str, bytes]:
        """What s_client says of the handshake, and what the port sent."""
        connect = ("-connect", address, "-CAfile", place / "authority/ca.pem", "-verify_return_error")
        done = subprocess.run(
            ["openssl", "s_client", *connect, "-verify_ip", "127.0.0.1", "-quiet", *options],
            input=b"",
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.stderr.decode(), done.stdout

    def member(address: str) -> None:
        """Greeted: Dask speaks first."""
        host, _, port = address.partition(":")
        context = ssl.create_default_context(cafile=place / "authority/ca.pem")
        context.load_cert_chain(place / "clients/first/cert.pem", place / "clients/first/key.pem")
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
        async with scheduler(place / "station") as station:
            address = station.address.removeprefix("tls://")
            await asyncio.to_thread(member, address)
            stranger = other / "clients/first"
            for options, alert in (
                ((), "certificate required"),
                (("-cert", stranger / "cert.pem", "-key", stranger / "key.pem"), "unknown ca"),
                (("-tls1_2",), "protocol version"),
            ):
                said, sent = await asyncio.to_thread(asked, address, *options)
                assert alert in said
                assert sent == b""
            assert await asyncio.to_thread(plain, address) in (b"", b"\x15")  # nothing, or a TLS alert
            assert not station.workers

    asyncio.run(work())


# --- addresses ---


@pytest.mark.parametrize(
    ("text", "written"), [("1", "127.0.0.1:1"), (":0", "127.0.0.1:0"), ("0.0.0.0", "0.0.0.0:8786")]
)
def test_an_address_to_listen_at_may_be_a_port(text: str, written: str) -> None:
    """On loopback; of none to connect to."""
    assert str(control_address(text, "--listen", listens=True)) == written
    if ":8786" not in written:
        with pytest.raises(ConfigError):
            control_address(text)


@pytest.mark.parametrize("text", ["", "http://a:1", "a:0", "a:x", ":1", "u@a:1", "tls://a:1"])
def test_what_no_address_is(text: str) -> None:
    """One line, with what was expected."""
    with pytest.raises(ConfigError, match=r"^--cluster: expected HOST\[:PORT\], found "):
        control_address(text)


@pytest.mark.parametrize("host", ["127.9.9.9", "[::1]", "localhost", "10.9.8.1", "0.0.0.0", "127.0.0.1.example.test"])
def test_plain_tcp_is_for_loopback(place: Path, host: str) -> None:
    """Beyond it, certificates are needed."""
    address = control_address(f"{host}:8786")
    if host in ("127.9.9.9", "[::1]", "localhost"):
        assert access_to(address, None).address.protocol == "tcp"
    else:
        with pytest.raises(ConfigError, match="expected --certs DIR"):
            access_to(address, None)
    assert access_to(address, place / "station").address.protocol == "tls"


# --- the command ---


def test_the_command_makes_and_adds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The output has places, owners and hosts, and no keys."""
    directory = tmp_path / "cluster"
    made = ["cluster", "certs", str(directory), "--station", "10.9.8.1", "--client", "first=10.9.8.2"]
    assert main([*made, "--days", "30"]) == 0
    assert f"{directory}/clients/first: copy to first only; hosts: first, 10.9.8.2" in capsys.readouterr().out
    assert main(made) == BAD_INPUT
    assert main(["cluster", "certs", str(directory)]) == BAD_INPUT
    assert main(["cluster", "certs", str(directory), "--client", "late", "--days", "60"]) == 0
    assert load_bundle(directory / "clients/late").name == "late"


def test_without_the_package_it_says_what_to_install(tmp_path: Path) -> None:
    """The extra is none of everybody's business; who asks for certificates is told in a line."""
    program = (
        "import sys; sys.modules['cryptography'] = None; from loadsim.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["cluster", "certs", str(tmp_path / "cluster"), "--station", "10.9.8.1"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == BAD_INPUT
    assert done.stderr == (
        "loadsim: cluster: expected the package cryptography, found none; pip install 'loadsim[distributed]'\n"
    )
