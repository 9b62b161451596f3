"""Findings: the catalogue is complete, sentences have their values, and documents are read back or rejected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from compared_runs import write_run
from documents import listed
from findings_of import codes
from hypothesis import given
from hypothesis import strategies as st

from loadsim.cli.report import document_of
from loadsim.comparison.comparison import compare_runs
from loadsim.comparison.document import describe_comparison
from loadsim.documents.json_values import to_json
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import GREATEST, Finding, finding, shared
from loadsim.findings.formats import LONGEST_TEXT, Value
from loadsim.findings.next_step import RULES, next_step
from loadsim.findings.severity import Cause, Severity

LATE = finding(Code.GENERATOR_LATE, late_p95_ms=61.0, limit_ms=50.0)

VALUES = st.one_of(
    st.none(),
    st.text(),
    st.integers(-int(GREATEST), int(GREATEST)),
    st.floats(-GREATEST, GREATEST),
    st.lists(st.text(), max_size=3).map(tuple),
)


def of(code: Code, value: Value = 1) -> Finding:
    return finding(code, "place", **dict.fromkeys(code.fields, value))


@pytest.mark.parametrize("code", Code)
def test_each_code_has_a_sentence_for_any_values(code: Code) -> None:
    assert Code.of(code.id) is code
    assert of(code).text.endswith(f" [{code.id}]")
    assert (code.cause is None) or code.severity is Severity.INVALID
    assert not code.remedy.endswith(".")


def test_only_the_values_of_the_sentence_are_accepted() -> None:
    with pytest.raises(ValueError, match="generator-late"):
        finding(Code.GENERATOR_LATE, late_p95_ms=61.0)
    with pytest.raises(ValueError, match="generator-late"):
        finding(Code.GENERATOR_LATE, late_p95_ms=61.0, limit_ms=50.0, more=1)


def test_units_decide_how_values_are_shown() -> None:
    assert LATE.words == "the load generator was late: 95th percentile 61.0 ms, limit 50.0 ms"
    lost = finding(Code.USERS_LOST, lost=1, users=1000, limit_share=0.01)
    assert lost.words == "the generator lost 1 of 1,000 users; at most 1 % allowed"


@given(st.sampled_from(list(Code)), st.data())
def test_documents_are_read_back(code: Code, data: st.DataObject) -> None:
    one = finding(code, data.draw(st.text()), **{name: data.draw(VALUES) for name in code.fields})
    again = Finding.read(json.loads(json.dumps(to_json(one))))
    assert again == one
    assert again.text.isprintable()


@pytest.mark.parametrize(
    "change",
    [
        {"code": "no-such-code"},
        {"values": {}},
        {"values": None},
        {"severity": "grave"},
        {"code": None},
        {"values": {"late_p95_ms": 10**308, "limit_ms": 50.0}},
        {"values": {"late_p95_ms": 1e308, "limit_ms": 50.0}},
        {"values": {"late_p95_ms": True, "limit_ms": 50.0}},
    ],
)
def test_malformed_findings_are_rejected(change: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, LookupError, AttributeError)):
        Finding.read(LATE.document | change)


@pytest.mark.parametrize("figures", [", ".join(["READ 12,345.6 ms"] * 50), ("READ 12,345.6 ms",) * 50])
def test_long_texts_are_cut_visibly(figures: Value) -> None:
    """The last figure might look smaller than it is."""
    words = finding(Code.CRITERION_MISSED, "x" * 1000, found=figures, limit="at most 1000 ms").words
    assert words.startswith("x" * (LONGEST_TEXT - 3) + "...: READ 12,345.6 ms, ")
    assert words.endswith("..., limit: at most 1000 ms")
    assert len(words) < 3 * LONGEST_TEXT


def test_a_lowered_limit_is_no_cause() -> None:
    """The generator's limits are warnings on the embedded server."""
    lowered = finding(Code.GENERATOR_LATE, "", Severity.WARNING, late_p95_ms=61.0, limit_ms=50.0)
    assert (LATE.cause, lowered.cause) == (Cause.GENERATOR, None)


def test_findings_of_several_runs_are_merged_by_kind() -> None:
    other = finding(Code.GENERATOR_LATE, late_p95_ms=70.0, limit_ms=50.0)
    stolen = finding(Code.CPU_STOLEN, "vm", stolen_share=0.2)
    first, second = shared([[stolen], [LATE], [other, LATE]])
    assert (first.code, first.runs) == (Code.GENERATOR_LATE, (1, 2))
    assert "61.0 ms to 70.0 ms, limit 50.0 ms" in first.words
    assert (second.code, second.runs) == (Code.CPU_STOLEN, (0,))
    assert not shared([[], []])


@pytest.mark.parametrize(
    "other", [finding(Code.MONITOR_DEFECT, "mx2", why="cut"), finding(Code.MONITOR_DEFECT, "mx1", why="no header")]
)
def test_findings_of_other_places_or_texts_are_not_merged(other: Finding) -> None:
    one = finding(Code.MONITOR_DEFECT, "mx1", why="cut")
    assert [kind.runs for kind in shared([[one], [other], [one]])] == [(0, 2), (1,)]


def test_ends_of_spans_and_names_are_merged_readably() -> None:
    gaps = [finding(Code.MONITOR_GAP, "db", begin_s=begin_s, end_s=begin_s + 60) for begin_s in (100, 700)]
    (merged,) = shared([gaps])
    assert "from between 100 s and 700 s to between 160 s and 760 s" in merged.words
    unserved = [
        finding(Code.USERS_UNSERVED, unserved=2, unserved_share=0.2, first=users) for users in (("1", "2"), ("1", "3"))
    ]
    (merged,) = shared([[one] for one in unserved])
    assert merged.words.endswith("(user 1, 2, 3)")


def test_invalid_and_degraded_runs_are_not_of_one_kind() -> None:
    """Their limits differ: the range of both would say neither."""
    values = {"made": 1, "planned": 2, "made_share": 0.5, "limit_share": 0.9}
    invalid, degraded = (finding(Code.LOAD_MISSING, "", severity, **values) for severity in (None, Severity.DEGRADED))
    assert [kind.runs for kind in shared([[invalid], [degraded], [invalid]])] == [(0, 2), (1,)]


def test_several_runs_and_comparisons_have_the_findings_of_single_runs(tmp_path: Path) -> None:
    """A kind in some runs has their number, on each side of a comparison; one of a single run has its name."""
    clear = finding(Code.PASSWORD_IN_CLEAR, "IMAP at mail.example:143")
    paths = [
        str(write_run(tmp_path, name, 100 + hour, hour=hour, findings=[one.document for one in found]))
        for name, found, hour in (("a", [clear], 8), ("b", [], 9), ("c", [clear], 10), ("d", [clear], 11))
    ]
    assert f"3 of 4 runs: {clear.text}" in listed(document_of(paths), "Warnings")
    compared = compare_runs([paths[0], paths[2]], [paths[1], paths[3]])
    assert (clear.code, (0, 1, 3)) in [(one.code, one.runs) for one in compared.figures.of_runs]
    assert f"2 of 2 runs of base, 1 of 2 of new: {clear.text}" in listed(describe_comparison(compared), "Warnings")
    assert clear.code not in codes(compared.figures.unequal_conditions)
    single = describe_comparison(compare_runs([paths[1]], [paths[3]]))
    assert f"{paths[3]}: {clear.text}" in listed(single, "Warnings")


@pytest.mark.parametrize(
    ("present", "step"),
    [
        ([Code.ONE_RUN], Code.ONE_RUN),
        ([Code.ONE_RUN, Code.EMBEDDED], Code.EMBEDDED),
        ([Code.EMBEDDED, Code.CRITERION_MISSED], Code.CRITERION_MISSED),
        ([Code.LOAD_MISSING, Code.GENERATOR_LATE], Code.GENERATOR_LATE),
        ([Code.GENERATOR_LATE, Code.CORES_SHARED], Code.CORES_SHARED),
        ([Code.GENERATOR_LATE, Code.CORES_SHARED, Code.GENERATOR_FAILED], Code.GENERATOR_FAILED),
        ([Code.SEGMENTS_LOST, Code.ONE_RUN], Code.SEGMENTS_LOST),
        ([Code.SHORT_WINDOW, Code.LOAD_MISSING, Code.STOPPED], Code.STOPPED),
        ([Code.LOAD_UNKNOWN, Code.LOG_DAMAGED, Code.ONE_RUN], Code.LOG_DAMAGED),
        ([Code.COMPARED_INVALID, Code.FEW_RUNS], Code.COMPARED_INVALID),
        ([Code.PROVISIONAL, Code.LIST_UNKNOWN], Code.LIST_UNKNOWN),
        ([Code.CAPACITY_FOUND, Code.CORES_CONTENDED], Code.CORES_CONTENDED),
        ([Code.CAPACITY_FOUND, Code.EMBEDDED], Code.EMBEDDED),
        ([Code.CAPACITY_AT_LEAST, Code.GENERATOR_TOO_SLOW], Code.GENERATOR_TOO_SLOW),
        ([Code.SUITE_ENDED, Code.EMBEDDED], Code.SUITE_ENDED),
        ([Code.LOAD_MISSING, Code.CRITERION_MISSED, Code.SERVER_STATE_WRONG], Code.SERVER_STATE_WRONG),
        ([Code.CRITERION_MISSED, Code.SERVER_STATE_FOLLOWS], Code.CRITERION_MISSED),
        ([Code.HITS_MISSING, Code.CRITERION_MISSED, Code.MAIL_FAULTS], Code.MAIL_FAULTS),
        ([Code.LOAD_MISSING, Code.CRITERION_MISSED, Code.MAIL_SHOWN_ALTERED], Code.MAIL_SHOWN_ALTERED),
        ([Code.CRITERION_MISSED, Code.MAIL_CRITERION_MISSED], Code.MAIL_CRITERION_MISSED),
        ([Code.HITS_MISSING, Code.CRITERION_MISSED, Code.TASK_REFUSED], Code.TASK_REFUSED),
        ([Code.SERVER_STATE_WRONG, Code.GENERATOR_LATE], Code.GENERATOR_LATE),
    ],
)
def test_the_first_rule_decides_the_next_step(present: list[Code], step: Code) -> None:
    assert next_step(map(of, present)) == step.remedy


def test_without_a_rule_there_is_no_step() -> None:
    assert next_step([of(Code.LISTS_OMIT_SENDER)]) == ""
    assert all(RULES)
