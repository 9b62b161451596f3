"""How the simulated users' programs behave, whatever their client module: the scenario's section `client`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Annotated

from pydantic import PlainValidator

from loadsim.model.ports import SUBMISSIONS, Services
from loadsim.model.schema import Switch, strict, word
from loadsim.model.yaml_reader import refused


def _source(value: object) -> str:
    try:
        address = ip_address(value if isinstance(value, str) else "")
    except ValueError:
        address = None
    if address is None or address.is_unspecified or address.is_multicast:
        raise refused("an IP address of this machine such as 127.0.0.2")
    return str(address)


@strict
@dataclass(frozen=True, slots=True)
class Client:
    """`submission` names the SMTP driver; it changes what the server has to do, and so is part of the result.

    `tls_resumption` does, too: whether TLS sessions are resumed.

    Connections start from `source_addresses`, taken in turn by the users; none leave it to the system.
    """

    submission: Annotated[str, word(*SUBMISSIONS)] = SUBMISSIONS[0]
    tls_resumption: Switch = True
    source_addresses: tuple[Annotated[str, PlainValidator(_source)], ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.source_addresses)) < len(self.source_addresses):
            raise refused("each address once", "one twice", at=("source_addresses",))

    def using(self, services: Services) -> Services:
        """These services, as such clients use them."""
        return replace(
            services,
            imap=replace(services.imap, sources=self.source_addresses, resumes=self.tls_resumption),
            smtp=replace(services.smtp, sources=self.source_addresses, resumes=self.tls_resumption),
            submission=self.submission,
        )
