"""Access to a controller, over TLS that authenticates both sides by the cluster's certificate."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, replace
from pathlib import Path

from loadsim.cluster.address import ControlAddress
from loadsim.cluster.certs import CERT_FILE, KEY_FILE, check
from loadsim.cluster.own_dask import Security, connect, get_address_host, send_recv
from loadsim.errors import ConfigError
from loadsim.model.host_port import bracketed, is_loopback

CONNECT_LIMIT_S = 5.0
"""Time limit for connecting. Dask retries within it, first after a fifth of that time."""

ANSWER_LIMIT_S = 10.0
"""Time limit for an answer from the scheduler or an agent."""


def mutual_tls(directory: Path) -> Security:
    """Return the TLS settings of Dask's schedulers, workers and clients with this certificate: TLS 1.3 only.

    Raises `ConfigError` if it is missing or invalid.
    """
    check(directory)
    cert, key = str(directory / CERT_FILE), str(directory / KEY_FILE)
    roles = ("scheduler", "worker", "client")
    return Security(
        require_encryption=True,
        tls_min_version=ssl.TLSVersion.TLSv1_3,
        tls_max_version=None,
        tls_ciphers=None,
        tls_ca_file=cert,
        **{f"tls_{role}_cert": cert for role in roles},
        **{f"tls_{role}_key": key for role in roles},
    )


@dataclass(frozen=True, slots=True)
class Access:
    """Access to a cluster: the address of its controller, and the TLS settings of its machines."""

    address: ControlAddress
    security: Security


def access_to(address: ControlAddress, certs: Path | None) -> Access:
    """Return access over TLS with the certificate in the directory `certs`; if None, over plain TCP on loopback.

    `localhost` counts as loopback; other names and wildcard addresses (0.0.0.0, ::) do not. Raises `ConfigError` for
    any other address without a certificate, and for a certificate that is missing or invalid.
    """
    if certs is not None:
        return Access(replace(address, secured=True), mutual_tls(certs))
    if not is_loopback(address.host):
        raise ConfigError(
            f"{address}: expected --certs DIR (loadsim cluster certs makes one), because anyone who can connect"
            " can run code on every machine, found none"
        )
    return Access(address, Security())


async def reach(access: Access, name: str | None = None) -> str:
    """Check that the controller answers, and has no client with this name. Return our own address on this connection.

    Without this check, Dask would silently retry forever if the certificate is another cluster's. Raises
    `ConnectionError` with one line.
    """
    try:
        comm = await connect(
            access.address.for_dask, timeout=CONNECT_LIMIT_S, **access.security.get_connection_args("worker")
        )
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                about = await send_recv(comm, op="identity")
        finally:
            comm.abort()
    except (OSError, TimeoutError) as failure:
        raise ConnectionError(deepest(failure)) from None
    if any(str(worker["name"]) == name for worker in about["workers"].values()):
        raise ConnectionError(f"another client {name}, or one that was cut off a moment ago")
    return bracketed(get_address_host(comm.local_address))


def deepest(failure: BaseException) -> str:
    """Return the text of the original error, which Dask has wrapped."""
    while failure.__cause__ is not None:
        failure = failure.__cause__
    return getattr(failure, "strerror", None) or str(failure) or "no answer"
