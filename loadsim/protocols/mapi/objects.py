"""A mailbox's tables, streams and messages, in sequences of remote operations that may take several requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadsim.errors import ServerRefused
from loadsim.protocols.mapi import rops, tags
from loadsim.protocols.mapi.composition import Composed
from loadsim.protocols.mapi.rops import Handle, Request
from loadsim.protocols.mapi.session import MapiSession
from loadsim.protocols.mapi.wire import Value

TABLE = 0x40 | 0x10
"""The flags of tables: strings in Unicode, and no row events, which nothing here uses."""

INLINE_BYTES = 8192
"""The largest property set by value; larger ones are written through a stream."""

PIECE_BYTES = 28_672
"""The most bytes of a stream that one operation reads or writes."""

LARGEST_BATCH_BYTES = 31_000
"""The most bytes of operations sent together: a buffer has at most 32 KiB (MS-OXCRPC section 3.1.4.2).

The rest is for their numbers, two bytes each, and the handles.
"""

MOST_ROWS = 500
"""The most rows that one operation asks for; a server returns as many as fit into its buffer."""

LARGEST_TABLE = 200_000
"""The most rows read from a table, as one without an end would be read forever."""

Row = tuple[Any, ...]
"""A table row's values, in the order of the columns."""


def number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def identifier(value: object) -> int | None:
    """Return the unsigned number of a folder or message from its signed PtypInteger64."""
    signed = number(value)
    return None if signed is None else signed & 0xFFFF_FFFF_FFFF_FFFF


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


async def rows_of(
    session: MapiSession,
    name: str,
    batch: Sequence[Request[Any]],
    table: Handle,
    columns: Sequence[int],
    most: int | None = None,
) -> list[Row]:
    """Execute a batch that opens a table, and return its rows, or at most `most` from its end."""
    rows: list[Row] = []
    if most == 0:
        await session.execute(name, batch, lists=True)
        return rows
    if most is not None:
        batch = [*batch, rops.seek_row(table, rops.END, -most)]
    while True:
        query = rops.query_rows(table, MOST_ROWS if most is None else min(MOST_ROWS, most - len(rows)), columns)
        await session.execute(name, [*batch, query], lists=True)
        rows += query.answer.rows
        if not query.answer.rows or query.answer.origin == rops.END or (most is not None and len(rows) >= most):
            return rows
        if len(rows) > LARGEST_TABLE:
            raise ServerRefused("table without end", f"more than {LARGEST_TABLE:,} rows")
        batch = []


async def stream_of(session: MapiSession, batch: Sequence[Request[Any]], opened: Request[int]) -> bytes:
    """Execute a batch, and return the contents of the stream that it or an earlier one opened.

    Pieces may be short. The first may even be empty if other responses, such as many recipients, share its buffer.
    """
    data = b""
    while True:
        read = rops.read_stream(opened.opened, PIECE_BYTES)
        await session.execute("ReadStream", [*batch, read])
        data += read.answer
        if len(data) == opened.answer:
            return data
        if len(data) > opened.answer or not (batch or read.answer):
            raise ServerRefused("ReadStream of another size", f"{len(data)} of {opened.answer} bytes")
        batch = []


async def write_message(
    session: MapiSession,
    name: str,
    folder_id: int,
    message: Composed,
    properties: Sequence[tuple[int, Value]],
    recipients: Sequence[str],
    submits: bool = False,
) -> int:
    """Create a message in a folder, with its recipients, text and files; save it, and submit it if `submits`.

    Anything that does not fit into one request goes ahead, as "WriteStream". Returns the message's number.
    """
    made = rops.create_message(session.mailbox, folder_id)
    at = made.opened
    requests = [made, *_setting(at, [*message.properties, *properties], tags.BODY, message.body)]
    if recipients:
        requests.append(rops.modify_recipients(at, recipients))
    for file in message.files:
        attachment = rops.create_attachment(at)
        requests += [attachment, *_setting(attachment.opened, file.properties, tags.ATTACH_DATA, file.content)]
        requests += [rops.save_changes_attachment(at, attachment.opened), rops.release(attachment.opened)]
    saved = rops.save_changes_message(at, 0x02 if submits else 0x00)
    last = [saved, *([rops.submit_message(at)] if submits else []), rops.release(at)]
    batch: list[Request[Any]] = []
    for request in requests:
        if sum([len(other.body) for other in (*batch, request)]) > LARGEST_BATCH_BYTES:
            await session.execute("WriteStream", batch)
            batch = []
        batch.append(request)
    await session.execute(name, [*batch, *last])
    return saved.answer


def _setting(
    target: Handle, properties: Sequence[tuple[int, Value]], large: int, content: str | bytes
) -> list[Request[Any]]:
    """Return the requests that set some properties, and another that may be large (MS-OXCPRPT section 2.2.14)."""
    data = content.encode("utf-16-le", "replace") if isinstance(content, str) else content
    if len(data) <= INLINE_BYTES:
        return [rops.set_properties(target, [*properties, (large, content)])]
    stream = rops.open_stream(target, large, 2)
    pieces = [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
    return [
        *(rops.set_properties(target, properties), stream),
        *[rops.write_stream(stream.opened, piece) for piece in pieces],
        *(rops.commit_stream(stream.opened), rops.release(stream.opened)),
    ]
