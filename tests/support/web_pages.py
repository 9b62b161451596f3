"""The page of a run, served in this process."""

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from patience import PATIENCE_S
from run_states import TIMES
from small_runs import written

from loadsim.cli.live.figures import LiveRun, before
from loadsim.cli.web.server import PageServer, serving
from loadsim.cli.web.view import PageView
from loadsim.scenario.scenario import Scenario, load_scenario

TOKEN = "a-token-that-nothing-else-has"


@cache
def scenario() -> Scenario:
    """A run with a window from 60 s to 240 s of 300."""
    with TemporaryDirectory() as place:
        return load_scenario(str(written(Path(place) / "small.yaml", run=TIMES)))


def page_view() -> PageView:
    """Return the state of the page of such a run before its first report."""
    return PageView(before(scenario()))


@dataclass
class Served:
    view: PageView
    live: LiveRun
    port: int
    server: PageServer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/#{TOKEN}"

    def ask(
        self, method: str, path: str, headers: Mapping[str, str | None] | None = None, body: bytes | None = None
    ) -> tuple[int, Mapping[str, str], str]:
        """The status, headers and text of an answer; by default the request is that of the page itself."""
        own = {"Host": f"127.0.0.1:{self.port}", "Authorization": f"Bearer {TOKEN}"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in {**own, **(headers or {})}.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, dict(answer.getheaders()), text

    def state(self, query: str = "") -> dict[str, Any]:
        status, _, text = self.ask("GET", f"/state{query}")
        assert status == 200, text
        found = json.loads(text)
        assert isinstance(found, dict)
        return found


@contextmanager
def served(view: PageView) -> Iterator[Served]:
    server = PageServer(0, view, TOKEN)
    with serving(server):
        yield Served(view, LiveRun(scenario(), view), server.server_port, server)
