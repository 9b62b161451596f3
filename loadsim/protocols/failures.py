"""What the system and TLS raise while a connection is made, in the words of a task."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from loadsim.errors import ServerLost, ServerSilent, TaskFailed


@contextmanager
def failing_as(what: str, lost: str = "") -> Iterator[None]:
    """Raise what goes wrong within as `ServerSilent`, or as `ServerLost`, of the kind `lost` if that is not `what`."""
    try:
        yield
    except TimeoutError:
        raise ServerSilent(f"no answer to {what}") from None
    except ssl.SSLCertVerificationError as error:
        raise ServerLost("TLS certificate", error.verify_message) from None
    except ssl.SSLError as error:
        raise ServerLost("TLS handshake", error.reason or "") from None
    except ConnectionRefusedError:
        raise ServerLost("connection refused") from None
    except OSError as error:
        raise ServerLost(lost or what, error.strerror or "") from None


def again(failure: TaskFailed) -> TaskFailed:
    """The same failure for somebody else: an exception object keeps the traces of who raised it."""
    return type(failure)(failure.kind, failure.line)
