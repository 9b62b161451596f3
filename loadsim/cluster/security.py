"""TLS settings for Dask: encryption is required, and both sides prove themselves by the certificate of the cluster."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace
from pathlib import Path

from loadsim.cluster.address import ControlAddress
from loadsim.cluster.certs import CERT_FILE, KEY_FILE, check
from loadsim.cluster.own_dask import Security
from loadsim.errors import ConfigError
from loadsim.model.host_port import is_loopback


def mutual_tls(directory: Path) -> Security:
    """Return the `security` of Dask's schedulers, workers and clients with this certificate. TLS 1.3 only.

    Raises `ConfigError` if it is missing or invalid.
    """
    check(directory)
    cert, key = str(directory / CERT_FILE), str(directory / KEY_FILE)
    return Security(
        require_encryption=True,
        tls_min_version=ssl.TLSVersion.TLSv1_3,
        tls_max_version=None,
        tls_ciphers=None,
        tls_ca_file=cert,
        tls_scheduler_cert=cert,
        tls_scheduler_key=key,
        tls_worker_cert=cert,
        tls_worker_key=key,
        tls_client_cert=cert,
        tls_client_key=key,
    )


@dataclass(frozen=True, slots=True)
class Access:
    """Access to a cluster: the address of its controller, and the TLS by which its machines prove themselves."""

    address: ControlAddress
    security: Security


def access_to(address: ControlAddress, certs: Path | None) -> Access:
    """Return the access over TLS with the certificate in the directory `certs`; without one, by plain TCP on loopback.

    Neither the wildcard addresses (0.0.0.0, ::) nor names count as loopback; `localhost` does. Raises `ConfigError` for
    another address without a certificate, and for one that is missing or invalid.
    """
    if certs is not None:
        return Access(replace(address, secured=True), mutual_tls(certs))
    if not is_loopback(address.host):
        raise ConfigError(
            f"{address}: expected --certs DIR (loadsim cluster certs makes one), because anyone who can connect"
            " can run code on every machine, found none"
        )
    return Access(address, Security())
