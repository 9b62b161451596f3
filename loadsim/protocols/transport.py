"""A TCP connection, with or without TLS, that knows when the kernel received what it reads.

The problem: an event loop reads an answer when it gets to it, often milliseconds after it came. If the answer ended
then, a busy generator, or a neighbour on its core, would make the server look slow. But the kernel notes the time of
each segment when it arrives (`SO_TIMESTAMPNS`, socket(7)), and hands the note over with the bytes.

The note is a time of the wall clock, which may be set at any moment, while a run counts on the monotonic clock. So only
the age of the bytes is used: the wall clock now, minus the note. It is taken at each read, and no offset is kept. The
monotonic clock is read after the wall clock, so that a pause in between makes an arrival late, never early. An age that
is negative or above `OLDEST_NS` betrays a clock that was set: the loop's time counts instead.

A read may hold several segments, but it has only the note of the last one, even if it takes only the bytes of the first
(Linux joins waiting segments). So the note is exact for an answer that ends with the read's last byte. For one that
ends before it, the note is a bound: the answer came no later. An example, in ms; the loop is busy until 9:

    2  the server sends "a1 OK\\r\\n"         4  it sends "* 5 EXISTS\\r\\n"
    9  one read: "a1 OK\\r\\n* 5 EXISTS\\r\\n", noted at 4

The announcement arrived at 4 (`KERNEL`), the answer at 4 or before (`BOUND`); without the note, both at 9 (`LOOP`).
A read that fills the buffer may have left bytes behind, and one that ends inside a TLS record holds bytes that are not
decrypted yet: what is read ends before the last byte, so its time is a bound, too.

Segments overtake one that is lost, and the read that gets it, sent again, has the note of one behind it, which came
earlier. The loop's time counts if the kernel counted such segments (`tcpi_rcv_ooopack`) since they were last looked at,
or if the note is of before the last read, which would have had the bytes.

The server must not wait for this machine, either. If it writes an answer in two parts, with Nagle's algorithm, it sends
the second once the first is acknowledged (RFC 9293 section 3.7.4), which Linux delays by 40 ms in a dialogue. So each
write asks the kernel to acknowledge the answer at once (`TCP_QUICKACK`, tcp(7)), however late the loop is; the next one
would end this. After some 16 segments, the kernel begins to delay again. So each read asks, too (decision 66).

The kernel begins to take notes some milliseconds after the first socket of the machine asked for them, and has none for
bytes that came before. So the first socket here is kept open, and each asks before it connects.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from loadsim.model.records import BOUND, KERNEL, LOOP, Arrival
from loadsim.model.terms import Acknowledgements

OLDEST_NS = 60 * 10**9
"""The largest age of received bytes that is believed."""

RECENT_NS = 1_000_000
"""Bytes of at most this age are not looked at further: nothing can be wrong by more."""

UNDISTURBED_NS = 50_000
"""If reading two clocks takes longer, something came between, and they are read again."""

BUFFER_BYTES = 1 << 18
"""The most bytes to read at once."""

_SO_TIMESTAMPNS = 35 if sys.platform == "linux" else None
"""Of Linux's asm-generic/socket.h; Python's `socket` has no name for it."""

_QUICK_ACK = socket.TCP_QUICKACK if sys.platform == "linux" else None

ACKNOWLEDGEMENTS: Acknowledgements = "delayed" if _QUICK_ACK is None else "at once"
"""The state of drivers' connections on this machine."""

_timespec = struct.Struct("@ll")
_OVERTAKING = slice(224, 228)
"""The place of `tcpi_rcv_ooopack` in Linux's `struct tcp_info`, since 5.4."""

_ROOM_BYTES = socket.CMSG_SPACE(_timespec.size)
_RECORD_HEADER_BYTES = 5
_KEPT: list[socket.socket] = []


class _Own(threading.local):
    """A thread's own: what its connections read into, one at a time."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(BUFFER_BYTES))


_OWN = _Own()


def note_arrivals(sock: socket.socket) -> None:
    """Ask the kernel to note when bytes for this socket arrive. Call it before the socket connects."""
    if _SO_TIMESTAMPNS is None:
        return
    if not _KEPT:
        _KEPT.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        _KEPT[0].setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def acknowledge_at_once(sock: socket.socket) -> None:
    """Have the kernel acknowledge at once what has arrived and, until the next command is sent, what will."""
    if _QUICK_ACK is not None:
        sock.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)


class Transport(asyncio.Transport):
    """A connection over a connected, non-blocking socket, which it closes.

    `begin` calls the protocol's `connection_made`, and its `data_received` from then on; `arrival` then has the instant
    on the clock `now` (nanoseconds). `began_ns` is the instant of the first packet. After `begin`, `connection_lost`
    follows every end; after a failed handshake, its caller gets the error first. Writes go straight to
    the socket, so the instant before `write` is that of the first byte.
    """

    def __init__(
        self, sock: socket.socket, protocol: asyncio.Protocol, now: Callable[[], int], began_ns: int = 0
    ) -> None:
        super().__init__()
        self.began_ns = began_ns
        self.arrival: Arrival = (0, LOOP)
        self._loop = asyncio.get_running_loop()
        self._sock, self._descriptor = sock, sock.fileno()
        self._receive = sock.recvmsg_into
        self._buffer = _OWN.buffer
        self._protocol, self._now = protocol, now
        self._overtaking = bytes(4)  # how many segments had overtaken others when last looked at
        self._emptied_ns = 0  # the last read, if nothing was left then
        self._unsent = bytearray()
        self._begun = self._reading = self._closing = self._ended = False
        self._tls: _Tls | None = None
        self._handshake: asyncio.Future[None] | None = None  # under way

    def begin(self) -> None:
        self._begun = True
        self._protocol.connection_made(self)
        self.resume_reading()

    async def start_tls(self, context: ssl.SSLContext, server_hostname: str) -> None:
        """Perform a handshake. Raises `OSError`, of which `ssl.SSLError` is a subclass.

        Reading is paused before and after. If the wait is cancelled, the connection must be aborted.
        """
        self._tls = _Tls(context, server_hostname)
        self._handshake = self._loop.create_future()
        self.resume_reading()
        self._shake_hands()
        await self._handshake

    # --- asyncio.Transport --------------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return "socket", "sockname" or, with TLS, "ssl_object"."""
        if name == "ssl_object" and self._tls is not None:
            return self._tls.object
        if name == "socket":
            return self._sock
        return self._sock.getsockname() if name == "sockname" else default

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._descriptor)

    def resume_reading(self) -> None:
        if self._reading or self._closing:
            return
        self._reading = True
        self._loop.add_reader(self._descriptor, self._read)
        if self._tls is not None and self._handshake is None:  # bytes may wait behind the handshake
            self._loop.call_soon(self._decrypt)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        if self._tls is not None:
            try:
                data = self._tls.encrypt(data)
            except ssl.SSLError as error:
                self._end(error)
                return
        self._send(data)

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def close(self) -> None:
        """Send what is left and TLS's close_notify, then close. Nothing more is read: bytes unread cause a reset."""
        if self._closing:
            return
        self.pause_reading()
        if self._tls is not None and self._handshake is None:
            self._send(self._tls.close())
        self._closing = True
        if not self._unsent:
            self._end(None)

    def abort(self) -> None:
        self._end(None)

    # --- out ----------------------------------------------------------------------------------------------------------

    def _send(self, data: bytes | bytearray | memoryview) -> None:
        if self._unsent:
            self._unsent += data
        elif data and not self._ended:
            try:
                sent = self._send_some(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except (OSError, MemoryError) as error:
                self._end(error)
                return
            if sent < len(data):
                self._unsent += memoryview(data)[sent:]
                self._loop.add_writer(self._descriptor, self._send_unsent)

    def _send_some(self, data: bytes | bytearray | memoryview) -> int:
        sent = self._sock.send(data)
        acknowledge_at_once(self._sock)
        return sent

    def _send_unsent(self) -> None:
        try:
            del self._unsent[: self._send_some(self._unsent)]
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, MemoryError) as error:
            self._end(error)
            return
        if not self._unsent:
            self._loop.remove_writer(self._descriptor)
            if self._closing:
                self._end(None)

    # --- in -----------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            size, notes, _, _ = self._receive((self._buffer,), _ROOM_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, MemoryError) as error:
            self._end(error)
            return
        read_ns, wall_ns, now_ns = self._now(), time.time_ns(), self._now()
        if now_ns - read_ns > UNDISTURBED_NS:
            wall_ns, now_ns = time.time_ns(), self._now()
        acknowledge_at_once(self._sock)
        self.arrival = now_ns, LOOP
        if notes:
            seconds, nanoseconds = _timespec.unpack(notes[0][2])  # nothing else was asked for
            age_ns = wall_ns - seconds * 1_000_000_000 - nanoseconds
            if 0 <= age_ns <= OLDEST_NS and (age_ns <= RECENT_NS or not self._were_overtaken(now_ns - age_ns)):
                self.arrival = now_ns - age_ns, KERNEL if size < BUFFER_BYTES else BOUND
        self._emptied_ns = read_ns if size < BUFFER_BYTES else 0
        try:
            self._deliver(bytes(self._buffer[:size]))
        except Exception as error:  # noqa: BLE001 - the protocol's state is unknown
            self._end(error)

    def _were_overtaken(self, noted_ns: int) -> bool:
        """Return whether bytes may have come after others that are behind them."""
        before = self._overtaking
        info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _OVERTAKING.stop)
        self._overtaking = info[_OVERTAKING].ljust(4, b"\0")
        return before != self._overtaking or noted_ns < self._emptied_ns

    def _deliver(self, data: bytes) -> None:
        if not data and self._handshake is not None:
            self._end(ConnectionResetError("the server closed the connection in the TLS handshake"))
        elif not data:
            self.close()
        elif self._tls is None:
            self._protocol.data_received(data)
        else:
            self._tls.take(data)
            if self._handshake is None:
                self._decrypt()
            else:
                self._shake_hands()

    def _decrypt(self) -> None:
        """Pass on the bytes decrypted from the last read."""
        assert self._tls is not None
        if not self._reading:
            return
        data, is_over, error = self._tls.decrypt()
        if answer := self._tls.outgoing.read():  # to a renegotiation or an update of keys
            self._send(answer)
        if data:
            if self._tls.is_inside_record and self.arrival[1] == KERNEL:
                self.arrival = self.arrival[0], BOUND
            self._protocol.data_received(data)
        if error is not None:
            self._end(error)
        elif is_over:
            self.close()

    def _shake_hands(self) -> None:
        assert self._tls is not None
        handshake, error = self._handshake, None
        try:
            self._tls.object.do_handshake()
        except ssl.SSLWantReadError:
            handshake = None
        except (ssl.SSLError, ssl.CertificateError) as raised:
            error = raised
        self._send(self._tls.outgoing.read())
        if error is not None:
            self._end(error)
        elif handshake is not None:
            self._handshake = None
            self.pause_reading()
            if not handshake.done():
                handshake.set_result(None)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _end(self, error: BaseException | None) -> None:
        """Close the socket in the loop's next turn, and then tell the protocol."""
        if self._ended:
            return
        self.pause_reading()
        if self._unsent:
            self._loop.remove_writer(self._descriptor)
            self._unsent.clear()
        self._closing = self._ended = True
        self._loop.call_soon(self._lost, error)

    def _lost(self, error: BaseException | None) -> None:
        self._sock.close()
        if self._handshake is not None and not self._handshake.done():
            self._handshake.set_exception(error or ConnectionAbortedError("closed in the TLS handshake"))
        if self._begun:
            self._loop.call_soon(self._protocol.connection_lost, error if isinstance(error, Exception) else None)


class _Tls:
    """A TLS session in memory (`ssl.MemoryBIO`)."""

    def __init__(self, context: ssl.SSLContext, server_hostname: str) -> None:
        self._incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = context.wrap_bio(self._incoming, self.outgoing, server_hostname=server_hostname)
        self._head = b""  # the beginning of a record's header
        self._missing_bytes = 0  # of the current record

    @property
    def is_inside_record(self) -> bool:
        """True if the bytes so far end inside a record (RFC 8446 section 5.1)."""
        return bool(self._head or self._missing_bytes)

    def take(self, data: bytes) -> None:
        self._incoming.write(data)
        if self._head:
            data = self._head + data
        at, size = self._missing_bytes, len(data)
        while at + _RECORD_HEADER_BYTES <= size:
            at += _RECORD_HEADER_BYTES + int.from_bytes(data[at + 3 : at + _RECORD_HEADER_BYTES])
        self._head = data[at:] if at < size else b""
        self._missing_bytes = max(0, at - size)

    def encrypt(self, data: bytes | bytearray | memoryview) -> bytes:
        self.object.write(data)
        return self.outgoing.read()

    def decrypt(self) -> tuple[bytes, bool, ssl.SSLError | None]:
        """Return the bytes decrypted so far, whether the server has said that no more follow, and its error."""
        pieces: list[bytes] = []
        try:
            while piece := self.object.read(BUFFER_BYTES):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            return b"".join(pieces), False, None
        except ssl.SSLError as error:
            return b"".join(pieces), False, error
        return b"".join(pieces), True, None

    def close(self) -> bytes:
        """Return the close_notify (RFC 8446 section 6.1)."""
        with contextlib.suppress(ssl.SSLError):  # the server's own is not awaited
            self.object.unwrap()
        return self.outgoing.read()
