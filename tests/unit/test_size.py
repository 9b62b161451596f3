"""`loadsim size` on logs of a simulated server with known demands: the number of users, and the refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from queue_server import server
from timing_samples import DELIVERED, ENDED, LOGGED_ON, START_NS, done, event, write_sample

from loadsim.cli import main

USERS, TASKS_PER_USER_S, DEMAND_S = 200, 0.1, 0.02
"""A task takes 20 ms of one core: 500 users fill a core, these 200 use 40 % of it."""

HEADER = {
    "users": USERS,
    "engine_users": USERS,
    "window_s": [60.0, 660.0],
    "limits": {"hits": 1, "window_s": 1.0},
    "day_s": 2_880.0,
    "compression": 10.0,
}


def busy_run(place: Path, seed: int = 1, header: Mapping[str, Any] | None = None, **constant: Any) -> Path:
    """A run directory of the simulated server on a machine of two cores, of which other programs take 0.5.

    `constant` replaces figures of the probe; None leaves one out.
    """
    samples, ends = server(seed, USERS, TASKS_PER_USER_S, DEMAND_S)
    figures: dict[str, Any] = {
        "cores": 2.0,
        "others_cpu_cores": 0.5,
        "cpu_steal_share": 0.0,
        "loadsim_cpu_cores": 0.3,
        "server_rss_bytes": 2e9,
        "memory_available_bytes": 8e9,
        "memory_used_share": 0.5,
        "disk_sda_reads_per_s": 10.0,
        "disk_sda_writes_per_s": 30.0,
        "disk_sda_busy_share": 0.25,
        "network_sent_bytes_per_s": 1e6,
        "network_received_bytes_per_s": 2e6,
    }
    health = []
    for at_s, busy in samples:
        all_figures = figures | {"server_cpu_cores": busy} | constant
        kept = {name: value for name, value in all_figures.items() if value is not None}
        health.append({"at_ns": START_NS + round(at_s * 1e9), "probe": "host", "figures": kept})
    tasks = [done("READ", end / 1000 - 5, 5, user=1 + n % USERS) for n, end in enumerate(ends)]
    commands = [
        {
            "command": name,
            "user": 1,
            "started_ns": START_NS + end * 1000,
            "ended_ns": START_NS + end * 1000 + 1,
            "outcome": "ok",
            "sent_bytes": 10,
            "received_bytes": 10,
        }
        for n, end in enumerate(ends)
        for name in ("IMAP UID FETCH", "IMAP DONE", *(("SMTP DATA",) if n % 4 == 0 else ()))
    ]
    mails = [event("accepted", f"n1.{n}", 2, end / 1000) for n, end in enumerate(ends[::2], 1)]
    mails += [event("seen", f"n1.{n}", 2, end / 1000 + 1) for n, end in enumerate(ends[::2], 1)]
    write_sample(
        place / "logs" / "c1.0.tlog",
        [LOGGED_ON, *tasks],
        [*DELIVERED, *mails],
        commands,
        header=HEADER | dict(header or {}),
        facts=ENDED,
        health=health,
    )
    return place


def sized(place: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    status = main(["size", str(place), "--json", *arguments])
    said = capsys.readouterr()
    assert not said.err
    found: dict[str, Any] = json.loads(said.out)
    return status, found


def resource(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    (one,) = [each for each in found["resources"] if each["name"] == name]
    return dict(one)


def test_the_number_of_users_is_that_of_the_known_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two cores less the 0.5 of other programs have room for 750 users; the generator's 0.3 are elsewhere."""
    status, found = sized(busy_run(tmp_path), capsys)
    processor = resource(found, "processor")
    assert status == 0
    assert processor["users"]["low"] <= 750 <= processor["users"]["high"]
    assert processor["users"]["value"] == pytest.approx(750, rel=0.1)
    assert processor["users_at_target"]["value"] == pytest.approx(0.7 * processor["users"]["value"])
    assert processor["available"] == pytest.approx(1.5)
    (per_task,) = [each for each in found["demands"] if each["name"] == "task"]
    assert per_task["value"]["low"] <= 20 <= per_task["value"]["high"]
    assert found["equivalent"] == pytest.approx(10, rel=0.02)


def test_memory_and_disks_are_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2 of 10 GB: at least 1,000 users. A quarter of a disk: at least 800. The processor is full first."""
    _, found = sized(busy_run(tmp_path), capsys)
    assert resource(found, "memory")["users"]["value"] == pytest.approx(1000)
    assert resource(found, "disk sda")["users"] == pytest.approx({"value": 800.0, "low": 800.0, "high": 800.0})
    assert {each["bound"] for each in found["resources"] if each["name"] != "processor"} == {"at least"}
    assert found["first"] == "processor"


def test_disk_operations_for_each_message_and_mailbox(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """40 per second: 8 for each of 5 messages a second, 4 for each of 10 copies, 0.2 for each of 200 mailboxes."""
    _, found = sized(busy_run(tmp_path), capsys)
    disk = found["disk"]
    assert disk["per_s"]["value"] == pytest.approx(40)
    assert disk["read_share"] == pytest.approx(0.25)
    assert disk["per_message"]["value"] == pytest.approx(40 / found["messages_per_s"])
    assert disk["per_message"]["value"] == pytest.approx(8, rel=0.1)
    assert disk["per_delivery"]["value"] == pytest.approx(4, rel=0.1)
    assert disk["per_mailbox_per_s"]["value"] == pytest.approx(0.2)
    assert disk["per_mailbox_8h_per_s"]["value"] == pytest.approx(0.02, rel=0.02)


@pytest.mark.parametrize(("size", "resident"), [("1M", False), ("4K", True)])
def test_mailboxes_are_compared_with_the_memory(
    size: str, resident: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of 200 has 1,000 messages in the Inbox, one deleted and 200 in folders: 240 GB or 1 GB; 8 GB are free."""
    place = busy_run(tmp_path)
    scenario = {
        "name": "filled",
        "server": "embedded",
        "topology": [{"profile": "loadsim-5.5/medium", "users": USERS}],
        "mailbox": {"inbox": 1000, "sizes": {size: "100%"}},
    }
    (place / "scenario.yaml").write_text(yaml.safe_dump(scenario))
    _, found = sized(place, capsys)
    data = found["data"]
    assert data["cache_resident"] is resident
    assert data["memory_bytes"] == pytest.approx(16e9)
    each = {"1M": 1 << 20, "4K": 4 << 10}[size]
    assert data["mailbox_bytes"] == pytest.approx(200 * 1201 * each, rel=0.15)
    assert any("cache-resident" in doubt for doubt in found["doubts"]) is resident


def test_the_text_has_the_verdict_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", str(busy_run(tmp_path)), "--target", "50%"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0].startswith("Size: about 7")
    assert "users fill the processor" in text.splitlines()[0]
    assert "who use 50 % of it" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "network: 1.00 MB/s sent and 2.00 received; its speed is not known" in " ".join(text.split())


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"others_cpu_cores": 1.2}, "other programs took 1.20 of 2 cores, more than half: end them, and measure again"),
        ({"others_cpu_cores": None}, "the probe has no figure others_cpu_cores"),
        ({"disk_sda_busy_share": -1.0, "others_cpu_cores": 1.1}, "other programs took 1.10 of 2 cores"),
    ],
)
def test_a_processor_without_a_number_decides_nothing(
    change: dict[str, Any], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk has a number, but the processor may be full before it: no verdict, exit status 4."""
    status, found = sized(busy_run(tmp_path, **change), capsys)
    assert status == 4
    assert found["first"] is None
    assert reason in resource(found, "processor")["why_not"]
    assert main(["size", str(tmp_path)]) == 4
    assert capsys.readouterr().out.startswith("Size: not decided, since a resource without a number may be full first:")


def test_a_run_that_missed_its_criteria_decides_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that is too slow for 200 users is not sized for 750, however idle its processor is."""
    place = busy_run(tmp_path, header={"criteria": {"score_ms": {"max": 4}}})
    status, found = sized(place, capsys)
    assert (status, found["first"]) == (4, None)
    assert resource(found, "processor")["users"] is not None
    assert main(["size", str(place)]) == 4
    assert capsys.readouterr().out.startswith("Size: not decided, since the run missed its criteria with 200 users:")


def test_work_of_others_may_grow_with_the_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0.4 cores of the server and 0.5 of others: with both in proportion, 444 users fill two cores."""
    _, found = sized(busy_run(tmp_path / "a"), capsys)
    (doubt,) = [each for each in found["doubts"] if "grows with the users" in each]
    users = int(doubt.split("too, ")[1].split()[0])
    assert users == pytest.approx(444, rel=0.03)
    _, found = sized(busy_run(tmp_path / "b", others_cpu_cores=0.01), capsys)
    assert not found["doubts"]


def test_resources_that_are_hardly_used_give_a_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On 64 cores the server takes 0.6 %, of memory 0.2 %, of the disk 1 %: more than 20 times the users fit."""
    place = busy_run(tmp_path, cores=64.0, memory_available_bytes=1e12, disk_sda_busy_share=0.01)
    assert main(["size", str(place)]) == 4
    assert capsys.readouterr().out.startswith("Size: more than 4,000 users; no resource was used enough for a number.")


def test_a_hardly_used_resource_leaves_the_verdict_of_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """More than 4,000 users fit into the memory, so the processor with 750 is full first."""
    status, found = sized(busy_run(tmp_path, memory_available_bytes=1e12), capsys)
    assert (status, found["first"]) == (0, "processor")
    assert resource(found, "memory")["users_beyond"] == pytest.approx(4000)


@pytest.mark.parametrize(
    ("change", "status", "expected"),
    [
        ({"limits": {"hits": 1_000_000, "window_s": 1.0}}, 3, "the run is invalid, and sizes no server: "),
        ({"mode": "stress", "weights": {}}, 2, "expected a canonical run, found a stress run"),
        ({"slice": {"number": 1, "weights": [1, 1]}}, 2, "expected a whole run, found slice 1/2"),
    ],
)
def test_runs_that_size_no_server_are_one_line(
    change: dict[str, Any], status: int, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["size", str(busy_run(tmp_path, header=change))]) == status
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert expected in said.err


def test_a_run_without_the_server_s_processes_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", str(busy_run(tmp_path / "a", server_cpu_cores=None))]) == 2
    assert "expected the probe host to see the server's processes, found none" in capsys.readouterr().err
    write_sample(tmp_path / "b" / "logs" / "c1.0.tlog", [LOGGED_ON, done("READ", 1000, 5)], DELIVERED)
    assert main(["size", str(tmp_path / "b")]) in (2, 3)
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("share", ["0%", "101%", "much"])
def test_other_targets_are_one_line(share: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["size", str(tmp_path), "--target", share])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_hostile_name_reaches_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The names of disks come from a log."""
    main(["size", str(busy_run(tmp_path, **{"disk_\x1b[31m_busy_share": 0.9}))])
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "[31m" in text


def test_other_load_on_the_server_is_a_doubt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Postfix took in 50 messages per second, loadsim sent five."""
    place = busy_run(tmp_path)
    health = [
        {"at_ns": START_NS + second * 10**9, "probe": "postfix", "figures": {"queued_per_s": 50.0}}
        for second in range(700)
    ]
    write_sample(
        place / "logs" / "c1.machine.tlog", header=HEADER | {"engine": "machine", "engine_users": 0}, health=health
    )
    _, found = sized(place, capsys)
    assert any(each.startswith("postfix counted 50.0 messages per second, loadsim made 5.") for each in found["doubts"])
