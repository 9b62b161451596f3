"""Disks that are full while a cluster makes a run, the clients' and the controller's: each a real one of some MiB."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cluster_commands import client, controller, events, lasting, lost_by_client, on_server, running
from findings_of import findings_in
from mailservers import StartEmbedded
from small_runs import AT_WORK

from loadsim.cli import INVALID
from loadsim.findings.catalogue import Code
from loadsim.timinglog.merge import read_logs

pytestmark = pytest.mark.nightly(part="hosts")

SIZE_MIB = 24
"""Of a disk: more than the logs of the run may take."""

SECONDS = 8
SERVE = f'mount -t tmpfs -o size={SIZE_MIB}m tmpfs "$1" && echo mounted && exec sleep 600'


class Disk:
    """A disk at a path where only those see it who are started `inside`."""

    def __init__(self, path: Path, holder: int) -> None:
        self.path = path
        self.inside = ("nsenter", "--target", str(holder), "--mount", "--")
        self._root = Path(f"/proc/{holder}/root")
        self._full = self.seen(path / "full")

    def seen(self, path: Path) -> Path:
        return self._root / path.relative_to("/")

    def fill(self) -> None:
        with suppress(OSError), self._full.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def make_room(self) -> None:
        self._full.unlink()


@contextmanager
def disk(path: Path) -> Iterator[Disk]:
    """A file system that exists during the block, in a mount namespace that its processes inherit."""
    path.mkdir()
    command = ["unshare", "--mount", "sh", "-c", SERVE, "sh", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "mounted\n"
            yield Disk(path, holder.pid)
        finally:
            holder.kill()


def said_by(out: Path, name: str) -> set[str]:
    return {each["event"] for each in events(out) if each.get("client") == name and each["event"].startswith("log ")}


def test_a_client_with_a_full_disk_writes_its_log_once_there_is_room(
    embedded_server: StartEmbedded, tmp_path: Path
) -> None:
    """Said when it is noticed. What could not be written is written when there is room; if there never is, it is lost,
    and its users with it."""
    path = on_server(embedded_server, tmp_path / "small.yaml", **lasting(SECONDS, lost_users=0.5))
    out = tmp_path / "out"
    with (
        disk(tmp_path / "awhile") as awhile,
        disk(tmp_path / "forever") as forever,
        controller(tmp_path) as (address, _),
        client(tmp_path, address, "awhile", before=awhile.inside),
        client(tmp_path, address, "forever", before=forever.inside),
        client(tmp_path, address, "well"),
        running(tmp_path, "run", path, "--cluster", address, "--out", out, "--no-report", error=True) as whole,
    ):
        whole.until(f"^{AT_WORK}")
        awhile.fill()
        forever.fill()
        while not (said_by(out, "awhile") and said_by(out, "forever")):
            with suppress(subprocess.TimeoutExpired):
                whole.process.wait(0.05)
                raise AssertionError(f"it ended before it said so: {whole.received}")
        awhile.make_room()
        assert whole.process.wait() == 0, whole.received
    assert said_by(out, "awhile") == {"log not written"}
    assert said_by(out, "forever") == {"log not written", "log incomplete"}
    assert not said_by(out, "well")
    score = json.loads((out / "score.json").read_text())
    assert score["verdict"]["validity"] == "degraded"
    assert lost_by_client(score) == {"awhile": 0, "forever": 2, "well": 0}
    assert [one.where for one in findings_in(score) if one.code is Code.LOG_WITHOUT_END] == ["forever.1", "forever.2"]
    ended = {source.client: source.facts.ended for source in read_logs([out]).sources if source.simulates}
    assert ended == {"awhile": "completed", "forever": None, "well": "completed"}


def test_logs_stay_on_the_clients_while_the_controllers_disk_is_full(
    embedded_server: StartEmbedded, tmp_path: Path
) -> None:
    """The run goes on, what does not fit stays on the clients, which is said, and it comes when there is room."""
    path = on_server(embedded_server, tmp_path / "small.yaml", **lasting(SECONDS))
    with (
        disk(tmp_path / "small") as small,
        controller(tmp_path) as (address, _),
        client(tmp_path, address, "one"),
        client(tmp_path, address, "two"),
    ):
        out = small.path / "out"
        run = ("run", path, "--cluster", address, "--out", out, "--no-report")
        with running(tmp_path, *run, error=True, before=small.inside) as whole:
            whole.until(f"^{AT_WORK}")
            small.fill()
            for name in ("one", "two"):
                whole.until(rf"loadsim: {out}: expected room for \d+ bytes of client {name}, found \d")
            collect = whole.until("loadsim: (loadsim cluster collect --cluster .*) brings what is left there")[
                1
            ].split()
            whole.until("there is no summary yet: the clients still have all logs")
            assert whole.process.wait() == INVALID
        small.make_room()
        with running(tmp_path, *collect[1:], before=small.inside) as again:
            again.until("Verdict: ")
            assert again.process.wait() == 0
        assert lost_by_client(json.loads(small.seen(out / "score.json").read_text())) == {"one": 0, "two": 0}
        assert not [file for name in ("one", "two") for file in (tmp_path / name).iterdir()]
