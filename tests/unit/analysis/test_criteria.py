"""Criteria: which figures they may name, how their limits are read, and what came of each, against numpy."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from timing_samples import DELIVERED, ENDED, LOGGED_ON, done, event, sample_log, skipped

from loadsim.analysis.criteria import Limits, Result, figure, judge_each, missed_criteria
from loadsim.analysis.summary import Summary, summarise
from loadsim.cli import main
from loadsim.documents.yaml_reader import known
from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.findings.severity import Severity
from loadsim.model.figures import Figures
from loadsim.model.terms import PROTOCOLS
from loadsim.scenario.criteria import DEFAULT, SCORES, documents, figures, planned_tasks
from loadsim.scenario.profile import load_profile
from loadsim.scenario.scenario import load_scenario
from loadsim.users.tasks import TASKS

FEW = "topology: [{profile: loadsim-5.5/light, users: 2}]\n"
LIGHT = sorted(planned_tasks(load_profile("loadsim-5.5/light")))


def written(tmp_path: Path, criteria: str, more: str = FEW) -> Path:
    file = tmp_path / "s.yaml"
    file.write_text(f"server: embedded\n{more}criteria: {criteria}\n", encoding="utf-8")
    return file


def read(tmp_path: Path, criteria: str, *settings_: str, more: str = FEW) -> dict[str, dict[str, float] | None]:
    return documents(load_scenario(str(written(tmp_path, criteria, more)), settings_).criteria)


@pytest.mark.parametrize(
    ("criteria", "name", "limits"),
    [
        ("{tasks.READ: {p95_ms: {max: 500}, p50_ms: {max: 9}}}", "tasks.READ.p50_ms", {"max": 9}),
        ("{tasks.REPLY ALL.response_p99_9_ms: {below: 2.5}}", "tasks.REPLY ALL.response_p99_9_ms", {"below": 2.5}),
        ("{tasks.SEND.timeout: {min: 0, max: 0}}", "tasks.SEND.timeout", {"min": 0, "max": 0}),
        ("{done_share: {min: 99.5 %}}", "done_share", {"min": 0.995}),
        ("{lateness_p95_ms.busy: {max: 40}}", "lateness_p95_ms.busy", {"max": 40}),
        ("{generator.rss_bytes: {max: 500M}}", "generator.rss_bytes", {"max": 500 * 1024 * 1024}),
        ("{sessions_lost: {max: 0}, tasks.READ.p95_ms: null}", "tasks.READ.p95_ms", None),
        ("{by_protocol.imap.tasks.READ.p95_ms: {max: 8}}", "tasks.READ.p95_ms", {"max": 8}),
    ],
)
def test_any_figure_may_have_limits(tmp_path: Path, criteria: str, name: str, limits: Limits | None) -> None:
    """Written with dots or as mappings, below the defaults; shares and sizes as everywhere in a scenario."""
    found = read(tmp_path, criteria)
    assert found[name] == limits
    assert {key: found[key] for key in DEFAULT if key != name} == {
        key: bound.document() for key, bound in DEFAULT.items() if key != name and bound
    }


def test_a_criterion_replaces_the_default_and_null_switches_it_off(tmp_path: Path) -> None:
    """All of it: a `max` replaces the default's `below`."""
    assert read(tmp_path, "{}") == documents(DEFAULT)
    given = "{score_ms: {max: 1000}, failed_share: null, delivery.undelivered_at_end: {max: null}}"
    own = {"score_ms": {"max": 1000}, "failed_share": None, "delivery.undelivered_at_end": None}
    assert read(tmp_path, given) == {**documents(DEFAULT), **own}


def test_delivery_has_no_default_criterion_without_mail(tmp_path: Path) -> None:
    """It would never be measured, and the run always miss it; a scenario that asks for it gets it."""
    nothing = "after_browsing: {reply: 0%, reply_all: 0%, forward: 0%, move: 0%, copy: 0%, delete: 0%}"
    (tmp_path / "looker.yaml").write_text(
        f"name: looker\nfrom: loadsim-5.5/light\nnew_mail: {{per_day: 0}}\nprocess_inbox: {{per_day: 0}}\n{nothing}\n"
    )
    more = "topology: [{profile: looker.yaml, users: 1}]\n"
    assert read(tmp_path, "{}", more=more) == {**documents(DEFAULT), "delivery.p95_ms": None}
    asked = read(tmp_path, "{delivery.p95_ms: {max: 5}}", more=more)
    assert asked["delivery.p95_ms"] == {"max": 5}
    both = more.replace("]", ", {profile: loadsim-5.5/light, users: 1}]")
    assert read(tmp_path, "{}", more=both) == documents(DEFAULT)


def test_a_setting_finds_its_criterion_in_any_notation(tmp_path: Path) -> None:
    """`--set` replaces one limit and leaves the other, and adds what the file does not have."""
    for criteria in ("{tasks.READ.p95_ms: {min: 1, max: 500}}", "{tasks: {READ.p95_ms: {min: 1, max: 500}}}"):
        found = read(tmp_path, criteria, "criteria.tasks.READ.p95_ms.max=300", "criteria.tasks.REPLY ALL.mean_ms.max=7")
        assert found["tasks.READ.p95_ms"] == {"min": 1, "max": 300}
        assert found["tasks.REPLY ALL.mean_ms"] == {"max": 7}
    assert read(tmp_path, criteria, "criteria={tasks.READ.p95_ms: {max: 4}}")["tasks.READ.p95_ms"] == {"max": 4}


def test_criteria_apply_to_each_driver_that_plans_the_task(tmp_path: Path) -> None:
    """Unless a driver has its own; a task of one driver's users is judged for that driver only."""
    (tmp_path / "idle.yaml").write_text("name: idle\nfrom: loadsim-5.5/light\nschedule: {per_day: 0}\n")
    more = "topology: [{profile: loadsim-5.5/light, users: 2}, {profile: idle.yaml, users: 1, protocol: aioimaplib}]\n"
    found = read(
        tmp_path,
        "{tasks.READ.p95_ms: {max: 5}, tasks.SCHEDULE.p95_ms: {max: 6}, by_protocol.aioimaplib.score_ms: null,"
        " by_protocol.imap.tasks.READ.p95_ms: {max: 7}}",
        more=more,
    )
    assert found == {
        **{name: limits for name, limits in documents(DEFAULT).items() if name not in SCORES},
        "by_protocol.imap.score_ms": {"below": 1000},
        "by_protocol.aioimaplib.score_ms": None,
        "by_protocol.imap.response_score_ms": {"below": 5000},
        "by_protocol.aioimaplib.response_score_ms": {"below": 5000},
        "by_protocol.imap.tasks.READ.p95_ms": {"max": 7},
        "by_protocol.aioimaplib.tasks.READ.p95_ms": {"max": 5},
        "by_protocol.imap.tasks.SCHEDULE.p95_ms": {"max": 6},
    }
    with pytest.raises(ConfigError, match=r"criteria.by_protocol.aioimaplib.tasks.SCHEDULE: expected one of the tasks"):
        read(tmp_path, "{by_protocol.aioimaplib.tasks.SCHEDULE.p95_ms: {max: 6}}", more=more)


PLANNED = f"one of the tasks that are planned: {', '.join(LIGHT)}, scored"


@pytest.mark.parametrize(
    ("criteria", "line"),
    [
        (
            "{score: {max: 5}}",
            "score: expected one of score_ms, response_score_ms, .*, found 'score' (perhaps score_ms)",
        ),
        ("{undelivered: {max: 0}}", "undelivered: expected .*, found 'undelivered' (perhaps delivery.undelivered)"),
        ("{tasks.READ.p95: {max: 5}}", "tasks.READ.p95: expected .*, found 'p95' (perhaps tasks.READ.p95_ms)"),
        (
            "{tasks.read.p95_ms: {max: 5}}",
            f"tasks.read: expected {PLANNED}, found 'read.p95_ms' (perhaps tasks.READ.p95_ms)",
        ),
        ("{tasks.READ: {max: 5}}", "tasks.READ.max: expected one of hits, .*, found 'max' (perhaps tasks.READ.max_ms)"),
        (
            "{by_protocol.fake.score_ms: null}",
            "by_protocol.fake: expected one of imap, found 'fake.score_ms' (perhaps by_protocol.imap.score_ms)",
        ),
        (
            "{tasks.READ.p95_ms: {max: 5}, tasks: {READ.p95_ms: {max: 900}}}",
            "tasks: expected each limit once, found another one in the other notation",
        ),
        (
            "{tasks: {READ.p95_ms: {max: 5}}, tasks.READ: {p95_ms: null}}",
            "tasks.READ: expected each limit once, found another one in the other notation",
        ),
        ("{1: {max: 5}}", "1: expected .*, found '1'"),
        ("{score_ms: 5}", "score_ms: expected a mapping such as {max: 500}, or null, found 5"),
        ("{score_ms: {maximum: 5}}", "score_ms.maximum: expected one of the keys min, max, below, found 'maximum'"),
        ("{score_ms: {max: -1}}", "score_ms.max: expected a number of at least 0, found -1"),
        ("{failed: {max: 0.01}}", "failed.max: expected a whole number of at least 0, found 0.01"),
        ("{score_ms: {min: 6, max: 5}}", "score_ms: expected limits that a figure can keep, found min 6, max 5"),
        ("{delivery: null}", "delivery: expected a mapping of figures to their limits, found nothing"),
        ("[score_ms]", ": expected a mapping of figures to their limits, found a list"),
    ],
)  # fmt: skip
def test_unknown_criteria_are_refused_before_the_run(tmp_path: Path, criteria: str, line: str) -> None:
    """One line: the key, what there is, what was found, and which name is nearest."""
    file = written(tmp_path, criteria)
    with pytest.raises(ConfigError) as refused:
        load_scenario(str(file))
    said = str(refused.value)
    assert "\n" not in said
    begins, dots, ends = line.partition(".*")
    dot = "" if begins.startswith(":") else "."
    assert said.startswith(f"{file}: criteria{dot}{begins}"), said
    assert said.endswith(ends) if dots else said == f"{file}: criteria{dot}{line}", said


@pytest.mark.parametrize("first", ["max", "mean"])
def test_a_probes_figure_may_have_several_criteria(tmp_path: Path, first: str) -> None:
    """`max` is a statistic and a limit: both orders, both notations; a limit that both state is refused."""
    names = (first, "p95", *({"max", "mean"} - {first}))
    dotted = ", ".join(f"probes.host@mx.cpu_cores.{name}: {{max: 5}}" for name in names)
    nested = ", ".join(f"{name}: {{max: 5}}" for name in names)
    found = read(tmp_path, f"{{{dotted}}}")
    assert {f"probes.host@mx.cpu_cores.{name}" for name in names} <= found.keys()
    assert found == read(tmp_path, f"{{probes.host@mx.cpu_cores: {{{nested}}}}}")
    assert found == read(tmp_path, f"{{{dotted}, probes: {{host@mx: {{cpu_cores.max: {{max: 5}}}}}}}}")
    with pytest.raises(ConfigError, match=r"criteria\.probes: expected each limit once"):
        read(tmp_path, f"{{{dotted}, probes: {{host@mx: {{cpu_cores.max: {{max: 6}}}}}}}}")


def test_a_closed_loop_has_its_own_criteria(tmp_path: Path) -> None:
    """Throughput, and nothing of what was due. Default criteria of that are off: a scenario may be for both modes."""
    stress = "run.mode=stress"
    plan = "score_ms: {max: 5}, done_share: {min: 80%}, tasks.scored: {response_p95_ms: {max: 9}, done_share: null}"
    found = read(tmp_path, f"{{{plan}, throughput.by_task.REPLY ALL: {{min: 2}}}}", stress)
    assert {name: limits for name, limits in found.items() if limits} == {
        "failed_share": {"max": 0.01},
        "down_share": {"max": 0.01},
        "logon_failed_share": {"max": 0.01},
        "delivery.undelivered_at_end": {"max": 0},
        "delivery.duplicates": {"max": 0},
        "delivery.missing": {"max": 0},
        "delivery.p95_ms": {"below": 60_000},
        "tasks.scored.failed_share": {"max": 0.01},
        "throughput.by_task.REPLY ALL": {"min": 2},
    }
    assert found.keys() >= DEFAULT.keys()
    for name in (
        "planned",
        "lateness_p95_ms.busy",
        "inbox.p95_ms",
        "tasks.READ.response_p95_ms",
        "tasks.READ.done_share",
    ):
        with pytest.raises(ConfigError, match="expected one of"):
            read(tmp_path, f"{{{name}: {{max: 1}}}}", stress)


@pytest.mark.parametrize("name", [name for name in known("profiles") if not name.startswith("outside/")])
def test_planned_tasks_exist(name: str) -> None:
    """Each is one that a user can do, under the name that it has there."""
    assert planned_tasks(load_profile(name)) <= set(TASKS)


def test_tasks_with_rate_zero_are_not_planned(tmp_path: Path) -> None:
    """Rates and chances of nought, no limit of the Inbox, nothing saved: their tasks are not there."""
    (tmp_path / "p.yaml").write_text(
        "name: p\nfrom: loadsim-5.5/heavy\nnew_mail: {per_day: 0}\nschedule: {per_day: 0}\n"
        "browse: {per_day: 0}\ninbox_limit: 9\n"
        "load_attachment: 0%\nafter_reading: {reply: 0%, reply_all: 1%, forward: 0%, move: 0%, copy: 0%, delete: 1%}\n"
    )
    profile = load_profile(str(tmp_path / "p.yaml"))
    always = {"LOGON", "SYNC", "LOGOFF"}
    assert planned_tasks(profile) == always | {"READ", "REPLY ALL", "DELETE", "EVICT", "SAVE SENT"}
    (tmp_path / "q.yaml").write_text("name: q\nfrom: p.yaml\nprocess_inbox: {per_day: 0}\n")
    assert planned_tasks(load_profile(str(tmp_path / "q.yaml"))) == always


def names(tree: Any, above: str = "") -> set[str]:
    if not hasattr(tree, "items"):
        return {above}
    return {name for key, below in tree.items() for name in names(below, f"{above}.{key}".removeprefix("."))}


SETTINGS = {
    *("users", "clients", "engines", "load_equivalent_users", "profile_day_s", "day_s", "night_s", "window_factor"),
    *("compression", "received_share", "load.planned", "load.made", "load.tasks.READ.planned", "load.tasks.READ.made"),
    *("generator.lag_limit_ms", "generator.lateness_limit_ms", "tasks.READ.weight"),
}
"""Numbers of score.json that say what was asked for, not what came of it, or that explain another figure."""

DUE = {"planned", "attempted", "attempted_share", "unfinished", "skipped"}


def test_every_number_of_score_json_but_settings_may_be_a_criterion(tmp_path: Path) -> None:
    """In a closed loop, none about tasks that are due, but those of the default criteria, which are off there."""
    tasks = [done("READ", 100, 5), done("READ", 200, 5, outcome="lost", error="x"), done("PROCESS INBOX", 100, 105)]
    mails = [event("accepted", "n1.0", 2, 100), event("seen", "n1.0", 2, 90)]
    facts = ENDED | {"sessions_lost": 1, "sessions_restored": 1}
    header = {"planned_load": {"duration_s": 100.0, "tasks": {"READ": [1]}, "received_share": 1.0}}
    summary = summarise([sample_log(tmp_path / "a.tlog", tasks, mails, header=header, facts=facts)])
    score = summary.score
    score["tasks"] = {row["task"]: row for row in score["tasks"]}
    numbers = {name for name in names(score) if isinstance(figure(summary.figures, name), float)}
    of_plan, of_loop = (names(figures({"imap": ["READ", "LOGON"]}, stress)) for stress in (False, True))
    assert {name for name in numbers - of_plan if not name.startswith("by_protocol.")} == SETTINGS
    assert {name for name in of_plan - of_loop if not name.startswith(("tasks.", "by_protocol.", "inbox."))} == {
        *(*DUE, "offered_per_s", "unserved_users", "load.share"),
        *(f"lateness_p95_ms.{cause}" for cause in ("busy", "down", "generator")),
    }
    assert {name for name in of_plan - of_loop if name.startswith("tasks.READ.") and "response_" not in name} == {
        f"tasks.READ.{name}" for name in (*DUE, "done_share")
    }
    rates = {"tasks_per_s", "messages_per_s", "deliveries_per_s", "silent_activities"}
    rates |= {"by_task.READ", *(f"commands.{name}" for name in PROTOCOLS)}
    assert of_loop - of_plan == {f"throughput.{name}" for name in rates}
    assert "tasks.READ.done_per_s" in of_loop
    assert "tasks.LOGON.done_per_s" not in of_plan | of_loop  # it has no window


@settings(deadline=None, max_examples=25)
@given(
    took_ms=st.lists(st.integers(1, 5000), min_size=1, max_size=60),
    outcomes=st.lists(st.sampled_from(["refused", "lost", "timeout"]), max_size=5),
    late=st.integers(0, 3),
)
def test_figures_are_numpys(
    tmp_path_factory: pytest.TempPathFactory, took_ms: list[int], outcomes: list[str], late: int
) -> None:
    """Each statistic of a task as numpy has it of the times that were written; limits just met, and just missed."""
    tasks = [done("REPLY ALL", index, took) for index, took in enumerate(took_ms)]
    tasks += [done("REPLY ALL", index, 1, outcome=outcome, error="NO") for index, outcome in enumerate(outcomes)]
    tasks += [skipped("REPLY ALL", index) for index in range(late)]
    measured = summarise([sample_log(tmp_path_factory.mktemp("log") / "a.tlog", tasks)]).figures
    kinds, ran = Counter(outcomes), len(took_ms) + len(outcomes)
    planned = ran + late
    waited_ms = np.array([*map(float, took_ms), *[math.inf] * (len(outcomes) + late)])
    expected: dict[str, float] = {
        "hits": len(took_ms),
        "failed": len(outcomes),
        **{kind: kinds[kind] for kind in ("refused", "lost", "timeout")},
        "planned": planned,
        "attempted": ran,
        "attempted_share": ran / planned,
        "failed_share": len(outcomes) / planned,
        "done_share": len(took_ms) / planned,
        "done_per_s": len(took_ms) / 100,
        "skipped": late,
        "mean_ms": float(np.mean(took_ms)),
        "stddev_ms": float(np.std(took_ms, ddof=1)) if len(took_ms) > 1 else 0.0,
        "max_ms": max(took_ms),
        "response_max_ms": float(waited_ms.max()),
    }
    for name, percent in (("p50_ms", 50), ("p90_ms", 90), ("p95_ms", 95), ("p99_ms", 99), ("p99_9_ms", 99.9)):
        expected[name] = float(np.percentile(took_ms, percent, method="inverted_cdf"))
        expected[f"response_{name}"] = float(np.sort(waited_ms)[max(0, math.ceil(percent * len(waited_ms) / 100) - 1)])
    for name, value in expected.items():
        full = f"tasks.REPLY ALL.{name}"
        found = figure(measured, full)
        assert found == pytest.approx(value, rel=1e-9), name
        assert found is not None
        limits: list[tuple[Limits, bool]] = [({"below": found}, False)]
        if math.isfinite(found):
            limits += [
                ({"max": found}, True),
                ({"max": math.nextafter(found, -1)}, False),
                ({"min": found}, True),
                ({"min": math.nextafter(found, math.inf)}, False),
                ({"below": math.nextafter(found, math.inf)}, True),
            ]
        for limit, passed in limits:
            (result,) = judge_each({full: limit}, measured)
            assert result.passed == passed, (name, limit)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1000))
@example(7)
def test_a_share_in_percent_may_be_reached_exactly(failed: int) -> None:
    """As many failures of 1000 as tenths of a percent that a scenario allows: none more is missed, that is met."""
    file = {"server": "embedded", "topology": [{"profile": "loadsim-5.5/light", "users": 2}]}
    setting = f"criteria.failed_share.max={failed // 10}.{failed % 10}%"
    with TemporaryDirectory() as place:
        path = Path(place) / "s.yaml"
        path.write_text(yaml.safe_dump(file))
        criteria = documents(load_scenario(str(path), [setting]).criteria)
        measured = of_one_read(Path(place))
    for share, passed in ((failed / 1000, True), ((failed + 1) / 1001, failed == 1000)):
        changed = replace(measured, totals=replace(measured.totals, failed_share=share))
        results = {one.name: one for one in judge_each(criteria, changed)}
        assert results["failed_share"].passed == passed
        assert results["failed_share"].wanted == f"at most {failed / 10:g} %"


def of_one_read(tmp_path: Path) -> Figures:
    return summarise([sample_log(tmp_path / "a.tlog", [done("READ", 0, 20)])]).figures


@pytest.mark.parametrize("name", ["tasks_per_s", "tasks.READ.done_per_s"])
def test_failed_tasks_do_not_count_towards_a_rate(tmp_path: Path, name: str) -> None:
    """100 READs in 100 s of which 40 are refused at once: 1 per second was offered, and 0.6 achieved."""
    tasks = [done("READ", 1000 * at, 5) for at in range(60)]
    tasks += [done("READ", 1000 * at + 1, 1, outcome="refused", error="NO") for at in range(40)]
    criteria = {name: {"min": 0.9}, "offered_per_s": {"min": 1.0}}
    found = summarise([sample_log(tmp_path / "a.tlog", tasks, header={"criteria": criteria})]).score["verdict"]
    assert [(one["figure"], one["passed"]) for one in found["criteria"]] == [(0.6, False), (1.0, True)]


def test_an_unmeasured_criterion_is_missed_with_a_reason(tmp_path: Path) -> None:
    """With any limit, also one that zero would meet, and also if the whole task is missing."""
    measured = summarise([sample_log(tmp_path / "a.tlog", [skipped("READ", 0)])]).figures
    measured = replace(measured, totals=replace(measured.totals, failed_share=None))
    for name in ("failed_share", "tasks.READ.p95_ms", "tasks.SEND.failed", "generator.lag_p99_ms", "score_ms"):
        for limits in ({"max": 1e9}, {"min": 0}):
            (result,) = judge_each({name: limits}, measured)
            assert (result.figure, result.passed) == (None, False)
            (missed,) = missed_criteria([result], ended_early=False)
            assert (missed.code, missed.where) == (Code.CRITERION_NOT_MEASURED, name)


@pytest.mark.parametrize(
    ("planned", "limits", "results"),
    [
        ({"READ": [5], "SEND": [0]}, {"below": 60_000.0}, []),
        ({"READ": [5]}, {"below": 60_000.0}, []),
        ({"READ": [5]}, {"below": 60_001.0}, [False]),
        ({"READ": [5], "REPLY": [1]}, {"below": 60_000.0}, [False]),
        (None, {"below": 60_000.0}, [False]),
    ],
)
def test_delivery_is_not_judged_in_a_window_without_planned_mail(
    tmp_path: Path, planned: dict[str, list[int]] | None, limits: dict[str, float], results: list[bool]
) -> None:
    """Unless the scenario has a limit of its own; mail that was due and never accepted is missed."""
    header = {"criteria": {"delivery.p95_ms": limits}}
    header |= {"planned_load": {"duration_s": 100.0, "tasks": planned}} if planned else {}
    summary = summarise([sample_log(tmp_path / "a.tlog", [done("READ", at, 5) for at in range(5)], header=header)])
    assert [one.passed for one in summary.criteria if one.name == "delivery.p95_ms"] == results


def test_several_drivers_are_judged_separately(tmp_path: Path) -> None:
    """If a log's criteria name no driver; a named one is judged alone."""
    of_one = of_one_read(tmp_path)
    of_driver = of_one.by_protocol["imap"]
    drivers = {"a": replace(of_driver, score_ms=5.0), "b": replace(of_driver, score_ms=5000.0, tasks=())}
    measured = replace(of_one, score_ms=None, tasks=(), by_protocol=drivers)
    criteria = {"score_ms": {"below": 1000}, "tasks.READ.p95_ms": {"max": 20}, "failed_share": {"max": 0.0}}
    assert [(one.name, one.passed) for one in judge_each(criteria, measured)] == [
        ("by_protocol.a.score_ms", True),
        ("by_protocol.b.score_ms", False),
        ("by_protocol.a.tasks.READ.p95_ms", True),
        ("by_protocol.b.tasks.READ.p95_ms", False),
        ("failed_share", True),
    ]
    assert [one.passed for one in judge_each({"by_protocol.a.score_ms": {"max": 5}}, measured)] == [True]
    nobody = replace(measured, by_protocol={})
    assert [(one.name, one.passed) for one in judge_each({"score_ms": {"max": 5}}, nobody)] == [("score_ms", False)]


@pytest.mark.parametrize(
    ("header", "judged"),
    [
        (
            {},  # says nothing of criteria: today's, of which a run with one failure among eleven READs misses most
            {
                "score_ms": (1000, True),
                "response_score_ms": (5000, False),
                "failed_share": (0.01, False),
                "done_share": (0.98, False),
                "down_share": (0.01, True),
                "logon_failed_share": (0.01, False),  # no user logged on
                "unserved_share": (0.01, True),
                "delivery.undelivered_at_end": (0, False),
                "delivery.duplicates": (0, True),
                "delivery.missing": (0, True),
                "delivery.p95_ms": (60_000, False),
                "tasks.READ.response_p95_ms": (5000, False),
                "tasks.READ.failed_share": (0.01, False),
                "tasks.READ.done_share": (0.98, False),
            },
        ),
        ({"criteria": {"tasks.READ.p95_ms": {"max": 10}}}, {"tasks.READ.p95_ms": (10, True)}),
        ({"criteria": {"score_ms": None, "failed_share": None}}, {}),
    ],
)
def test_a_log_is_judged_by_its_header(
    tmp_path: Path, header: dict[str, Any], judged: dict[str, tuple[float, bool]]
) -> None:
    """A score of exactly 10 ms was not below 10; one of eleven failed; one message is not delivered."""
    tasks = [done("READ", number, 10) for number in range(10)] + [done("READ", 50, 1, outcome="lost", error="x")]
    log = sample_log(tmp_path / "a.tlog", tasks, mails=[event("accepted", "n1.0", 2, 60)], header=header)
    criteria = summarise([log]).score["verdict"]["criteria"]
    assert {
        one["name"]: (next(one[limit] for limit in ("below", "max", "min") if one[limit] is not None), one["passed"])
        for one in criteria
    } == judged


def test_a_run_may_be_judged_by_another_scenarios_criteria(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its criteria with the defaults, instead of the log's; what was never done is not measured."""
    header = {"criteria": {"score_ms": {"max": 1}}, "limits": {"hits": 1, "window_s": 1}}
    log = str(tmp_path / "a.tlog")
    sample_log(tmp_path / "a.tlog", [LOGGED_ON, done("READ", 0, 10)], DELIVERED, header=header)
    for criteria, status in (("{tasks.READ.p95_ms: {max: 10}}", 0), ("{tasks.COPY.p95_ms: {max: 10}}", 1), ("{}", 0)):
        assert main(["log", "answer", "--criteria", str(written(tmp_path, criteria)), log]) == status
        assert ("tasks.COPY.p95_ms was not measured" in capsys.readouterr().out) == bool(status)
    assert main(["log", "answer", log]) == 1
    assert main(["log", "answer", "--criteria", str(written(tmp_path, "{tasks.READ.p95: {max: 1}}")), log]) == 2
    assert "s.yaml: criteria.tasks.READ.p95: expected one of" in capsys.readouterr().err
    assert main(["log", "answer", "--criteria", str(tmp_path / "none.yaml"), log]) == 2
    assert "none.yaml: expected a file that can be read" in capsys.readouterr().err
    (tmp_path / "misspelt.yaml").write_text("critera: {tasks.READ.p95_ms: {max: 1}}", encoding="utf-8")
    assert main(["log", "answer", "--criteria", str(tmp_path / "misspelt.yaml"), log]) == 2
    assert "misspelt.yaml: criteria: expected limits of figures, found none" in capsys.readouterr().err


def begun(tmp_path: Path, name: str, tasks: list[dict[str, Any]], **header: Any) -> Summary:
    """The answer of a run in which one user logged on and one message was delivered, besides these tasks."""
    few = {"limits": {"hits": 1, "window_s": 1}}
    return summarise([sample_log(tmp_path / name, [LOGGED_ON, *tasks], DELIVERED, header=few | header)])


def of_each(summary: Summary) -> dict[str, bool]:
    return {one["name"]: one["passed"] for one in summary.score["verdict"]["criteria"] if one["each"]}


def test_a_half_refused_task_misses_although_few_tasks_fail(tmp_path: Path) -> None:
    """48 of 100 SENDs are less than 1 % of all 5100 tasks, and did not even take long: by default it is a miss."""
    reads = [done("READ", number, 10) for number in range(5000)]
    sends = [done("SEND", number, 10, outcome="refused" if number < 48 else "ok") for number in range(100)]
    summary = begun(tmp_path, "a.tlog", [*reads, *sends])
    assert (summary.score["failed_share"], summary.score["score_ms"]) == (48 / 5100, 10)
    assert (summary.score["verdict"]["validity"], summary.exit_status) == ("valid", 1)
    assert {one.where: one.values["found"] for one in summary.verdict.missed} == {
        "response_score_ms": "never",
        "tasks.SEND.response_p95_ms": "never",
        "tasks.SEND.failed_share": "48 %",
        "tasks.SEND.done_share": "52 %",
    }
    assert begun(tmp_path, "b.tlog", [*reads, *sends[48:]]).exit_status == 0


@pytest.mark.parametrize("mode", ["canonical", "stress"])
def test_mail_from_outside_that_is_refused_misses_although_few_tasks_fail(tmp_path: Path, mode: str) -> None:
    """INJECTs are less than 1 % of all tasks, and have no weight; senders keep to their plan in stress mode, too."""
    reads = [done("READ", number, 10) for number in range(5000)]
    injects = [done("INJECT", number, 10, user=3, outcome="refused") for number in range(40)]
    summary = begun(tmp_path, "a.tlog", [*reads, *injects], mode=mode)
    assert summary.figures.totals.failed_share < 0.01
    assert "tasks.INJECT.failed_share" in {one.where for one in summary.verdict.missed}
    assert summary.exit_status == 1
    relaxed = {"tasks.INJECT.failed_share": {"max": 1.0}}
    told = [str(one.values) for one in begun(tmp_path, "b.tlog", reads + injects, criteria=relaxed).verdict.warnings]
    assert any("tasks.INJECT.failed_share" in words for words in told)


def test_unscored_and_undue_tasks_are_not_judged(tmp_path: Path) -> None:
    """SYNC has no weight, MOVE has one and was never due in the window; SEND is due and was never begun."""
    tasks = [done("READ", 1, 5), done("SYNC", 2, 5, outcome="lost"), done("MOVE", -50, 5), skipped("SEND", 3)]
    summary = begun(tmp_path, "a.tlog", tasks, criteria={"tasks.scored.done_share": {"min": 0.5}})
    assert of_each(summary) == {"tasks.READ.done_share": True, "tasks.SEND.done_share": False}


def test_a_tasks_own_criterion_replaces_that_of_all(tmp_path: Path) -> None:
    """Another limit for one of them, none for another; the rest keep the common one."""
    tasks = [done(task, 1, 5, outcome="lost") for task in ("READ", "SEND", "MOVE")]
    common = {"tasks.scored.failed_share": {"max": 0.01}}
    own = {**common, "tasks.SEND.failed_share": {"max": 1.0}, "tasks.MOVE.failed_share": None}
    summary = begun(tmp_path, "a.tlog", tasks, criteria=own)
    assert of_each(summary) == {"tasks.READ.failed_share": False}
    held = {one["name"]: (one["max"], one["passed"]) for one in summary.score["verdict"]["criteria"]}
    assert held == {"tasks.READ.failed_share": (0.01, False), "tasks.SEND.failed_share": (1, True)}
    assert of_each(begun(tmp_path, "b.tlog", tasks, criteria={**own, "tasks.scored.failed_share": None})) == {}


@pytest.mark.parametrize(
    ("mails", "header", "off"),
    [
        (DELIVERED, {}, ("failed_share", "done_share", "delivery.p95_ms")),
        (DELIVERED, {"mode": "stress"}, ("failed_share", "delivery.p95_ms")),
        ((), {}, ("failed_share", "done_share")),
    ],
)
def test_criteria_that_are_off_are_named(
    tmp_path: Path, mails: Any, header: dict[str, Any], off: tuple[str, ...]
) -> None:
    """But for those that are off by default: of the plan in a closed loop, and of the time of mail without any."""
    names = ("delivery.p95_ms", "done_share", "failed_share")
    criteria = {name: None if name in names else limits for name, limits in documents(DEFAULT).items()}
    log = sample_log(tmp_path / "a.tlog", [done("READ", 1, 5)], mails, header={"criteria": criteria, **header})
    findings = [one for one in summarise([log]).verdict.findings if one.code is Code.CRITERIA_OFF]
    assert findings == [finding(Code.CRITERIA_OFF, criteria=off)]
    found = begun(tmp_path, "b.tlog", [], criteria=documents(DEFAULT)).verdict.findings
    assert Code.CRITERIA_OFF not in {one.code for one in found}


@pytest.mark.parametrize(
    ("own", "named"),
    [
        ({"failed_share": {"max": 1}}, "failed_share at most 100 %"),
        ({"failed_share": {"min": 0.01}}, "failed_share at least 1 %"),
        ({"score_ms": {"min": 800}}, "score_ms at least 800 ms"),
        ({"done_share": {"max": 0.98}}, "done_share at most 98 %"),
        ({"tasks.READ.done_share": {"min": 0.5}}, "tasks.READ.done_share at least 50 %"),
        ({"by_protocol.imap.score_ms": {"below": 2000}}, "by_protocol.imap.score_ms below 2,000 ms"),
        ({"tasks.READ.done_share": {"min": 0.99}}, None),
        ({"tasks.READ.p95_ms": {"max": 90_000}}, None),  # which replaces none
        ({"score_ms": {"max": 1000, "min": 1}}, None),
        ({"delivery.missing": {"below": 1}}, None),
        ({"delivery.missing": {"below": 2}}, "delivery.missing below 2"),
    ],
)
@pytest.mark.parametrize(("limits", "severity"), [((), Severity.NOTE), (("limits.hits 1",), Severity.WARNING)])
def test_criteria_that_are_less_strict_than_the_default_are_named(
    tmp_path: Path, own: dict[str, Any], named: str | None, limits: tuple[str, ...], severity: Severity
) -> None:
    """In one finding with the limits, which make a run valid that by the defaults is not."""
    header = {"criteria": documents(DEFAULT) | own, "limits": {"hits": 1} if limits else {}}
    log = sample_log(tmp_path / "a.tlog", [done("READ", 1, 5)], header=header)
    found = [one for one in summarise([log]).verdict.findings if one.code is Code.RELAXED]
    settings = (*limits, *([named] if named else []))
    assert found == ([finding(Code.RELAXED, "", severity, settings=settings)] if settings else [])
    log = sample_log(tmp_path / "b.tlog", [], header={"criteria": own, "embedded": True})
    assert Code.RELAXED not in {one.code for one in summarise([log]).verdict.findings}


@pytest.mark.parametrize("embedded", [False, True])
def test_scored_tasks_without_a_weight_are_named(tmp_path: Path, embedded: bool) -> None:
    """No criterion of each scored task holds for them."""
    header = {"weights": {"READ": 10, "SEND": 0, "EVICT": 0}, "embedded": embedded}
    found = summarise([sample_log(tmp_path / "a.tlog", [done("READ", 1, 5)], header=header)]).verdict.findings
    (settings,) = [one.values["settings"] for one in found if one.code is Code.RELAXED] or [()]
    assert ("weights.SEND 0" in settings, "weights.EVICT 0" in settings) == (not embedded, False)


def test_scored_tasks_are_judged_for_each_driver(tmp_path: Path) -> None:
    """Under the driver's name; a criterion without a driver replaces it for all, one with a driver for that one."""
    tasks = [done("READ", 1, 5, protocol=driver) for driver in ("imap", "fake")] + [done("SEND", 1, 5)]
    common: dict[str, Limits | None] = {"tasks.scored.done_share": {"min": 0.98}}
    named = {"imap.tasks.READ", "imap.tasks.SEND", "fake.tasks.READ"}

    def asked(name: str, **own: Limits | None) -> set[str]:
        found = of_each(begun(tmp_path, name, tasks, criteria={**common, **own}))
        return {key.removeprefix("by_protocol.").removesuffix(".done_share") for key in found}

    assert asked("a.tlog") == named
    assert asked("b.tlog", **{"tasks.READ.done_share": None}) == {"imap.tasks.SEND"}
    assert asked("c.tlog", **{"by_protocol.fake.tasks.READ.done_share": {"min": 0.5}}) == named - {"fake.tasks.READ"}


def test_tasks_with_a_default_weight_are_judged_in_a_closed_loop(tmp_path: Path) -> None:
    """It has no weights; that one task is refused all the time is no better for it."""
    tasks = [done("READ", 1, 5)] * 1000 + [done("SEND", 2, 5, outcome="refused"), done("SYNC", 2, 5, outcome="lost")]
    summary = begun(tmp_path, "a.tlog", tasks, mode="stress", criteria={"tasks.scored.failed_share": {"max": 0.01}})
    assert of_each(summary) == {"tasks.READ.failed_share": True, "tasks.SEND.failed_share": False}
    assert summary.exit_status == 1


@pytest.mark.parametrize(
    ("name", "limits", "figure", "found", "wanted"),
    [
        ("score_ms", {"below": 1000}, 1000.0, "1,000 ms", "below 1,000 ms"),
        ("tasks.READ.p95_ms", {"max": 500}, 500.0004, "500.0004 ms", "at most 500 ms"),
        ("failed_share", {"max": 0.01}, 0.010000004, "1.0000004 %", "at most 1 %"),
        ("done_per_s", {"min": 5, "max": 6}, 7.23, "7.23", "at least 5 per s and at most 6 per s"),
        ("generator.rss_bytes", {"max": 2**29}, 7.04 * 2**27, "901.1 MiB", "at most 512 MiB"),
        ("tasks.READ.response_max_ms", {"max": 9}, math.inf, "never", "at most 9 ms"),
        ("score_ms", {"max": 9}, None, "not measured", "at most 9 ms"),
    ],
)
def test_results_have_their_words(name: str, limits: Limits, figure: float | None, found: str, wanted: str) -> None:
    result = Result(name, limits, figure)
    assert (result.found, result.wanted) == (found, wanted)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.sampled_from(["min", "max", "below"]))
@example(0.04, 0.0, "max")
@example(499.96, 500.0, "below")
def test_rounded_results_never_contradict_their_verdict(found: float, limit: float, kind: str) -> None:
    result = Result("score_ms", {kind: limit}, found)
    digits, unit = result.found.replace(",", "").split()
    again = Result("score_ms", {kind: limit}, float(digits) * {"ms": 1, "s": 1000}[unit])
    assert again.passed == result.passed or math.isclose(found, limit, rel_tol=1e-14)


def test_delivery_limits_allow_for_the_interval_between_looks(tmp_path: Path) -> None:
    """By default, and of the program that looks most rarely; a criterion that is given stays as it is."""
    group = "{profile: loadsim-5.5/light, users: 1, program: %s}"
    more = f"topology: [{group % 'webmail'}, {group % 'phone'}]\n"
    assert read(tmp_path, "{}", more=more)["delivery.p95_ms"] == {"below": 60_000 + 15 * 60_000}
    assert read(tmp_path, "{delivery.p95_ms: {below: 5}}", more=more)["delivery.p95_ms"] == {"below": 5}
