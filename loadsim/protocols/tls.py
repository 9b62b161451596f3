"""The TLS context of an endpoint: certificates and host names are always verified."""

from __future__ import annotations

import ssl

from loadsim.errors import ConfigError
from loadsim.model.ports import Endpoint


def tls_context(endpoint: Endpoint) -> ssl.SSLContext | None:
    """The context with which to secure connections to this endpoint; None when it is spoken to in the clear.

    Costly (it loads the authorities): make one per endpoint, not one per connection. Raises `ConfigError` when
    the authorities' file cannot be read.
    """
    if endpoint.tls == "none":
        return None
    try:
        return ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=endpoint.ca_file)
    except (OSError, ssl.SSLError) as error:
        found = "none in it" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(
            f"ca_file: expected a readable file of PEM certificates, found {endpoint.ca_file}: {found}"
        ) from None
