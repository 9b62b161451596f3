"""A receiver of OTLP over HTTP, which reads requests by OpenTelemetry's own schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from threading import Event, Thread
from typing import Any

from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service
from patience import PATIENCE_S


class Receiver:
    """Its URL, and the requests that it has received; a request for which `refuses` is true is answered so."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.requests: Queue[Any] = Queue()
        self.headers: dict[str, str] = {}
        self.status = 200
        self.silent = False  # it never answers

    def metrics(self) -> dict[str, Any]:
        """Those of the next request, by name."""
        (resource,) = self.requests.get(timeout=PATIENCE_S).resource_metrics
        (scope,) = resource.scope_metrics
        assert len({metric.name for metric in scope.metrics}) == len(scope.metrics)
        return {metric.name: metric for metric in scope.metrics}


@contextmanager
def otlp_receiver(on_request: Callable[[], object] = lambda: None) -> Iterator[Receiver]:
    """A receiver on a free port of this machine, in a thread of its own."""
    released = Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/metrics"
            assert self.headers["Content-Type"] == "application/x-protobuf"
            receiver.headers = dict(self.headers)
            receiver.requests.put(service.ExportMetricsServiceRequest.FromString(body))
            on_request()
            if receiver.silent:
                released.wait(PATIENCE_S)
                return
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Not on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(server.server_port)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        released.set()
        server.shutdown()
        thread.join()
        server.server_close()


def points(metric: Any) -> dict[frozenset[tuple[str, str]], Any]:
    """The points of a metric, by their labels."""
    found = {
        frozenset((pair.key, pair.value.string_value) for pair in point.attributes): point
        for point in getattr(metric, metric.WhichOneof("data")).data_points
    }
    assert len(found) == len(getattr(metric, metric.WhichOneof("data")).data_points)
    return found


def number(point: Any) -> float:
    """The value of a point."""
    return float(getattr(point, point.WhichOneof("value")))
