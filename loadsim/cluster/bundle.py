"""Read and check the certificates of a cluster.

The directory of a cluster, as `certs` makes it:

    DIR/authority/          ca.pem, ca-key.pem: remains on its machine; the key can make more members
    DIR/station/            ca.pem, cert.pem, key.pem: the controller's bundle
    DIR/clients/NAME/       ca.pem, cert.pem, key.pem: the bundle to copy to this client machine
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from loadsim.errors import ConfigError

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import NameOID
except ImportError:
    raise ConfigError(
        "cluster: expected the package cryptography, found none; pip install 'loadsim[distributed]'"
    ) from None

AUTHORITY, STATION, CLIENTS = "authority", "station", "clients"
"""The subdirectories."""

CA_FILE, CA_KEY_FILE = "ca.pem", "ca-key.pem"
CERT_FILE, KEY_FILE = "cert.pem", "key.pem"


@dataclass(frozen=True, slots=True)
class Bundle:
    directory: Path
    certificate: x509.Certificate

    @property
    def name(self) -> str:
        """The client's name, or 'station'."""
        return str(self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names and addresses for which it is valid; empty if it has none."""
        try:
            names = self.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return ()
        return (*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress)))


@dataclass(frozen=True, slots=True)
class Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def load_bundle(directory: Path) -> Bundle:
    """Read and check the bundle with which this machine proves itself.

    Raises `ConfigError` if a file is missing or damaged, or if the three files do not match. It also does if others may
    read the key, or if a certificate is not valid now.
    """
    authority = _certificate(directory / CA_FILE)
    bundle = Bundle(directory, _certificate(directory / CERT_FILE))
    _check_key(directory / KEY_FILE, bundle.certificate)
    _check_issued(directory / CERT_FILE, bundle.certificate, authority)
    for path, certificate in ((directory / CA_FILE, authority), (directory / CERT_FILE, bundle.certificate)):
        _check_time(path, certificate)
    return bundle


def read_authority(directory: Path) -> Authority:
    """Read and check an authority. Raises `ConfigError`, as for a bundle."""
    certificate = _certificate(directory / CA_FILE)
    key = _check_key(directory / CA_KEY_FILE, certificate)
    _check_time(directory / CA_FILE, certificate)
    return Authority(certificate, key)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as failure:
        raise ConfigError(f"{path}: expected a file of the cluster's certificates, found: {failure.strerror}") from None


def _certificate(path: Path) -> x509.Certificate:
    """Read a certificate. Raises `ConfigError` if the file is missing or damaged."""
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError:
        raise ConfigError(f"{path}: expected a certificate in PEM, found something else") from None


def _check_key(path: Path, certificate: x509.Certificate) -> ec.EllipticCurvePrivateKey:
    """Return the key to a certificate. Raises `ConfigError` for another key, and for one that others can read."""
    contents = _read(path)
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise ConfigError(f"{path}: expected a key that only its owner can read, found mode {mode:04o}; chmod 600 it")
    try:
        key = load_pem_private_key(contents, password=None)
    except (ValueError, TypeError):  # TypeError: it is encrypted
        raise ConfigError(f"{path}: expected an unencrypted private key in PEM, found something else") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ConfigError(f"{path}: expected the key to the certificate in this directory, found another")
    return key


def _check_issued(path: Path, certificate: x509.Certificate, authority: x509.Certificate) -> None:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        raise ConfigError(
            f"{path}: expected a certificate of the authority in this directory, found one of another"
        ) from None


def _check_time(path: Path, certificate: x509.Certificate) -> None:
    """Check that a certificate is valid now. Raises `ConfigError`."""
    now = datetime.now(UTC)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begin <= now <= end:
        raise ConfigError(
            f"{path}: expected a certificate that is valid now, {now:%Y-%m-%d %H:%M} UTC by this machine's clock, "
            f"found one from {begin:%Y-%m-%d} to {end:%Y-%m-%d}"
        )
