"""The verdict on storage tests: published results, each limit on both sides, and what makes a test invalid."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from storage_recordings import GOOD, SCENARIO, recording, sample

from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.report.document import Table
from loadsim.report.html import to_html
from loadsim.report.markdown import to_markdown
from loadsim.report.text import to_text
from loadsim.storage.document import (
    describe_storage,
    describe_tests,
    load_paper,
    storage_json,
    verdict_words,
    worst_exit_status,
)
from loadsim.storage.recording import Recording
from loadsim.storage.store import Io
from loadsim.storage.verdict import judge

TWO_HOURS = 480
"""The samples of a published test."""

DAY = 24 * 24
"""The samples of a day, each of 150 s."""


def codes(of: Recording) -> set[Code]:
    return {each.code for each in judge(of).findings}


def with_times(**ms: float) -> list[dict[str, Any]]:
    """Two hours of samples, of which some kinds take these times."""
    return [sample({kind: (per_s, ms.get(kind.value, mean)) for kind, (per_s, mean) in GOOD.items()})] * TWO_HOURS


DELL = [
    # reads/s, ms; writes/s, ms; log writes/s, ms (PowerEdge R510, appendix A: the extremes of its twelve rows)
    {Io.READ: (29.3, 14.3), Io.WRITE: (18.2, 0.9), Io.LOG_WRITE: (17.0, 0.26)},
    {Io.READ: (29.3, 18.7), Io.WRITE: (18.2, 1.6), Io.LOG_WRITE: (17.0, 0.30)},
]


def test_published_tests_have_their_published_results() -> None:
    """Twelve databases, 4,000 mailboxes with 0.1 IOPS: about 571 IOPS against 400, for 24 hours: passed."""
    of_dell = recording(
        [[sample(DELL[number % 2], 150.0)] * DAY for number in range(12)], test="stress", sample_s=150.0
    )
    found = storage_json(of_dell)
    assert found["target_iops"] == 400
    assert found["achieved_iops"] == pytest.approx(571, abs=2)
    assert found["databases"][1]["read_ms"] == pytest.approx(18.7)
    assert found["verdict"] == {"validity": "valid", "passed": True, "findings": []}


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (with_times(read=20.0, log_write=10.0), set()),
        (with_times(read=20.1), {Code.DISK_READS_SLOW}),
        (with_times(log_write=10.1), {Code.LOG_WRITES_SLOW}),
        (with_times(write=500.0), set()),
        ([*with_times()[:-1], sample({**GOOD, Io.READ: (400.0, 101.0)})], {Code.DISK_READ_PEAK}),
        ([*with_times()[:-1], sample({**GOOD, Io.LOG_WRITE: (200.0, 101.0)})], {Code.LOG_WRITE_PEAK}),
        ([sample({**GOOD, Io.READ: (190.0, 15.0)})] * TWO_HOURS, {Code.BELOW_TARGET}),
        ([*with_times()[:-1], sample({**GOOD, Io.SYNC: (0.1, 600.0)})], {Code.DISK_STALLED}),
        ([*with_times()[:-1], sample(failures={"Input/output error": 1})], {Code.DISK_FAILED}),
        ([*with_times()[:-1], sample(damaged=1, damages=["mail.db: page 3"])], {Code.STORED_DAMAGED}),
        ([sample(cpu_s=15.0 * 0.81)] * TWO_HOURS, {Code.WORKER_BUSY}),
        ([sample(lag={"20": 100})] * TWO_HOURS, {Code.WORKER_LATE}),
        (with_times()[1:], {Code.STORAGE_SHORT}),
    ],
)
def test_each_exceeded_limit_has_its_finding(samples: list[dict[str, Any]], expected: set[Code]) -> None:
    assert codes(recording([samples])) == expected


def test_the_limit_of_peaks_is_lenient_beyond_six_hours() -> None:
    peak = sample({**GOOD, Io.READ: (400.0, 150.0)})
    assert codes(recording([[*with_times() * 3, peak]])) == set()
    assert codes(recording([[*with_times() * 2, peak]])) == {Code.DISK_READ_PEAK}


def without(kind: str) -> Recording:
    of = recording([with_times()])
    setattr(of, kind, ())
    return of


def restarted() -> Recording:
    of = recording([[]], test="recovery")
    of.header = of.header._replace(survived=False)
    return of


@pytest.mark.parametrize(
    ("of", "code"),
    [
        (recording([with_times()], end=None), Code.NO_END),
        (recording([with_times()[1:]], scenario=replace(SCENARIO, duration_s=7200.0)), Code.NO_END),
        (recording([with_times()], end=(True, False, None)), Code.STOPPED),
        (recording([with_times()], end=(False, True, None)), Code.DISK_FULL),
        (recording([with_times()], end=(False, False, "db-001: its process ended")), Code.FAULT_ENDED),
        (recording([with_times()], warm=False), Code.CACHE_NOT_FULL),
        (without("proved"), Code.STORE_UNVERIFIED),
        (recording([[sample({**GOOD, Io.READ: (0.01, 1.0)})] * TWO_HOURS]), Code.FEW_READS),
        (recording([[sample({**GOOD, Io.LOG_WRITE: (0.0, 0.0)})] * TWO_HOURS]), Code.FEW_LOG_WRITES),
        (restarted(), Code.MACHINE_RESTARTED),
    ],
)
def test_a_test_that_measured_no_disk_is_invalid(of: Recording, code: Code) -> None:
    assert code in codes(of)
    assert judge(of).validity == "invalid"


def test_reads_from_another_cache_are_no_disk_reads() -> None:
    """The share that must reach the disk follows from the sizes of cache and mailboxes."""
    of = recording([[sample({**GOOD, Io.READ: (30.0, 0.1)}, operations={"read": 6000})] * TWO_HOURS])
    assert codes(of) - {Code.BELOW_TARGET} == {Code.FEW_READS}
    assert judge(of).validity == "invalid"
    half = replace(of.scenario, cache=of.scenario.mailboxes * of.scenario.mailbox_size // 2)
    of.header = of.header._replace(scenario=asdict(half))
    assert codes(of) == {Code.BELOW_TARGET}


@pytest.mark.parametrize(("length", "word"), [(TWO_HOURS, "passed"), (TWO_HOURS - 1, "degraded")])
def test_a_short_test_fails_but_does_not_pass(length: int, word: str) -> None:
    """Caches of the host or the controller may have served it; none makes it slower."""
    good, slow = (recording([with_times(read=ms)[:length]]) for ms in (15.0, 25.0))
    assert [verdict_words(each, judge(each)).split(":")[0] for each in (good, slow)] == [
        f"performance test {word}",
        "performance test failed",
    ]
    assert judge(slow).exit_status == 1
    assert describe_tests([good, good]).verdict == f"{2 * (word == 'passed')} of 2 tests passed"


SLOW, FEW, STALLED = (400.0, 25.0), (0.01, 25.0), (0.01, 600.0)
"""Enough reads or log writes of a slow disk, and less than a hundred in two hours."""


@pytest.mark.parametrize(
    ("rates", "codes_of_reads_and_log"),
    [
        ({Io.READ: SLOW, Io.LOG_WRITE: FEW}, {Code.DISK_READS_SLOW, Code.FEW_LOG_WRITES}),
        ({Io.READ: FEW, Io.WRITE: SLOW, Io.LOG_WRITE: SLOW}, {Code.FEW_READS, Code.LOG_WRITES_SLOW}),
        ({Io.READ: STALLED, Io.LOG_WRITE: FEW}, {Code.FEW_READS, Code.FEW_LOG_WRITES, Code.DISK_STALLED}),
    ],
)
def test_a_test_may_fail_with_too_little_data_to_pass(
    rates: dict[Io, tuple[float, float]], codes_of_reads_and_log: set[Code]
) -> None:
    """Of too few nothing is said, so that they neither fail a test nor excuse what failed it."""
    failed, cold = (recording([[sample(rates)] * TWO_HOURS], warm=warm) for warm in (True, False))
    assert codes(failed) - {Code.BELOW_TARGET} == codes_of_reads_and_log
    assert codes(cold) - {Code.BELOW_TARGET} == codes_of_reads_and_log | {Code.CACHE_NOT_FULL}
    assert {judge(each).exit_status for each in (failed, cold)} == {1}


@pytest.mark.parametrize(
    ("rates", "other"),
    [
        ({Io.READ: FEW, Io.WRITE: SLOW, Io.LOG_WRITE: FEW}, {}),
        ({Io.READ: (0.01, 1.0), Io.WRITE: (0.01, 1.0)}, {}),
        ({**GOOD, Io.READ: SLOW}, {"lag": {"20": 100}}),
        ({**GOOD, Io.READ: SLOW}, {"cpu_s": 15.0 * 0.81}),
    ],
)
def test_too_few_or_a_slow_generator_fail_no_disk(rates: dict[Io, tuple[float, float]], other: dict[str, Any]) -> None:
    """Rates below the target alone do not fail either: a cache of all messages leaves nothing to read."""
    assert judge(recording([[sample(rates, **other)] * TWO_HOURS])).exit_status == 3


@pytest.mark.parametrize("kind", ["checked", "proved"])
def test_damage_found_afterwards_fails_the_test(kind: str) -> None:
    of = recording([with_times()])
    of.add(kind, [{"bytes": 1, "took_s": 1.0, "damaged": 2, "damages": ["mail.db: page 7", "mail.db: page 8"]}])
    assert codes(of) == {Code.STORED_DAMAGED}
    assert judge(of).exit_status == 1


def test_errors_of_the_kernel_make_a_test_invalid() -> None:
    of = recording([with_times()])
    of.add("kernel_errors", ["blk_update_request: I/O error, dev sda"])
    assert codes(of) == {Code.KERNEL_ERRORS}
    assert judge(of).exit_status == 3


def test_a_test_without_load_is_judged_by_what_it_read() -> None:
    of = recording([[]], test="backup")
    of.add("checked", [{"bytes": 10**9, "took_s": 2.0, "damaged": 0, "damages": []}])
    assert judge(of).validity == "valid"
    assert judge(of).passed
    assert "500 MB/s" in to_text(describe_storage(of))
    assert "not known" in to_text(describe_storage(of))  # the errors in the kernel's log


def test_all_renderers_have_the_same_codes() -> None:
    of = recording([[*with_times(read=25.0, log_write=11.0)[:-1], sample(failures={"Input/output error": 1})]])
    document = describe_storage(of)
    expected = {each["code"] for each in storage_json(of)["verdict"]["findings"]}
    assert expected == {"disk-reads-slow", "log-writes-slow", "disk-failed"}
    for text in (to_text(document), to_html(document), to_markdown(document)):
        assert all(code in text for code in expected)


def test_operations_that_did_not_occur_have_no_line() -> None:
    """As log writes, if nothing is changed."""
    document = describe_storage(recording([[sample({Io.READ: (400.0, 15.0)})] * TWO_HOURS]))
    assert "Log writes" not in to_html(document)


def test_the_host_is_described_in_the_window() -> None:
    of = recording([with_times()])
    of.add("window", (1, True))
    of.add("host", (1.0, 0.5))
    of.add("host", (0.25, 0.5))
    blocks = [block for section in describe_storage(of).filled for block in section.blocks]
    (machine,) = [block for block in blocks if isinstance(block, Table) and block.caption == "The machine"]
    assert len({*machine.rows[0][1:]}) == 1


def test_the_answer_fits_on_one_screen() -> None:
    lines = to_text(describe_storage(recording([with_times()] * 4)), 80).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80


def test_json_has_the_documented_figures() -> None:
    (row,) = storage_json(recording([with_times()]))["databases"]
    contract = {"name", "reads_per_s", "read_ms", "read_max_ms", "writes_per_s", "write_ms"}
    contract |= {"log_writes_per_s", "log_write_ms", "log_write_max_ms"}
    assert contract <= row.keys()
    assert json.loads(json.dumps(row)) == row


def test_the_tables_have_the_rows_of_the_published_reports() -> None:
    """Dell, appendix A: by database and in all, rate, mean time and mean bytes of each kind of I/O."""
    rates = {kind: (100.0, float(number)) for number, kind in enumerate(Io, 1)}
    sections = {each.title: each.blocks for each in describe_storage(recording([[sample(rates)]] * 2)).filled}
    *tables, total = [block for block in sections["Inputs and outputs by kind"] if isinstance(block, Table)]
    assert [[column.title for column in table.columns] for table in tables] == [
        ["Database", "per s", "mean", "max", "slowest", "KiB"]
    ] * len(Io)
    for number, table in enumerate(tables, 1):
        assert [row[0] for row in table.rows] == ["db-001", "db-002", "all"]
        assert [row[1:3] for row in table.rows] == [(100.0, number), (100.0, number), (200.0, number)]
        assert {row[5] for row in table.rows} == {32.0}
    assert total.rows == (("db-001", 300.0, 200.0), ("db-002", 300.0, 200.0), ("all", 600.0, 400.0))


def test_the_target_includes_headroom() -> None:
    assert replace(SCENARIO, headroom=0.2).target_iops == pytest.approx(480)


# --- several tests in one report ---


def test_the_worst_test_decides_the_exit_status() -> None:
    bad = recording([with_times(read=25.0)])
    assert worst_exit_status([recording([with_times()]), bad]) == 1
    assert worst_exit_status([recording([with_times()]), recording([[]], test="backup", end=(True, False, None))]) == 3


def test_a_paper_has_its_authors_sections_before_the_results(tmp_path: Path) -> None:
    texts = tmp_path / "paper.yaml"
    texts.write_text("Overview: Cheap.\nHardware: {Controller: none}\nBest practices: [Spread.]\n")
    document = describe_tests([recording([with_times()]), recording([[]], test="backup")], load_paper(texts))
    titles = [section.title for section in document.filled]
    assert titles[:5] == ["Overview", "Hardware", "Best practices", "Disclaimer", "Results"]
    assert to_html(document)
    assert to_markdown(document)
    texts.write_text("Overview: 3\n")
    with pytest.raises(ConfigError):
        load_paper(texts)


def test_a_stall_counts_at_any_time_of_the_load() -> None:
    """Also what was waited for when the window ended, and before it began."""
    of = recording([with_times()])
    of.add("rest", {"database": "db-001", "sample": sample({Io.READ: (0.1, 2500.0)})})
    assert codes(of) == {Code.DISK_STALLED}
    warm_up = recording([[sample({**GOOD, Io.LOG_WRITE: (0.1, 600.0)}), *with_times()]])
    warm_up.add("window", (1, True))
    assert Code.DISK_STALLED in codes(warm_up)


def test_each_database_must_reach_its_share_of_the_target() -> None:
    """One that is slow is not made good by a fast one."""
    fast, slow = (
        [sample({**GOOD, Io.READ: (per_s, 15.0), Io.WRITE: (0.0, 1.0)})] * TWO_HOURS for per_s in (500.0, 150.0)
    )
    (one,) = [each for each in judge(recording([fast, slow])).findings if each.code is Code.BELOW_TARGET]
    assert (one.where, one.values["target"]) == ("db-002", 200.0)


def test_more_threads_are_no_remedy_for_slow_disks() -> None:
    """Of the first database, of which only the rate is known to be too low, or of the second."""
    low, slow = ([sample({**GOOD, Io.READ: (10.0, ms), Io.WRITE: (1.0, 1.0)})] * TWO_HOURS for ms in (15.0, 25.0))
    assert storage_json(recording([low, slow]))["next_step"] == Code.DISK_READS_SLOW.remedy
    assert storage_json(recording([low, low]))["next_step"] == Code.BELOW_TARGET.remedy


def test_damage_fails_a_test_with_unusable_times() -> None:
    late = [sample(lag={"20": 100}, damaged=1, damages=["mail.db: page 3"])] * TWO_HOURS
    verdict = judge(recording([late], end=(True, False, None)))
    assert (verdict.validity, verdict.passed, verdict.exit_status) == ("valid", False, 1)
    assert {Code.WORKER_LATE, Code.STOPPED} <= {each.code for each in verdict.warnings}
