"""The certificates of a cluster: an authority of its own, and a bundle of three files for each machine.

    DIR/authority/          ca.pem, ca-key.pem: stays where it was made; whoever has the key can make more members
    DIR/station/            ca.pem, cert.pem, key.pem: the control station's bundle
    DIR/clients/NAME/       ca.pem, cert.pem, key.pem: what to copy to this client machine

The control port executes code. Every member proves itself to every other with a certificate of this authority (mutual
TLS), so a bundle is worth as much as an account on all machines of the cluster. Keys are not encrypted, because
stations and clients start without somebody at the keyboard: files are readable by their owner only.
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

from loadsim.cluster.identifiers import CLIENT_NAME, LABEL
from loadsim.errors import ConfigError

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise ConfigError(
        "cluster: expected the package cryptography, found none; pip install 'loadsim[distributed]'"
    ) from None

AUTHORITY, STATION, CLIENTS = "authority", "station", "clients"
"""The directories below the one that is made."""

CA_FILE, CA_KEY_FILE = "ca.pem", "ca-key.pem"
CERT_FILE, KEY_FILE = "cert.pem", "key.pem"

_BACKDATED = timedelta(days=1)
"""Certificates are valid this long already: the clock of another machine may be behind."""

_ROLES = {"station": "loadsim station", "client": "loadsim client"}
"""The organisation in a certificate's subject, by role."""

_HOST = re.compile(rf"(?=.{{1,253}}\Z){LABEL}(?:\.{LABEL})*")
"""RFC 1123 section 2.1."""


@dataclass(frozen=True, slots=True)
class Member:
    """Who gets a certificate: the station (`name` is then 'station') or a client, and where others reach it."""

    role: str
    name: str
    hosts: tuple[str, ...]

    @property
    def place(self) -> Path:
        """Where its bundle lies, below the directory of the cluster."""
        return Path(STATION) if self.role == "station" else Path(CLIENTS) / self.name


@dataclass(frozen=True, slots=True)
class Bundle:
    """The three files of one member, read and found in order."""

    directory: Path
    certificate: x509.Certificate

    @property
    def ca_file(self) -> Path:
        """The authority's certificate."""
        return self.directory / CA_FILE

    @property
    def cert_file(self) -> Path:
        """The member's own certificate."""
        return self.directory / CERT_FILE

    @property
    def key_file(self) -> Path:
        """The key to it."""
        return self.directory / KEY_FILE

    @property
    def name(self) -> str:
        """The client's name, or 'station'."""
        return str(self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names and addresses that it is valid for."""
        return hosts_of(self.certificate)

    @property
    def expires(self) -> datetime:
        """The end of its validity, in UTC."""
        return self.certificate.not_valid_after_utc


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def station(hosts: Sequence[str]) -> Member:
    """The control station, reached at these names and addresses, and from its own machine by loopback.

    Raises `ConfigError` when one is neither a host's name nor an address.
    """
    return Member("station", "station", _once([*map(_host, hosts), "localhost", "127.0.0.1", "::1"]))


def client(text: str) -> Member:
    """A client machine as it is written on the command line: `NAME`, or `NAME=HOST,HOST,...`.

    Raises `ConfigError` when the name cannot be one of a client, or a host is none.
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
            raise ConfigError(f"host {text!r}: expected a host's name or an IP address, found {text!r}") from None
        return text.lower()


# --- making ---


def make(directory: Path, members: Sequence[Member], days: int, authority_days: int) -> None:
    """Make an authority and its members' bundles in a new directory: it is there as a whole or not at all.

    Certificates are valid for `days` from now, the authority for `authority_days`, so that more can be added.

    Raises `ConfigError` when the directory exists, or cannot be made.
    """
    _check_once(members)
    _check_days(days, authority_days)
    with _new_directory(directory) as place:
        authority = _new_authority(authority_days)
        (place / AUTHORITY).mkdir(mode=0o700)
        (place / CLIENTS).mkdir(mode=0o700)
        _write_certificate(place / AUTHORITY / CA_FILE, authority.certificate)
        _write_key(place / AUTHORITY / CA_KEY_FILE, authority.key)
        for member in members:
            _write_bundle(place / member.place, authority, member, days)


def add(directory: Path, members: Sequence[Member], days: int) -> None:
    """Make bundles for more members with the authority that lies in the directory; all of them, or none.

    Raises `ConfigError` when a bundle is there already, or there is no authority.
    """
    _check_once(members)
    authority = _read_authority(directory / AUTHORITY)
    left = (authority.certificate.not_valid_after_utc - datetime.now(UTC)).days
    _check_days(days, left)
    for member in members:
        _check_absent(directory / member.place)
    for member in members:
        with _new_directory(directory / member.place) as place:
            _fill_bundle(place, authority, member, days)


def _check_once(members: Sequence[Member]) -> None:
    places = [member.place for member in members]
    for member in members:
        if places.count(member.place) > 1:
            raise ConfigError(
                f"{member.role} {member.name}: expected each once, found it {places.count(member.place)} times"
            )


def _check_days(days: int, authority_days: int) -> None:
    if days > authority_days:
        raise ConfigError(
            f"--days {days}: expected at most {authority_days}, the days that the authority is valid, found {days}"
        )


def _new_authority(days: int) -> _Authority:
    """A self-signed authority that signs members and no other authority; its name is its own in all the world."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "loadsim authority"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"loadsim cluster {secrets.token_hex(8)}"),
        ]
    )
    certificate = (
        _begun(name, name, key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _Authority(certificate, key)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    """What authority and members have in common; the serial is 159 random bits (RFC 5280 section 4.1.2.2)."""
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
    """RFC 5280 section 4.2.1.3; with ECDSA a member's key signs handshakes, and nothing is encrypted for it."""
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


def _write_bundle(place: Path, authority: _Authority, member: Member, days: int) -> None:
    place.mkdir(mode=0o700)
    _fill_bundle(place, authority, member, days)


def _fill_bundle(place: Path, authority: _Authority, member: Member, days: int) -> None:
    """Every member connects to others and is connected to: it is server and client (RFC 5280 section 4.2.1.12)."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ROLES[member.role]),
            x509.NameAttribute(NameOID.COMMON_NAME, member.name),
        ]
    )
    issuer = authority.certificate
    certificate = (
        _begun(subject, issuer.subject, key, days)
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
    _write_certificate(place / CA_FILE, issuer)
    _write_certificate(place / CERT_FILE, certificate)
    _write_key(place / KEY_FILE, key)


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
    """A new file that was never readable by anybody but its owner."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _new_directory(directory: Path) -> Iterator[Path]:
    """A place beside the new directory to fill; it takes the directory's name when it is complete, or goes."""
    _check_absent(directory)
    place = directory.parent / f".{directory.name}.{secrets.token_hex(4)}.new"
    try:
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.mkdir(mode=0o700)
        try:
            yield place
            place.rename(directory)
        except BaseException:
            shutil.rmtree(place)
            raise
    except OSError as failure:
        raise ConfigError(f"{directory}: expected to make a new directory, found: {failure.strerror}") from None


def _check_absent(directory: Path) -> None:
    if os.path.lexists(directory):
        raise ConfigError(f"{directory}: expected a directory that is not there yet, found one; it is left as it is")


# --- reading ---


def load_bundle(directory: Path) -> Bundle:
    """The bundle that a station or client is to prove itself with.

    Raises `ConfigError` when a file is missing or damaged, when others may read the key, when the three do not belong
    together, and when the certificate is not valid now.
    """
    authority = _read_certificate(directory / CA_FILE)
    bundle = Bundle(directory, _read_certificate(directory / CERT_FILE))
    _check_key(directory / KEY_FILE, bundle.certificate)
    _check_issued(directory / CERT_FILE, bundle.certificate, authority)
    for path, certificate in ((directory / CA_FILE, authority), (directory / CERT_FILE, bundle.certificate)):
        check_time(path, certificate)
    return bundle


def _read_authority(directory: Path) -> _Authority:
    certificate = _read_certificate(directory / CA_FILE)
    key = _check_key(directory / CA_KEY_FILE, certificate)
    check_time(directory / CA_FILE, certificate)
    return _Authority(certificate, key)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as failure:
        raise ConfigError(f"{path}: expected a file of the cluster's certificates, found: {failure.strerror}") from None


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError:
        raise ConfigError(f"{path}: expected a certificate in PEM, found something else") from None


def _check_key(path: Path, certificate: x509.Certificate) -> ec.EllipticCurvePrivateKey:
    """The key to this certificate, which nobody but its owner can read."""
    contents = _read(path)
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise ConfigError(f"{path}: expected a key that only its owner can read, found mode {mode:04o}; chmod 600 it")
    try:
        key = load_pem_private_key(contents, password=None)
    except (ValueError, TypeError):  # TypeError: it is encrypted
        raise ConfigError(f"{path}: expected an unencrypted private key in PEM, found something else") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ConfigError(f"{path}: expected the key to the certificate beside it, found another")
    return key


def _check_issued(path: Path, certificate: x509.Certificate, authority: x509.Certificate) -> None:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        raise ConfigError(f"{path}: expected a certificate of the authority beside it, found one of another") from None


def check_time(path: Path, certificate: x509.Certificate) -> None:
    """Raises `ConfigError` when the certificate is not valid now."""
    now = datetime.now(UTC)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begin <= now <= end:
        raise ConfigError(
            f"{path}: expected a certificate that is valid now, {now:%Y-%m-%d %H:%M} UTC by this machine's clock, "
            f"found one from {begin:%Y-%m-%d} to {end:%Y-%m-%d}"
        )


def hosts_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The names and addresses that a certificate is valid for; none where it says none."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return (*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress)))


# --- showing ---


@dataclass(frozen=True, slots=True)
class Shown:
    """One certificate as `show` tells it; `fault` is what is wrong with it or its key, or ''."""

    who: str
    hosts: tuple[str, ...]
    expires: datetime
    serial: int
    fault: str


def show(directory: Path) -> list[Shown]:
    """The certificates of a cluster's directory, the authority first, or of one bundle.

    Raises `ConfigError` when there are none, or one cannot be read at all.
    """
    if not (directory / AUTHORITY).is_dir():
        return [_shown(directory)]
    authority = directory / AUTHORITY
    certificate = _read_certificate(authority / CA_FILE)
    try:
        _read_authority(authority)
        fault = ""
    except ConfigError as wrong:
        fault = str(wrong)
    bundles = [each for each in (directory / STATION,) if each.is_dir()]
    if (directory / CLIENTS).is_dir():
        bundles += sorted(each for each in (directory / CLIENTS).iterdir() if not each.name.startswith("."))
    return [
        Shown("authority", (), certificate.not_valid_after_utc, certificate.serial_number, fault),
        *map(_shown, bundles),
    ]


def _shown(directory: Path) -> Shown:
    bundle = Bundle(directory, _read_certificate(directory / CERT_FILE))
    try:
        load_bundle(directory)
        fault = ""
    except ConfigError as wrong:
        fault = str(wrong)
    return Shown(bundle.name, bundle.hosts, bundle.expires, bundle.certificate.serial_number, fault)
