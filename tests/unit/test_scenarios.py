"""Scenarios: what is shipped, what `--set` changes, what is refused and how, what is masked and what is digested."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT

from loadsim.errors import ConfigError
from loadsim.model.accounts import AccountPattern, AccountTable
from loadsim.model.criteria import DEFAULT, Bound, documents
from loadsim.model.distribution import Distribution
from loadsim.model.groups import Lists
from loadsim.model.limits import GeneratorLimits, Limits
from loadsim.model.ports import Account, Endpoint
from loadsim.model.run_times import Run
from loadsim.model.scenario import Scenario, load_scenario
from loadsim.model.scenario_sections import AbortOn, Losses
from loadsim.model.scenario_server import Server
from loadsim.model.yaml_reader import known, read_yaml, write_yaml

LOCAL = "server: {imap: {host: 127.0.0.1}, smtp: {host: 127.0.0.1}}\n"
PATTERN = "accounts: {user: 'u{index}', password: 'p{index}'}\n"
FEW = "topology: [{profile: loadsim-5.5/light, users: 4}]\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a scenario of one's own lies."""
    return tmp_path / "own.yaml"


def refusal(reference: str | Path, *overrides: str) -> str:
    """The line with which a scenario is refused."""
    with pytest.raises(ConfigError) as refused:
        load_scenario(str(reference), overrides)
    assert "\n" not in str(refused.value)
    return str(refused.value)


# --- what is shipped --------------------------------------------------------------------------------------------


def groups(scenario: Scenario) -> list[tuple[str, int, str]]:
    return [(group.profile_name, group.users, group.protocol) for group in scenario.topology]


def test_the_shipped_scenarios() -> None:
    """Four are shipped, each under the name that it bears."""
    assert list(known("scenarios")) == ["dovecot-postfix", "medium", "mixed", "quickstart"]
    assert [load_scenario(name).name for name in known("scenarios")] == list(known("scenarios"))


def test_quickstart() -> None:
    """20 users of all three kinds on the embedded server, a day in 60 s, with wide criteria."""
    scenario = load_scenario("quickstart")
    assert scenario.server == "embedded"
    assert groups(scenario) == [
        ("loadsim-5.5/light", 7, "imap"),
        ("loadsim-5.5/medium", 7, "imap"),
        ("loadsim-5.5/heavy", 6, "imap"),
    ]
    assert scenario.users == 20
    assert scenario.run == Run(day_length_s=60, duration_s=60, ramp_up_s=4, warm_up_s=8, window_s=52, seed=1)
    assert scenario.compression == 480
    assert scenario.duration_s == 60
    assert documents(scenario.criteria) == {
        "score_ms": {"max": 10000},
        "response_score_ms": {"max": 30000},
        **{name: {"max": 0.05} for name in ("failed_share", "down_share", "logon_failed_share")},
        "unserved_share": {"max": 0.2},
        "done_share": {"min": 0.8},
        "delivery.undelivered_at_end": {"max": 0},
        "delivery.duplicates": {"max": 0},
        "delivery.missing": {"max": 0},
        "delivery.p95_ms": {"below": 60000},
        "tasks.scored.response_p95_ms": {"max": 60000},
        "tasks.scored.failed_share": {"max": 0.05},
        "tasks.scored.done_share": {"min": 0.8},
    }
    assert (scenario.limits.done, scenario.limits.load, scenario.limits.hits) == (0.8, 0.8, 1)
    assert scenario.account(7) == Account(7, "user00007", "user00007@loadsim.test", "secret-7")


def test_medium_is_the_published_procedure() -> None:
    """1000 Medium users, 8 hours: 2 discarded, 4 scored; the published limits: 1000 ms, 5 s, 60 s, 1 %."""
    scenario = load_scenario("medium")
    assert groups(scenario) == [("loadsim-5.5/medium", 1000, "imap")]
    assert (scenario.duration_s, scenario.run.warm_up_s, scenario.run.window_s) == (28800, 7200, 14400)
    assert scenario.compression == 1
    assert documents(scenario.criteria) == {
        "score_ms": {"below": 1000},
        "response_score_ms": {"below": 5000},
        **{name: {"max": 0.01} for name in ("failed_share", "down_share", "logon_failed_share", "unserved_share")},
        "done_share": {"min": 0.98},
        "delivery.undelivered_at_end": {"max": 0},
        "delivery.duplicates": {"max": 0},
        "delivery.missing": {"max": 0},
        "delivery.p95_ms": {"below": 60000},
        "tasks.scored.response_p95_ms": {"below": 5000},
        "tasks.scored.failed_share": {"max": 0.01},
        "tasks.scored.done_share": {"min": 0.98},
    }
    assert scenario.limits == Limits(
        lost_users=0.01,
        done=0.98,
        load=0.95,
        hits=20,
        window_s=30,
        command_s=60,
        grace_s=10,
        drain_s=30,
        generator=GeneratorLimits(lag_p99_ms=5, lag_share=0.1, cpu=0.6, lateness_p95_ms=50),
    )
    assert scenario.abort_on == AbortOn(failed_share=None, lost_users=None, sessions_lost=None, period_s=30)
    assert scenario.cluster == Losses(on_client_loss="continue", on_control_loss="continue", control_limit_s=60)


def test_mixed() -> None:
    """100, 200 and 100 users in an hour; log-ons at 50 a second; the published share of it is scored."""
    scenario = load_scenario("mixed")
    assert groups(scenario) == [
        ("loadsim-5.5/light", 100, "imap"),
        ("loadsim-5.5/medium", 200, "imap"),
        ("loadsim-5.5/heavy", 100, "imap"),
    ]
    assert scenario.run == Run(day_length_s=3600, duration_s=3600, ramp_up_s=8, warm_up_s=900, window_s=1800, seed=1)


def test_dovecot_postfix() -> None:
    """200 Medium users in 5 minutes on the ports and accounts that `loadsim server dovecot-postfix` prepares."""
    scenario = load_scenario("dovecot-postfix")
    assert groups(scenario) == [("loadsim-5.5/medium", 200, "imap")]
    assert scenario.run.day_length_s == 300
    assert scenario.server == Server(imap=Endpoint("127.0.0.1", 10143), smtp=Endpoint("127.0.0.1", 10025))
    assert scenario.account(200) == Account(200, "user00200", "user00200@loadsim.test", "secret-200")
    assert scenario.lists == Lists(count=30, cover=None, size=Distribution(2, 10, 20), population=None, seed=1)


def test_shipped_scenarios_sample_the_machine_of_their_server() -> None:
    """All but that of the embedded server, which is no server under test. The probe is no load."""
    for name in known("scenarios"):
        scenario = load_scenario(name)
        assert scenario.probes == ({} if scenario.server == "embedded" else {"host": {}}), name
        assert replace(scenario, probes={}).digest() == scenario.digest()


# --- keys -------------------------------------------------------------------------------------------------------


def test_everything_that_can_be_said(tmp_path: Path, file: Path) -> None:
    """Every key of a scenario arrives at its place, in its unit."""
    (tmp_path / "ca.pem").write_text("certificates\n")
    file.write_text(
        """
name: all
server:
  imap: {host: mail.example.org, tls: implicit, ca_file: ca.pem}
  smtp: {host: 192.0.2.7, tls: starttls, connection: kept, auth: no}
domain: Load.Test
accounts: {user: "u{index:04}x@load.test", password: "{x}{index:03d}"}
topology:
  - {profile: loadsim-5.0/light, users: 3}
  - {profile: loadsim-5.0/light, users: 4, protocol: aioimaplib}
lists: {count: 2, size: {min: 1, average: 1.5, max: 3}, population: 500, seed: 9}
run: {day_length: 1h30m, days: 2, ramp_up: 500ms, warm_up: 10m, window: 0.5h, seed: 77}
initialise: never
weights: {READ: 5, LOGON: 0.5}
criteria: {score_ms: {max: 250}, failed_share: null, delivery.undelivered_at_end: {max: null}}
limits:
  {lost_users: 2%, done: 0.5, load: 25%, hits: 3, window: 4s, command: 5s, grace: 0s, drain: 7s,
   generator: {lag_p99_ms: 8, lag_share: 20%, cpu: 0.9, lateness_p95_ms: null}}
abort_on: {failed_share: 50%, lost_users: 0.2, sessions_lost: 1000, period: 1m}
cluster: {on_client_loss: stop, on_control_loss: stop, control_limit: 90s}
allow_hosts: [MAIL.example.org, 192.0.2.7]
"""
    )
    scenario = load_scenario(str(file))
    light = load_scenario("quickstart", ["topology=[{profile: loadsim-5.0/light, users: 4}]"]).topology[0].profile
    assert scenario.name == "all"
    assert scenario.server == Server(
        imap=Endpoint("mail.example.org", 993, "implicit", str(tmp_path / "ca.pem")),
        smtp=Endpoint("192.0.2.7", 587, "starttls", None, "kept", False),
    )
    assert scenario.domain == "load.test"
    assert [group.profile for group in scenario.topology] == [light, light]
    assert groups(scenario) == [("loadsim-5.0/light", 3, "imap"), ("loadsim-5.0/light", 4, "aioimaplib")]
    assert scenario.users == 7
    assert scenario.account(7) == Account(7, "u0007x@load.test", "u0007x@load.test", "{x}007")
    assert scenario.lists == Lists(count=2, cover=None, size=Distribution(1, 1.5, 3), population=500, seed=9)
    assert scenario.run == Run(
        day_length_s=5400, duration_s=10800, ramp_up_s=0.5, warm_up_s=600, window_s=1800, seed=77
    )
    assert scenario.duration_s == 10800
    assert scenario.initialise == "never"
    assert scenario.weights["READ"] == 5
    assert scenario.weights["LOGON"] == 0.5
    assert scenario.weights["BROWSE"] == 1
    assert scenario.criteria == {
        "by_protocol.imap.score_ms": Bound(max=250),
        "by_protocol.aioimaplib.score_ms": Bound(max=250),
        "by_protocol.imap.response_score_ms": Bound(below=5000),
        "by_protocol.aioimaplib.response_score_ms": Bound(below=5000),
        "failed_share": None,
        "delivery.undelivered_at_end": None,
        **{
            name: bound
            for name, bound in DEFAULT.items()
            if name not in ("score_ms", "response_score_ms", "failed_share", "delivery.undelivered_at_end")
        },
    }
    assert scenario.limits == Limits(0.02, 0.5, 0.25, 3, 4, 5, 0, 7, GeneratorLimits(8, 0.2, 0.9, None))
    assert scenario.abort_on == AbortOn(0.5, 0.2, 1000, 60)
    assert scenario.cluster == Losses("stop", "stop", 90)
    assert scenario.allow_hosts == ("MAIL.example.org", "192.0.2.7")


@pytest.mark.parametrize(
    ("tls", "imap", "smtp"),
    [("none", 143, 25), ("starttls", 143, 587), ("implicit", 993, 465)],
)
def test_ports_by_the_kind_of_tls(file: Path, tls: str, imap: int, smtp: int) -> None:
    """A server's ports are the registered ones unless stated."""
    file.write_text(
        f"server: {{imap: {{host: '::1', tls: {tls}}}, smtp: {{host: localhost, tls: {tls}}}}}\n{PATTERN}{FEW}"
    )
    assert load_scenario(str(file)).server == Server(Endpoint("::1", imap, tls), Endpoint("localhost", smtp, tls))


@pytest.mark.parametrize(
    ("said", "ramp_up_s", "warm_up_s", "window_s"),
    [
        ("{}", 1, 7200, 14400),
        ("{day_length: 100s}", 1, 25, 50),
        ("{day_length: 100s, days: 3}", 1, 75, 150),
        ("{day_length: 100s, warm_up: 60s}", 1, 60, 40),
        ("{day_length: 100s, warm_up: 0s}", 1, 0, 50),
        ("{day_length: 100s, window: 75s}", 1, 25, 75),
        ("{day_length: 100s, ramp_up: 0s}", 0, 25, 50),
    ],
)
def test_what_a_run_leaves_open(file: Path, said: str, ramp_up_s: float, warm_up_s: float, window_s: float) -> None:
    """A quarter of the run is discarded and half is scored, or what is left; log-ons take at least a second."""
    file.write_text(f"server: embedded\n{FEW}run: {said}\n")
    run = load_scenario(str(file)).run
    assert (run.ramp_up_s, run.warm_up_s, run.window_s) == (ramp_up_s, warm_up_s, window_s)


def profile_of(directory: Path, day: str, night: str = "0s", name: str = "worker") -> str:
    """The path of a Medium user's profile with a day and a night of these lengths."""
    path = directory / f"{name}.yaml"
    path.write_text(f"name: {name}\nfrom: loadsim-5.5/medium\nday: {day}\nnight: {night}\n")
    return str(path)


def test_a_day_lasts_as_long_as_the_profiles_unless_the_scenario_says_so(tmp_path: Path, file: Path) -> None:
    """A day of 10 hours is not compressed without being told to; a quarter and half are of it."""
    file.write_text(f"server: embedded\ntopology: [{{profile: {profile_of(tmp_path, '10h')}, users: 2}}]\n")
    scenario = load_scenario(str(file))
    assert scenario.compression == 1
    assert scenario.run == Run(day_length_s=36000, duration_s=36000, ramp_up_s=1, warm_up_s=9000, window_s=18000)
    assert load_scenario(str(file), ["run.day_length=8h"]).compression == 1.25


@pytest.mark.parametrize(
    ("said", "night_s", "duration_s", "warm_up_s", "window_s"),
    [
        ("{}", 14400, 43200, 7200, 14400),
        ("{day_length: 100s}", 50, 150, 25, 50),
        ("{day_length: 100s, days: 3}", 50, 450, 325, 50),  # of the last day
        ("{day_length: 100s, days: 3, warm_up: 10s}", 50, 450, 10, 50),
        ("{day_length: 100s, days: 3, warm_up: 225s}", 50, 450, 225, 25),  # what is left of the second
        ("{day_length: 100s, days: 3, warm_up: 150s, window: 100s}", 50, 450, 150, 100),
        ("{day_length: 100s, duration: 40s}", 50, 40, 10, 20),
        ("{day_length: 100s, duration: 120s}", 50, 120, 25, 50),
        ("{day_length: 100s, duration: 249s}", 50, 249, 25, 50),  # the last day that is whole
        ("{day_length: 100s, duration: 250s}", 50, 250, 175, 50),
        ("{day_length: 100s, mode: stress}", 0, 100, 25, 50),  # a closed loop has no pauses
    ],
)
def test_the_window_of_a_run_with_nights_lies_in_a_day(
    tmp_path: Path, file: Path, said: str, night_s: float, duration_s: float, warm_up_s: float, window_s: float
) -> None:
    """The night is scaled as the day is, and the published quarter and half are of one day."""
    profile = profile_of(tmp_path, "8h", "4h")
    file.write_text(f"server: embedded\ntopology: [{{profile: {profile}, users: 2}}]\nrun: {said}\n")
    scenario = load_scenario(str(file))
    run = scenario.run
    expected = (night_s, duration_s, warm_up_s, window_s)
    assert (run.night_length_s, run.duration_s, run.warm_up_s, run.window_s) == expected
    (tmp_path / "again.yaml").write_text(scenario.to_yaml())
    assert load_scenario(str(tmp_path / "again.yaml")).run == run


@pytest.mark.parametrize(
    ("said", "key", "found"),
    [
        ("{day_length: 100s, window: 76s}", "window", "25 s (by default) and 76 s"),
        ("{day_length: 100s, warm_up: 0s, window: 150s}", "window", "0 s and 150 s"),
        ("{day_length: 100s, warm_up: 100s}", "warm_up", "100 s"),
        ("{day_length: 100s, days: 2, warm_up: 240s, window: 20s}", "window", "4 min and 20 s"),
    ],
)
def test_a_window_that_has_a_part_of_a_night_is_refused(
    tmp_path: Path, file: Path, said: str, key: str, found: str
) -> None:
    """Tasks per second would be of both."""
    profile = profile_of(tmp_path, "8h", "4h")
    file.write_text(f"server: embedded\ntopology: [{{profile: {profile}, users: 2}}]\nrun: {said}\n")
    what = "warm_up and window to end" if key == "window" else "a warm-up that leaves time for a window"
    expected = f"expected {what} within a day of 100 s, before its night"
    assert refusal(file) == f"{file}: run.{key}: {expected}, found {found}"


@pytest.mark.parametrize(
    ("duration_s", "days"), [(100, 1), (40, 0.4), (120, 1), (150, 1), (200, 1.5), (260, 2), (450, 3)]
)
def test_nights_are_no_part_of_the_days_of_a_run(duration_s: float, days: float) -> None:
    """Days of 100 s with nights of 50 s: half a night more is no part of a day more."""
    run = Run(100, duration_s, ramp_up_s=0, warm_up_s=0, window_s=1, night_length_s=50)
    assert run.days == pytest.approx(days)
    assert run.active_s == pytest.approx(100 * days)


def test_profiles_with_other_nights_are_refused(tmp_path: Path, file: Path) -> None:
    """There is one length of a night, as there is one of a day."""
    one, other = profile_of(tmp_path, "8h", "4h", "one"), profile_of(tmp_path, "8h", "2h", "other")
    file.write_text(f"server: embedded\ntopology: [{{profile: {one}, users: 2}}, {{profile: {other}, users: 2}}]\n")
    expected = "expected profiles with a night of 14400s, found one of 7200s"
    assert refusal(file) == f"{file}: topology[1].profile: {expected}"


def test_lists_of_different_profiles(file: Path) -> None:
    """Where profiles do not agree on the lists, the scenario has to say; what it says is enough."""
    both = "topology: [{profile: loadsim-5.0/light, users: 4}, {profile: loadsim-5.5/light, users: 4}]\n"
    file.write_text(f"server: embedded\n{both}")
    expected = "what the profiles do not agree on, such as {count: 30, size: {min: 2, average: 10, max: 20}}"
    found = "other lists in loadsim-5.0/light than in loadsim-5.5/light"
    assert refusal(file) == f"{file}: lists: expected {expected}, found {found}"
    assert refusal(file, "lists.count=3") == f"{file}: lists: expected {expected}, found {found}"
    scenario = load_scenario(str(file), ["lists={cover: 50%, size: {min: 2, average: 3, max: 4}}"])
    assert scenario.lists == Lists(count=None, cover=0.5, size=Distribution(2, 3, 4))


def test_a_profile_beside_the_scenario(tmp_path: Path, file: Path) -> None:
    """A path to a profile is relative to the scenario that names it."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "busy.yaml").write_text("name: busy\nfrom: loadsim-5.5/heavy\nbrowse: {per_day: 99}\n")
    file.write_text("server: embedded\ntopology: [{profile: mine/busy.yaml, users: 4}]\n")
    group = load_scenario(str(file)).topology[0]
    assert (group.profile_name, group.profile.browse.per_day) == ("busy", 99)


def test_a_scenario_without_a_name_is_called_as_its_file(file: Path) -> None:
    """The name defaults to the file's."""
    file.write_text(f"server: embedded\n{FEW}")
    assert load_scenario(str(file)).name == "own"


# --- accounts ---------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 10_000_000))
def test_a_pattern_is_a_function_of_the_number(index: int) -> None:
    """Names and passwords are Python's own formatting of the number, wherever the braces stand."""
    account = AccountPattern("a{index:07d}b", "x{index}{index:3}").account(index, "loadsim.test")
    assert account == Account(index, f"a{index:07d}b", f"a{index:07d}b@loadsim.test", f"x{index}{index:3}")


def test_accounts_from_a_table(tmp_path: Path, file: Path) -> None:
    """Rows are users in their order; an address is the user's name in the domain unless it is given."""
    (tmp_path / "users.csv").write_text(
        'password,user,address\npw-1,anna,\n"p,w""2",bert,bert.b@loadsim.test\n\npw-3,carl@loadsim.test,\npw-4,dora,\n'
    )
    file.write_text(f"server: embedded\naccounts: {{csv: users.csv}}\n{FEW}")
    scenario = load_scenario(str(file))
    assert isinstance(scenario.accounts, AccountTable)
    assert [scenario.account(index) for index in (1, 2, 3, 4)] == [
        Account(1, "anna", "anna@loadsim.test", "pw-1"),
        Account(2, "bert", "bert.b@loadsim.test", 'p,w"2'),
        Account(3, "carl@loadsim.test", "carl@loadsim.test", "pw-3"),
        Account(4, "dora", "dora@loadsim.test", "pw-4"),
    ]


def test_a_table_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--set accounts.csv=users.csv` means the file that one sees, and a written scenario still finds it."""
    (tmp_path / "users.csv").write_text("user,password\na,1\nb,2\nc,3\nd,4\n")
    monkeypatch.chdir(tmp_path)
    scenario = load_scenario(
        "quickstart", ["accounts.csv=users.csv", "topology=[{profile: loadsim-5.5/light, users: 4}]"]
    )
    assert isinstance(scenario.accounts, AccountTable)
    assert scenario.accounts.csv == str(tmp_path / "users.csv")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a,hunter2\n", "line 1: expected the columns user, password and perhaps address, found others"),
        ("", "line 1: expected the columns user, password and perhaps address, found others"),
        ("user,password\na,hunter2\na,hunter2\n", "line 3: expected each user once, found 'a' again"),
        (
            "user,password,address\na,hunter2,\nb,hunter2,A@loadsim.test\n",
            "line 3: expected each user once, found 'b' again",
        ),
        ("user,password\na\n", "line 2: expected 2 columns, found more or fewer"),
        ("user,password\na,hunter2,c\n", "line 2: expected 2 columns, found more or fewer"),
        ("user,password\na,\n", "line 2: expected a password, found none, or one that cannot be sent"),
        ("user,password\na,hunter2\x07\n", "line 2: expected a password, found none, or one that cannot be sent"),
        ('user,password\na,"hunter2" b\n', "line 2: expected CSV, found something else"),
        ("user,password\n,hunter2\n", "line 2: expected an address in loadsim.test, found '@loadsim.test'"),
        ("user,password\na@b.c,hunter2\n", "line 2: expected an address in loadsim.test, found 'a@b.c'"),
        ("user,password\na b,hunter2\n", "line 2: expected an address in loadsim.test, found 'a b@loadsim.test'"),
    ],
)
def test_refused_tables(tmp_path: Path, file: Path, text: str, line: str) -> None:
    """What is wrong with a table is said with its line, and without the password."""
    table = tmp_path / "users.csv"
    table.write_text(text)
    file.write_text(f"server: embedded\naccounts: {{csv: users.csv}}\n{FEW}")
    said = refusal(file).removeprefix(f"{table}: ")
    assert said == line
    assert "hunter2" not in said


def test_tables_that_cannot_be_read(tmp_path: Path, file: Path) -> None:
    """A missing table, one that is no text, and one that is too short are one line each."""
    file.write_text(f"server: embedded\naccounts: {{csv: users.csv}}\n{FEW}")
    table = tmp_path / "users.csv"
    assert refusal(file) == f"{table}: expected a file that can be read, found: No such file or directory"
    table.write_bytes(b"user,password\n\xff,a\n")
    assert refusal(file) == f"{table}: expected UTF-8 text, found other bytes"
    table.write_text("user,password\na,1\nb,2\nc,3\n")
    assert refusal(file) == f"{file}: accounts.csv: expected a row for each of 4 users, found 3 rows"


# --- settings ---------------------------------------------------------------------------------------------------


def value_at(scenario: Scenario, path: str) -> Any:
    value: Any = scenario
    for name in path.split("."):
        if isinstance(value, dict):
            value = value[name]
        else:
            value = value[int(name)] if isinstance(value, tuple) else getattr(value, name)
    return value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("name=other", "name", "other"),
        ("server=embedded", "server", "embedded"),
        ("server.imap.host=127.8.0.1", "server.imap.host", "127.8.0.1"),
        ("server.imap.port=99", "server.imap.port", 99),
        ("server.imap.tls=starttls", "server.imap.tls", "starttls"),
        ("server.smtp.host=::1", "server.smtp.host", "::1"),
        ("server.smtp.port=98", "server.smtp.port", 98),
        ("server.smtp.tls=implicit", "server.smtp.tls", "implicit"),
        ("server.smtp.connection=kept", "server.smtp.connection", "kept"),
        ("server.smtp.auth=no", "server.smtp.auth", False),
        ("server={imap: {host: localhost}, smtp: {host: localhost}}", "server.imap.host", "localhost"),
        ("domain=other.test", "domain", "other.test"),
        ("accounts.user=x{index}", "accounts.user", "x{index}"),
        ("accounts.password=a=b", "accounts.password", "a=b"),
        ("accounts={user: 'y{index}', password: z}", "accounts.user", "y{index}"),
        ("topology.0.profile=loadsim-5.5/heavy", "topology.0.profile_name", "loadsim-5.5/heavy"),
        ("topology.1.users=201", "topology.1.users", 201),
        ("topology.2.protocol=aioimaplib", "topology.2.protocol", "aioimaplib"),
        ("topology=[{profile: loadsim-5.5/light, users: 5}]", "users", 5),
        ("lists.count=7", "lists.count", 7),
        ("lists.cover=10%", "lists.cover", 0.1),
        ("lists.size={min: 1, average: 2, max: 3}", "lists.size", Distribution(1, 2, 3)),
        ("lists.population=5000", "lists.population", 5000),
        ("lists.seed=3", "lists.seed", 3),
        ("run.day_length=2h", "run.day_length_s", 7200),
        ("run.days=2", "run.duration_s", 7200),
        ("run.duration=30m", "run.duration_s", 1800),
        ("run.ramp_up=3s", "run.ramp_up_s", 3),
        ("run.warm_up=4s", "run.warm_up_s", 4),
        ("run.window=90s", "run.window_s", 90),
        ("run.seed=12", "run.seed", 12),
        ("run.mode=stress", "run.mode", "stress"),
        ("client.submission=pipelining", "client.submission", "pipelining"),
        ("client.source_addresses=[127.0.0.9]", "client.source_addresses", ("127.0.0.9",)),
        ("initialise=always", "initialise", "always"),
        ("weights.READ=2", "weights.READ", 2),
        ("weights.REPLY ALL=3", "weights.REPLY ALL", 3),
        ("criteria.score_ms.max=5", "criteria.score_ms", Bound(max=5)),
        ("criteria.score_ms=null", "criteria.score_ms", None),
        ("criteria.failed_share.max=2%", "criteria.failed_share", Bound(max=0.02)),
        ("limits.lost_users=5%", "limits.lost_users", 0.05),
        ("limits.done=0.5", "limits.done", 0.5),
        ("limits.load=0.6", "limits.load", 0.6),
        ("limits.hits=2", "limits.hits", 2),
        ("limits.window=1s", "limits.window_s", 1),
        ("limits.command=2s", "limits.command_s", 2),
        ("limits.grace=3s", "limits.grace_s", 3),
        ("limits.drain=4s", "limits.drain_s", 4),
        ("limits.generator.lateness_p95_ms=6", "limits.generator.lateness_p95_ms", 6),
        ("allow_hosts=[a.example]", "allow_hosts", ("a.example",)),
    ],
)
def test_settings_work_on_each_key(setting: str, path: str, value: Any) -> None:
    """`--set` changes any key of a scenario, also those that its file does not have."""
    before, after = load_scenario("mixed"), load_scenario("mixed", [setting])
    assert value_at(after, path) == value
    assert before != after


def test_settings_apply_in_their_order() -> None:
    """A later setting sees what an earlier one made."""
    group = "topology=[{profile: loadsim-5.5/light, users: 5}]"
    assert load_scenario("mixed", [group, "topology.0.users=6"]).users == 6
    assert load_scenario("mixed", ["topology.0.users=6", group]).users == 5


PROFILE = "--set topology.0.profile: expected one of loadsim-4.0/heavy, "
SHAPE = "--set run.day_shape: expected flat, or a list of 2 to 1,440 weights from 0 to 1e6"


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("topology.0.users", "--set: expected KEY.PATH=VALUE, found no =, or an empty key"),
        ("=5", "--set: expected KEY.PATH=VALUE, found no =, or an empty key"),
        (
            "topology.3.users=5",
            "--set topology.3.users: expected an index from 0 to 2 at topology, found '3'",
        ),
        (
            "topology.-1.users=5",
            "--set topology.-1.users: expected an index from 0 to 2 at topology, found '-1'",
        ),
        (
            "topology.first.users=5",
            "--set topology.first.users: expected an index from 0 to 2 at topology, found 'first'",
        ),
        ("name.first=5", "--set name.first: expected a mapping or a list at name, found a single value"),
        ("topology.0.users=0", "--set topology.0.users: expected a whole number of at least 1, found 0"),
        ("topology.0.users=many", "--set topology.0.users: expected a whole number of at least 1, found 'many'"),
        (
            "topology.0.user=5",
            "--set topology.0.user: expected one of the keys profile, users, protocol, program, found 'user'",
        ),
        ("topology.0.users=[", "--set topology.0.users: line 1: expected YAML, found an error: "),
        ("server.imap.tls=ssl", "--set server.imap.tls: expected none or starttls or implicit, found 'ssl'"),
        ("server={imap: {host: h}}", "--set server.smtp: expected a value, found nothing"),
        ("run.mode=fast", "--set run.mode: expected canonical or stress, found 'fast'"),
        ("run.seed=-1", "--set run.seed: expected a whole number of at least 0, found -1"),
        (
            "run.window=2h",
            "--set run.window: expected warm_up and window to end within the run of 1 h, found 15 min (by"
            " default) and 2 h",
        ),
        ("run..seed=1", "--set: expected KEY.PATH=VALUE, found no =, or an empty key"),
        (".=1", "--set: expected KEY.PATH=VALUE, found no =, or an empty key"),
        (
            "topology.0.profile=loadsim-5.5/huge",
            f"{PROFILE} ... found 'loadsim-5.5/huge' (perhaps loadsim-5.5/heavy)",
        ),
        ("topology.0.profile=midium", f"{PROFILE} ... found 'midium' (perhaps loadsim-5.5/medium)"),
        (
            "topology.0.profile=loadsim-4.0/midium",
            f"{PROFILE} ... found 'loadsim-4.0/midium' (perhaps loadsim-4.0/medium)",
        ),
        (
            "topology.0.program=thunderbrid",
            "--set topology.0.program: expected one of  ... found 'thunderbrid' (perhaps thunderbird)",
        ),
        (
            "initialise=allways",
            "--set initialise: expected auto or always or never or trust, found 'allways' (perhaps always)",
        ),
        ("users=50", "--set users: expected one of the keys  ... found 'users' (perhaps topology.0.users)"),
        ("window=50s", "--set window: expected one of the keys  ... found 'window' (perhaps run.window)"),
        (
            "topology.users=50",
            "--set topology.users: expected an index from 0 to 2 at topology, found 'users'",
        ),
        ("topology.0.protocol=3", "--set topology.0.protocol: expected the name of a driver such as imap, found 3"),
        ("run.day_shape=busy", f"{SHAPE}, found 'busy'"),
        ("run.day_shape=[3]", f"{SHAPE}, found a list"),
        ("run.day_shape=[1, -1]", f"{SHAPE}, found a list"),
        ("run.day_shape=[1, .nan]", f"{SHAPE}, found a list"),
        ("run.day_shape=[0, 0]", "--set run.day_shape: expected a weight above 0, found a list"),
        (
            "run.day_length=" + "9" * 400 + "h",
            "--set run.day_length: expected a duration of at most 8784h, found '999 ... 999...",
        ),
        ("run.ramp_up=8785h", "--set run.ramp_up: expected a duration of at most 8784h, found '8785h'"),
        (
            "run.days=99999999999",
            "--set run.days: expected a run of at most 8784 h, found 99,999,999,999 days of 1 h",
        ),
        ("topology.0.users=50000000", "--set topology.0.users: expected at most 10,000,000 users, found 50,000,300"),
    ],
)
def test_refused_settings(setting: str, line: str) -> None:
    """What is wrong with a setting is said of the setting, not of the file."""
    begin, _, end = line.partition(" ... ")
    said = refusal("mixed", setting)
    assert said.startswith(begin) and said.endswith(end)


# --- refused scenarios ------------------------------------------------------------------------------------------

DURATION = "expected a duration such as 90s, 10m, 8h or 1h30m"
KEYS = (
    "name, server, folders, domain, accounts, topology, mailbox, lists, run, client, initialise, weights, criteria,"
    " limits, abort_on, cluster, probes, monitors, allow_hosts"
)
LOOPBACK = "expected a loopback address, or a host in allow_hosts"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (FEW, "server: expected a value, found nothing"),
        ("server: embedded\n", "topology: expected a value, found nothing"),
        ("server: embedded\ntopology: []\n", "topology: expected a list of at least one group, found none"),
        ("server: embedded\ntopology: {}\n", "topology: expected a list, found a mapping"),
        ("server: embedded\ntopology: [light]\n", "topology[0]: expected a mapping, found 'light'"),
        (
            "server: embedded\ntopology: [{profile: loadsim-5.5/light, users: 0}]\n",
            "topology[0].users: expected a whole number of at least 1, found 0",
        ),
        (
            "server: embedded\ntopology: [{profile: loadsim-5.5/light, users: 1, protocol: IMAP}]\n",
            "topology[0].protocol: expected the name of a driver such as imap, found 'IMAP'",
        ),
        ("server: exchange\n" + FEW, "server: expected embedded or a mapping, found 'exchange'"),
        ("server: {imap: {host: '::1'}}\n" + FEW, "server.smtp: expected a value, found nothing"),
        (
            "server: {imap: {host: '::1', ports: 1}, smtp: {host: '::1'}}\n" + FEW,
            "server.imap.ports: expected one of the keys host, port, tls, ca_file, auth, tls_server_name,"
            " tls_min_version, tls_verify, client_certificate, client_key, preparation_connections,"
            " ignore_capabilities, found 'ports' (perhaps port)",
        ),
        (
            "server: {imap: {host: '::1', port: 65536}, smtp: {host: '::1'}}\n" + FEW,
            "server.imap.port: expected a whole number from 1 to 65535, found 65536",
        ),
        (
            "server: {imap: {host: '::1', ca_file: none.pem}, smtp: {host: '::1'}}\n" + PATTERN + FEW,
            "server.imap.ca_file: expected a file, found 'none.pem'",
        ),
        (
            "server: {imap: {host: mail.example.org}, smtp: {host: '::1'}}\n" + PATTERN + FEW,
            f"server.imap.host: {LOOPBACK}, found 'mail.example.org'; add allow_hosts: ['mail.example.org']",
        ),
        (
            "server: {imap: {host: '::1'}, smtp: {host: 128.0.0.1}}\nallow_hosts: [128.0.0.2]\n" + PATTERN + FEW,
            f"server.smtp.host: {LOOPBACK}, found '128.0.0.1'; add allow_hosts: ['128.0.0.1']",
        ),
        (
            "server: {imap: {host: localhost.example.org}, smtp: {host: '::1'}}\n" + PATTERN + FEW,
            f"server.imap.host: {LOOPBACK}, found 'localhost.example.org'; add allow_hosts: ['localhost.example.org']",
        ),
        (
            LOCAL + FEW,
            "accounts: expected the accounts of a server that is not embedded, such as accounts: {user:"
            ' "user{index:05d}", password_env: LOADSIM_PASSWORD}, found nothing',
        ),
        (
            LOCAL + FEW + "accounts: {user: 'u{index}'}\n",
            "accounts: expected either csv, or user and password, found only a user",
        ),
        (
            LOCAL + FEW + "accounts: {user: 'u{index}', password: a, csv: b}\n",
            "accounts: expected either csv, or user and password, found both",
        ),
        (
            LOCAL + FEW + "accounts: {user: joe, password: hunter2}\n",
            "accounts.user: expected a pattern that contains {index}, found 'joe'",
        ),
        (
            LOCAL + FEW + "accounts: {user: '{name}{index}', password: hunter2}\n",
            "accounts.user: expected no other field than {index}, such as {index:05d}, found '{name}{index}'",
        ),
        (
            LOCAL + FEW + "accounts: {user: 'u{index}@example.org', password: hunter2}\n",
            "accounts.user: expected an address in loadsim.test, found 'u{index}@example.org'",
        ),
        (
            LOCAL + FEW + "accounts: {user: 'u {index}', password: hunter2}\n",
            "accounts.user: expected an address in loadsim.test, found 'u {index}'",
        ),
        (
            LOCAL + FEW + "accounts: {user: 'u{index}', password: 123456}\n",
            "accounts.password: expected a text (a number, yes and no need quotes), found a value that is not shown",
        ),
        (LOCAL + FEW + "accounts: hunter2\n", "accounts: expected a mapping, found a value that is not shown"),
        (
            LOCAL + FEW + "accounts: {user: 'u{index}', pasword: hunter2}\n",
            "accounts.pasword: expected one of the keys user, password, password_file, password_env, password_command,"
            " csv, manifest_key, token_file, token_command, master, master_separator, authzid,"
            " found 'pasword' (perhaps password)",
        ),
        (
            LOCAL + FEW + "accounts: {user: 'u{index}', password: !hunter2 x}\n",
            "line 3: expected YAML, found an error: could not determine a constructor for the tag",
        ),
        (
            FEW + "accounts: {user: 'u{index}', password: 'hunter2\n",
            "line 3: expected YAML, found an error: found unexpected end of stream",
        ),
        ("", "expected a mapping, found nothing"),
        ("server: embedded\ndomain: a_b\n" + FEW, "domain: expected a domain such as loadsim.test, found 'a_b'"),
        ("server: embedded\nrun: {day_length: 100}\n" + FEW, f"run.day_length: {DURATION}, found 100"),
        ("server: embedded\nrun: {day_length: 1:00}\n" + FEW, f"run.day_length: {DURATION}, found '1:00'"),
        ("server: embedded\nrun: {ramp_up: -1s}\n" + FEW, f"run.ramp_up: {DURATION}, found '-1s'"),
        ("server: embedded\nrun: {ramp_up: ''}\n" + FEW, f"run.ramp_up: {DURATION}, found ''"),
        ("server: embedded\nrun: {window: 0s}\n" + FEW, "run.window: expected a duration above 0s, found '0s'"),
        ("server: embedded\nrun: {days: 2, duration: 3h}\n" + FEW, "run: expected either days or duration, found both"),
        ("server: embedded\nrun: {days: 0}\n" + FEW, "run.days: expected a whole number of at least 1, found 0"),
        (
            "server: embedded\nrun: {day_length: 10s, warm_up: 10s}\n" + FEW,
            "run.warm_up: expected a warm-up that leaves time for a window within the run of 10 s, found 10 s",
        ),
        (
            "server: embedded\nrun: {day_length: 10s, window: 8s}\n" + FEW,
            "run.window: expected warm_up and window to end within the run of 10 s, found 2.5 s (by default) and 8 s",
        ),
        ("server: embedded\nrun: 8h\n" + FEW, "run: expected a mapping, found '8h'"),
        ("server: embedded\nclient: pipelining\n" + FEW, "client: expected a mapping, found 'pipelining'"),
        (
            "server: embedded\nclient: {submission: smtplib}\n" + FEW,
            "client.submission: expected aiosmtplib or pipelining, found 'smtplib' (perhaps aiosmtplib)",
        ),
        (
            "server: embedded\nclient: {source_addresses: 127.0.0.2}\n" + FEW,
            "client.source_addresses: expected a list, found '127.0.0.2'",
        ),
        *(
            (
                f"server: embedded\nclient: {{source_addresses: [127.0.0.2, {found}]}}\n" + FEW,
                f"client.source_addresses[1]: expected an IP address of this machine such as 127.0.0.2, found {found}",
            )
            for found in ("'localhost'", "2", "'0.0.0.0'", "'224.0.0.1'")
        ),
        (
            "server: embedded\nclient: {source_addresses: ['::1', '0::1']}\n" + FEW,
            "client.source_addresses: expected each address once, found one twice",
        ),
        (
            "server: embedded\nclient: {submit: pipelining}\n" + FEW,
            "client.submit: expected one of the keys submission, tls_resumption, source_addresses, found 'submit'"
            " (perhaps submission)",
        ),
        (
            "server: embedded\ninitialise: yes\n" + FEW,
            "initialise: expected auto or always or never or trust, found yes",
        ),
        ("server: embedded\nweights: {READ: -1}\n" + FEW, "weights.READ: expected a weight of at least 0, found -1"),
        (
            "server: embedded\nweights: {DELIVERY: 1}\n" + FEW,
            "weights.DELIVERY: expected one of the tasks READ, SEND, REPLY, REPLY ALL, FORWARD, MOVE, COPY, DELETE, "
            "BROWSE, SCHEDULE, LOGON, SYNC, LOAD ATTACHMENT, SAVE SENT, EVICT, LOGOFF, found 'DELIVERY'",
        ),
        ("server: embedded\nweights: [READ]\n" + FEW, "weights: expected a mapping, found a list"),
        (
            "server: embedded\nlimits: {done: 98}\n" + FEW,
            "limits.done: expected a share such as 30% or 0.3, from 0% to 100%, found 98",
        ),
        (
            "server: embedded\nlimits: {generator: {lateness_p95: 5}}\n" + FEW,
            "limits.generator.lateness_p95: expected one of the keys lag_p99_ms, lag_share, cpu, lateness_p95_ms,"
            " found 'lateness_p95' (perhaps lateness_p95_ms)",
        ),
        (
            "server: embedded\nabort_on: {failed_share: 62}\n" + FEW,
            "abort_on.failed_share: expected a share such as 30% or 0.3, from 0% to 100%, found 62",
        ),
        (
            "server: embedded\ncluster: {on_client_loss: panic}\n" + FEW,
            "cluster.on_client_loss: expected continue or stop, found 'panic'",
        ),
        (
            "server: embedded\nabort_on: {period: 0s}\n" + FEW,
            "abort_on.period: expected a duration above 0s, found '0s'",
        ),
        (
            "server: embedded\nabort_on: {failed: 1%}\n" + FEW,
            "abort_on.failed: expected one of the keys failed_share, lost_users, sessions_lost, period, found 'failed'"
            " (perhaps failed_share)",
        ),
        ("server: embedded\nlists: {count: 1, cover: 1%}\n" + FEW, "lists: expected either count or cover, found both"),
        (
            "server: embedded\nlists: {size: {min: 0, average: 1, max: 2}}\n" + FEW,
            "lists.size.min: expected lists of at least 1 member, found 0",
        ),
        ("server: embedded\nallow_hosts: a.example\n" + FEW, "allow_hosts: expected a list, found 'a.example'"),
        (
            "server: embedded\nhosts: []\n" + FEW,
            f"hosts: expected one of the keys {KEYS}, found 'hosts' (perhaps allow_hosts)",
        ),
        ("server: embedded\n5: []\n" + FEW, f"5: expected one of the keys {KEYS}, found 5"),
        ("server: embedded\nserver: embedded\n", "line 2: expected each key once, found 'server' again"),
        (
            "server: embedded\ntopology:\n- {profile: loadsim-5.5/light, users: x}\n"
            "- {profile: loadsim-5.5/light, users: y}\n",
            "topology[0].users: expected a whole number of at least 1, found 'x' (and 1 more)",
        ),
    ],
)
def test_refused_scenarios(file: Path, text: str, line: str) -> None:
    """One line names file, key, what was expected and what was found; and never a password."""
    file.write_text(text)
    said = refusal(file).removeprefix(f"{file}: ")
    assert said == line
    assert "hunter2" not in said


def test_all_weights_zero_are_refused(file: Path) -> None:
    """There is no score where nothing has a weight."""
    zeros = ", ".join(f"{task}: 0" for task in load_scenario("quickstart").weights)
    file.write_text(f"server: embedded\nweights: {{{zeros}}}\n{FEW}")
    assert refusal(file) == f"{file}: weights: expected a weight above 0, found none"


def test_an_unknown_profile_or_scenario_names_the_known_ones(file: Path) -> None:
    """Bare names that nothing bears are answered with those that something does."""
    profiles = (
        "loadsim-4.0/heavy, loadsim-4.0/light, loadsim-4.0/medium, "
        "loadsim-5.0/heavy, loadsim-5.0/light, loadsim-5.0/medium, "
        "loadsim-5.5/heavy, loadsim-5.5/light, loadsim-5.5/medium"
    )
    file.write_text("server: embedded\ntopology: [{profile: loadsim-5.5/large, users: 5}]\n")
    expected = f"expected one of {profiles}, or the path of a .yaml file, found 'loadsim-5.5/large'"
    assert refusal(file) == f"{file}: topology[0].profile: {expected} (perhaps loadsim-5.5/light)"
    expected = "expected one of dovecot-postfix, medium, mixed, quickstart, or the path of a .yaml file, found 'quick'"
    assert refusal("quick") == f"scenario: {expected} (perhaps quickstart)"
    assert refusal("no.yaml") == "no.yaml: expected a file that can be read, found: No such file or directory"


def test_profiles_that_do_not_fit_together(tmp_path: Path, file: Path) -> None:
    """One day to compress, and one profile to a name."""
    (tmp_path / "short.yaml").write_text("name: short\nfrom: loadsim-5.5/light\nday: 4h\n")
    (tmp_path / "same.yaml").write_text("name: loadsim-5.5/light\nfrom: loadsim-5.5/heavy\n")
    for other, line in (
        ("short.yaml", "expected profiles with a day of 28800s, found one of 14400s"),
        ("same.yaml", "expected a name for each profile, found 'loadsim-5.5/light'"),
    ):
        file.write_text(
            f"server: embedded\ntopology: [{{profile: loadsim-5.5/light, users: 4}}, {{profile: {other}, users: 4}}]\n"
        )
        assert refusal(file) == f"{file}: topology[1].profile: {line}"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.255.1.2", "::1", "localhost", "LocalHost", "0:0:0:0:0:0:0:1"])
def test_hosts_that_need_no_permission(host: str) -> None:
    """What never leaves the machine may be put under load."""
    assert load_scenario("mixed", [f"server.imap.host='{host}'"]).users == 400


@pytest.mark.parametrize(
    "host",
    ["10.0.0.1", "0.0.0.0", "127.1", "fe80::1", "example.org", "localhost.", "2130706433", "127.0.0.1.example.com"],
)
def test_hosts_that_need_permission(host: str) -> None:
    """Anything else needs its name in allow_hosts, and then is taken."""
    setting = f"server.imap.host='{host}'"
    expected = "expected a loopback address, or a host in allow_hosts"
    assert (
        refusal("mixed", setting) == f"--set server.imap.host: {expected}, found '{host}'; add allow_hosts: ['{host}']"
    )
    assert load_scenario("mixed", [setting, f"allow_hosts=['{host}']"]).users == 400


# --- written down, and digested ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", known("scenarios"))
def test_a_resolved_scenario_reads_as_itself(name: str, file: Path) -> None:
    """What a run writes down is a scenario again: the same one, but for the masked passwords."""
    scenario = load_scenario(name)
    file.write_text(scenario.to_yaml())
    again = load_scenario(str(file))
    assert isinstance(scenario.accounts, AccountPattern)
    assert again == replace(scenario, accounts=replace(scenario.accounts, password="***"))
    assert again.to_yaml() == scenario.to_yaml()
    assert again.digest() == scenario.digest()


@pytest.mark.parametrize("setting", ["run.days=3", "run.duration=25m", "run.duration=90m"])
def test_a_resolved_duration_reads_as_itself(setting: str, file: Path) -> None:
    """Whole days, a part of one, and something between."""
    scenario = load_scenario("mixed", [setting])
    file.write_text(scenario.to_yaml())
    assert load_scenario(str(file)).run == scenario.run


def test_a_resolved_scenario_reads_as_itself_from_another_place(tmp_path: Path) -> None:
    """Paths and odd durations survive being written into another directory."""
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    away.mkdir()
    (home / "busy.yaml").write_text("name: busy\nfrom: loadsim-5.5/heavy\nbrowse: {per_day: 99}\n")
    (home / "ca.pem").write_text("certificates\n")
    (home / "users.csv").write_text("user,password\na,hunter2\nb,hunter2\n")
    (home / "s.yaml").write_text(
        "name: '1e5'\nserver: {imap: {host: localhost, tls: implicit, ca_file: ca.pem}, smtp: {host: localhost}}\n"
        "accounts: {csv: users.csv}\ntopology: [{profile: busy.yaml, users: 2}]\n"
        "run: {day_length: 7.3s, ramp_up: 1ms}\n"
        "criteria: {failed_share: null, tasks.REPLY ALL.p99_9_ms: {min: 0.5, max: 7}}\n"
        "limits: {window: 0s, lost_users: 0.001%}\n"
    )
    scenario = load_scenario(str(home / "s.yaml"))
    (away / "t.yaml").write_text(scenario.to_yaml())
    again = load_scenario(str(away / "t.yaml"))
    assert again == scenario
    assert again.digest() == scenario.digest()


def test_passwords_stay_out_of_sight(tmp_path: Path, file: Path) -> None:
    """Neither what is written down nor what is printed in a traceback holds a password."""
    file.write_text(f"server: embedded\naccounts: {{user: 'u{{index}}', password: 'hunter2-{{index}}'}}\n{FEW}")
    (tmp_path / "users.csv").write_text("user,password\n" + "".join(f"u{n},hunter2\n" for n in range(4)))
    for settings_ in ([], ["accounts={csv: users.csv}"]):
        scenario = load_scenario(str(file), settings_)
        assert "hunter2" in scenario.account(1).password
        for shown in (scenario.to_yaml(), repr(scenario), str(scenario), repr(scenario.account(1))):
            assert "hunter2" not in shown
    assert "password: '***'" in load_scenario(str(file)).to_yaml()


@pytest.mark.parametrize(
    "setting",
    [
        "name=other",
        "server.imap.port=99",
        "server=embedded",
        "domain=other.test",
        "accounts.user=x{index}",
        "accounts.password=x",
        "run.warm_up=1s",
        "run.window=1s",
        "initialise=always",
        "weights.READ=3",
        "criteria.score_ms=null",
        "limits.hits=1",
        "client.source_addresses=[127.0.0.2]",
        "allow_hosts=[a.example]",
    ],
)
def test_what_does_not_change_the_load_does_not_change_the_digest(setting: str) -> None:
    """The same load on another server, or scored otherwise, has the same digest."""
    assert load_scenario("mixed", [setting]).digest() == load_scenario("mixed").digest()


def test_what_changes_the_load_changes_the_digest() -> None:
    """Users, what they do, lists, times and seeds each give a digest of their own."""
    changes = [
        "name=same",
        "topology.0.users=101",
        "topology.0.profile=loadsim-5.5/medium",
        "topology.0.protocol=aioimaplib",
        "lists.count=29",
        "lists.cover=5%",
        "lists.size={min: 3, average: 10, max: 20}",
        "lists.population=4000",
        "lists.seed=2",
        "run.day_length=2h",
        "run.days=2",
        "run.duration=30m",
        "run.ramp_up=9s",
        "run.seed=2",
        "run.mode=stress",
        "client.submission=pipelining",
        "initialise=never",
    ]
    digests = {load_scenario("mixed", [change]).digest() for change in changes}
    assert len(digests) == len(changes)
    assert all(len(digest) == 64 for digest in digests)


def test_connections_to_smtp_other_than_the_programs_change_the_digest() -> None:
    """A connection for each message is load: runs with and without would be compared as if they were equal."""

    def digest(*settings: str) -> str:
        server = "server={imap: {host: 127.0.0.1, port: 143, tls: none}, smtp: {host: 127.0.0.1, port: 25, tls: none}}"
        return load_scenario("mixed", [server, *settings]).digest()

    assert digest() == digest("server.smtp.connection=per-message") == load_scenario("mixed").digest()
    assert digest("server.smtp.connection=kept") != digest()


def test_a_night_changes_the_digest_and_none_does_not(tmp_path: Path) -> None:
    none, night = profile_of(tmp_path, "8h", "0s", "none"), profile_of(tmp_path, "8h", "4h", "night")
    day, own = ["run={day_length: 8h, duration: 8h}"], load_scenario("medium").digest()
    assert load_scenario("medium", [*day, f"topology.0.profile={none}"]).digest() == own
    assert load_scenario("medium", [*day, f"topology.0.profile={night}"]).digest() != own


def test_a_profiles_name_and_sources_do_not_change_the_digest(tmp_path: Path) -> None:
    """A copy of a profile under another name makes the same load; a changed row does not."""
    (tmp_path / "copy.yaml").write_text("name: copy\nfrom: loadsim-5.5/light\n")
    (tmp_path / "other.yaml").write_text("name: other\nfrom: loadsim-5.5/light\nload_attachment: 26%\n")
    own = load_scenario("mixed").digest()
    assert load_scenario("mixed", [f"topology.0.profile={tmp_path}/copy.yaml"]).digest() == own
    assert load_scenario("mixed", [f"topology.0.profile={tmp_path}/other.yaml"]).digest() != own


# --- the reference, and installed packages ----------------------------------------------------------------------


def test_an_installed_package_finds_what_is_shipped(tmp_path: Path) -> None:
    """A wheel carries profiles, programs and scenarios inside the package; they are found there without a checkout."""
    shutil.copytree(ROOT / "loadsim", tmp_path / "loadsim", ignore=shutil.ignore_patterns("__pycache__"))
    for kind in ("profiles", "programs", "scenarios", "schemas"):
        shutil.copytree(ROOT / kind, tmp_path / "loadsim" / kind)
    program = (
        "from loadsim.model.scenario import load_scenario; from loadsim.model.yaml_reader import shipped; "
        "print(load_scenario('quickstart').users, shipped('profiles'), shipped('schemas').is_dir())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["20", str(tmp_path / "loadsim" / "profiles"), "True"]


# --- YAML -------------------------------------------------------------------------------------------------------

TEXTS = st.text(max_size=12).filter(str.isprintable)

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
    st.from_regex(r"[0-9+:._e-]{1,8}", fullmatch=True),
)


@settings(deadline=None, max_examples=60)
@given(st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner)))
def test_what_is_written_is_read_as_the_same(document: object) -> None:
    """Whatever stands in a document comes back as it was, numbers and what only looks like one included."""
    assert read_yaml(write_yaml(document), "x") == document
