"""The table of client machines, held against machines and samples of which the truth is known."""

from pathlib import Path
from typing import Any

import pytest
from documents import full_answer
from health_samples import sample
from named_records import TaskRecord
from simulated_clocks import FIRST, SECOND, write_run
from timing_samples import ENDED, EPOCH_NS, HEADER, START_NS, done, write_sample

from loadsim.analysis.generator.per_client import by_number
from loadsim.analysis.summary import summarise
from loadsim.timinglog.writer import TimingLogWriter


def test_each_machines_start_delay_is_stated(tmp_path: Path) -> None:
    """As the simulation has it, within what the answer says."""
    write_run(tmp_path / "run", 100_000)
    figures = summarise([tmp_path / "run"]).score["per_client"]
    for machine, found in zip((FIRST, SECOND), figures, strict=True):
        assert found["client"] == machine.name
        assert found["start_error_ms"] < 0.25
        late_ms = (machine.start_error_ns + machine.late_ns) / 1e6
        assert abs(found["start_late_ms"] - late_ms) <= found["start_error_ms"] + 0.001  # as they are rounded
        assert found["validity"] == "valid"


def test_clients_are_sorted_by_their_numbers() -> None:
    """With any text around them, and in one order from any order before."""
    wanted = ["9", "10", "a-b", "load", "load01", "load1", "load2", "load2-1", "load10"]
    for names in (sorted(wanted), sorted(wanted)[::-1]):
        assert sorted(names, key=by_number) == wanted


def test_lost_and_late_clients_are_in_the_table(tmp_path: Path) -> None:
    """A client of which no log came has lost all its users; of one whose log has no end, all are lost, too."""
    machines = [{"client": name, "users": users} for name, users in (("c1", 2), ("c2", 3), ("c3", 4))]
    header = {"users": 9, "machines": machines}
    reads = [done("READ", 1000 * number, 5) for number in range(20)]
    late = [
        read | ({"late_generator_s": 0.5, "late_own_s": 0.5} if number else {}) for number, read in enumerate(reads)
    ]
    write_sample(tmp_path / "c1.1.tlog", reads, header={**header, "client": "c1", "engine_users": 2})
    write_sample(
        tmp_path / "c2.1.tlog", late, header={**header, "client": "c2", "engine_users": 3}, facts={"start_ns": 1}
    )
    summary = summarise([tmp_path])
    rows = summary.score["per_client"]
    assert [(row["client"], row["users"], row["lost_users"], row["engines"]) for row in rows] == [
        ("c1", 2, 0, 1),
        ("c2", 3, 3, 1),
        ("c3", 4, 4, 0),
    ]
    assert [row["lateness_p95_ms"] for row in rows] == [0, 500, None]
    assert [row["validity"] for row in rows] == ["valid", "invalid", "invalid"]
    assert [row["start_late_ms"] for row in rows] == [None] * 3
    assert [line.split()[:4] for line in full_answer(summary).splitlines() if line.startswith("c")] == [
        ["c1", "2", "0", "valid"],
        ["c2", "3", "3", "invalid"],
        ["c3", "4", "4", "invalid"],
    ]


def test_the_only_client_with_a_log_has_its_lateness(tmp_path: Path) -> None:
    header = {"users": 4, "engine_users": 2, "machines": [{"client": name, "users": 2} for name in ("c1", "c2")]}
    late = [done("READ", 1000 * number, 5) | {"late_generator_s": 0.5, "late_own_s": 0.5} for number in range(20)]
    write_sample(tmp_path / "c1.1.tlog", late, header={**header, "client": "c1"})
    row, _ = summarise([tmp_path]).score["per_client"]
    assert (row["client"], row["lateness_p95_ms"], row["validity"]) == ("c1", 500, "invalid")


def test_each_client_is_judged_on_its_own(tmp_path: Path) -> None:
    """By the limits that the log states, not by what the others did: some users lost, too many, an engine late."""
    died = {"start_ns": START_NS}
    engines = {
        "down": [(4, ENDED | {"lost_users": 4})],
        "few": [(3, ENDED), (1, died)],
        "late": [(4, ENDED | {"began_ns": START_NS + 60_000_000})],
        "many": [(2, ENDED), (2, died)],
        "well": [(4, ENDED)],
    }
    machines = [{"client": name, "users": 4} for name in engines]
    header = {"users": 20, "machines": machines, "limits": {"lost_users": 0.25}}
    for name, own in engines.items():
        for engine, (users, facts) in enumerate(own):
            about = header | {"client": name, "engine": str(engine), "engine_users": users}
            write_sample(tmp_path / f"{name}.{engine}.tlog", [done("READ", 1000, 5)], header=about, facts=facts)
    rows = summarise([tmp_path]).score["per_client"]
    assert {row["client"]: (row["lost_users"], row["validity"]) for row in rows} == {
        "down": (0, "valid"),
        "few": (1, "degraded"),
        "late": (0, "invalid"),
        "many": (2, "invalid"),
        "well": (0, "valid"),
    }


@pytest.mark.parametrize(
    ("about", "found"), [({}, "invalid"), ({"mode": "stress"}, "valid"), ({"embedded": True}, "valid")]
)
def test_what_only_warns_in_a_run_invalidates_no_client(tmp_path: Path, about: dict[str, Any], found: str) -> None:
    """In a closed loop, and on a server that is on the machine by design, a late event loop does not count."""
    for name in ("c1", "c2"):
        header = HEADER | {"client": name, "engine_users": 1, **about}
        writer = TimingLogWriter(tmp_path / f"{name}.1.tlog", header, EPOCH_NS)
        writer.task(TaskRecord(**done("READ", 1000, 5)))
        for at_s in range(1, 11):
            writer.health(sample(at_s, [90_000] * 100))
        writer.facts(ENDED)
        writer.close()
    score = summarise([tmp_path]).score
    assert [row["lag_p99_ms"] for row in score["per_client"]] == [90, 90]
    assert [row["validity"] for row in score["per_client"]] == [found, found]


def test_one_machine_has_no_table(tmp_path: Path) -> None:
    write_sample(tmp_path / "c1.1.tlog", [done("READ", 1000, 5)])
    summary = summarise([tmp_path])
    assert summary.score["per_client"] == []
