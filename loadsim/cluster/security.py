"""Certificates as Dask takes them: encryption required, both sides proved, the station by its name, too."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed.security import Security

from loadsim.cluster.address import ControlAddress, check_transport
from loadsim.cluster.certs import Bundle, load_bundle
from loadsim.errors import ConfigError


class MutualTls(Security):
    """Who takes orders from the station makes sure that it is the station, and not another member of the cluster.

    Dask checks that a certificate comes from the authority, and not whose it is. A client's bundle would do to pose as
    the station, and the other clients would run what it tells them. Here, the address that a worker or Dask client
    connects to has to stand in the certificate that it meets there. The station does not ask that of clients: they
    are known by name, and their addresses change.
    """

    def get_connection_args(self, role: str) -> dict[str, Any]:
        """See `Security`; `role` is 'scheduler', 'worker' or 'client'."""
        arguments: dict[str, Any] = super().get_connection_args(role)  # type: ignore[no-untyped-call]
        if role != "scheduler":
            arguments["ssl_context"].check_hostname = True
        return arguments


def mutual_tls(bundle: Bundle) -> MutualTls:
    """What scheduler, workers and clients of Dask on the bundle's machine are given as `security`. TLS 1.3 only."""
    cert, key = str(bundle.cert_file), str(bundle.key_file)
    return MutualTls(  # type: ignore[no-untyped-call]  # Dask's own has no types
        require_encryption=True,
        tls_min_version=ssl.TLSVersion.TLSv1_3,
        tls_max_version=None,
        tls_ciphers=None,
        tls_ca_file=str(bundle.ca_file),
        tls_scheduler_cert=cert,
        tls_scheduler_key=key,
        tls_worker_cert=cert,
        tls_worker_key=key,
        tls_client_cert=cert,
        tls_client_key=key,
    )


@dataclass(frozen=True, slots=True)
class Way:
    """To a cluster, or into it: where its station listens, and how members of it show who they are."""

    address: ControlAddress
    security: Security


def way_to(address: ControlAddress, certs: Path | None, insecure_plain_tcp: bool = False) -> Way:
    """The way that is taken with the bundle in the directory `certs`, or without any by plain TCP.

    Raises `ConfigError` where plain TCP is refused (see `check_transport`), and for a bundle that is missing, not to be
    used, or of no use.
    """
    check_transport(address, insecure_plain_tcp)
    if address.secured:
        if certs is None:
            raise ConfigError(
                f"{address}: expected --certs DIR, this machine's bundle (loadsim cluster certs makes it), found none"
            )
        return Way(address, mutual_tls(load_bundle(certs)))
    if certs is not None:
        raise ConfigError(f"--certs {certs}: expected an address that begins with tls://, found {address}")
    return Way(address, Security())


NO_PAGES: dict[str, list[str]] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
"""Settings for `dask.config.set`. Dask always opens a port for web pages, without TLS: these settings leave it without
pages. `dashboard=False` keeps Dask from adding its dashboard where bokeh is installed."""

PAGES_ADDRESS = "127.0.0.1:0"
"""The `dashboard_address` of every scheduler and worker: the port that Dask opens for no pages is on loopback."""
