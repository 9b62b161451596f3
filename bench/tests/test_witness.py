"""The witness: tasks as packets tell them, from packets made by hand and from a captured exchange."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.witness import match
from bench.witness_capture import capturing, collect
from bench.witness_packets import Segment, Witnessed, tasks

PLAIN = base64.b64encode(b"\0user7\0any")


def conversation(*said: tuple[int, str, bytes], server_port: int = 143) -> list[Segment]:
    """A connection from port 4000: a SYN at 5, then (instant, > or <, bytes) in turn."""
    ports = (4000, server_port)
    next_byte = {True: 101, False: 501}
    made = [Segment(5, ports, True, 100, True, b""), Segment(6, ports, False, 500, True, b"")]
    for at_ns, arrow, data in said:
        from_client = arrow == ">"
        made.append(Segment(at_ns, ports, from_client, next_byte[from_client], False, data))
        next_byte[from_client] += len(data)
    return made


IMAP = conversation(
    (10, "<", b"* OK ready\r\n"),
    (20, ">", b"a1 AUTHENTICATE PLAIN " + PLAIN + b"\r\n"),
    (30, "<", b"a1 OK in\r\n"),
    (40, ">", b"a2 IDLE\r\n"),
    (50, "<", b"+ idl"),
    (55, "<", b"ing\r\n"),
    (100, ">", b"DONE\r\n"),
    (101, ">", b"a3 UID FETCH 4 (BODYSTRUCTURE)\r\n"),
    (110, "<", b"a2 OK idled\r\na3 OK\r\n"),
    (120, ">", b"a4 UID STORE 4 +FLAGS.SILENT (\\Seen)\r\n"),
    (130, "<", b"a4 OK stored\r\n"),
    (200, ">", b'a5 UID MOVE 4 "Folder 1"\r\n'),
    (222, "<", b"a5 OK moved\r\n"),
    (300, ">", b'a6 UID MOVE 5 "Deleted Items"\r\n'),
    (322, "<", b"a6 OK moved\r\n"),
)


def test_imap_tasks_run_from_their_first_byte_to_the_last_of_their_answer() -> None:
    """LOGON from the SYN to IDLE's word, READ from DONE to the answer of STORE, MOVE; a deletion is none of them.

    Each begins later by what the server waited for the next command: 10 and 10, 10, nothing.
    """
    assert list(tasks(IMAP)) == [
        Witnessed("LOGON", "user7", 25, 55),
        Witnessed("READ", "user7", 110, 130),
        Witnessed("MOVE", "user7", 200, 222),
    ]


def test_one_client_port_may_lead_to_two_servers() -> None:
    """The kernel gives a port again for another server; a log-on to one is not hidden by a submission to the other."""
    other = conversation(
        (7, "<", b"220 ready\r\n"),
        (35, ">", b"AUTH PLAIN " + PLAIN + b"\r\n"),
        (45, "<", b"354 go on\r\n"),
        (60, "<", b"250 taken\r\n"),
        server_port=587,
    )
    together = sorted(IMAP + other, key=lambda segment: segment.at_ns)
    assert sorted(tasks(together)) == sorted([*tasks(IMAP), Witnessed("SEND", "user7", 33, 60)])


def test_retransmitted_bytes_change_nothing() -> None:
    """A segment that was retransmitted counts when it was first seen."""
    again = [twice for one in IMAP for twice in (one, one._replace(at_ns=one.at_ns + 1))]
    assert list(tasks(again)) == list(tasks(IMAP))


def test_a_fetch_that_does_not_mark_is_not_a_read() -> None:
    """Browsing looks at a message, too, and then opens the Inbox."""
    browsed = conversation(
        (20, ">", b"a1 AUTHENTICATE PLAIN " + PLAIN + b"\r\n"),
        (30, ">", b"a2 UID FETCH 4 (BODYSTRUCTURE)\r\n"),
        (40, "<", b"a2 OK\r\n"),
        (50, ">", b"a3 SELECT INBOX\r\n"),
        (60, "<", b"a3 OK\r\n"),
        (70, ">", b"a4 UID STORE 4 +FLAGS (\\Seen)\r\n"),
        (80, "<", b"a4 OK\r\n"),
    )
    assert list(tasks(browsed)) == []


SMTP = (
    ("<", b"220 ready\r\n"),
    (">", b"AUTH PLAIN " + PLAIN + b"\r\n"),
    ("<", b"235 in\r\n"),
    (">", b"DATA\r\n"),
    ("<", b"354 go on\r\n"),
    (">", b"Subject: x\r\n\r\n.\r\n"),
    ("<", b"250 taken\r\n"),
)


def test_a_submission_ends_with_the_reply_after_the_message() -> None:
    """SEND runs from the SYN to the reply that follows 354 and the message, less three waits of 10."""
    said = conversation(*((10 * (index + 1), arrow, data) for index, (arrow, data) in enumerate(SMTP)))
    assert list(tasks(said)) == [Witnessed("SEND", "user7", 35, 70)]


def test_each_record_is_matched_with_the_nearest_of_its_user() -> None:
    """Another user's task and one that is far away are no match, and no witnessed task serves twice."""
    ours = [Witnessed("READ", "user1", at_ns, at_ns + 9) for at_ns in (0, 400_000_000)]
    near, other = Witnessed("READ", "user1", 3, 9), Witnessed("READ", "user2", 400_000_000, 400_000_009)
    assert match(ours, [near, other]) == [(ours[0], near)]
    assert match([ours[0], ours[0]], [near]) == [(ours[0], near)]


@contextmanager
def chatter() -> Iterator[None]:
    """Others use loopback meanwhile, without a pause: datagrams from one socket to itself."""
    over = threading.Event()

    def talk() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.bind(("127.0.0.1", 0))
            while not over.is_set():
                own.sendto(b"word", own.getsockname())
                own.recv(4)

    talking = threading.Thread(target=talk)
    talking.start()
    try:
        yield
    finally:
        over.set()
        talking.join()


@pytest.mark.system
def test_a_capture_has_the_bytes_that_were_sent() -> None:
    """A submission over loopback, captured amid other traffic, is one SEND. Needs root, for the packet socket."""
    with chatter(), socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with capturing(frozenset({port})) as capture:
            with socket.create_connection(("127.0.0.1", port)) as client:
                server, _ = listening.accept()
                with server:
                    for arrow, data in SMTP:
                        source, target = (client, server) if arrow == ">" else (server, client)
                        source.sendall(data)
                        assert target.recv(len(data), socket.MSG_WAITALL) == data
            captured = collect(capture)
    (seen,) = tasks(captured.segments)
    assert (seen.task, seen.login, captured.dropped) == ("SEND", "user7", 0)
    assert seen.began_ns < seen.ended_ns
