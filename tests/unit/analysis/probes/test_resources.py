"""Resources in order of saturation: what is nearest to full comes first, and what is not known is not empty."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from documents import full_answer
from hypothesis import given
from hypothesis import strategies as st
from timing_samples import ENDED, HEADER, START_NS, done, sample_log

from loadsim.analysis.probes.resources import Placed, probe_places, ranked_resources
from loadsim.analysis.summary import summary_of
from loadsim.model.figures import ProbeStatistics, Resource
from loadsim.monitor.host_probe import open_probe
from loadsim.report.resources import resource_facts, resource_table
from loadsim.timinglog.merge import merge

PLACES = {"host": Placed("mx1", True)}


def statistics(mean: float | None, p95: float | None = None) -> ProbeStatistics:
    return ProbeStatistics(60, 1.0, mean, mean, mean if p95 is None else p95, mean, mean)


def ranked(**means: float | None) -> list[tuple[str, float | None]]:
    found = ranked_resources({"host": {name: statistics(mean) for name, mean in means.items()}}, PLACES)
    return [(one.name, one.mean) for one in found]


def test_the_processor_is_full_at_the_quota() -> None:
    """A container with 2 of 64 cores uses 3 % of the machine."""
    assert ranked(cpu_busy_share=0.03, quota_busy_share=0.96, quota_throttled_share=0.7, memory_used_share=0.4) == [
        ("processor quota", 0.96),
        ("memory", 0.4),
        ("processor", 0.03),
    ]
    # Version 1 may count the time elsewhere: then the throttling is all that is known.
    assert ranked(cpu_busy_share=0.03, quota_throttled_share=0.7)[0] == ("processor quota", 0.7)


def test_the_processor_of_a_pinned_server_is_its_cores() -> None:
    """Of two cores, the server has one, which is full; the generator has the other. Memory is 70 % used."""
    assert ranked(cpu_busy_share=0.625, server_cores_busy_share=1.0, memory_used_share=0.7) == [
        ("processor", 1.0),
        ("memory", 0.7),
    ]
    assert ranked(cpu_busy_share=0.625, server_cores_busy_share=0.25, memory_used_share=0.5) == [
        ("memory", 0.5),
        ("processor", 0.25),
    ]
    # Not measured over the whole window: all cores are what is known, and are not taken for the server's.
    assert ranked(cpu_busy_share=0.625, server_cores_busy_share=None) == [
        ("processor of all cores", 0.625),
        ("processor of the server's cores", None),
    ]


def test_a_burst_does_not_outrank_a_full_resource() -> None:
    """The utilisation law is of means: a queue absorbs a burst."""
    found = ranked_resources(
        {"host": {"cpu_busy_share": statistics(0.9, 0.92), "disk_sda_busy_share": statistics(0.2, 1.0)}}, PLACES
    )
    assert found == (
        Resource("processor", "mx1", True, "host", "cpu_busy_share", 0.9, 0.92),
        Resource("disk sda", "mx1", True, "host", "disk_sda_busy_share", 0.2, 1.0),
    )


def test_unmeasured_resources_come_last_without_a_share() -> None:
    """A figure with gaps has no mean; if the resource has another figure, that one counts."""
    assert ranked(cpu_busy_share=None, memory_used_share=0.1) == [("memory", 0.1), ("processor", None)]
    assert ranked(memory_used_share=None, pressure_memory_some_share=0.0) == [("memory", 0.0)]


def test_other_probes_and_figures_are_no_resources() -> None:
    """A queue, sessions and rates have no known limit."""
    probes = {
        "host": {"cpu_user_share": statistics(0.9), "cpu_iowait_share": statistics(0.9), "cores": statistics(4)},
        "hostile": {"cpu_busy_share": statistics(0.9)},
        "postfix": {"active_messages": statistics(20_000)},
    }
    assert ranked_resources(probes, PLACES) == ()
    assert ranked_resources({}, {}) == ()


@given(st.dictionaries(st.sampled_from(["host", "host/a"]), st.dictionaries(
    st.sampled_from(["cpu_busy_share", "server_cores_busy_share", "memory_used_share", "pressure_memory_some_share",
                     "disk_a_busy_share", "x"]),
    st.one_of(st.none(), st.floats(0, 1)))))  # fmt: skip
def test_resources_are_in_descending_order_without_repetition(means: Mapping[str, Mapping[str, float | None]]) -> None:
    probes = {probe: {name: statistics(mean) for name, mean in own.items()} for probe, own in means.items()}
    found = ranked_resources(probes, PLACES)
    shares = [-1.0 if one.mean is None else one.mean for one in found]
    assert shares == sorted(shares, reverse=True)
    assert len({(one.probe, one.name) for one in found}) == len(found)
    for one in found:
        own = [mean for name, mean in means[one.probe].items() if name == one.figure or _same(name, one.name)]
        if one.name == "processor" and (server := means[one.probe].get("server_cores_busy_share")) is not None:
            own = [server]
        assert one.mean == max((mean for mean in own if mean is not None), default=None)


def _same(figure: str, resource: str) -> bool:
    figures = {"memory": ("memory_used_share", "pressure_memory_some_share"), "processor": ("cpu_busy_share",)}
    return figure in figures.get(resource, ())


def test_each_named_figure_exists_in_the_probe() -> None:
    from virtual_runs import NOWHERE

    sample = open_probe(NOWHERE)
    sample()
    figures = sample()
    found = ranked_resources({"host": {name: statistics(value) for name, value in figures.items()}}, PLACES)
    assert {"processor", "memory"} <= {one.name for one in found}


def log_of(
    place: Path, server_here: bool | None, figures: Mapping[str, float], header: Mapping[str, Any] | None = None
) -> Any:
    """A log of one machine; without figures, the probe did not sample."""
    health = [{"at_ns": START_NS + at_s * 10**9, "probe": "host", "figures": dict(figures)} for at_s in range(100)]
    machine = sample_log(
        place / "c1.machine.tlog",
        health=health if figures else [],
        header=HEADER | {"engine": "machine", "engine_users": 0} | (header or {}),
        facts=ENDED | {"server_here": server_here},
    )
    engine = sample_log(place / "c1.0.tlog", [done("READ", 1000, 40)], header=HEADER | (header or {}))
    return merge([engine, machine])


@pytest.mark.parametrize(
    ("server_here", "machine"),
    [(True, "c1, where the server is"), (False, "c1, where the server is not"), (None, "c1")],
)
def test_the_answer_names_the_machine_of_each_resource(server_here: bool | None, machine: str, tmp_path: Path) -> None:
    """The machine that samples may be one that only makes load."""
    log = log_of(tmp_path, server_here, {"cpu_busy_share": 0.875, "disk_sda_busy_share": 0.5})
    assert probe_places(log) == {"host": Placed("c1", server_here)}
    summary = summary_of(log)
    assert summary.score["resources"][0] == {
        "name": "processor",
        "machine": "c1",
        "server_here": server_here,
        "probe": "host",
        "figure": "cpu_busy_share",
        "mean": 0.875,
        "p95": 0.875,
        "others_share": None,
    }
    name, words = f"Nearest to full on {machine}", "processor 88 % (95th 88 %), disk sda 50 % (95th 50 %)"
    assert resource_facts(summary.figures.resources) == [(name, words)]
    assert f"{name}: {words}" in full_answer(summary)


@pytest.mark.parametrize(("others", "words"), [(1.5, "; others than the server took 75 %"), (0.05, "")])
def test_a_processor_filled_by_other_programs_is_not_the_servers(tmp_path: Path, others: float, words: str) -> None:
    """Readers of "processor 100 %" must not buy cores for other programs. A small share of them is not named."""
    shares = {"server_cores": 2.0, "server_cores_busy_share": 1.0, "server_cores_taken_by_others": others}
    summary = summary_of(log_of(tmp_path, True, {"cpu_busy_share": 0.8, **shares}))
    (processor, *_) = summary.figures.resources or ()
    assert processor.others_share == pytest.approx(others / 2)
    assert f"processor of the server's cores 100 % (95th 100 %{words})" in full_answer(summary)
    table = resource_table(summary.figures.resources or ())
    titles = [column.title for column in table.columns]
    assert table.rows[0][titles.index("By others than the server (%)")] == pytest.approx(50 * others)
