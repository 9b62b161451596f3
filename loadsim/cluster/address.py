"""The control port's address, and the refusal to open or use one that anybody could reach.

Who reaches the port runs code on every machine of the cluster. So it is TLS, where both sides show a certificate; plain
TCP is for one machine, where it never leaves the loopback interface, or for who says in so many words that he wants it.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from loadsim.errors import ConfigError
from loadsim.model.scenario_sections import is_loopback

PLAIN_WORD = "--insecure-plain-tcp"
"""The option with which somebody takes it upon himself."""


@dataclass(frozen=True, slots=True)
class ControlAddress:
    """Where the control station listens; `secured` with TLS. `str()` is how Dask writes it."""

    secured: bool
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.protocol}://{self.written_host}:{self.port}"

    @property
    def protocol(self) -> str:
        """As Dask calls it."""
        return "tls" if self.secured else "tcp"

    @property
    def written_host(self) -> str:
        """The host as it stands before a port: an address of IPv6 in brackets."""
        return f"[{self.host}]" if ":" in self.host else self.host


def control_address(text: str, what: str = "--cluster", any_port: bool = False) -> ControlAddress:
    """Read `tls://HOST:PORT` or `tcp://HOST:PORT`. Raises `ConfigError`, calling it `what`.

    With `any_port`, the port may be 0: whoever listens there takes one that is free.
    """
    expected = f"{what}: expected tls://HOST:PORT, or tcp://HOST:PORT on loopback"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(f"{expected}, found {text!r}") from None
    no_port = port is None or (port == 0 and not any_port)
    if not host or no_port or parts.scheme not in ("tls", "tcp") or "@" in parts.netloc or parts[2:] != ("", "", ""):
        raise ConfigError(f"{expected}, found {text!r}")
    assert port is not None
    return ControlAddress(parts.scheme == "tls", host, port)


def check_transport(address: ControlAddress, insecure_plain_tcp: bool = False) -> None:
    """Refuse plain TCP anywhere but on loopback, unless it was asked for in so many words.

    To listen on all addresses (0.0.0.0, ::) is not loopback, nor is a name, but for `localhost`. Raises `ConfigError`.
    """
    if not (address.secured or is_loopback(address.host) or insecure_plain_tcp):
        raise ConfigError(
            f"{address}: expected tls:// (loadsim cluster certs makes the certificates), because whoever reaches the "
            f"control port runs code on every machine, found plain TCP; {PLAIN_WORD} takes it all the same"
        )
