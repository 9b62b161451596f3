"""Profiles from measured rates: valid, each key with its source, and planned they make the measured load."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from loadsim.characterise.profile import Habits, habits_of, lognormal, profile_text, scenario_text
from loadsim.characterise.workload import LineCounts, MeasuredSizes, MeasuredWorkload, Rate, UserGroup
from loadsim.dryrun.plan import make_plan
from loadsim.scenario.profile import load_profile
from loadsim.scenario.scenario import load_scenario

SIZES = MeasuredSizes(500, 4000.0, 75_000.0, 9_000_000, ((4096, 0.5), (16_777_216, 1.0)))


def rate(per_day: float) -> Rate:
    return Rate(per_day, 0.1, 1000)


def workload(
    sent: float | None, received: float | None, groups: tuple[tuple[int, float], ...] = ()
) -> MeasuredWorkload:
    """A workload of 40 users, or of groups with their users and sent messages."""
    divided = groups or ((40, sent or 0.0),)
    known, got = None if sent is None else rate(sent), None if received is None else rate(received)
    return MeasuredWorkload(
        software=("Postfix",),
        mail_software="Postfix",
        begin="2026-03-02 00:00:00",
        end="2026-03-06 23:59:59",
        files=1,
        size_bytes=1,
        days=5.0,
        days_complete=5,
        days_counted=5,
        users=sum(users for users, _ in divided),
        sent=known,
        received=got,
        log_ons=None,
        recipients=4.0,
        outside_share=0.1,
        sizes=SIZES,
        hours=(),
        day_shape=(*range(24),),
        busiest_minute=3,
        busiest_minute_to_hour=2.0,
        most_recipients=20,
        groups=tuple(UserGroup(users, known and rate(own), got, 0.0, 100.0) for users, own in divided),
        clients=None,
        counts={},
        lines=LineCounts(1, 0, 0, ()),
        findings=(),
    )


def written(place: Path, measured: MeasuredWorkload) -> tuple[Path, list[Habits]]:
    """Write the profiles and the scenario as the command does; return the scenario's path."""
    habits = habits_of(measured)
    files = [f"{one.name}.yaml" for one in habits]
    for file, one in zip(files, habits, strict=True):
        (place / file).write_text(profile_text(measured, one))
    (place / "scenario.yaml").write_text(scenario_text(measured, habits, files))
    return place / "scenario.yaml", habits


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "received"), [(20.0, 80.0), (4.0, 25.0), (10.0, 117.0), (12.0, 15.0)])
def test_the_planned_load_is_the_measured_one(tmp_path: Path, sent: float, received: float) -> None:
    """The oracle is the simulation of all users, in which replies to all answer replies to all."""
    path, _ = written(tmp_path, workload(sent, received))
    plan = make_plan(load_scenario(str(path), ["run.days=2", "run.day_shape=flat"]))
    # Poisson: 40 users and 2 days; a message to many recipients counts once, and mail of the last minutes is unread.
    assert plan.whole.per_user["sent"] == pytest.approx(sent, rel=4 / (sent * 80) ** 0.5 + 0.02)
    assert plan.whole.per_user["received"] == pytest.approx(received, rel=5 / (sent * 80) ** 0.5 + 0.02)


@pytest.mark.slow
def test_groups_send_as_measured_and_receive_alike(tmp_path: Path) -> None:
    path, habits = written(tmp_path, workload(10.0, 40.0, ((20, 4.0), (20, 16.0))))
    assert [one.users for one in habits] == [20, 20]
    plan = make_plan(load_scenario(str(path), ["run.days=2", "run.day_shape=flat"]))
    for name, sent in (("measured-1", 4.0), ("measured-2", 16.0)):
        per_user = plan.by_profile[name].per_user
        assert per_user["sent"] == pytest.approx(sent, rel=4 / (sent * 40) ** 0.5 + 0.03)
        assert per_user["received"] == pytest.approx(40.0, rel=5 / (10 * 80) ** 0.5)


@pytest.mark.parametrize(
    ("sent", "received"), [(20.0, 80.0), (None, 80.0), (20.0, None), (50.0, 2.0), (0.01, 300.0), (7200.0, 14_400.0)]
)
def test_every_rate_gives_a_valid_profile(tmp_path: Path, sent: float | None, received: float | None) -> None:
    measured = workload(sent, received)
    path, (habits,) = written(tmp_path, measured)
    profile = load_profile(str(tmp_path / "measured.yaml"))
    assert (profile.name, profile.day_s, profile.night_s) == ("measured", 86_400.0, 0.0)
    assert profile.calculated is not None
    assert profile.calculated.sent == pytest.approx(20.0 if sent is None and received == 80.0 else sent, rel=1e-3)
    assert profile.calculated.received == pytest.approx(80.0 if received is None else received, rel=1e-3)
    outcomes = profile.after_reading
    answers = habits.received * (outcomes.reply + outcomes.reply_all + outcomes.forward)
    assert habits.new + answers == pytest.approx(habits.sent, rel=1e-3)
    assert answers <= 0.7501 * habits.sent
    assert load_scenario(str(path)).run.day_shape == tuple(map(float, range(24)))


@pytest.mark.parametrize("received", [80.0, None])
def test_each_key_says_where_it_comes_from(received: float | None) -> None:
    measured = workload(20.0, received)
    text = profile_text(measured, habits_of(measured)[0])
    section_has_source = False
    for line in text.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            section_has_source = False
        section_has_source |= line.startswith("  #")
        if ": " in line and not line.startswith(("#", "name:", "  #")):
            assert section_has_source or " # " in line, line
    sources = [line.rpartition("# ")[2].partition(":")[0] for line in text.splitlines() if " # " in line]
    assert {"measured", "assumed"} <= {*sources}
    assert ("received: 80" in text, "assumed: no log shows received mail" in text) == (True, received is None)
    assert yaml.safe_load(text)["from"] == "loadsim-5.5/medium"


@pytest.mark.parametrize(
    ("median", "mean", "most", "expected"),
    [
        (4000.0, 75_000.0, 9_000_000, (4000, 75_000, 9_000_000)),
        (300.0, 500.0, 800, (1024, 1024, 1024)),  # the smallest message of loadsim
        (4000.0, 3000.0, 5000, (4000, 4000, 5000)),  # skewed to the left: no lognormal distribution is
        (2000.0, 9e6, 1 << 40, (2000, 2_000_000, 1 << 28)),
    ],
)
def test_sizes_stay_within_a_profiles_limits(median: float, mean: float, most: int, expected: tuple[int, ...]) -> None:
    assert lognormal(replace(SIZES, median_bytes=median, mean_bytes=mean, max_bytes=most)) == expected
