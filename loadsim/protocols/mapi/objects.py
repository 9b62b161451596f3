"""Tables, streams and messages of a mailbox: sequences of remote operations that may need several requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadsim.errors import ServerRefused
from loadsim.protocols.mapi import rops, tags
from loadsim.protocols.mapi.composition import Composed
from loadsim.protocols.mapi.properties import Value
from loadsim.protocols.mapi.rop_buffer import Executed
from loadsim.protocols.mapi.session import Batch, MapiSession

TABLE = 0x40 | 0x10
"""The flags of tables: strings in Unicode, and no events of rows, which nothing here uses."""

INLINE_BYTES = 8192
"""The largest property that is set by its value; others are written through a stream."""

PIECE_BYTES = 28_672
"""The most bytes of a stream that one operation reads or writes."""

LARGEST_BATCH_BYTES = 31_000
"""The most bytes of operations that are sent together: a buffer has at most 32 KiB (MS-OXCRPC section 3.1.4.2)."""

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
) -> tuple[list[Row], Executed]:
    """Execute a batch that opens a table, and return its rows, or at most so many from its end."""
    if most == 0:
        return [], await session.execute(name, batch, optional, lists=True)
    if most is not None:
        batch.add(rops.SeekRow(table, rops.END, -most))
    rows: list[Row] = []
    first: Executed | None = None
    while True:
        count = MOST_ROWS if most is None else min(MOST_ROWS, most - len(rows))
        query = batch.add(rops.QueryRows(table, count=count, columns=tuple(columns)))
        done = await session.execute(name, batch, optional, lists=True)
        first = first or done
        answer = done.answer(query)
        rows += answer.rows
        if not answer.rows or answer.origin == rops.END or (most is not None and len(rows) >= most):
            return rows, first
        if len(rows) > LARGEST_TABLE:
            raise ServerRefused("table without end", f"more than {LARGEST_TABLE:,} rows")
        batch = Batch([batch.handles[table]])
        table = 0


async def stream_of(session: MapiSession, batch: Batch, stream: int, size: int | rops.OpenStream) -> bytes:
    """Execute a batch, and return all of the stream at this place, of a known size or that the batch opens.

    Pieces may be short: the first is if other responses, such as many recipients, share its buffer, and may be empty.
    """
    data = b""
    while True:
        read = batch.add(rops.ReadStream(stream, PIECE_BYTES))
        done = await session.execute("ReadStream", batch)
        data += (piece := done.answer(read))
        if isinstance(size, rops.OpenStream):
            size = done.answer(size)
        if len(data) == size:
            return data
        if len(data) > size or (not piece and len(done.requests) == 1):
            raise ServerRefused("ReadStream of another size", f"{len(data)} of {size} bytes")
        batch = Batch([batch.handles[stream]])
        stream = 0


async def write_message(
    session: MapiSession,
    batch: Batch,
    name: str,
    folder_id: int,
    message: Composed,
    properties: Sequence[tuple[int, Value]],
    recipients: Sequence[rops.RecipientRow],
    submits: bool = False,
) -> int:
    """Create a message in a folder, with its recipients, text and files; save it, and submit it if asked.

    The batch has the logon in place 0. What does not fit one request goes before, as "WriteStream". Return the number
    of the message.
    """
    writing = _Writing(session, batch)
    made = batch.place()
    await writing.add(rops.CreateMessage(0, made, folder_id=folder_id))
    await writing.properties(made, [*message.properties, *properties], tags.BODY, message.body)
    if recipients:
        rows = tuple([rops.ModifiedRecipient(at, rops.TO, row) for at, row in enumerate(recipients)])
        await writing.add(rops.ModifyRecipients(made, (), rows), 64 + 8 * sum([len(row.address) for row in recipients]))
    for file in message.files:
        attachment = batch.place()
        await writing.add(rops.CreateAttachment(made, attachment))
        await writing.properties(attachment, file.properties, tags.ATTACH_DATA, file.content)
        await writing.add(rops.SaveChangesAttachment(made, attachment))
        await writing.add(rops.Release(attachment))
    save = rops.SaveChangesMessage(made, made, 0x02 if submits else 0x00)
    await writing.add(save, 256)  # the rest is in the same batch
    if submits:
        await writing.add(rops.SubmitMessage(made), 0)
    await writing.add(rops.Release(made), 0)
    return (await writing.flush(name)).answer(save).message_id


class _Writing:
    """A batch that is executed when it is full."""

    def __init__(self, session: MapiSession, batch: Batch) -> None:
        self._session = session
        self._batch = batch
        self._size_bytes = 0

    async def add(self, request: rops.Request[Any], most_bytes: int = 64) -> None:
        """Add a request of at most this size, after the batch is executed if it would grow too large."""
        if self._size_bytes + most_bytes > LARGEST_BATCH_BYTES:
            await self.flush("WriteStream")
        self._batch.add(request)
        self._size_bytes += most_bytes

    async def flush(self, name: str) -> Executed:
        self._size_bytes = 0
        return await self._session.execute(name, self._batch)

    async def properties(self, of: int, properties: list[tuple[int, Value]], large: int, content: str | bytes) -> None:
        """Set properties, and one that may be large (MS-OXCPRPT section 2.2.14)."""
        data = content.encode("utf-16-le", "replace") if isinstance(content, str) else content
        inline = [(large, content)] if len(data) <= INLINE_BYTES else []
        texts = sum([2 * len(value) for _, value in properties if isinstance(value, str | bytes)])
        await self.add(rops.SetProperties(of, (*properties, *inline)), 1024 + texts + len(data) * len(inline))
        if inline:
            return
        stream = self._batch.place()
        await self.add(rops.OpenStream(of, stream, large, 2))
        for at in range(0, len(data), PIECE_BYTES):
            piece = data[at : at + PIECE_BYTES]
            await self.add(rops.WriteStream(stream, piece), len(piece) + 8)
        await self.add(rops.CommitStream(stream))
        await self.add(rops.Release(stream))
