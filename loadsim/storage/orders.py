"""Messages between a database's worker and its coordinator, one per line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from loadsim.engine.control import Message, Stop, message

PROGRESS_S = 60.0
"""The interval of progress reports."""

A_co = TypeVar("A_co", bound=Message, covariant=True)


class Order(Message, Generic[A_co]):
    """An order to a worker, which reports its progress, then answers with an `A_co`, or with `DiskFailed`."""

    __slots__ = ()


@message("progress")
class Progress(Message):
    share: float


@message("sample")
class LoadSample(Message):
    """The load's figures for an interval that ended at `at_s` (see `StoreLoad.take`)."""

    sample: Mapping[str, Any]
    at_s: float


@message("failed")
class DiskFailed(Message):
    why: str


@message("done")
class Done(Message):
    """The answer to an order that has no result."""


@message("opened")
class DatabaseState(Message):
    """The state of an opened database. If `filled`, it has all messages; if `clean`, its last process closed it."""

    filled: bool = False
    clean: bool = False
    survived: bool = True  # the machine has not restarted since the last load began
    damaged: str = ""  # the damage that kept it from being opened


@message("load over")
class LoadOver(Message):
    """The figures since the last sample. If `full`, the file system reached its reserve."""

    rest: Mapping[str, Any]
    full: bool


@message("pass")
class Pass(Message):
    """A pass over a database. `damages` names the first of the `damaged` places."""

    bytes: int
    took_s: float
    messages: int = 0
    damaged: int = 0
    damages: Sequence[str] = ()


FROM_A_WORKER = (Progress, LoadSample, DiskFailed, Done, DatabaseState, LoadOver, Pass)


@message("open")
class OpenDatabase(Order[DatabaseState]):
    """Open database `number` of a scenario in a directory."""

    scenario: Mapping[str, Any]
    number: int
    directory: str
    log_bytes: int


@message("fill")
class FillDatabase(Order[Done]):
    """Insert all of the scenario's messages."""


@message("load")
class LoadDatabase(Order[LoadOver]):
    """Load the database until `Stop`, and send a sample each interval."""

    sample_s: float


@message("check")
class CheckFiles(Order[Pass]):
    """Read all files, and verify their checksums."""


@message("verify")
class VerifyMessages(Order[Pass]):
    """Read all messages, and compare them with the ledger."""


@message("recover")
class ReplayLog(Order[Pass]):
    """Replay the log, and measure the time."""


@message("accept")
class AcceptMessages(Order[Done]):
    """Record the messages that `VerifyMessages` found as those that must be there."""


TO_A_WORKER = (OpenDatabase, FillDatabase, LoadDatabase, CheckFiles, VerifyMessages, ReplayLog, AcceptMessages, Stop)
