"""The remote operations of one session with the embedded MAPI server: buffers, handles and notifications.

Anything that the documents forbid is refused with the error code that they prescribe, to test the driver. Compressed
buffers, search folders and table notifications are not supported.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable

from loadsim.servers.embedded_mapi import folders, messages
from loadsim.servers.embedded_mapi.store import CREATED, MESSAGE_CLASS, NEW_MAIL, Folder, Mailbox, Message, Store
from loadsim.servers.embedded_mapi.wire import STRING, Error, MalformedError, Reader, RopError, encode

LARGEST_ROPS_BYTES = 0x8000
"""The most bytes of requests or responses in one buffer ([MS-OXCRPC] section 3.1.4.2.1)."""
SMALL_BYTES = 64
"""Room for the response of any ROP that changes something; those with larger responses can be repeated."""
MOST_NOTIFICATIONS = 1000
NO_HANDLE = 0xFFFFFFFF

OPERATIONS = folders.OPERATIONS | messages.OPERATIONS
ROP_RELEASE, ROP_NOTIFY, ROP_PENDING, ROP_LOGON, ROP_BUFFER_TOO_SMALL = 0x01, 0x2A, 0x6E, 0xFE, 0xFF


class Rops:
    """One session's objects, subscriptions, and notifications queued for its next response."""

    def __init__(self, store: Store, mailbox: Mailbox, arrived: Callable[[], None]) -> None:
        """`arrived` is called when a notification is queued."""
        self.waiting: deque[bytes] = deque(maxlen=MOST_NOTIFICATIONS)
        self._store = store
        self._mailbox = mailbox
        self.objects: dict[int, object] = {}
        self._arrived = arrived
        self._last_handle = 0
        mailbox.listeners.add(self._notify)

    def close(self) -> None:
        self._mailbox.listeners.discard(self._notify)

    def execute(self, buffer: bytes, most_bytes: int) -> bytes:
        """Perform a ROP input buffer's requests, and return the output buffer. Both begin with an RPC_HEADER_EXT.

        Raises `MalformedError` if the buffer cannot be parsed ([MS-OXCROPS] section 3.2.5.1).
        """
        header = Reader(buffer)
        version, flags, size, actual = header.unpack("4H")
        if version or flags != 4 or size != actual or size != len(buffer) - 8 or size < 2:
            raise MalformedError
        rops_size = header.one("H")
        if not 2 <= rops_size <= min(size, LARGEST_ROPS_BYTES) or (size - rops_size) % 4:
            raise MalformedError
        requests = Reader(header.take(rops_size - 2))
        handles = list(header.unpack(f"{(size - rops_size) // 4}I"))
        most_bytes = min(most_bytes - 8, LARGEST_ROPS_BYTES) - 2 - 4 * len(handles)

        responses = bytearray()
        while requests.at < len(requests.data):
            start, room_bytes = requests.at, most_bytes - len(responses)
            response = self._perform(requests, handles, room_bytes) if room_bytes >= SMALL_BYTES else None
            if response is None or len(response) > room_bytes:
                responses += struct.pack("<BH", ROP_BUFFER_TOO_SMALL, LARGEST_ROPS_BYTES) + requests.data[start:]
                break
            responses += response
        while self.waiting and len(responses) + len(self.waiting[0]) + 3 <= most_bytes:
            responses += self.waiting.popleft()
        if self.waiting and len(responses) + 3 <= most_bytes:
            responses += struct.pack("<BH", ROP_PENDING, 0)
        payload = struct.pack("<H", len(responses) + 2) + responses + struct.pack(f"<{len(handles)}I", *handles)
        return struct.pack("<4H", 0, 4, len(payload), len(payload)) + payload

    def _perform(self, requests: Reader, handles: list[int], room_bytes: int) -> bytes:
        """Parse and perform the next request, and return its response."""
        number, logon = requests.unpack("BB")
        if number == ROP_RELEASE:
            self._release(handles, requests.one("B"))
            return b""
        if number not in OPERATIONS:
            raise MalformedError
        operation = OPERATIONS[number]
        places = dict(zip(operation.indexes, requests.take(len(operation.indexes)), strict=True))
        fields = [requests.one(letter) for letter in operation.fields]
        made, code = None, 0
        try:
            if logon or (number != ROP_LOGON and not self.objects):
                raise RopError(Error.NULL_OBJECT)
            inputs = [self._object(handles, places[place]) for place in "id" if place in places]
            if inputs and not isinstance(inputs[0], operation.types):
                raise RopError(Error.NOT_SUPPORTED)
            parent = self._object(handles, places["r"]) if "r" in places else None
            call = folders.Call(self._store, self._mailbox, places.get("i", 0), parent, room_bytes)
            answer = operation.act(call, *inputs, *fields)
            made, body = answer if isinstance(answer, tuple) else (None, answer)
        except RopError as refused:
            code, body = refused.code, b"\0" if operation.partial else b""
        if places.get("o", len(handles)) < len(handles):
            handles[places["o"]] = NO_HANDLE if made is None else self._handle(made)
        place = next(places[place] for place in "roi" if place in places)
        return struct.pack("<BBI", number, place, code) + body

    def _object(self, handles: list[int], index: int) -> object:
        if index >= len(handles) or handles[index] not in self.objects:
            raise RopError(Error.NULL_OBJECT)
        return self.objects[handles[index]]

    def _handle(self, made: object) -> int:
        self._last_handle += 1
        self.objects[self._last_handle] = made
        return self._last_handle

    def _release(self, handles: list[int], index: int) -> None:
        """Release an object; a logon's release includes all others."""
        released = self.objects.pop(handles[index], None) if index < len(handles) else None
        if isinstance(released, Mailbox):
            self.objects.clear()

    def _notify(self, event: int, folder: Folder, message: Message) -> None:
        """Queue a notification for each subscription to this event ([MS-OXCNOTIF] section 2.2.1.4.1.2)."""
        for handle, subscription in self.objects.items():
            if not isinstance(subscription, folders.Subscription) or not subscription.events & event:
                continue
            if subscription.folder == folder.number:
                head = struct.pack("<BIBH", ROP_NOTIFY, handle, 0, 0x8000 | event)
                body = struct.pack("<QQ", folder.number, message.number)
                if event == NEW_MAIL:
                    body += struct.pack("<IB", message.flags, 1) + encode(STRING, message.values[MESSAGE_CLASS])
                elif event == CREATED:
                    body += bytes(2)  # no property tags
                self.waiting.append(head + body)
                self._arrived()
