"""Make the certificates of a cluster: an authority of its own, and a bundle of three files for each machine.

The control port executes code. Members prove themselves to each other with certificates of this authority (mutual
TLS). So a bundle is worth as much as an account on all machines of the cluster. Keys are not encrypted, because
controllers and clients start unattended; only the owner can read the files. See `bundle` for the directory.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from loadsim.cluster.address import CLIENT_NAME, LABEL
from loadsim.cluster.bundle import (
    AUTHORITY,
    CA_FILE,
    CA_KEY_FILE,
    CERT_FILE,
    CLIENTS,
    KEY_FILE,
    STATION,
    Authority,
    read_authority,
)
from loadsim.errors import ConfigError

# isort: split
# `bundle` comes first: it reports a missing package.
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BACKDATED = timedelta(days=1)
"""Certificates are valid from this long ago: the clock of another machine may be behind."""

AUTHORITY_DAYS = 3650
"""The validity of the authority, which has to outlive all certificates that it signs."""

_ROLES = {"station": "loadsim station", "client": "loadsim client"}
"""The organisation in a certificate's subject, by role."""

_HOST = re.compile(rf"(?=.{{1,253}}\Z){LABEL}(?:\.{LABEL})*")
"""RFC 1123 section 2.1."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a cluster: the controller (role and `name` are then 'station') or a client, and its hosts."""

    role: str
    name: str
    hosts: tuple[str, ...]

    @property
    def directory(self) -> Path:
        """The directory of its bundle, relative to the cluster's."""
        return Path(STATION) if self.role == "station" else Path(CLIENTS) / self.name


def station(hosts: Sequence[str]) -> Member:
    """Return the controller, reached at these names and addresses, and from its own machine by loopback.

    Raises `ConfigError` if one is neither a host name nor an address.
    """
    return Member("station", "station", _once([*map(_host, hosts), "localhost", "127.0.0.1", "::1"]))


def client(text: str) -> Member:
    """Return a client machine, from the command line's `NAME` or `NAME=HOST,HOST,...`.

    Raises `ConfigError` if the name or a host is invalid.
    """
    name, equals, hosts = text.partition("=")
    if CLIENT_NAME.fullmatch(name) is None:
        raise ConfigError(f"client {name!r}: expected letters, digits and hyphens, at most 63, found {name!r}")
    return Member("client", name, _once([name, *(map(_host, hosts.split(",")) if equals else ())]))


def _once(hosts: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(hosts))


def _host(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        # 10.0.0 or 10.0.0.256 is an address with a mistake in it, not a name
        if _HOST.fullmatch(text) is None or text.rpartition(".")[2].isdecimal():
            raise ConfigError(f"host {text!r}: expected a host name or an IP address, found {text!r}") from None
        return text.lower()


def make(directory: Path, members: Sequence[Member], days: int) -> None:
    """Make an authority and its members' bundles in a new directory: complete, or not at all.

    Certificates are valid for `days` from now, the authority for `AUTHORITY_DAYS`, so that more can be added.
    Raises `ConfigError` if the directory exists, or cannot be made.
    """
    _check_unique(members)
    _check_days(days, AUTHORITY_DAYS)
    with _new_directory(directory) as new:
        authority = _new_authority()
        (new / AUTHORITY).mkdir(mode=0o700)
        (new / CLIENTS).mkdir(mode=0o700)
        _write_certificate(new / AUTHORITY / CA_FILE, authority.certificate)
        _write_key(new / AUTHORITY / CA_KEY_FILE, authority.key)
        for member in members:
            (new / member.directory).mkdir(mode=0o700)
            _write_bundle(new / member.directory, authority, member, days)


def add(directory: Path, members: Sequence[Member], days: int) -> None:
    """Make bundles for more members with the authority in the directory.

    Raises `ConfigError` if a bundle exists already, or there is no authority; then no bundle is made.
    """
    _check_unique(members)
    authority = read_authority(directory / AUTHORITY)
    left = (authority.certificate.not_valid_after_utc - datetime.now(UTC)).days
    _check_days(days, left)
    for member in members:
        _check_absent(directory / member.directory)
    for member in members:
        with _new_directory(directory / member.directory) as new:
            _write_bundle(new, authority, member, days)


def _check_unique(members: Sequence[Member]) -> None:
    directories = [member.directory for member in members]
    for member in members:
        if (count := directories.count(member.directory)) > 1:
            raise ConfigError(f"{member.role} {member.name}: expected each once, found it {count} times")


def _check_days(days: int, authority_days: int) -> None:
    if days > authority_days:
        raise ConfigError(
            f"--days {days}: expected at most {authority_days}, the days that the authority is valid, found {days}"
        )


def _new_authority() -> Authority:
    """Make a self-signed authority with a unique name. It signs members, but no other authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("loadsim authority", f"loadsim cluster {secrets.token_hex(8)}")
    certificate = (
        _certificate_builder(name, name, key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def _name(organisation: str, common: str) -> x509.Name:
    attributes = {NameOID.ORGANIZATION_NAME: organisation, NameOID.COMMON_NAME: common}
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes.items()])


def _certificate_builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    """Begin a certificate of an authority or a member. The serial is 159 random bits (RFC 5280 section 4.1.2.2)."""
    now = datetime.now(UTC)
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return the key usage (RFC 5280 section 4.2.1.3). With ECDSA, a member's key signs and never decrypts."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write_bundle(directory: Path, authority: Authority, member: Member, days: int) -> None:
    """Make a member's key and certificate, and write its bundle.

    Each member both opens and accepts connections, so its certificate is for servers and clients (RFC 5280 section
    4.2.1.12).
    """
    # Make the key and the certificate.
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(_ROLES[member.role], member.name)
    issuer = authority.certificate
    certificate = (
        _certificate_builder(subject, issuer.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectAlternativeName(list(map(_general_name, member.hosts))), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
                issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
            ),
            critical=False,
        )
        .sign(authority.key, hashes.SHA256())
    )

    # Write them, with the authority's certificate.
    _write_certificate(directory / CA_FILE, issuer)
    _write_certificate(directory / CERT_FILE, certificate)
    _write_key(directory / KEY_FILE, key)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    _write(path, certificate.public_bytes(Encoding.PEM))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    _write(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _write(path: Path, contents: bytes) -> None:
    """Write a new file. At no time can others than its owner read it."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _new_directory(directory: Path) -> Iterator[Path]:
    """Yield a temporary directory to fill. At the end it is renamed to `directory`; after an error it is removed."""
    _check_absent(directory)
    temporary = directory.parent / f".{directory.name}.{secrets.token_hex(4)}.new"
    try:
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.mkdir(mode=0o700)
        try:
            yield temporary
            temporary.rename(directory)
        except BaseException:
            shutil.rmtree(temporary)
            raise
    except OSError as failure:
        raise ConfigError(f"{directory}: expected to make a new directory, found: {failure.strerror}") from None


def _check_absent(directory: Path) -> None:
    if os.path.lexists(directory):
        raise ConfigError(f"{directory}: expected a directory that does not exist yet, found one; it was not changed")
