"""`loadsim size` on logs of a simulated server with known demands: the number of users, and the refusals."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import ROOT
from sized_runs import HEADER, busy_run
from timing_samples import DELIVERED, LOGGED_ON, START_NS, done, write_sample

from loadsim.cli import main
from loadsim.findings.catalogue import Code
from loadsim.model.figures import Day
from loadsim.size.mailbox import mailbox_day
from loadsim.size.server_blocks import Rates
from loadsim.statistics.intervals import BLOCKS


def sized(place: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    status = main(["size", str(place), "--json", *arguments])
    said = capsys.readouterr()
    assert not said.err
    found: dict[str, Any] = json.loads(said.out)
    return status, found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return busy_run(tmp_path_factory.mktemp("plain"))


def resource(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    (one,) = [each for each in found["resources"] if each["name"] == name]
    return dict(one)


def test_the_number_of_users_is_that_of_the_known_demand(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the 0.05 of other programs, the cores have room for 750 users; the generator's 0.3 are elsewhere."""
    status, found = sized(plain, capsys)
    processor = resource(found, "processor")
    assert status == 0
    assert processor["users"]["low"] <= 750 <= processor["users"]["high"]
    assert processor["users"]["value"] == pytest.approx(750, rel=0.1)
    assert processor["available"] == pytest.approx(1.5)
    per_task = demand(found, "task")["value"]
    assert per_task["low"] <= 20 <= per_task["high"]


def test_memory_and_disks_bound_the_number_of_users(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2 of 10 GB: at least 1,000 users. A quarter of a disk: at least 800. The processor is full first."""
    _, found = sized(plain, capsys)
    assert resource(found, "memory")["users"]["value"] == pytest.approx(1000)
    assert resource(found, "disk sda")["users"] == pytest.approx({"value": 800.0, "low": 800.0, "high": 800.0})
    assert {each["bound"] for each in found["resources"] if each["name"] != "processor"} == {"at least"}
    assert found["first"] == "processor"


def demand(found: Mapping[str, Any], name: str, unit: str = "ms of processor") -> dict[str, Any]:
    (one,) = [each for each in found["demands"] if (each["name"], each["unit"]) == (name, unit)]
    return dict(one)


@pytest.mark.parametrize("submission", ["LMTP DATA", "MAPI SubmitMessage", "JMAP EmailSubmission/set"])
def test_messages_are_counted_over_each_protocol(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], submission: str
) -> None:
    _, by_smtp = sized(plain, capsys)
    _, found = sized(busy_run(tmp_path, submission=submission), capsys)
    assert found["messages_per_s"] == by_smtp["messages_per_s"] > 0


def test_disk_operations_are_divided_by_messages_and_copies(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """40 per second: 8 for each of 5 messages a second, 4 for each of 10 copies."""
    _, found = sized(plain, capsys)
    assert demand(found, "second", "disk reads")["value"]["value"] == pytest.approx(10)
    assert demand(found, "second", "disk writes")["value"]["value"] == pytest.approx(30)
    per_message = demand(found, "submitted message", "disk operations")["value"]["value"]
    assert per_message == pytest.approx(40 / found["messages_per_s"])
    assert per_message == pytest.approx(8, rel=0.1)
    assert demand(found, "delivered copy", "disk operations")["value"]["value"] == pytest.approx(4, rel=0.1)


def test_a_mailbox_is_sized_as_planners_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By hand: 0.4 cores of 2,500 MHz and 40 disk operations a second are 5 megacycles and 0.2 operations each of 200.

    5 messages and 10 copies a second are 720 and 1,440 for each in 8 h, if these rates last all day; if they are those
    of its half with three quarters of the mail, they are 480 and 960.
    """
    flat = busy_run(tmp_path / "flat", core_mhz=2500.0)
    _, found = sized(flat, capsys)
    megacycles = demand(found, "mailbox", "megacycles per second")["value"]
    assert megacycles["value"] == pytest.approx(5, rel=0.1)
    assert megacycles["low"] <= 5 <= megacycles["high"]
    assert demand(found, "mailbox", "disk operations per second")["value"]["value"] == pytest.approx(0.2)
    day = found["mailbox"]
    assert (day["sent_per_day"], day["received_per_day"]) == pytest.approx((720, 1440), rel=0.1)
    assert (day["day_s"], day["peak"]) == (28_800, 1)
    of_microsoft = {one["name"]: one["megacycles"] for one in day["published"] if one["megacycles"]}
    messages = day["sent_per_day"] + day["received_per_day"]
    assert of_microsoft == pytest.approx(
        {"Exchange 2013, Mailbox role": 0.0425 * messages, "Exchange 2013, with Client Access": 0.0585 * messages}
    )
    lines = [line.split() for line in table_of_mailboxes(flat, capsys)]
    assert lines[0][:2] == ["this", "server"]
    assert ["Exchange", "2010,", "without", "copies", "100", "-", "0.120"] in lines
    busy = busy_run(tmp_path / "busy", header={"day_shape": [1.0, 3.0]}, core_mhz=2500.0)
    _, found = sized(busy, capsys)
    assert found["mailbox"]["peak"] == 1.5
    assert found["mailbox"]["received_per_day"] == pytest.approx(day["received_per_day"] / 1.5)


def table_of_mailboxes(place: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    main(["size", str(place)])
    whole = capsys.readouterr().out
    return whole.partition("Mailbox ")[2].partition("\n\n")[0].splitlines()[1:]


def test_without_a_clock_there_are_no_megacycles(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = sized(plain, capsys)
    unknown = demand(found, "mailbox", "megacycles per second")
    assert unknown["value"] is None
    assert (unknown["why_not"]["code"], unknown["why_not"]["values"]) == ("no-figure", {"figure": "core_mhz"})


PUBLISHED = {
    50: (2.13, 2.93),
    100: (4.25, 5.84),
    150: (6.38, 8.77),
    200: (8.50, 11.69),
    300: (12.75, 17.53),
    400: (17.00, 23.38),
    500: (21.25, 29.22),
}
"""Microsoft's megacycles of an active mailbox by messages a day: Mailbox role alone, and with Client Access role."""


@pytest.mark.parametrize(("messages", "megacycles"), PUBLISHED.items())
def test_published_megacycles_are_those_of_the_source(messages: int, megacycles: tuple[float, float]) -> None:
    """A fifth is sent by 30 users, on a day of 8 h without busy hours."""
    per_s = np.full(BLOCKS, messages * 30 / 28_800)
    day = Day(28_800.0, 28_800.0, 0.0, (), 1.0, 1.0)
    found = mailbox_day(Rates(tasks=per_s, messages=0.2 * per_s, deliveries=0.8 * per_s), 30, day)
    assert found is not None
    assert (found.sent_per_day, found.received_per_day) == pytest.approx((0.2 * messages, 0.8 * messages))
    assert [one.megacycles for one in found.published[:2]] == pytest.approx(megacycles, rel=0.003)
    assert mailbox_day(Rates(per_s, 0 * per_s, 0 * per_s), 30, day) is None


def answer(place: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = main(["size", str(place)])
    return status, " ".join(capsys.readouterr().out.split())


def test_named_groups_count_as_the_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 4 cores, the server takes 0.4 and rspamd 2.4: 284 users fill them, not 2,000. So with 14 ms a task, too."""
    place = busy_run(
        tmp_path, cores=4.0, others_cpu_cores=0.03, rspamd_cpu_cores=2.4, rspamd_rss_bytes=2e9, cpu_busy_share=0.7825
    )
    status, found = sized(place, capsys)
    processor = resource(found, "processor")
    assert (status, found["first"]) == (0, "processor")
    assert processor["used"] == pytest.approx(2.8, rel=0.02)
    assert processor["users"]["value"] == pytest.approx(284, rel=0.02)
    assert resource(found, "memory")["users"]["value"] == pytest.approx(600)
    assert demand(found, "task")["value"]["value"] == pytest.approx(140, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("figures", "name", "users"),
    [
        ({"quota_cores": 0.45, "quota_busy_share": 0.88, "quota_throttled_share": 0.4}, "processor quota", 227),
        # A group that is stopped hides another that uses more of its own quota: the highest share is a bound.
        ({"quota_cores": 0.45, "quota_busy_share": 0.1, "quota_throttled_share": 0.8}, "processor quota", 250),
        ({"network_busy_share": 0.9}, "network", 222),
    ],
)
def test_quota_and_network_bound_the_number_of_users(
    figures: dict[str, float], name: str, users: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = busy_run(tmp_path, cores=8.0, others_cpu_cores=0.01, **figures)
    status, found = sized(place, capsys)
    assert (status, found["first"]) == (0, name)
    assert resource(found, name)["bound"] == "at least"
    assert resource(found, name)["users"]["value"] == pytest.approx(users, rel=0.01)
    assert answer(place, capsys)[1].startswith(f"Size: at least {users // 10 * 10} users fill the {name}")
    assert ("network-speed-unknown" in {one["code"] for one in found["not_covered"]}) is (name != "network")


def test_a_drifting_idle_network_blocks_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = busy_run(tmp_path, network_busy_share=lambda at_s: at_s / 700 * 0.02)
    status, found = sized(place, capsys)
    assert (status, found["first"]) == (0, "processor")
    assert resource(found, "network")["users_beyond"] == pytest.approx(4000)
    assert resource(found, "network")["why_not"]["code"] == "drifts"


PINNED = {
    "cores": 2.0,
    "server_cores": 1.0,
    "server_cores_taken_by_others": 0.02,
    "others_cpu_cores": 0.05,
    "loadsim_cpu_cores": 0.9,
    "cpu_busy_share": 0.48475,
}
"""The server has one of two cores, and the generator the other."""


@pytest.mark.slow
def test_the_processor_of_a_pinned_server_is_its_cores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """200 users take 0.4 of the 0.98 cores that others leave: 490 fill them, and not the 975 of both cores."""
    place = busy_run(tmp_path, **PINNED)
    status, found = sized(place, capsys)
    processor = resource(found, "processor")
    assert (status, found["first"], found["server_cores"]) == (0, "processor", [1.0, 2.0])
    assert processor["available"] == pytest.approx(0.98)
    assert processor["users"]["low"] <= 490 <= processor["users"]["high"]
    assert processor["users"]["value"] == pytest.approx(490, rel=0.1)
    _, text = answer(place, capsys)
    assert "The server may run on 1 of the machine's 2 cores (taskset, --pin or a control group)" in text
    assert "may run on" not in answer(busy_run(tmp_path / "other"), capsys)[1]


@pytest.mark.slow
def test_other_programs_on_the_generators_core_do_not_limit_the_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Programs that took 0.3 of the other core, and 0.6 of the server's, which is refused."""
    _, found = sized(busy_run(tmp_path / "other", **PINNED | {"others_cpu_cores": 0.32}), capsys)
    assert resource(found, "processor")["available"] == pytest.approx(0.98)
    place = busy_run(tmp_path / "same", **PINNED | {"server_cores_taken_by_others": 0.6, "others_cpu_cores": 0.6})
    status, found = sized(place, capsys)
    assert (status, found["first"]) == (4, None)
    assert resource(found, "processor")["why_not"]["values"] == {
        "programs": 0.6,
        "machines": 0.0,
        "cores": 1.0,
        "busiest": "unknown",
    }


@pytest.mark.slow
def test_operations_of_a_raid_and_its_members_count_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each counts the same operation again; alone, the device counts it once."""
    raids = ["dm_0", "drbd1", "loop7", "md0", "md_d1"]
    own = {
        raid: {f"disk_{raid}_reads_per_s": 10.0, f"disk_{raid}_writes_per_s": 30.0, f"disk_{raid}_busy_share": 0.25}
        for raid in raids
    }
    _, found = sized(
        busy_run(tmp_path / "a", **{key: value for one in own.values() for key, value in one.items()}), capsys
    )
    why_not = demand(found, "second", "disk operations")["why_not"]
    assert why_not["values"] == {"disks": [*raids, "sda"], "stacked": raids}
    alone = {f"disk_sda_{figure}": None for figure in ("reads_per_s", "writes_per_s", "busy_share")}
    _, found = sized(busy_run(tmp_path / "b", **own["md0"], **alone), capsys)
    assert demand(found, "second", "disk writes")["value"]["value"] == pytest.approx(30)


def add_probe(place: Path, probe: str, **figures: float) -> None:
    health = [{"at_ns": START_NS + at_s * 10**9, "probe": probe, "figures": figures} for at_s in range(700)]
    header = HEADER | {"engine": "machine", "engine_users": 0}
    write_sample(place / "logs" / "c1.machine.tlog", header=header, health=health)


@pytest.mark.slow
@pytest.mark.parametrize("second", ["host/b", "host@mx2", "host/a@mx2"])
def test_a_server_on_several_machines_is_refused(
    second: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_probe(busy_run(tmp_path), second, cores=4.0, server_cpu_cores=3.9, others_cpu_cores=0.01, cpu_steal_share=0.0)
    assert main(["size", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert f"expected one probe host that saw the server's processes, found host, {second}: " in said.err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["host@mx1", "host/a@mx1", "host/a"])
def test_the_probe_of_a_monitor_sizes_the_server(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own machine has no processes of the server."""
    add_probe(busy_run(tmp_path, probe=name), "host", cores=64.0, cpu_busy_share=0.01)
    status, found = sized(tmp_path, capsys)
    assert (status, found["first"]) == (0, "processor")
    assert resource(found, "processor")["available"] == pytest.approx(1.5)
    assert ("machine-without-server", "host") in {(one["code"], one["where"]) for one in found["not_covered"]}


OVERLAPPING = {"imap_cpu_cores": 0.3, "imap_rss_bytes": 1e9}
"""The server's 0.4 cores include the 0.3 of `imap`: with loadsim's 0.3 and 0.05 of others, 0.75 of 1.55 are busy."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cores": 2.0, "others_cpu_cores": 0.5}, "cores-of-others"),
        ({"others_cpu_cores": None}, "no-figure"),
        ({"disk_sda_busy_share": -1.0, "others_cpu_cores": 1.1}, "cores-of-others"),
        (OVERLAPPING | {"cpu_busy_share": 0.484}, "groups-overlap"),
        (OVERLAPPING, "no-figure"),
        (OVERLAPPING | {"cpu_busy_share": 0.484, "loadsim_cpu_cores": None}, "no-figure"),
        # A number by the cores of others, or by those before, would be too large.
        (PINNED | {"server_core_sets": lambda at_s: 2.0 if at_s > 600 else 1.0}, "cores-of-some"),
        (PINNED | {"server_cores": lambda at_s: 1.0 if at_s > 300 else 2.0}, "cores-changed"),
        (PINNED | {"server_cores": None}, "no-figure"),
        (PINNED | {"server_cores_taken_by_others": lambda at_s: 0.1 if at_s < 200 else None}, "no-samples"),
    ],
)
def test_a_processor_without_an_estimate_decides_nothing(
    change: dict[str, Any], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk has a number, but the processor may be full before it: no verdict, exit status 4."""
    place = busy_run(tmp_path, **change)
    status, found = sized(place, capsys)
    assert (status, found["first"]) == (4, None)
    assert resource(found, "processor")["why_not"]["code"] == reason
    status, text = answer(place, capsys)
    assert status == 4
    assert text.startswith("Size: not decided, since a resource without a number may be full first:")


@pytest.mark.slow
def test_a_run_that_missed_its_criteria_decides_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that is too slow for 200 users is not sized for 750, however idle its processor is."""
    place = busy_run(tmp_path, header={"criteria": {"score_ms": {"max": 4}}})
    status, found = sized(place, capsys)
    assert (status, found["first"]) == (4, None)
    assert resource(found, "processor")["users"] is not None
    assert found["next_step"] == Code.CRITERION_MISSED.remedy
    assert main(["size", str(place)]) == 4
    assert capsys.readouterr().out.startswith("Size: not decided, since the run missed its criteria with 200 users:")


def test_hardly_used_resources_give_a_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On 64 cores the server takes 0.6 %, of memory 0.2 %, of the disk 1 %: more than 20 times the users fit."""
    place = busy_run(tmp_path, cores=64.0, memory_available_bytes=1e12, disk_sda_busy_share=0.01)
    assert main(["size", str(place)]) == 4
    out = capsys.readouterr().out
    assert out.startswith("Size: more than 4,000 users; no resource was used enough for a number\n")
    assert out.endswith(f"\nNext: {Code.HARDLY_USED.remedy}.\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "status", "expected"),
    [
        ({"limits": {"hits": 1_000_000, "window_s": 1.0}}, 3, "the run is invalid, so it cannot size a server: "),
        ({"mode": "stress", "weights": {}}, 2, "expected a canonical run, found a stress run"),
    ],
)
def test_unsuitable_runs_are_refused_in_one_line(
    change: dict[str, Any], status: int, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["size", str(busy_run(tmp_path, header=change))]) == status
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert expected in said.err


def test_a_run_without_the_servers_processes_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["size", str(busy_run(tmp_path / "a", server_cpu_cores=None))]) == 2
    said = capsys.readouterr().err
    assert "expected the probe host to see the server's processes, found none" in said
    assert "docker-proxy" in said
    write_sample(tmp_path / "b" / "logs" / "c1.0.tlog", [LOGGED_ON, done("READ", 1000, 5)], DELIVERED)
    assert main(["size", str(tmp_path / "b")]) in (2, 3)
    assert capsys.readouterr().err.count("\n") == 1


def test_other_load_on_the_server_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Postfix took in 50 messages per second, loadsim sent five."""
    add_probe(busy_run(tmp_path), "postfix", queued_per_s=50.0)
    _, found = sized(tmp_path, capsys)
    (doubt,) = found["doubts"]
    assert (doubt["code"], doubt["where"], doubt["values"]["counted"]) == ("other-load", "postfix", 50.0)


@pytest.mark.slow
def test_an_unnamed_helper_process_is_not_a_constant_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A filter's 0.44 cores, of 2, follow the load: 475 users fill them, and not 780. Named, it is sized."""
    filter_cores = {"cores": 2.0, "others_cpu_cores": 0.44, "others_rspamd_cores": 0.42, "others_cron_cores": 0.02}
    status, found = sized(busy_run(tmp_path / "a", **filter_cores), capsys)
    why = resource(found, "processor")["why_not"]
    assert (status, found["first"], why["code"], why["values"]["busiest"]) == (4, None, "cores-of-others", "rspamd")
    small = {"cores": 2.0, "others_cpu_cores": 0.09}
    _, found = sized(busy_run(tmp_path / "b", **small), capsys)
    users = resource(found, "processor")["users"]
    assert users["low"] < 200 * 2.0 / 0.48 < users["value"] <= users["high"]  # both work 0.487 of 2 cores


@pytest.mark.slow
def test_a_thread_is_full_at_one_core(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """200 users take 0.4 of the core of a dispatcher, which 500 fill: the disk is full at 800, the cores later."""
    status, found = sized(busy_run(tmp_path, cores=8.0, server_thread_mxd_cores=0.4), capsys)
    assert (status, found["first"]) == (0, "busiest thread of mxd")
    assert resource(found, "busiest thread of mxd")["users"]["value"] == pytest.approx(500)


def test_the_page_describes_all_keys(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And no others; those of a part stand in its row."""
    _, found = sized(plain, capsys)
    page = ROOT / "docs" / "reference" / "json.md"
    section = page.read_text(encoding="utf-8").partition("## `size`")[2].partition("\n## ")[0]
    rows = [row.split("|")[1:3] for row in section.splitlines() if row.startswith("| `")]
    assert {key for keys, _ in rows for key in re.findall(r"`(\w+)`", keys)} == found.keys()
    meaning = {keys.strip(" `"): text for keys, text in rows}
    parts = {"resources": found["resources"][0], "demands": found["demands"][0], "mailbox": found["mailbox"]}
    for part, content in parts.items():
        assert [key for key in content if f"`{key}`" not in meaning[part]] == [], part
