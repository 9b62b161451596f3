"""TLS settings for Dask: encryption is required, both sides prove themselves, and the controller also by its name."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distributed.security import Security

from loadsim.cluster.address import ControlAddress
from loadsim.cluster.bundle import CA_FILE, CERT_FILE, KEY_FILE, Bundle, load_bundle
from loadsim.errors import ConfigError
from loadsim.model.host_port import is_loopback


class MutualTls(Security):
    """Dask's security, with a check that the controller is the controller, and not another member of the cluster.

    Dask checks that a certificate is of the authority, but not whose it is. With a client's bundle, one could pose as
    the controller, and have the other clients run code. So the address to which a Dask worker or Dask client connects
    must be in the certificate that it gets there. The controller does not require this of clients: they are known by
    name, and their addresses change.
    """

    def get_connection_args(self, role: str) -> dict[str, Any]:
        """Return the arguments of a connection, see `Security`; `role` is 'scheduler', 'worker' or 'client'."""
        arguments: dict[str, Any] = super().get_connection_args(role)  # type: ignore[no-untyped-call]
        if role != "scheduler":
            arguments["ssl_context"].check_hostname = True
        return arguments


def mutual_tls(bundle: Bundle) -> MutualTls:
    """Return the `security` of Dask's schedulers, workers and clients on the bundle's machine. TLS 1.3 only."""
    cert, key = str(bundle.directory / CERT_FILE), str(bundle.directory / KEY_FILE)
    return MutualTls(  # type: ignore[no-untyped-call]  # Dask's own has no types
        require_encryption=True,
        tls_min_version=ssl.TLSVersion.TLSv1_3,
        tls_max_version=None,
        tls_ciphers=None,
        tls_ca_file=str(bundle.directory / CA_FILE),
        tls_scheduler_cert=cert,
        tls_scheduler_key=key,
        tls_worker_cert=cert,
        tls_worker_key=key,
        tls_client_cert=cert,
        tls_client_key=key,
    )


@dataclass(frozen=True, slots=True)
class Access:
    """Access to a cluster: the address of its controller, and the certificates with which members prove themselves."""

    address: ControlAddress
    security: Security


def access_to(address: ControlAddress, certs: Path | None) -> Access:
    """Return the access over TLS with the bundle in the directory `certs`; without one, by plain TCP on loopback.

    Neither the wildcard addresses (0.0.0.0, ::) nor names count as loopback; `localhost` does. Raises `ConfigError` for
    another address without a bundle, and for a bundle that is missing or invalid.
    """
    if certs is not None:
        return Access(replace(address, secured=True), mutual_tls(load_bundle(certs)))
    if not is_loopback(address.host):
        raise ConfigError(
            f"{address}: expected --certs DIR (loadsim cluster certs makes the bundles), because anyone who can connect"
            " can run code on every machine, found none"
        )
    return Access(address, Security())


NO_PAGES: dict[str, list[str]] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
"""Settings for `dask.config.set` that remove the pages from the port for web pages, which Dask opens without TLS.

`dashboard=False` keeps Dask from adding its dashboard where bokeh is installed.
"""

PAGES_ADDRESS = "127.0.0.1:0"
"""The `dashboard_address` of every scheduler and worker: Dask's port without pages is on loopback."""
