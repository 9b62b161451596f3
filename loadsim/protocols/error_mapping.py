"""The mapping of system, TLS and internal exceptions to `TaskFailed`."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadsim.errors import SHORTAGES, GeneratorFailed, ServerLost, ServerSilent, TaskFailed

SMTP_GREETING = "expected an IMAP greeting, found one of SMTP"
"""The failure's line if an IMAP session reaches an SMTP server."""

_PACKAGE = f"{Path(__file__).parents[1]}/"

NO_MEMORY = SHORTAGES[errno.ENOMEM]


def shortage(error: BaseException | None) -> GeneratorFailed | None:
    """Return the failure for an exception that signals a shortage on this machine; None for any other."""
    if isinstance(error, MemoryError):
        return GeneratorFailed(NO_MEMORY)
    if isinstance(error, ssl.SSLError):  # its `errno` is the TLS library's
        return GeneratorFailed(NO_MEMORY) if error.reason == "MALLOC_FAILURE" else None
    kind = SHORTAGES.get(error.errno or 0) if isinstance(error, OSError) else None
    return GeneratorFailed(kind) if kind else None


def internal(error: BaseException) -> GeneratorFailed:
    """Return the failure for an unexpected exception; its line names the place in the code."""
    return shortage(error) or GeneratorFailed(f"internal error: {type(error).__name__}", place_of(error))


def place_of(error: BaseException) -> str:
    """Return the innermost file and line of loadsim's code in an exception's traceback.

    The exception's text is left out, as it may quote a password or a message.
    """
    place, trace = "outside of loadsim", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file.startswith(_PACKAGE):
            place = f"{file.removeprefix(_PACKAGE)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def own_failure(error: BaseException | None) -> GeneratorFailed | None:
    """Return the failure for an exception that the generator caused; None if the network or the server caused it."""
    if error is None or isinstance(error, TaskFailed | OSError):
        return shortage(error)
    return internal(error)


def loss(error: Exception | None) -> TaskFailed:
    """Return the failure for a connection that ended with this exception (None: the server closed it)."""
    if isinstance(error, ConnectionError):
        return ServerLost("connection reset")
    return own_failure(error) or ServerLost("connection lost")


@dataclass(frozen=True, slots=True)
class Guard:
    """Ends a connection on an exception. An error in loadsim ends only this session, as a `GeneratorFailed`."""

    fail: Callable[[TaskFailed], None]

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if isinstance(error, Exception):
            self.fail(error if isinstance(error, TaskFailed) else internal(error))
        return isinstance(error, Exception)


@contextmanager
def failing_as(what: str, lost: str = "") -> Iterator[None]:
    """Turn a timeout in this block into `ServerSilent`, and any other failure into `ServerLost`.

    Failures without a kind of their own get `lost` or, if that is empty, `what`. A shortage on this machine becomes
    `GeneratorFailed`.
    """
    try:
        yield
    except TimeoutError:
        raise ServerSilent(f"no answer to {what}") from None
    except ssl.SSLCertVerificationError as error:
        raise ServerLost("TLS certificate", error.verify_message) from None
    except ssl.SSLError as error:
        raise shortage(error) or ServerLost("TLS handshake", error.reason or "") from None
    except ConnectionRefusedError:
        raise ServerLost("connection refused") from None
    except (OSError, MemoryError) as error:
        raise shortage(error) or ServerLost(lost or what, getattr(error, "strerror", "") or "") from None


def again(failure: TaskFailed) -> TaskFailed:
    """Return a copy of a failure to raise again, since an exception accumulates the tracebacks of all its raises."""
    return type(failure)(failure.kind, failure.line)
