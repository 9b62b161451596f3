"""Tables, streams and messages of a mailbox: sequences of remote operations that may need several requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadsim.errors import ServerRefused
from loadsim.protocols.mapi import rops, tags
from loadsim.protocols.mapi.composition import Composed
from loadsim.protocols.mapi.session import Batch, MapiSession
from loadsim.protocols.mapi.wire import Value

TABLE = 0x40 | 0x10
"""The flags of tables: strings in Unicode, and no events of rows, which nothing here uses."""

INLINE_BYTES = 8192
"""The largest property that is set by its value; others are written through a stream."""

PIECE_BYTES = 28_672
"""The most bytes of a stream that one operation reads or writes."""

LARGEST_BATCH_BYTES = 31_000
"""The most bytes of operations that are sent together: a buffer has at most 32 KiB (MS-OXCRPC section 3.1.4.2).

Left over are their numbers, two bytes each, and the handles.
"""

MOST_ROWS = 500
"""The most rows that one operation asks for; a server returns as many as fit its buffer."""

LARGEST_TABLE = 200_000
"""The most rows that are read of a table: one without an end must not be read for ever."""

Row = tuple[Any, ...]
"""The values of a row of a table, in the order of the columns."""


def number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def identifier(value: object) -> int | None:
    """Return the number of a folder or message, which has no sign, from its PtypInteger64, which has one."""
    found = number(value)
    return None if found is None else found & 0xFFFF_FFFF_FFFF_FFFF


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


async def rows_of(
    session: MapiSession,
    name: str,
    batch: Batch,
    table: int,
    columns: Sequence[int],
    most: int | None = None,
    optional: Sequence[rops.Request[Any]] = (),
) -> list[Row]:
    """Execute a batch that opens a table, and return its rows, or at most so many from its end."""
    rows: list[Row] = []
    if most == 0:
        await session.execute(name, batch, optional, lists=True)
        return rows
    if most is not None:
        batch.add(rops.seek_row(table, rops.END, -most))
    while True:
        count = MOST_ROWS if most is None else min(MOST_ROWS, most - len(rows))
        query = batch.add(rops.query_rows(table, count, columns))
        await session.execute(name, batch, optional, lists=True)
        rows += query.answer.rows
        if not query.answer.rows or query.answer.origin == rops.END or (most is not None and len(rows) >= most):
            return rows
        if len(rows) > LARGEST_TABLE:
            raise ServerRefused("table without end", f"more than {LARGEST_TABLE:,} rows")
        batch = Batch([batch.handles[table]])
        table = 0


async def stream_of(session: MapiSession, batch: Batch, stream: int, opened: rops.Request[int]) -> bytes:
    """Execute a batch, and return all of the stream at this place, which the batch or an earlier one opened.

    Pieces may be short: the first is if other responses, such as many recipients, share its buffer, and may be empty.
    """
    data = b""
    while True:
        is_alone = not batch.requests
        read = batch.add(rops.read_stream(stream, PIECE_BYTES))
        await session.execute("ReadStream", batch)
        data += read.answer
        if len(data) == opened.answer:
            return data
        if len(data) > opened.answer or (is_alone and not read.answer):
            raise ServerRefused("ReadStream of another size", f"{len(data)} of {opened.answer} bytes")
        batch = Batch([batch.handles[stream]])
        stream = 0


async def write_message(
    session: MapiSession,
    batch: Batch,
    name: str,
    folder_id: int,
    message: Composed,
    properties: Sequence[tuple[int, Value]],
    recipients: Sequence[str],
    submits: bool = False,
) -> int:
    """Create a message in a folder, with its recipients, text and files; save it, and submit it if asked.

    The batch has the logon in place 0. What does not fit one request goes before, as "WriteStream". Return the number
    of the message.
    """
    writing = _Writing(session, batch)
    made = batch.place()
    await writing.add(rops.create_message(0, made, folder_id))
    await writing.properties(made, [*message.properties, *properties], tags.BODY, message.body)
    if recipients:
        await writing.add(rops.modify_recipients(made, recipients))
    for file in message.files:
        attachment = batch.place()
        await writing.add(rops.create_attachment(made, attachment))
        await writing.properties(attachment, file.properties, tags.ATTACH_DATA, file.content)
        await writing.add(rops.save_changes_attachment(made, attachment))
        await writing.add(rops.release(attachment))
    save = rops.save_changes_message(made, made, 0x02 if submits else 0x00)
    await writing.add(save)
    if submits:
        batch.add(rops.submit_message(made))
    batch.add(rops.release(made))
    await session.execute(name, batch)
    return save.answer


class _Writing:
    """A batch that is executed when it is full."""

    def __init__(self, session: MapiSession, batch: Batch) -> None:
        self._session = session
        self._batch = batch

    async def add(self, request: rops.Request[Any]) -> None:
        """Add a request, after the batch is executed if it would grow too large."""
        if sum([len(each.body) for each in (*self._batch.requests, request)]) > LARGEST_BATCH_BYTES:
            await self._session.execute("WriteStream", self._batch)
        self._batch.add(request)

    async def properties(self, of: int, properties: list[tuple[int, Value]], large: int, content: str | bytes) -> None:
        """Set properties, and one that may be large (MS-OXCPRPT section 2.2.14)."""
        data = content.encode("utf-16-le", "replace") if isinstance(content, str) else content
        if len(data) <= INLINE_BYTES:
            await self.add(rops.set_properties(of, [*properties, (large, content)]))
            return
        await self.add(rops.set_properties(of, properties))
        stream = self._batch.place()
        await self.add(rops.open_stream(of, stream, large, 2))
        for at in range(0, len(data), PIECE_BYTES):
            await self.add(rops.write_stream(stream, data[at : at + PIECE_BYTES]))
        await self.add(rops.commit_stream(stream))
        await self.add(rops.release(stream))
