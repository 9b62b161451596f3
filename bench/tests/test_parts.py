"""The parts of the benchmark: each prints its tables when it is measured, of any rows that there are."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from bench import healthy, servers, tables
from bench.__main__ import PAGES, PARTS, RESULTS, document, main, measure, read
from bench.part import Effort
from bench.table import BEGIN, END, NOTHING, is_current, put_into
from loadsim.errors import ConfigError
from loadsim.provisioning.server_report import ServerFacts

KEPT = read(RESULTS)
LONG = ("cluster", "cluster_many", "cluster_lag", "cluster_pull", "cluster_log_bytes")
"""Parts that take longer even at their smallest."""


def check_part(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Measure a part at its smallest. Check what it prints, and return its rows."""
    measured = measure([name], Effort.SMALLEST, place / "bench.json")
    printed = capsys.readouterr().out
    tables = PARTS[name].tables
    assert [line.removeprefix("### ") for line in printed.splitlines() if line.startswith("### ")] == list(tables)
    assert len(re.findall(r"\| --- \|\n\| ", printed)) >= len(tables)  # a row below the heading
    assert NOTHING not in printed
    assert printed == f"{PARTS[name].text(read(place / 'bench.json')[name])}\n\n"
    return measured[name].rows


@pytest.mark.nightly(part="runs")
@pytest.mark.parametrize("name", [name for name in PARTS if name not in LONG])
def test_a_part_prints_its_tables(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As soon as it is measured, by itself; the file has the same results."""
    check_part(name, tmp_path, capsys)


@pytest.mark.nightly(part="hosts")
@pytest.mark.parametrize("name", LONG[1:])
def test_a_long_part_prints_its_tables(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the others; most are on several hosts."""
    check_part(name, tmp_path, capsys)


@pytest.mark.nightly(part="hosts")
def test_a_cluster_of_hosts_makes_the_load_of_one_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """User by user, from due times to what is done with messages; clocks differ by what the logs state."""
    found = check_part("cluster", tmp_path, capsys)
    same, clocks = found["same"], found["clocks"]
    assert same["differences"].keys() <= {"what lies in Sent Items"}  # no copy of a message that was due at the end
    assert same["users"] == found["users"]
    assert min(same["due"], same["new_mail_recipients"], same["fates"]["both"]) > 5
    assert clocks["readings"] >= 2
    assert clocks["beyond_claim"] == 0


@pytest.mark.parametrize("name", KEPT)
def test_each_part_makes_its_tables_of_one_row_and_of_none(name: str) -> None:
    """Of one row by itself, and of none."""
    part, kept = PARTS[name], KEPT[name]
    several = isinstance(kept.rows, list)
    for row in kept.rows if several else [kept.rows]:
        assert part.text(replace(kept, rows=[row] if several else row)).count("### ") == len(part.tables)
    assert part.text(replace(kept, rows=[])).count(NOTHING) == len(part.tables)


def test_pages_show_the_stored_figures() -> None:
    for page, parts in PAGES.items():
        assert is_current(page, document(parts, KEPT)), page
        assert document(parts, {}).strip() == ""
    assert is_current(servers.PAGE, servers.document(), servers.MARK)


def test_stored_servers_are_in_the_tables(tmp_path: Path) -> None:
    """By version, with the findings about it, but not those about the scenario."""
    finding = {"code": "server-state-wrong"}
    of_check = {"server": [{"finding": None}], "mail": [{"finding": finding}], "tasks": [{"failure": None}]}
    for version, features in ("2.10-1", ["IDLE", "MOVE"]), ("2.9", ["IDLE"]):
        facts = asdict(ServerFacts(imap_capabilities=tuple(features), missing_folder="NO", announced_ms=1500.4))
        servers.keep(
            "Our Server", version, of_check | {"can_run": True, "facts": facts, "findings": []}, "now", tmp_path
        )
    rows = [line[2:-2].split(" | ") for line in servers.document(tmp_path).splitlines() if line[:1] == "|"]
    assert rows[2:4] == [
        [f"Our Server {version}", "now", "", "1,500 ms", "", "", "server-state-wrong"] for version in ("2.9", "2.10-1")
    ]
    assert rows[9:11] == [["all", "`IDLE`"], ["Our Server 2.10-1", "`MOVE`"]]


def test_servers_that_share_words_have_one_row() -> None:
    """With their versions only where others of the same name differ."""
    words = {("a", "1"): "XYZ", ("a", "2"): "XYZ", ("b", "1"): "XY", ("b", "2"): "XV", ("c", "1"): "XZ"}
    assert servers.shared(words) == [["all", "`X`"], ["a; b 1", "`Y`"], ["a; c", "`Z`"], ["b 2", "`V`"]]


def test_tables_replace_those_in_a_page(tmp_path: Path) -> None:
    """Between the marks, and nowhere else; a page without marks is refused."""
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{BEGIN}\n\nold\n{END}\n\nafter\n")
    assert is_current(page, "old") and not is_current(page, "new\n")
    put_into(page, "new\n")
    assert page.read_text() == f"before\n\n{BEGIN}\n\nnew\n\n{END}\n\nafter\n"
    assert is_current(page, "new\n")
    page.write_text("no marks")
    with pytest.raises(ConfigError, match="expected the marks"):
        put_into(page, "new\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["speed"], "part: expected one of imap_null, .*, found speed"),
        (["tls", "many"], "many: expected the option --full"),
        (["--smallest", "tls", "speed"], "found speed"),
    ],
)
def test_a_part_that_cannot_be_measured_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is measured."""
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.search(said, printed.err)


def test_results_of_an_older_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text('{"at": "today", "imap_null": [{"us": 1.0}]}')
    with pytest.raises(ConfigError, match=r"old\.json: expected results"):
        read(tmp_path / "old.json")


def test_an_invalid_healthy_run_is_shown_with_its_reason() -> None:
    """Its reason stands below it, the summary has the worst of each figure, and it is what the exit status is about.

    What others on the same hardware disturbed is told, and counts for nothing.
    """
    well = {"validity": "valid", "reasons": [], "lag_p99_ms": 1.5, "cpu_share": 0.08, "lateness_p95_ms": 0.25}
    well |= {"stolen_share": 0.0}
    ill = {**well, "validity": "invalid", "reasons": ["late"], "lag_p99_ms": 7.0, "cpu_share": 0.05}
    ill |= {"lateness_p95_ms": 0.5, "stolen_share": healthy.DISTURBED_SHARE}
    robbed = {**ill, "lag_p99_ms": 90.0, "stolen_share": 0.02}
    assert healthy.line("run 2", ill) == (
        "run 2: invalid; lag p99 7.00 ms, 5% of a core, late 0.50 ms, 0.5% of the CPU taken by others\n  late"
    )
    assert "disturbed, does not count" in healthy.line("run 3", robbed)
    assert healthy.any_invalid([well, ill]) and not healthy.any_invalid([well, robbed, well])
    assert healthy.table([robbed]).splitlines()[-1] == "| 1 | 1 |  |  |  |  |"
    assert "| 4 | 1 | 2 valid, 1 invalid | 7.00 | 8% | 0.50 |" in healthy.table([well, ill, robbed, well]).splitlines()


def test_tables_compare_with_their_reference() -> None:
    """Each median has its ratio to the reference's."""
    rows = [
        {"client": name, "loop": loop, "operation": size, "us": {"median": us}}
        for name, loop, size, us in (
            ("pipelining", "uvloop", "1024", 60.0),
            ("pipelining", "uvloop", "102400", 300.0),
            ("smtp-source", "C", "1024", 40.0),
            ("smtp-source", "C", "102400", 100.0),
        )
    ]
    lines = tables.smtp(rows).splitlines()
    assert "| client | loop | 1 KB | 100 KB |" in lines
    assert "| pipelining | uvloop | 60 (1.50) | 300 (3.00) |" in lines
    assert "| smtp-source | C | **40** | **100** |" in lines
