"""Machines that were busier in one set of compared runs: which figure shows it, and when nothing is said."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compared_runs import HEADER, write_run
from timing_samples import ENDED, ms, write_sample

from loadsim.analysis.summary import summarise
from loadsim.comparison.comparison import compare_runs
from loadsim.comparison.document import RESERVATION, describe_comparison, tone
from loadsim.comparison.obstacles import unequal_machines
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.figures import Figures, MachineHealth, ProbeStatistics
from loadsim.report.text import to_text

HERE = MachineHealth("c1", 2, cpu_share=0.1, stolen_share=0.0, engines_share=0.08, server_here=True)
ELSEWHERE = replace(HERE, server_here=False)


def of_probe(mean: float | None) -> ProbeStatistics:
    return ProbeStatistics(9, 1.0, mean, mean, mean, mean, mean)


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Figures:
    return summarise([write_run(tmp_path_factory.mktemp("runs"), "a")]).figures


def with_machines(figures: Figures, machines: Sequence[MachineHealth]) -> list[Figures]:
    return [replace(figures, machines=(machine,)) for machine in machines]


@pytest.mark.parametrize(
    ("base", "new", "found"),
    [
        (
            [replace(HERE, cpu_share=share) for share in (0.12, 0.15)],
            [replace(HERE, cpu_share=share) for share in (0.44, 0.33)],
            finding(Code.BUSIER_MACHINE, busier="new", more="33 to 44 %", other="base", less="12 to 15 %"),
        ),
        (
            [replace(ELSEWHERE, cpu_share=0.38)],
            [replace(ELSEWHERE, cpu_share=share) for share in (0.1, 0.12)],
            finding(Code.MORE_OTHER_WORK, busier="base", more="30 %", other="new", less="2 to 4 %"),
        ),
        (
            [HERE],
            [replace(HERE, stolen_share=0.07)],
            finding(Code.MORE_STOLEN, busier="new", more="7 %", other="base", less="0 %"),
        ),
        # equal, overlapping, less than the least, and unknown
        ([HERE], [HERE], None),
        ([replace(HERE, cpu_share=one) for one in (0.1, 0.5)], [replace(HERE, cpu_share=0.4)], None),
        ([replace(HERE, cpu_share=0.30)], [replace(HERE, cpu_share=0.39)], None),
        ([replace(HERE, cpu_share=None, stolen_share=None)], [replace(HERE, cpu_share=0.9)], None),
        # the generator itself took more: no other program did
        ([ELSEWHERE], [replace(ELSEWHERE, cpu_share=0.5, engines_share=0.48)], None),
    ],
)
def test_the_busier_side_is_named(
    figures: Figures, base: Sequence[MachineHealth], new: Sequence[MachineHealth], found: Finding | None
) -> None:
    """With its range and that of the other side; where the server is elsewhere, only other programs count."""
    sides = {"base": with_machines(figures, base), "new": with_machines(figures, new)}
    assert unequal_machines(sides) == ([found] if found else [])


@pytest.mark.parametrize(
    ("base", "new", "found"),
    [
        ((1.0, 0.1), (1.0, 0.5), [(Code.MORE_OTHER_WORK, "25 %", "5 %")]),
        ((0.2, 0.1), (1.4, 0.1), []),  # the server itself took more
        ((None, 0.1), (None, 0.5), [(Code.BUSIER_MACHINE, "60 %", "20 %")]),
    ],
)
def test_the_probe_separates_the_server_from_other_programs(
    figures: Figures,
    base: tuple[float | None, float],
    new: tuple[float | None, float],
    found: list[tuple[Code, str, str]],
) -> None:
    """Cores that the server and others took on two cores. Without the server's, they are among those of others."""

    def run(of_server: float | None, others: float, busy: float) -> Figures:
        of_probe_host: Mapping[str, ProbeStatistics] = {
            "cores": of_probe(2),
            "others_cpu_cores": of_probe(others),
            **({} if of_server is None else {"server_cpu_cores": of_probe(of_server)}),
        }
        machine = replace(HERE, cpu_share=busy)
        return replace(figures, machines=(machine,), probes={"host/mail": of_probe_host, "count": {}})

    busier = unequal_machines({"base": [run(*base, 0.2)], "new": [run(*new, 0.6)]})
    assert [(one.code, one.values["more"], one.values["less"]) for one in busier] == found


def test_a_comparison_with_unequal_machines_has_a_warning(tmp_path: Path) -> None:
    def run(name: str, busy: float) -> Path:
        sample: dict[str, Any] = {"core_shares": [busy], "cpu_share": busy, "stolen_share": 0.0, "segments_sent": 1}
        sample |= {"memory_available_bytes": 1, "segments_sent_again": 0}
        health = [{"at_ns": ms(at_s * 1000), **sample} for at_s in range(1, 100)]
        place = write_run(tmp_path, name)
        header = HEADER | {"run": name, "engine": "machine", "engine_users": 0}
        write_sample(
            place / "logs" / "c1.machine.tlog", header=header, health=health, facts=ENDED | {"server_here": True}
        )
        return place

    found = compare_runs([run("b1", 0.12), run("b2", 0.15)], [run("n1", 0.33), run("n2", 0.44)])
    (warning,) = (one for one in found.figures.findings if one.code is Code.BUSIER_MACHINE)
    assert (warning.values["busier"], warning.values["other"]) == ("new", "base")
    assert f"\n  - {warning.text}\n" in to_text(describe_comparison(found))
    assert found.document["unequal_conditions"] == [warning.document]
    base, same, busier = (
        [run(f"{name}{at}", busy) for at in range(5)] for name, busy in (("base", 0.1), ("same", 0.1), ("busier", 0.6))
    )
    equal, unequal = (compare_runs(base, new, max_regression=0.5) for new in (same, busier))
    first = [describe_comparison(one).verdict.endswith(f"; {RESERVATION}") for one in (equal, unequal)]
    assert first == [False, True]
    assert (equal.document["decision"], unequal.document["decision"]) == ("passed", "passed")
    assert (tone(equal), tone(unequal)) == ("good", "doubtful")
