"""A cluster's certificate: one for all of its machines, made here, and checked before use.

The control port executes code. Machines authenticate each other by this certificate, which is its own authority (mutual
TLS). In effect, anyone with its key has an account on every machine of the cluster, so separate certificates for each
machine would protect nothing. The key is not encrypted, because controllers and clients start unattended; only its
owner can read it.

    DIR/cert.pem, DIR/key.pem       for the controller and each client
"""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from loadsim.errors import ConfigError

CERT_FILE, KEY_FILE = "cert.pem", "key.pem"

DAYS = 365
"""A certificate's validity, in days."""

_BACKDATED = timedelta(days=1)
"""Certificates are valid from this long ago: another machine's clock may be behind."""


def make(directory: Path, days: int = DAYS) -> None:
    """Make a certificate, valid for `days` from now, and its key, in a new directory.

    Raises `ConfigError` if the directory exists, or cannot be made.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        directory.mkdir(mode=0o700, parents=True)
        _write(directory / CERT_FILE, _certificate(key, days).public_bytes(Encoding.PEM))
        _write(directory / KEY_FILE, pem)
    except FileExistsError:
        raise ConfigError(f"{directory}: expected a directory that does not exist yet, found one") from None
    except OSError as failure:
        raise ConfigError(f"{directory}: expected to make a new directory, found: {failure.strerror}") from None


def _certificate(key: ec.EllipticCurvePrivateKey, days: int) -> x509.Certificate:
    """Return a certificate with a unique name, signed by its own key (RFC 5280 section 4.2.1)."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"loadsim cluster {secrets.token_hex(8)}")])
    now, public = datetime.now(UTC), key.public_key()
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )


def _write(path: Path, contents: bytes) -> None:
    """Write a new file that only its owner can ever read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(contents)


def check(directory: Path) -> None:
    """Check the certificate and the key in a directory.

    Raises `ConfigError` if either is missing or damaged, if they do not match, if others can read the key, or if the
    certificate is from a different authority or is not valid now.
    """
    path, key_path = directory / CERT_FILE, directory / KEY_FILE
    try:
        certificate = x509.load_pem_x509_certificate(_read(path))
        public = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"{path}: expected a certificate in PEM, found something else") from None
    try:
        key = load_pem_private_key(_read(key_path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it is encrypted
        raise ConfigError(f"{key_path}: expected an unencrypted private key in PEM, found something else") from None
    if key.public_key() != public:
        raise ConfigError(f"{key_path}: expected the key to the certificate in this directory, found another")
    if (mode := key_path.stat().st_mode & 0o777) & 0o077:
        expected = "expected a key that only its owner can read"
        raise ConfigError(f"{key_path}: {expected}, found mode {mode:04o}; chmod 600 it")
    try:
        certificate.verify_directly_issued_by(certificate)
    except (InvalidSignature, ValueError, TypeError):
        expected = "expected a certificate that is its own authority, as loadsim cluster certs makes it"
        raise ConfigError(f"{path}: {expected}, found one of another authority") from None
    now, begin, end = datetime.now(UTC), certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begin <= now <= end:
        raise ConfigError(
            f"{path}: expected a certificate that is valid now, {now:%Y-%m-%d %H:%M} UTC by this machine's clock, "
            f"found one from {begin:%Y-%m-%d} to {end:%Y-%m-%d}"
        )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as failure:
        raise ConfigError(f"{path}: expected a file of the cluster's certificate, found: {failure.strerror}") from None
