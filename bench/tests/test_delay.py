"""The proxy that makes a server slower by a known time, and the benchmark that has `compare` find it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

from bench import slower
from bench.delay import delayed
from loadsim.scenario.scenario import load_scenario

DELAY_S = 0.05
BODY = bytes(range(256)) * 4_096


@contextmanager
def echo() -> Iterator[int]:
    """Run a server on loopback that echoes each connection until its end; yield its port."""

    def answer(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(65_536):
                connection.sendall(data)

    def serve(listening: socket.socket) -> None:
        with listening:
            while True:
                connection, _ = listening.accept()
                if ended.is_set():
                    connection.close()
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    ended = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    thread = threading.Thread(target=serve, args=(listening,))
    thread.start()
    try:
        yield port
    finally:
        ended.set()
        socket.create_connection(("127.0.0.1", port)).close()
        thread.join()


def hear(connection: socket.socket, count: int | None = None) -> bytes:
    """Return this many bytes, or all up to the end."""
    received = bytearray()
    while count is None or len(received) < count:
        data = connection.recv(65_536)
        if not data:
            break
        received += data
    return bytes(received)


@pytest.mark.parametrize("delay_s", [0.0, DELAY_S])
def test_the_proxy_forwards_all_bytes_unaltered(delay_s: float) -> None:
    """A mebibyte goes there and back unaltered, to the end that the client makes, on several connections at once."""
    with echo() as port, delayed(port, delay_s) as proxy:
        clients = [socket.create_connection(("127.0.0.1", proxy), PATIENCE_S) for _ in range(3)]
        for client in clients:
            with closing(client):
                threading.Thread(target=_say, args=(client, BODY), daemon=True).start()
                assert hear(client) == BODY


def _say(client: socket.socket, body: bytes) -> None:
    client.sendall(body)
    client.shutdown(socket.SHUT_WR)


def test_no_answer_comes_before_its_time() -> None:
    """Each of some answers in turn takes at least the delay, which asyncio keeps to the resolution of its clock."""
    resolution_s = time.get_clock_info("monotonic").resolution
    with (
        echo() as port,
        delayed(port, DELAY_S) as proxy,
        socket.create_connection(("127.0.0.1", proxy), PATIENCE_S) as client,
    ):
        for _ in range(3):
            since_s = time.monotonic()
            client.sendall(b"hello")
            assert hear(client, 5) == b"hello"
            assert time.monotonic() - since_s >= DELAY_S - resolution_s


def test_a_missing_server_ends_the_connection() -> None:
    """As the server's own port would; and a proxy ends while a client still holds on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with delayed(port, 0.0) as proxy, socket.create_connection(("127.0.0.1", proxy), PATIENCE_S) as client:
        assert hear(client) == b""
    with echo() as there:
        with delayed(there, 0.0) as proxy:
            client = socket.create_connection(("127.0.0.1", proxy), PATIENCE_S)
            client.sendall(b"x")
            assert hear(client, 1) == b"x"
        with closing(client):
            assert hear(client) == b""


def test_the_benchmark_writes_a_valid_scenario(tmp_path: Path) -> None:
    """`loadsim run` takes it, and its window is long enough to be valid."""
    (tmp_path / "scenario.yaml").write_text(json.dumps(slower.document(10143, 10025)), encoding="utf-8")
    scenario = load_scenario(str(tmp_path / "scenario.yaml"), [])
    assert scenario.users == slower.USERS
    assert scenario.limits.window_s <= scenario.run.window_s


@pytest.mark.parametrize(
    ("same", "read", "wrong"),
    [(None, "slower", False), ("slower", "slower", True), ("faster", "slower", True), (None, None, True)],
)
def test_the_benchmark_rejects_a_wrong_answer(same: str | None, read: str | None, wrong: bool) -> None:
    """A difference where there is none, or none where READ is slower."""

    def found(read: str | None, score: str | None = None) -> dict[str, Any]:
        return {"tasks": [{"name": "READ", "change": read}], "scores": [{"change": score}]}

    assert slower.wrong({"same": found(None, same), "slower": found(read)}) == wrong


def test_the_benchmark_needs_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    """One run of each proves nothing."""
    with pytest.raises(SystemExit) as ended:
        slower.main(["--repeats", "1"])
    assert ended.value.code == 2
    assert "--repeats: expected at least 2, found 1" in capsys.readouterr().err
