"""The probe `host`: how each figure could be wrong, seen from outside, and settings that are."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_runs import NOWHERE

from loadsim.errors import ConfigError
from loadsim.monitor.host_probe import (
    HostSample,
    Sources,
    busiest_core,
    figures_between,
    network_interfaces,
    nominal_mhz,
    open_probe,
    rates,
    read_proc,
    reading_of,
)
from loadsim.monitor.probes import checked
from loadsim.monitor.system.core_times import ALL_CORES, CoreTime, core_shares
from loadsim.monitor.system.disks import MS_WRAP, DiskCounters, chosen_disks, disk_counters, disk_figures

COUNTS = st.integers(0, 2**40)
DISK = st.builds(DiskCounters, *[COUNTS] * 11)


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


def test_the_busiest_core_has_a_figure() -> None:
    """A core that was switched on since, or had no tick, has none."""

    def machine(*busy: int, whole: int = 100) -> dict[str, CoreTime]:
        cores = {f"cpu{core}": CoreTime(ticks, 0, whole - ticks, 0, 0) for core, ticks in enumerate(busy)}
        return {ALL_CORES: CoreTime(0, 0, 0, 0, 0), **cores}

    zero = machine(0, 0, whole=0)
    assert busiest_core(zero, machine(25, 75, 99)) == {"busiest_core_busy_share": 0.75}
    assert busiest_core(zero, zero) == {}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"disks": ""}, r"disks: expected 1 to 6 names separated by commas, found ''"),
        ({"disks": "a,b,c,d,e,f,g"}, r"disks: expected 1 to 6 names"),
        ({"disks": "no-such"}, r"disks: expected whole disks \(.*\), found 'no-such'"),
        ({"groups": True}, r"groups: expected 1 to 10 names separated by commas, found True"),
        ({"groups": "server"}, r"groups: expected different names .*, found 'server'"),
        ({"groups": "7z"}, r"groups: expected different names that begin with a letter.*, found '7z'"),
        # The kernel shortens both to the same name.
        ({"groups": "a-very-long-name-1,a-very-long-name-2"}, r"groups: expected different names .*, found 'a-very"),
    ],
)
def test_wrong_settings_are_rejected_in_one_line(settings: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigError, match=f"^probe host: {expected}") as refusal:
        open_probe(NOWHERE, **settings)  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)


@settings(max_examples=30)
@given(before=DISK, grown=st.lists(st.integers(0, 2**31), min_size=11, max_size=11), passed_ms=st.integers(1, 10**6))
def test_times_that_wrap_at_32_bits_change_no_figure(before: DiskCounters, grown: list[int], passed_ms: int) -> None:
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
    """Partitions would count twice, as would volumes; loop devices and unused disks say nothing."""
    assert chosen_disks((), disk_counters(DISKSTATS), block) == ("sdc", "sdd", "sde", "sdf")
    fewer = "".join(line for line in DISKSTATS.splitlines(keepends=True) if " sdd " not in line)
    assert chosen_disks((), disk_counters(fewer), block) == ("sda", "sdc", "sde", "sdf")
    assert chosen_disks((), disk_counters(""), block) == ()
    assert chosen_disks((), disk_counters(DISKSTATS), block / "missing") == ()


def test_named_disks_may_be_any_whole_ones(block: Path) -> None:
    counters = disk_counters(DISKSTATS)
    assert chosen_disks(("dm-0", "cciss/c0d0", "sdb", "dm-0"), counters, block) == ("dm-0", "cciss/c0d0", "sdb")
    with pytest.raises(ConfigError, match=r"expected whole disks \(cciss/c0d0, dm-0, loop0, sda, .*\), found 'sda1'"):
        chosen_disks(("sda1",), counters, block)


@pytest.mark.parametrize(
    ("cpuinfo", "scaling", "mhz"),
    [
        ("processor\t: 0\ncpu MHz\t\t: 1996.248\n\nprocessor\t: 1\ncpu MHz\t\t: 1996.248\n", None, 1996.248),
        ("processor\t: 0\ncpu MHz\t\t: 800.012\n", {"base_frequency": "2600000\n"}, 2600.0),
        ("processor\t: 0\ncpu MHz\t\t: 800.012\n", {"cpuinfo_max_freq": "3900000\n"}, None),
        ("processor\t: 0\ncpu MHz\t\t: 0.000\n", None, None),
        ("processor\t: 0\nBogoMIPS\t: 50.00\n", None, None),  # as on ARM
    ],
)
def test_the_clock_of_a_core_is_nominal_or_unknown(
    cpuinfo: str, scaling: dict[str, str] | None, mhz: float | None, tmp_path: Path
) -> None:
    """With frequency scaling, /proc/cpuinfo states the clock of the moment, and the largest one includes turbo."""
    for name, content in (scaling or {}).items():
        (tmp_path / "cpufreq").mkdir(exist_ok=True)
        (tmp_path / "cpufreq" / name).write_text(content)
    assert nominal_mhz(cpuinfo, tmp_path / "cpufreq") == mhz


def files(**changed: str) -> dict[str, str]:
    """This machine's files, some of them changed."""
    return {name: read_proc(name) for name in ("stat", "diskstats")} | changed


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
    zero = HostSample(0, {ALL_CORES: CoreTime(0, 0, 0, 0, 0)}, {("a_per_s", ""): 100}, {}, {})
    later = HostSample(4 * 10**9, {ALL_CORES: CoreTime(0, 0, 0, 0, 0)}, {("a_per_s", ""): 110}, {}, {})
    assert figures_between(zero, later) == {"a_per_s": 2.5}
    assert figures_between(zero, zero) == {}


def test_reset_counters_have_no_rate() -> None:
    """Neither a negative one nor a huge one; an interface that is new, or has gone, does not count."""
    before = {("a", "eth0"): 100, ("a", "eth1"): 50, ("b", ""): 7, ("a", "eth3"): 9}
    assert rates(before, {("a", "eth0"): 110, ("a", "eth1"): 60, ("a", "eth2"): 10**9, ("b", ""): 8}, 2) == {
        "a": 10,
        "b": 0.5,
    }
    assert rates(before, {("a", "eth0"): 900, ("a", "eth1"): 0, ("b", ""): 8}, 1) == {"b": 1}


def test_the_network_is_as_busy_as_its_busiest_direction() -> None:
    """Of the interfaces with a speed: 1 Gbit/s is 125 MB/s in each direction. Without one, the share is unknown."""
    speeds = {"eth0": 125e6, "eth2": 12.5e6}

    def at(s: int, **sent: float) -> HostSample:
        counters: dict[tuple[str, str], float] = {}
        for name, received in (("eth0", 0.0), ("eth2", 0.0)):
            counters["network_sent_bytes_per_s", name] = sent[name]
            counters["network_received_bytes_per_s", name] = received
        return HostSample(s * 10**9, {ALL_CORES: CoreTime(0, 0, 0, 0, 0)}, counters, {}, {})

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
