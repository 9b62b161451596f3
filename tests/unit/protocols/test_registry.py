"""Drivers found by entry points: a run needs support for the tasks that its profiles plan, and for no others."""

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from patience import PATIENCE_S
from small_runs import written
from virtual_runs import NOWHERE

from loadsim.errors import ConfigError
from loadsim.model.ports import ALL_TASKS, Endpoint
from loadsim.protocols.mapi.driver import MapiDriver
from loadsim.protocols.registry import check_drivers, open_driver
from loadsim.scenario.scenario import load_scenario

PLUGIN = """
from loadsim.model.ports import ALL_TASKS, Endpoint
from loadsim.protocols.imap import open_driver as open_imap

class SmallDriver:
    name = "small"
    supported_tasks = ALL_TASKS - {"BROWSE", "MOVE"}
    def __init__(self, imap):
        self.session = imap.session

def open_driver(services):
    return SmallDriver(open_imap(services))
"""
"""A third-party driver that lacks two tasks."""


def loadsim_with_plugin(place: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command on a machine on which the plugin is installed."""
    metadata = place / "small-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: small\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[loadsim.protocols]\nsmall = small:open_driver\n")
    (place / "small.py").write_text(PLUGIN)
    path = os.pathsep.join(filter(None, (str(place), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", "loadsim", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.slow
def test_a_profile_with_an_unsupported_task_is_rejected(tmp_path: Path) -> None:
    """It is rejected before the run, in one line with the key, the tasks and the driver."""
    topology = [
        {"profile": "loadsim-5.5/light", "users": 1},
        {"profile": "loadsim-5.5/light", "users": 1, "protocol": "small"},
    ]
    scenario = written(tmp_path / "scenario.yaml", topology=topology)
    ended = loadsim_with_plugin(tmp_path, "run", scenario, "--out", tmp_path / "out")
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()[-1:]
    assert line.endswith(
        "topology[1].protocol: expected a driver that supports BROWSE, MOVE, which profile loadsim-5.5/light plans,"
        " found small, which does not"
    )
    assert not list((tmp_path / "out").glob("logs/*"))


@dataclass
class Found:
    """A plug-in of any name that opens this driver."""

    driver: object
    package: str = "other"
    is_own: bool = False

    def load(self) -> Any:
        return lambda services: self.driver


@dataclass
class OlderDriver:
    """A driver of an older form: it does not state its tasks."""

    name: str = "older"


@dataclass
class NewerDriver:
    """A driver that can do nothing."""

    name: str = "newer"
    supported_tasks: frozenset[str] = frozenset()


def test_a_driver_states_its_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not may lack any: it is rejected before the load. Only planned tasks are needed."""
    topology = [{"profile": "loadsim-5.5/heavy", "users": 1, "protocol": "any"}]
    scenario = load_scenario(str(written(tmp_path / "scenario.yaml", topology=topology)))
    monkeypatch.setattr("loadsim.protocols.registry.plugin", lambda kind, name: Found(OlderDriver()))
    with pytest.raises(ConfigError, match=r"^protocol any: expected a driver with supported_tasks, found one without$"):
        check_drivers(scenario, NOWHERE)
    monkeypatch.setattr("loadsim.protocols.registry.plugin", lambda kind, name: Found(NewerDriver()))
    with pytest.raises(
        ConfigError, match=r"expected a driver that supports BROWSE, .*LOGON.*, found any, which does not"
    ):
        check_drivers(scenario, NOWHERE)
    few = {"from": "loadsim-5.5/light", "name": "few", "browse": {"per_day": 0}, "after_reading": {"move": 0}}
    (tmp_path / "few.yaml").write_text(yaml.safe_dump(few))
    topology = [{"profile": str(tmp_path / "few.yaml"), "users": 2, "protocol": "any"}]
    scenario = load_scenario(str(written(tmp_path / "few-scenario.yaml", topology=topology)))
    lacking = NewerDriver(supported_tasks=ALL_TASKS - {"BROWSE", "MOVE"})
    monkeypatch.setattr("loadsim.protocols.registry.plugin", lambda kind, name: Found(lacking))
    check_drivers(scenario, NOWHERE)
    mixed = [*topology, {"profile": "outside/bulk", "users": 1}]
    scenario = load_scenario(str(written(tmp_path / "mixed.yaml", topology=mixed)))
    with pytest.raises(ConfigError, match="a driver by which outside senders can submit, such as imap, found any"):
        check_drivers(scenario, NOWHERE)


@pytest.mark.parametrize(
    ("receipts", "lacking"),
    [("{delivery: 1%}", "TRACK RECEIPT"), ("{read: 1%}", "RETURN RECEIPT"), ("{returned: 1%}", "RETURN RECEIPT")],
)
def test_a_driver_without_receipts_rejects_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receipts: str, lacking: str
) -> None:
    """As MAPI over HTTP does, before the run."""
    (tmp_path / "own.yaml").write_text(f"name: own\nfrom: loadsim-5.5/light\nreceipts: {receipts}\n")
    topology = [{"profile": str(tmp_path / "own.yaml"), "users": 2, "protocol": "any"}]
    scenario = load_scenario(str(written(tmp_path / "scenario.yaml", topology=topology)))
    driver = NewerDriver(supported_tasks=MapiDriver.supported_tasks)
    monkeypatch.setattr("loadsim.protocols.registry.plugin", lambda kind, name: Found(driver))
    with pytest.raises(ConfigError, match=f"expected a driver that supports {lacking}, which profile .* plans"):
        check_drivers(scenario, NOWHERE)


@pytest.mark.parametrize(("name", "can"), [("imap", True), ("aioimaplib", True), ("mapi", False)])
def test_senders_submit_by_drivers_with_smtp(name: str, can: bool) -> None:
    services = replace(NOWHERE, mapi=Endpoint("localhost", 0, path="/mapi/emsmdb"))
    assert hasattr(open_driver(name, services), "outside") == can


def test_an_unknown_protocol_is_rejected_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^protocol: expected one of .*fake.*imap.*, found nntp$"):
        open_driver("nntp", NOWHERE)
