"""Scenarios: what is shipped, what `--set` changes, what is refused and how, what is masked and what is digested."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.documents.yaml_dialect import Loader
from loadsim.documents.yaml_reader import known, read_yaml, write_yaml
from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.model.ports import Account, Endpoint
from loadsim.scenario.accounts import AccountPattern, AccountTable
from loadsim.scenario.criteria import DEFAULT, SCORES, Bound
from loadsim.scenario.distribution import Distribution
from loadsim.scenario.limits import GeneratorLimits, Limits
from loadsim.scenario.run_times import RunTimes
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.sections import AbortOn, ListsSection, Losses
from loadsim.scenario.server import Server

LOCAL = "server: {imap: {host: 127.0.0.1}, smtp: {host: 127.0.0.1}}\n"
PATTERN = "accounts: {user: 'u{index}', password: 'p{index}'}\n"
FEW = "topology: [{profile: loadsim-5.5/light, users: 4}]\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "own.yaml"


def refusal(reference: str | Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_scenario(str(reference), overrides)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def groups(scenario: Scenario) -> list[tuple[str, int, str]]:
    return [(group.profile.name, group.users, group.protocol) for group in scenario.topology]


def test_medium_is_the_published_procedure() -> None:
    """1000 Medium users, 8 hours: 2 discarded, 4 scored; the published limits: 1000 ms, 5 s, 60 s, 1 %."""
    scenario = load_scenario("medium")
    assert groups(scenario) == [("loadsim-5.5/medium", 1000, "imap")]
    assert (scenario.duration_s, scenario.run.warm_up_s, scenario.run.window_s) == (28800, 7200, 14400)
    assert scenario.compression == 1
    assert scenario.criteria == DEFAULT
    assert scenario.limits == Limits()


def test_every_key_is_read(tmp_path: Path, file: Path) -> None:
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
abort_on: {failed_share: 50%, lost_users: 0.2, period: 1m}
cluster: {control_limit: 90s}
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
    assert scenario.lists == ListsSection(count=2, cover=None, size=Distribution(1, 1.5, 3), population=500, seed=9)
    assert scenario.run == RunTimes(
        day_length_s=5400, duration_s=10800, ramp_up_s=0.5, warm_up_s=600, window_s=1800, seed=77
    )
    assert scenario.duration_s == 10800
    assert scenario.initialise == "never"
    assert scenario.weights["READ"] == 5
    assert scenario.weights["LOGON"] == 0.5
    assert scenario.weights["BROWSE"] == 1
    assert scenario.criteria == {
        **{name: bound for name, bound in DEFAULT.items() if name not in SCORES},
        "by_protocol.imap.score_ms": Bound(max=250),
        "by_protocol.aioimaplib.score_ms": Bound(max=250),
        "by_protocol.imap.response_score_ms": Bound(below=5000),
        "by_protocol.aioimaplib.response_score_ms": Bound(below=5000),
        "failed_share": None,
        "delivery.undelivered_at_end": None,
    }
    assert scenario.limits == Limits(0.02, 0.5, 0.25, 3, 4, 5, 0, 7, GeneratorLimits(8, 0.2, 0.9, None))
    assert scenario.abort_on == AbortOn(0.5, 0.2, 60)
    assert scenario.cluster == Losses(90)
    assert scenario.allow_hosts == ("MAIL.example.org", "192.0.2.7")


@pytest.mark.parametrize(("tls", "imap", "smtp"), [("none", 143, 25), ("starttls", 143, 587), ("implicit", 993, 465)])
def test_the_default_port_follows_the_kind_of_tls(file: Path, tls: str, imap: int, smtp: int) -> None:
    file.write_text(
        f"server: {{imap: {{host: '::1', tls: {tls}}}, smtp: {{host: localhost, tls: {tls}}}}}\n{PATTERN}{FEW}"
    )
    assert load_scenario(str(file)).server == Server(Endpoint("::1", imap, tls), Endpoint("localhost", smtp, tls))


@pytest.mark.parametrize(
    ("said", "ramp_up_s", "warm_up_s", "window_s"),
    [
        ("{}", 1, 7200, 14400),
        ("{day_length: 100s, days: 3}", 1, 75, 150),
        ("{day_length: 100s, warm_up: 60s}", 1, 60, 40),
        ("{day_length: 100s, ramp_up: 0s}", 0, 25, 50),
    ],
)
def test_unstated_run_times_have_defaults(
    file: Path, said: str, ramp_up_s: float, warm_up_s: float, window_s: float
) -> None:
    """A quarter of the run is discarded and half is scored, or what is left; log-ons take at least a second."""
    file.write_text(f"server: embedded\n{FEW}run: {said}\n")
    run = load_scenario(str(file)).run
    assert (run.ramp_up_s, run.warm_up_s, run.window_s) == (ramp_up_s, warm_up_s, window_s)


def profile_of(directory: Path, day: str, night: str = "0s", name: str = "worker") -> str:
    """The path of a Medium user's profile with a day and a night of these lengths."""
    path = directory / f"{name}.yaml"
    path.write_text(f"name: {name}\nfrom: loadsim-5.5/medium\nday: {day}\nnight: {night}\n")
    return str(path)


@pytest.mark.parametrize(
    ("said", "night_s", "duration_s", "warm_up_s", "window_s"),
    [
        ("{}", 14400, 43200, 7200, 14400),
        ("{day_length: 100s, days: 3}", 50, 450, 325, 50),  # of the last day
        ("{day_length: 100s, days: 3, warm_up: 225s}", 50, 450, 225, 25),  # what is left of the second
        ("{day_length: 100s, days: 3, warm_up: 150s, window: 100s}", 50, 450, 150, 100),
        ("{day_length: 100s, duration: 40s}", 50, 40, 10, 20),
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


def test_profiles_with_different_lists_need_stated_lists(file: Path) -> None:
    """Where profiles do not agree on the lists, the scenario has to say; what it says is enough."""
    both = "topology: [{profile: loadsim-5.0/light, users: 4}, {profile: loadsim-5.5/light, users: 4}]\n"
    file.write_text(f"server: embedded\n{both}")
    expected = "what the profiles do not agree on, such as {count: 30, size: {min: 2, average: 10, max: 20}}"
    found = "other lists in loadsim-5.0/light than in loadsim-5.5/light"
    assert refusal(file) == f"{file}: lists: expected {expected}, found {found}"
    assert refusal(file, "lists.count=3") == f"{file}: lists: expected {expected}, found {found}"
    scenario = load_scenario(str(file), ["lists={cover: 50%, size: {min: 2, average: 3, max: 4}}"])
    assert scenario.lists == ListsSection(count=None, cover=0.5, size=Distribution(2, 3, 4))


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 10_000_000))
def test_a_pattern_depends_on_the_users_number(index: int) -> None:
    account = AccountPattern("a{index:07d}b", "x{index}{index:3}").account(index, "loadsim.test")
    assert account == Account(index, f"a{index:07d}b", f"a{index:07d}b@loadsim.test", f"x{index}{index:3}")


def test_accounts_are_read_from_a_table(tmp_path: Path, file: Path) -> None:
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


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a,hunter2\n", "line 1: expected columns user, password and optionally address, found others"),
        ("user,password\na,hunter2\na,hunter2\n", "line 3: expected each user once, found 'a' again"),
        (
            "user,password,address\na,hunter2,\nb,hunter2,A@loadsim.test\n",
            "line 3: expected each user once, found 'b' again",
        ),
        (
            "user,password,address\nAnna,hunter2,a@loadsim.test\nanna,hunter2,b@loadsim.test\n",
            "line 3: expected each user once, found 'anna' again",
        ),
        ("user,password\na\n", "line 2: expected 2 columns, found more or fewer"),
        ("user,password\na,hunter2\x07\n", "line 2: expected a password, found none, or one that cannot be sent"),
        ('user,password\na,"hunter2" b\n', "line 2: expected CSV, found something else"),
        ("user,password\na@b.c,hunter2\n", "line 2: expected an address in loadsim.test, found 'a@b.c'"),
    ],
)
def test_bad_tables_are_rejected(tmp_path: Path, file: Path, text: str, line: str) -> None:
    table = tmp_path / "users.csv"
    table.write_text(text)
    file.write_text(f"server: embedded\naccounts: {{csv: users.csv}}\n{FEW}")
    said = refusal(file).removeprefix(f"{table}: ")
    assert said == line
    assert "hunter2" not in said


def test_unreadable_tables_are_rejected(tmp_path: Path, file: Path) -> None:
    file.write_text(f"server: embedded\naccounts: {{csv: users.csv}}\n{FEW}")
    table = tmp_path / "users.csv"
    assert refusal(file) == f"{table}: expected a file that can be read, found: No such file or directory"
    table.write_bytes(b"user,password\n\xff,a\n")
    assert refusal(file) == f"{table}: expected UTF-8 text, found other bytes"
    table.write_text("user,password\na,1\nb,2\nc,3\n")
    assert refusal(file) == f"{file}: accounts.csv: expected a row for each of 4 users, found 3 rows"


@pytest.mark.parametrize(
    ("setting", "begin", "end"),
    [
        ("=5", "--set: expected KEY.PATH=VALUE", "found no =, or an empty key"),
        ("topology.3.users=5", "--set topology.3.users: expected an index from 0 to 2", "found '3'"),
        ("name.first=5", "--set name.first: expected a mapping or a list", "found a single value"),
        ("topology.0.users=[", "--set topology.0.users: line 1: expected YAML, found an error: ", ""),
        ("server={}", "--set server: expected embedded or imap and smtp, mapi, or jmap", "found a mapping"),
        ("run.window=2h", "--set run.window: expected", "found 15 min (by default) and 2 h"),
        ("topology.0.profile=midium", "--set topology.0.profile: ", "(perhaps loadsim-5.5/medium)"),
        ("topology.0.profile=loadsim-4.0/midium", "--set topology.0.profile: ", "(perhaps loadsim-4.0/medium)"),
        ("topology.0.program=thunderbrid", "--set topology.0.program: ", "(perhaps thunderbird)"),
        ("initialise=allways", "--set initialise: ", "found 'allways' (perhaps always)"),
        ("run.day_shape=busy", "--set run.day_shape: expected flat, or", "found 'busy'"),
        ("run.day_shape=[1, .nan]", "--set run.day_shape: expected flat, or", "found a list"),
        ("run.day_shape=[0, 0]", "--set run.day_shape: expected a weight above 0", "found a list"),
        ("run.day_length=" + "9" * 400 + "h", "--set run.day_length: expected a duration of at most 8784h", "999..."),
        ("run.days=99999999999", "--set run.days: expected a run of at most 8784 h", "99,999,999,999 days of 1 h"),
        ("topology.0.users=50000000", "--set topology.0.users: expected at most 10,000,000 users", "50,000,300"),
    ],
)
def test_bad_settings_are_rejected(setting: str, begin: str, end: str) -> None:
    said = refusal("mixed", setting)
    assert said.startswith(begin) and said.endswith(end)


@pytest.mark.parametrize(
    ("section", "key", "found"),
    [
        ("topology: []", "topology", "none"),
        ("topology: [light]", "topology[0]", "'light'"),
        ("server: exchange", "server", "'exchange'"),
        ("server: {imap: {host: '::1', ports: 1}, smtp: {host: '::1'}}", "server.imap.ports", "'ports' (perhaps port)"),
        (LOCAL.replace("}, smtp", ", tls: implicit, ca_file: none.pem}, smtp"), "server.imap.ca_file", "'none.pem'"),
        (LOCAL.replace("smtp: {host: 127", "smtp: {host: 128"), "server.smtp.host", "allow_hosts: ['128.0.0.1']"),
        (LOCAL + "accounts: null", "accounts", "nothing"),
        ("accounts: {user: 'u{index}'}", "accounts", "only a user"),
        ("accounts: {user: 'u{index}', password: a, csv: b}", "accounts", "both"),
        ("accounts: {user: joe, password: hunter2}", "accounts.user", "'joe'"),
        ("accounts: {user: '{name}{index}', password: hunter2}", "accounts.user", "'{name}{index}'"),
        ("accounts: {user: 'u{index}@example.org', password: hunter2}", "accounts.user", "'u{index}@example.org'"),
        ("accounts: {user: 'u{index}', password: 123456}", "accounts.password", "a value that is not shown"),
        ("accounts: hunter2", "accounts", "a value that is not shown"),
        ("accounts: {user: 'u{index}', pasword: hunter2}", "accounts.pasword", "'pasword' (perhaps password)"),
        ("domain: a_b", "domain", "'a_b'"),
        ("run: {day_length: 1:00}", "run.day_length", "'1:00'"),
        ("run: {days: 2, duration: 3h}", "run", "both"),
        ("run: {day_length: 10s, warm_up: 10s}", "run.warm_up", "10 s"),
        ("client: {source_addresses: [127.0.0.2, 'localhost']}", "client.source_addresses[1]", "'localhost'"),
        ("client: {source_addresses: [127.0.0.2, '0.0.0.0']}", "client.source_addresses[1]", "'0.0.0.0'"),
        ("client: {source_addresses: ['::1', '0::1']}", "client.source_addresses", "a repeated one"),
        ("run: {audit_allow: [mail-altered, mail-lost]}", "run.audit_allow[1]", "'mail-lost'"),
        ("initialise: yes", "initialise", "yes"),
        ("weights: {READ: -1}", "weights.READ", "-1"),
        ("weights: {DELIVERY: 1}", "weights.DELIVERY", "'DELIVERY'"),
        ("limits: {done: 98}", "limits.done", "98"),
        ("lists: {count: 1, cover: 1%}", "lists", "both"),
        ("lists: {size: {min: 0, average: 1, max: 2}}", "lists.size.min", "0"),
        ("hosts: []", "hosts", "'hosts' (perhaps allow_hosts)"),
        ("topology: [{profile: loadsim-5.5/light, users: x, y: 1}]", "topology[0].users", "'x' (and 1 more)"),
    ],
)
def test_bad_sections_are_rejected(file: Path, section: str, key: str, found: str) -> None:
    """One line names file, key, what was expected and what was found; and never a password."""
    sound = yaml.safe_load(f"server: embedded\n{PATTERN}{FEW}")
    file.write_text(yaml.safe_dump(sound | yaml.load(section, Loader)))
    said = refusal(file)
    assert said.startswith(f"{file}: {key}: expected ") and said.endswith(found), said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (FEW, "server: expected a value, found nothing"),
        ("", "expected a mapping, found nothing"),
        ("server: embedded\nserver: embedded\n", "line 2: expected each key once, found 'server' again"),
        (FEW + "accounts: {user: 'u{index}', password: !hunter2 x}\n", "line 2: expected YAML, found an error: "),
        (FEW + "accounts: {user: 'u{index}', password: 'hunter2\n", "line 3: expected YAML, found an error: "),
    ],
)
def test_bad_files_are_rejected(file: Path, text: str, found: str) -> None:
    file.write_text(text)
    said = refusal(file)
    assert said.startswith(f"{file}: {found}")
    assert "hunter2" not in said


def test_all_weights_zero_are_refused(file: Path) -> None:
    """There is no score where nothing has a weight."""
    zeros = ", ".join(f"{task}: 0" for task in load_scenario("quickstart").weights)
    file.write_text(f"server: embedded\nweights: {{{zeros}}}\n{FEW}")
    assert refusal(file) == f"{file}: weights: expected a weight above 0, found none"


def test_inconsistent_profiles_are_rejected(tmp_path: Path, file: Path) -> None:
    (tmp_path / "short.yaml").write_text("name: short\nfrom: loadsim-5.5/light\nday: 4h\n")
    (tmp_path / "same.yaml").write_text("name: loadsim-5.5/light\nfrom: loadsim-5.5/heavy\n")
    (tmp_path / "dark.yaml").write_text("name: dark\nfrom: loadsim-5.5/light\nnight: 2h\n")
    for other, line in (
        ("short.yaml", "expected profiles with a day of 28800s, found one of 14400s"),
        ("same.yaml", "expected a name for each profile, found 'loadsim-5.5/light'"),
        ("dark.yaml", "expected profiles with a night of 0s, found one of 7200s"),
    ):
        file.write_text(
            f"server: embedded\ntopology: [{{profile: loadsim-5.5/light, users: 4}}, {{profile: {other}, users: 4}}]\n"
        )
        assert refusal(file) == f"{file}: topology[1].profile: {line}"


@pytest.mark.parametrize("host", ["127.255.1.2", "LocalHost", "0:0:0:0:0:0:0:1"])
def test_local_hosts_need_no_permission(host: str) -> None:
    assert load_scenario("mixed", [f"server.imap.host='{host}'"]).users == 400


@pytest.mark.parametrize("host", ["0.0.0.0", "127.1", "fe80::1", "localhost.", "127.0.0.1.example.com"])
def test_other_hosts_need_permission(host: str) -> None:
    """Anything else needs its name in allow_hosts, and then is taken."""
    setting = f"server.imap.host='{host}'"
    assert refusal("mixed", setting).endswith(f"found '{host}'; add allow_hosts: ['{host}']")
    assert load_scenario("mixed", [setting, f"allow_hosts=['{host}']"]).users == 400


@pytest.mark.parametrize("name", known("scenarios"))
def test_a_resolved_scenario_is_read_as_the_same(name: str, file: Path) -> None:
    scenario = load_scenario(name)
    file.write_text(scenario.to_yaml())
    again = load_scenario(str(file))
    assert isinstance(scenario.accounts, AccountPattern)
    assert again == replace(scenario, accounts=replace(scenario.accounts, password="***"))
    assert again.to_yaml() == scenario.to_yaml()
    assert again.digest() == scenario.digest()


def test_a_resolved_scenario_is_read_as_the_same_from_another_directory(tmp_path: Path) -> None:
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


def test_passwords_are_masked(tmp_path: Path, file: Path) -> None:
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
        "server=embedded",
        "domain=other.test",
        "accounts.user=x{index}",
        "run.window=1s",
        "initialise=always",
        "weights.READ=3",
        "criteria.score_ms=null",
        "limits.hits=1",
        "client.source_addresses=[127.0.0.2]",
        "client.check_state=1.0",
        "client.trace=1",
        "run.audit=no",
        "run.audit_allow=[mail-altered]",
        "allow_hosts=[a.example]",
    ],
)
def test_settings_beyond_the_load_keep_the_digest(setting: str) -> None:
    assert load_scenario("mixed", [setting]).digest() == load_scenario("mixed").digest()


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("quickstart", "1e27b188316d16b7810815ed2e15e96aa701b9bc0b615cb9ac68014134fabc84"),
        ("mapi-quickstart", "27dafb51800b804f2d6c515d6584e76d559ad43bc3603da395f6ce32d5ae6857"),
    ],
)
def test_runs_of_older_versions_stay_comparable(name: str, digest: str) -> None:
    """Keys that were added since, and are not used, are not in the digest; it is that of November 2026."""
    assert load_scenario(name).digest() == digest


def test_settings_of_the_load_change_the_digest() -> None:
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


def test_a_stated_smtp_connection_changes_the_digest() -> None:
    """A connection for each message is load: runs with and without would be compared as if they were equal."""

    def digest(*settings: str) -> str:
        server = "server={imap: {host: 127.0.0.1, port: 143, tls: none}, smtp: {host: 127.0.0.1, port: 25, tls: none}}"
        return load_scenario("mixed", [server, *settings]).digest()

    assert digest() == digest("server.smtp.connection=per-message") == load_scenario("mixed").digest()
    assert digest("server.smtp.connection=kept") != digest()


def test_an_address_book_changes_the_digest() -> None:
    """Its look-ups are load; where it is does not matter."""

    def digest(**ldap: str) -> str:
        imap = {"host": "127.0.0.1", "port": 143, "tls": "none"}
        server = {"imap": imap, "smtp": imap | {"port": 25}, **({"ldap": ldap} if ldap else {})}
        return load_scenario("mixed", [f"server={server}", "accounts.password=secret"]).digest()

    bound = {"bind_dn": "uid={user},ou=people,dc=example"}
    assert digest(url="ldap://127.0.0.1/ou=people,dc=example", **bound) != digest()
    assert digest(url="ldap://[::1]/ou=all,dc=example", **bound) == digest(url="ldap://127.0.0.1/ou=x", **bound)


def test_a_newsgroup_changes_the_digest() -> None:
    """Its commands are other load than a folder's; where it is does not matter."""

    def digest(**nntp: str) -> str:
        imap = {"host": "127.0.0.1", "port": 143, "tls": "none"}
        server = {"imap": imap, "smtp": imap | {"port": 25}, **({"nntp": nntp} if nntp else {})}
        given = [f"server={server}", "accounts.password=secret", "folders.public=example.board"]
        return load_scenario("mixed", given).digest()

    assert digest(host="127.0.0.1") != digest()
    assert digest(host="::1", tls="implicit") == digest(host="127.0.0.1")


def test_a_profiles_name_and_sources_keep_the_digest(tmp_path: Path) -> None:
    """A copy of a profile under another name makes the same load; a changed row does not."""
    (tmp_path / "copy.yaml").write_text("name: copy\nfrom: loadsim-5.5/light\n")
    (tmp_path / "other.yaml").write_text("name: other\nfrom: loadsim-5.5/light\nload_attachment: 26%\n")
    own = load_scenario("mixed").digest()
    assert load_scenario("mixed", [f"topology.0.profile={tmp_path}/copy.yaml"]).digest() == own
    assert load_scenario("mixed", [f"topology.0.profile={tmp_path}/other.yaml"]).digest() != own


def test_lists_without_a_count_are_not_missing() -> None:
    """Those of LoadSim 5.0 have no count; a warning that there are none needs a count of 0."""
    group = "topology=[{profile: loadsim-5.0/medium, users: 100}]"
    assert not load_scenario("medium", [group]).lacks_lists
    assert load_scenario("medium", [group, "lists.count=0"]).lacks_lists


@pytest.mark.parametrize(
    ("protocols", "share", "warned"),
    [
        (("aioimaplib",), "100%", True),
        (("aioimaplib", "imap"), "100%", False),
        (("jmap",), "100%", False),
        (("aioimaplib",), "2%", False),
    ],
)
def test_state_checks_without_a_supporting_driver_are_a_warning(
    protocols: tuple[str, ...], share: str, warned: bool
) -> None:
    groups = ", ".join(f"{{profile: loadsim-5.5/light, users: 5, protocol: {each}}}" for each in protocols)
    scenario = load_scenario("medium", [f"topology=[{groups}]", f"client.check_state={share}"])
    assert (Code.STATE_NOT_CHECKED in [one.code for one in scenario.findings]) is warned


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
def test_written_yaml_is_read_as_the_same(document: object) -> None:
    assert read_yaml(write_yaml(document), "x") == document
