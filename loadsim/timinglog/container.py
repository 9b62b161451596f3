"""The bytes of a timing log: a head with a JSON header, then blocks with checksums.

    file   = magic (8 bytes), version u16, header length u32, header CRC-32 u32, header (JSON object, UTF-8)
             block*
    block  = kind u8, payload length u32, CRC-32 u32, payload

All numbers are little-endian. A block's CRC-32 (zlib's) covers kind, length and payload.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

from loadsim.documents.typed import show
from loadsim.errors import LogError
from loadsim.timinglog.documents import read_document

MAGIC = b"LSTLOG\r\n"
"""CR and LF reveal a transfer in text mode."""

VERSION = 5

TASKS, MAILS, COMMANDS, STRINGS, FACTS, HEALTH = 1, 2, 3, 4, 5, 6
"""The kinds of blocks. Records: numpy types; strings: a JSON array; facts and health: a JSON array of objects."""

MOST_BLOCK_BYTES = 1 << 26
"""The largest payload or header. Engines write a block each second; if a block is longer, its length is damaged."""

_FILE_HEAD = struct.Struct("<8sHII")
_BLOCK_HEAD = struct.Struct("<BI")
_WHOLE_HEAD = struct.Struct("<BII")
"""A block's head with its checksum."""


READ_BYTES = 1 << 18
"""The least to read at once: engines write small blocks, which take longer to read one by one than to check."""


class Block(NamedTuple):
    """One whole block. Its payload begins at byte `begin` of the file, the next block at byte `end`."""

    kind: int
    payload: bytes
    begin: int

    @property
    def end(self) -> int:
        return self.begin + len(self.payload)


def encode_head(header: Mapping[str, Any]) -> bytes:
    text = json.dumps(header, ensure_ascii=True, separators=(",", ":")).encode()
    return _FILE_HEAD.pack(MAGIC, VERSION, len(text), zlib.crc32(text)) + text


def encode_block(kind: int, payload: bytes) -> bytes:
    crc = zlib.crc32(payload, zlib.crc32(_BLOCK_HEAD.pack(kind, len(payload))))
    return _WHOLE_HEAD.pack(kind, len(payload), crc) + payload


def encode_json(kind: int, values: list[Any]) -> bytes:
    return encode_block(kind, json.dumps(values, ensure_ascii=True, separators=(",", ":")).encode())


def read_head(name: str, file: BinaryIO) -> tuple[dict[str, Any], int]:
    """Return the header, and the offset of the first block. Raises `LogError` for another kind or version of file."""
    head = file.read(_FILE_HEAD.size)
    if not head:
        raise LogError(f"{name}: expected a timing log, found an empty file")
    if not head.startswith(MAGIC[: len(head)]):
        raise LogError(f"{name}: expected a timing log, found another kind of file (its first bytes: {head[:8]!r})")
    if len(head) < _FILE_HEAD.size:
        raise LogError(f"{name}: expected a timing log, found one that is cut off in its head, at {len(head)} bytes")
    _, version, length, crc = _FILE_HEAD.unpack(head)
    if version != VERSION:
        by = "use the version of loadsim that wrote it"
        raise LogError(f"{name}: expected a timing log of format {VERSION}, found format {version}: {by}")
    end, size = len(head) + length, os.fstat(file.fileno()).st_size
    if length > MOST_BLOCK_BYTES:
        raise LogError(f"{name}: expected a timing log, found a header of more than {MOST_BLOCK_BYTES >> 20} MiB")
    if end > size:
        raise LogError(f"{name}: expected a timing log, found one that is cut off in its header, at {size} bytes")
    text = file.read(length)
    if zlib.crc32(text) != crc:
        raise LogError(f"{name}: expected a timing log, found one whose header is damaged (its checksum is wrong)")
    header = read_document(f"{name}: header", text)
    if not isinstance(header, dict):
        raise LogError(f"{name}: header: expected a JSON object, found {show(header)}")
    return header, end


def whole_blocks(file: BinaryIO, offset: int, read_bytes: int = READ_BYTES) -> Iterator[Block]:
    """Yield the blocks from `offset` up to the first that is cut off or does not match its checksum."""
    file.seek(offset)
    read, at = b"", 0  # the bytes from `offset`, and the place of the next block in them

    def read_on(wanted: int) -> bool:
        """Drop the blocks before `at`; return True if the file has as many bytes as wanted from there."""
        nonlocal read, at, offset
        more = file.read(max(wanted - (len(read) - at), read_bytes))
        read, at, offset = read[at:] + more, 0, offset + at
        return len(read) >= wanted

    while len(read) >= at + _WHOLE_HEAD.size or read_on(_WHOLE_HEAD.size):
        kind, length, expected = _WHOLE_HEAD.unpack_from(read, at)
        if length > MOST_BLOCK_BYTES:
            return
        if len(read) < at + _WHOLE_HEAD.size + length and not read_on(_WHOLE_HEAD.size + length):
            return
        begin = at + _WHOLE_HEAD.size
        payload = read[begin : begin + length]
        if zlib.crc32(payload, zlib.crc32(read[at : at + _BLOCK_HEAD.size])) != expected:
            return
        yield Block(kind, payload, offset + begin)
        at = begin + length
