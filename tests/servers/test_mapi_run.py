"""`loadsim run` with the driver mapi on the embedded server, which then speaks MAPI over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import recomputed
import yaml
from patience import PATIENCE_S, PATIENT_CRITERIA
from recompute import recompute
from recomputed import exports_of, printed, status_of
from small_runs import loadsim, written

from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.model.ports import Account, Endpoint, Services
from loadsim.provisioning.clean import clean
from loadsim.provisioning.initialise import Initialised, initialise
from loadsim.provisioning.preflight import nothing
from loadsim.provisioning.sessions import visit
from loadsim.runs.server import server_under_test
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import Workload
from loadsim.servers.embedded import start_embedded_mapi

HOURS = {"day_length": "16s", "ramp_up": "1s", "warm_up": "2s", "window": "14s"}

pytestmark = pytest.mark.slow


def run_by(place: Path, driver: str) -> Path:
    topology = [
        {"profile": f"loadsim-5.5/{kind}", "users": 2, "protocol": driver} for kind in ("light", "medium", "heavy")
    ]
    small = written(place / f"{driver}.yaml", run=HOURS, topology=topology, criteria=PATIENT_CRITERIA)
    run = loadsim("run", small, "--out", place / driver, "--no-report")
    assert run.returncode == 0, run.stderr + run.stdout
    return place / driver


ACCOUNT = Account(1, "user00001", "user00001@loadsim.test", "secret-1", password_source="accounts")


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with start_embedded_mapi([ACCOUNT], {}, tmp_path_factory.mktemp("server")) as server:
        yield replace(server.services, command_limit_s=PATIENCE_S)


@pytest.fixture(scope="module")
def by_mapi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_by(tmp_path_factory.mktemp("runs"), "mapi")


def test_every_planned_task_is_done(by_mapi: Path) -> None:
    """None fails, all mail arrives, and all that is stored is found again."""
    score = json.loads((by_mapi / "score.json").read_text(encoding="utf-8"))
    assert set(score["by_protocol"]) == {"mapi"}
    assert [task["task"] for task in score["tasks"] if task["planned"] and not task["hits"]] == []
    assert score["failed"] == 0 and len(score["covers"]["scored"]) >= 8
    assert score["submission"] is None  # by SMTP
    delivery = score["delivery"]
    assert (delivery["undelivered_at_end"], delivery["missing"], delivery["duplicates"]) == (0, 0, 0)
    audit = json.loads((by_mapi / "audit.json").read_text(encoding="utf-8"))
    assert (audit["mailboxes"], audit["counts"]) == (6, {})


def test_every_figure_is_recomputed(by_mapi: Path) -> None:
    resolved = yaml.safe_load((by_mapi / "scenario.yaml").read_text(encoding="utf-8"))
    figures = recompute(exports_of(by_mapi, resolved, by_mapi / "scenario.yaml"))
    answer = json.loads(printed("log", "answer", by_mapi, "--commands", "--json", statuses=[status_of(figures)]))
    assert recomputed.differences(answer, figures) == []


def test_mailboxes_are_filled_once_and_cleaned(tmp_path: Path) -> None:
    """The record of each is found again, and with it all that `clean` removes."""
    groups = [{"profile": "loadsim-5.5/heavy", "users": 2, "protocol": "mapi"}]
    scenario = load_scenario(str(written(tmp_path / "own.yaml", topology=groups)))
    workload = Workload(scenario)
    with server_under_test(scenario, tmp_path) as (services, _):

        def fill() -> Initialised:
            return asyncio.run(initialise(workload, services, "auto", lambda *_: None))

        for _ in range(2):  # the second time, with numbers that fill eight bytes
            put = fill().put
            again = fill()
            assert put and again.changed == 0
            cleaned = asyncio.run(clean(scenario, services, False, lambda *_: None))
            assert sum(sum(each.messages.values()) for each in cleaned) == put + 2  # and the manifests
        empty = asyncio.run(clean(scenario, services, True, lambda *_: None))
        assert not any(each.messages or each.folders for each in empty)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"password": "wrong"}, "its password is not the one in accounts"),
        ({"address": "user00001@other.test"}, "is domain right?"),
        ({"path": "/other"}, "is server.mapi.url right?"),
        ({"port": 1}, "is the server running, and is server.mapi.url right?"),
    ],
    ids=str,
)
def test_errors_of_the_endpoint_are_named(embedded: Services, change: dict[str, Any], named: str) -> None:
    keys = {field.name for field in fields(Endpoint)}
    endpoint = replace(embedded.endpoint("mapi"), **{key: change[key] for key in change.keys() & keys})
    account = replace(ACCOUNT, **{key: change[key] for key in change.keys() - keys})
    (failure,) = asyncio.run(visit([account], replace(embedded, mapi=endpoint), nothing, lambda *_: None))
    assert isinstance(failure, ConfigError) and str(failure).endswith(named)


@pytest.mark.nightly(part="runs")
def test_imap_and_mapi_make_the_same_load(by_mapi: Path) -> None:
    """Compared on request only: the users' plan and the start state are the same."""
    by_imap = run_by(by_mapi.parent, "imap")
    arguments = ("compare", "--base", by_imap, "--new", by_mapi)
    refused = loadsim(*arguments)
    assert refused.returncode == 2 and Code.COMPARED_UNLIKE.name.lower().replace("_", "-") in refused.stderr
    compared = loadsim(*arguments, "--across-drivers", "--json")
    assert compared.returncode == 0, compared.stderr
    document = json.loads(compared.stdout)
    conditions = {one["code"] for one in document["unequal_conditions"]}
    assert conditions - {"busier-machine"} == {"drivers-differ"}  # others may have been at work here
    assert {one["name"] for one in document["tasks"]} >= {"LOGON", "READ", "SEND", "SYNC", "BROWSE", "LOGOFF"}
