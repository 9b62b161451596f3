"""The probe `host`: how each figure could be wrong, seen from outside, and settings that are.

`test_host_probe_tools.py` compares with iostat and vmstat.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_runs import NOWHERE

from loadsim.errors import ConfigError
from loadsim.monitor.core_times import ALL_CORES, CoreTime, core_shares, core_times
from loadsim.monitor.disks import MS_WRAP, DiskCounters, chosen_disks, disk_counters, disk_figures
from loadsim.monitor.host_probe import (
    MOST_DISKS,
    MOST_GROUPS,
    PRESSURE,
    PRESSURE_SHARES,
    Reading,
    Sources,
    busiest_core,
    figures_between,
    kernel_pressure,
    network_counters,
    network_interfaces,
    network_speeds,
    open_probe,
    rates,
    read_proc,
    reading_of,
)
from loadsim.monitor.probes import MOST_FIGURES, checked
from loadsim.monitor.process_groups import figure_name
from loadsim.plugins import plugin

COUNTS = st.integers(0, 2**40)
DISK = st.builds(DiskCounters, *[COUNTS] * 11)

# --- this machine -----------------------------------------------------------------------------------------------------


def test_counters_are_those_of_psutil() -> None:
    """Each lies between two readings of psutil's around ours: all of them only grow. So do its own, by interface."""
    disks = tuple(psutil.disk_io_counters(perdisk=True))
    sources = Sources(disks, network_interfaces(), ())
    disks_before, network_before = others()
    reading = reading_of(read_proc, sources, 0)
    disks_after, network_after = others()
    sector = 512
    for name in disks:
        ours, before, after = reading.disks[figure_name(name)], disks_before[name], disks_after[name]
        assert before.read_count <= ours.reads <= after.read_count
        assert before.write_count <= ours.writes <= after.write_count
        assert before.read_bytes <= ours.sectors_read * sector <= after.read_bytes
        assert before.write_bytes <= ours.sectors_written * sector <= after.write_bytes
        assert before.busy_time <= ours.busy_ms <= after.busy_time
    for name in network_interfaces():
        for figure, key in {"received_bytes": "bytes_recv", "sent_bytes": "bytes_sent"}.items():
            found = reading.counters[f"network_{figure}_per_s", name]
            assert getattr(network_before[name], key) <= found <= getattr(network_after[name], key)
    assert reading.levels["cores"] == psutil.cpu_count()


def others() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Psutil's counters, which it is asked to leave as the kernel states them."""
    return psutil.disk_io_counters(perdisk=True, nowrap=False), psutil.net_io_counters(pernic=True, nowrap=False)


def test_the_first_sample_has_levels_and_the_next_has_rates() -> None:
    """All figures are such that a log takes them; those of a disk are there for each disk that was chosen."""
    sample = open_probe(NOWHERE)
    first, second = sample(), sample()
    assert {"cores", "memory_available_bytes", "memory_used_share"} <= first.keys()
    assert not [name for name in first if name.endswith(("_per_s", "_cores")) or name.startswith(("cpu", "disk"))]
    assert {"cpu_busy_share", "busiest_core_busy_share"} <= second.keys()
    for figures in (first, second):
        assert checked(figures) == figures
        assert all(value >= 0 for value in figures.values())
        assert all(value <= 1 for name, value in figures.items() if name.endswith("_share"))


def test_this_machine_has_pressure_where_the_kernel_has_it() -> None:
    assert set(kernel_pressure()) == {path.name for path in Path("/proc/pressure").glob("*")} & PRESSURE.keys()


@pytest.mark.nightly(part="tools")
def test_pressure_is_that_of_the_kernel_over_the_same_interval() -> None:
    """More processes than cores make threads wait. The stalls lie between those of two readings around ours.

    So do the totals: on a busy machine, threads always wait, and a share of 1 hides a wrong unit.
    """
    before = stalls_s()
    reading = reading_of(read_proc, Sources((), (), kernel_pressure()), 0)
    after = stalls_s()
    for name in before:
        assert before[name] <= reading.counters[name, ""] <= after[name], name
    sample = open_probe(NOWHERE)
    outer_before, begun_s = stalls_s(), time.monotonic()
    sample()
    inner_before, sampled_s = stalls_s(), time.monotonic()
    busy = [sys.executable, "-c", "for _ in range(5_000_000): pass"]
    with ExitStack() as stack:
        for _ in range(2 * (os.cpu_count() or 1)):
            stack.enter_context(subprocess.Popen(busy))
    inner_after, asked_s = stalls_s(), time.monotonic()
    figures = sample()
    outer_after, ended_s = stalls_s(), time.monotonic()
    assert inner_after["pressure_cpu_some_share"] > inner_before["pressure_cpu_some_share"]
    assert {name for name in figures if name.startswith("pressure_")} == stalls_s().keys()
    for name in stalls_s():
        least_s, most_s = inner_after[name] - inner_before[name], outer_after[name] - outer_before[name]
        assert figures[name] * (ended_s - begun_s) >= 0.9999 * least_s, name  # figures have six digits
        assert figures[name] * (asked_s - sampled_s) <= 1.0001 * most_s, name


def stalls_s() -> dict[str, float]:
    """The kernel's `total` of each line of /proc/pressure, by the figure that it belongs to."""
    found = {}
    for name, lines in PRESSURE.items():
        path = Path("/proc/pressure", name)
        text = path.read_text() if path.exists() else ""
        for line, total_us in re.findall(r"^(\w+) .*total=(\d+)$", text, re.MULTILINE):
            if line in lines:
                found[f"pressure_{name}_{line}_share"] = int(total_us) / 1e6
    return found


def test_the_most_that_settings_allow_fits_into_a_sample() -> None:
    """All figures of this machine, with the most disks and groups."""
    disk = disk_figures(DiskCounters(*[0] * 11), DiskCounters(*[1] * 11), 1000)
    figures = open_probe(NOWHERE)
    figures()
    others = {name for name in figures() if not name.startswith(("disk_", "loadsim_", "network_"))} | PRESSURE_SHARES
    groups = 2 * (MOST_GROUPS + len(("server", "loadsim")))
    unused = {f"network_{each}" for each in ("busy_share", "received_bytes_per_s", "sent_bytes_per_s")}
    unused |= {f"quota_{each}" for each in ("cores", "busy_share", "throttled_share")}
    unused |= {"quota_throttled_cores", "server_cores", "server_core_sets", "server_cores_busy_share"}
    unused |= {"server_cores_steal_share", "server_cores_taken_by_others"}
    unused |= {"others_cpu_cores"}  # absent where reading all processes takes too long for each sample
    assert len(others | unused) + len(disk) * MOST_DISKS + groups == 99 <= MOST_FIGURES


def test_each_core_is_as_busy_as_psutil_says() -> None:
    """Its counters lie between two readings of psutil's around ours, with the same numbers of cores."""
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    before, times, after = (
        psutil.cpu_times(percpu=True), core_times(read_proc("stat")), psutil.cpu_times(percpu=True)
    )  # fmt: skip
    assert len(times) - 1 == len(before)
    for number, (earlier, later) in enumerate(zip(before, after, strict=True)):
        ours = times[f"cpu{number}"]
        for ticks, names in (
            (ours.user, ("user", "nice")),
            (ours.system, ("system", "irq", "softirq")),
            (ours.stolen, ("steal",)),
        ):
            least, most = (sum(getattr(each, name) for name in names) for each in (earlier, later))
            assert least - tick_s / 2 <= ticks * tick_s <= most + tick_s / 2


def test_the_busiest_core_has_a_figure() -> None:
    """A core that was switched on since, or had no tick, has none."""

    def machine(*busy: int, whole: int = 100) -> dict[str, CoreTime]:
        cores = {f"cpu{core}": CoreTime(ticks, 0, whole - ticks, 0, 0) for core, ticks in enumerate(busy)}
        return {ALL_CORES: CoreTime(0, 0, 0, 0, 0), **cores}

    zero = machine(0, 0, whole=0)
    assert busiest_core(zero, machine(25, 75, 99)) == {"busiest_core_busy_share": 0.75}
    assert busiest_core(zero, zero) == {}


def test_it_is_found_by_its_name() -> None:
    """As a part of loadsim."""
    found = plugin("probe", "host")
    assert found is not None
    assert found.is_own
    assert found.load() is open_probe


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"disks": ""}, r"disks: expected 1 to 6 names separated by commas, found ''"),
        ({"disks": 5}, r"disks: expected 1 to 6 names separated by commas, found 5"),
        ({"disks": "a,,b"}, r"disks: expected 1 to 6 names separated by commas, found 'a,,b'"),
        ({"disks": "a,b,c,d,e,f,g"}, r"disks: expected 1 to 6 names"),
        ({"disks": "no-such"}, r"disks: expected whole disks \(.*\), found 'no-such'"),
        ({"groups": True}, r"groups: expected 1 to 10 names separated by commas, found True"),
        ({"groups": "server"}, r"groups: expected different names .*, found 'server'"),
        ({"groups": "clamd, CLAMD"}, r"groups: expected different names .*, found 'CLAMD'"),
        ({"groups": "7z"}, r"groups: expected different names that begin with a letter.*, found '7z'"),
        # The kernel shortens both to the same name.
        ({"groups": "a-very-long-name-1,a-very-long-name-2"}, r"groups: expected different names .*, found 'a-very"),
    ],
)
def test_wrong_settings_are_one_line(settings: dict[str, object], expected: str) -> None:
    """Before the load."""
    with pytest.raises(ConfigError, match=f"^probe host: {expected}") as refusal:
        open_probe(NOWHERE, **settings)  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)


# --- disks ------------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(before=DISK, grown=st.lists(st.integers(0, 2**31), min_size=11, max_size=11), passed_ms=st.integers(1, 10**6))
def test_times_that_begin_again_at_32_bits_change_no_figure(
    before: DiskCounters, grown: list[int], passed_ms: int
) -> None:
    """The kernel prints times modulo 2^32, and counts in 64 bits (block/genhd.c)."""
    after = DiskCounters(*(was + more for was, more in zip(before, grown, strict=True)))

    def printed(counters: DiskCounters) -> DiskCounters:
        times = {name: getattr(counters, name) % MS_WRAP for name in ("read_ms", "write_ms", "busy_ms", "queue_ms")}
        return counters._replace(**times)

    assert disk_figures(printed(before), printed(after), passed_ms) == disk_figures(before, after, passed_ms)


@settings(max_examples=30)
@given(before=DISK, after=DISK, passed_ms=st.floats(1, 1e6))
def test_a_disk_that_was_replaced_has_no_figures(before: DiskCounters, after: DiskCounters, passed_ms: float) -> None:
    """Counters that decreased give none, and no figure is ever negative."""
    figures = disk_figures(before, after, passed_ms)
    assert all(value >= 0 for value in figures.values())
    assert figures.get("busy_share", 0) <= 1
    if after.reads < before.reads or after.sectors_written < before.sectors_written:
        assert figures == {}


DISKSTATS = """\
   7       0 loop0 5 0 9000 0 5 0 9000 0 0 0 0 0 0 0 0 0 0
   8       0 sda 100 1 800 50 10 2 80 5 0 30 55
   8       1 sda1 100 1 800 50 10 2 80 5 0 30 55
   8      16 sdb 0 0 0 0 0 0 0 0 0 0 0
   8      32 sdc 9 0 900 1 0 0 0 0 0 0 0
   8      48 sdd 9 0 901 1 0 0 0 0 0 0 0
   8      64 sde 9 0 902 1 0 0 0 0 0 0 0
   8      80 sdf 9 0 903 1 0 0 0 0 0 0 0
 104       0 cciss/c0d0 1 0 1 1 1 0 1 1 0 1 1
 253       0 dm-0 9 0 9000 1 0 0 0 0 0 0 0
"""


@pytest.fixture
def block(tmp_path: Path) -> Path:
    """The directories of these disks: none for a partition, and no link to a device for what is no hardware."""
    for name in ("loop0", "dm-0", "sda", "sdb", "sdc", "sdd", "sde", "sdf", "cciss!c0d0"):
        (tmp_path / name).mkdir()
        if name not in ("loop0", "dm-0"):
            (tmp_path / name / "device").mkdir()
    return tmp_path


def test_by_default_the_disks_are_the_busiest_of_the_hardware(block: Path) -> None:
    """Partitions would count twice, as would volumes; loop devices and disks that nobody uses say nothing."""
    assert chosen_disks((), disk_counters(DISKSTATS), block) == ("sdc", "sdd", "sde", "sdf")
    fewer = "".join(line for line in DISKSTATS.splitlines(keepends=True) if " sdd " not in line)
    assert chosen_disks((), disk_counters(fewer), block) == ("sda", "sdc", "sde", "sdf")
    assert chosen_disks((), disk_counters(""), block) == ()
    assert chosen_disks((), disk_counters(DISKSTATS), block / "missing") == ()


def test_named_disks_may_be_any_whole_ones(block: Path) -> None:
    """Also a volume; no partition."""
    counters = disk_counters(DISKSTATS)
    assert chosen_disks(("dm-0", "cciss/c0d0", "sdb", "dm-0"), counters, block) == ("dm-0", "cciss/c0d0", "sdb")
    with pytest.raises(ConfigError, match=r"expected whole disks \(cciss/c0d0, dm-0, loop0, sda, .*\), found 'sda1'"):
        chosen_disks(("sda1",), counters, block)


def files(**changed: str) -> dict[str, str]:
    """This machine's files, some of them changed."""
    return {name: read_proc(name) for name in ("stat", "diskstats")} | changed


def test_names_of_disks_fit_into_names_of_figures() -> None:
    """`-` and `/` become `_`."""
    text = files(diskstats=DISKSTATS)
    disks = reading_of(text.__getitem__, Sources(("dm-0", "cciss/c0d0"), (), ()), 0).disks
    assert set(disks) == {"dm_0", "cciss_c0d0"}


def test_a_disk_that_is_removed_ends_only_its_own_figures() -> None:
    """It is no disk without load, all other figures go on, and its own begin again when it is back."""
    sources = Sources(("sda", "sdb"), (), ())
    rest = "".join(line for line in DISKSTATS.splitlines(keepends=True) if " sdb " not in line)
    assert rest != DISKSTATS
    tables = (DISKSTATS, DISKSTATS, rest, rest, DISKSTATS, DISKSTATS)
    readings = [reading_of(files(diskstats=t).__getitem__, sources, at * 10**9) for at, t in enumerate(tables)]
    found = [figures_between(*pair) for pair in pairwise(readings)]
    assert ["disk_sdb_busy_share" in figures for figures in found] == [True, False, False, False, True]
    assert not any(name.startswith("disk_sdb_") for figures in found[1:4] for name in figures)
    assert all({"disk_sda_busy_share", "disk_sda_queue_requests"} <= figures.keys() for figures in found)


# --- processor, pressure, network -------------------------------------------------------------------------------------


def test_shares_are_of_all_cores_time() -> None:
    """Waiting that decreases, which proc_stat(5) says it may, is no negative share; without a tick there is none."""
    assert core_shares(CoreTime(user=30, system=20, idle=35, io_wait=10, stolen=5)) == {
        "cpu_user_share": 0.3,
        "cpu_system_share": 0.2,
        "cpu_iowait_share": 0.1,
        "cpu_steal_share": 0.05,
        "cpu_busy_share": 0.55,
    }
    decreased = core_shares(CoreTime(user=50, system=0, idle=0, io_wait=-10, stolen=0))
    assert (decreased["cpu_user_share"], decreased["cpu_iowait_share"]) == (1, 0)
    assert core_shares(CoreTime(0, 0, 0, 0, 0)) == {}


def test_pressure_is_the_share_of_the_time_between_readings() -> None:
    """`total` is in microseconds (Documentation/accounting/psi.rst); the averages of the kernel are not used."""
    line = "some avg10=99.00 avg60=98.00 avg300=97.00 total={}\nfull avg10=96.00 avg60=95.00 avg300=94.00 total={}\n"
    sources = Sources((), (), ("io",))
    before = reading_of(files(**{"pressure/io": line.format(5_000_000, 1_000_000)}).__getitem__, sources, 0)
    after = reading_of(files(**{"pressure/io": line.format(5_500_000, 1_100_000)}).__getitem__, sources, 2 * 10**9)
    figures = figures_between(before, after)
    assert figures["pressure_io_some_share"] == pytest.approx(0.25)
    assert figures["pressure_io_full_share"] == pytest.approx(0.05)
    assert figures_between(before, replace(after, at_ns=1000))["pressure_io_some_share"] == 1
    assert not [name for name in figures if "pressure_cpu" in name]


def test_rates_are_by_the_time_that_has_passed() -> None:
    """Not by one second; without time, there are none."""
    zero = Reading(0, {ALL_CORES: CoreTime(0, 0, 0, 0, 0)}, {("a_per_s", ""): 100}, {}, {})
    later = Reading(4 * 10**9, {ALL_CORES: CoreTime(0, 0, 0, 0, 0)}, {("a_per_s", ""): 110}, {}, {})
    assert figures_between(zero, later) == {"a_per_s": 2.5}
    assert figures_between(zero, zero) == {}


def test_counters_that_begin_again_have_no_rate() -> None:
    """Neither a negative one nor a huge one; an interface that is new, or has gone, does not count."""
    before = {("a", "eth0"): 100, ("a", "eth1"): 50, ("b", ""): 7, ("a", "eth3"): 9}
    assert rates(before, {("a", "eth0"): 110, ("a", "eth1"): 60, ("a", "eth2"): 10**9, ("b", ""): 8}, 2) == {
        "a": 10,
        "b": 0.5,
    }
    assert rates(before, {("a", "eth0"): 900, ("a", "eth1"): 0, ("b", ""): 8}, 1) == {"b": 1}


@pytest.fixture
def recorded_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that psutil reads in place of /proc."""
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    return tmp_path


NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier (...)
    lo:     700       7    0    0    0     0          0         0      700       7    0    0    0     0       0     0
  eth0:10000000000   20    0    0    0     0          0         0       30      40    0    0    0     0       0     0
 bond0:       1       2    0    0    0     0          0         0        3       4    0    0    0     0       0     0
"""


def test_the_network_is_that_of_the_chosen_interfaces(recorded_proc: Path) -> None:
    """A long number stands directly behind the colon."""
    (recorded_proc / "net").mkdir()
    (recorded_proc / "net" / "dev").write_text(NET_DEV)
    assert dict(network_counters(["eth0", "eth7"])) == {
        ("network_received_bytes_per_s", "eth0"): 10**10,
        ("network_sent_bytes_per_s", "eth0"): 30,
    }


def test_the_speeds_of_interfaces_are_those_of_sysfs() -> None:
    """Of those that state one; `speed` is in Mbit/s, and -1 or an error if it is unknown."""
    names = [path.name for path in Path("/sys/class/net").iterdir()]
    found = network_speeds([*names, "no-such"])
    for name in names:
        speed = 0
        with suppress(OSError):
            speed = int(Path("/sys/class/net", name, "speed").read_text())
        assert found.get(name, 0) == max(0, speed) * 1e6 / 8


def test_the_network_is_as_busy_as_its_busiest_direction() -> None:
    """Of the interfaces with a speed: 1 Gbit/s is 125 MB/s in each direction. Without one, the share is unknown."""
    speeds = {"eth0": 125e6, "eth2": 12.5e6}

    def at(s: int, **sent: float) -> Reading:
        counters: dict[tuple[str, str], float] = {}
        for name, received in (("eth0", 0.0), ("eth2", 0.0)):
            counters["network_sent_bytes_per_s", name] = sent[name]
            counters["network_received_bytes_per_s", name] = received
        return Reading(s * 10**9, {ALL_CORES: CoreTime(0, 0, 0, 0, 0)}, counters, {}, {})

    busy = figures_between(at(0, eth0=0, eth2=0), at(2, eth0=50e6, eth2=20e6), speeds)
    assert busy["network_busy_share"] == pytest.approx(0.8)
    assert "network_busy_share" not in figures_between(at(0, eth0=9, eth2=0), at(2, eth0=1, eth2=20e6), speeds)
    assert "network_busy_share" not in figures_between(at(0, eth0=0, eth2=0), at(2, eth0=50e6, eth2=20e6))


def test_a_packet_counts_once(tmp_path: Path) -> None:
    """A bond, bridge or VLAN passes it to hardware; without hardware, all interfaces but the loopback one count."""
    for name in ("lo", "bond0", "eth0", "eth1"):
        (tmp_path / name).mkdir()
    assert network_interfaces(tmp_path) == ("bond0", "eth0", "eth1")
    for name in ("eth0", "eth1"):
        (tmp_path / name / "device").mkdir()
    assert network_interfaces(tmp_path) == ("eth0", "eth1")
    assert network_interfaces(tmp_path / "missing") == ()


def test_memory_is_that_of_the_kernel(recorded_proc: Path) -> None:
    """Used is what is not available: caches are."""
    (recorded_proc / "meminfo").write_text(
        "MemTotal:  4000 kB\nMemFree:  10 kB\nMemAvailable:  3000 kB\nBuffers: 1 kB\nCached: 2000 kB\n"
        "Shmem: 1 kB\nActive: 1 kB\nInactive: 1 kB\n"
    )
    (recorded_proc / "net").mkdir()
    (recorded_proc / "net" / "dev").write_text(NET_DEV)
    reading = reading_of(files().__getitem__, Sources((), (), ()), 0)
    assert reading.levels["memory_available_bytes"] == 3000 * 1024
    assert reading.levels["memory_used_share"] == 0.25
