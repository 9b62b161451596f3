"""`loadsim new`: what it writes can be read, and holds what was asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from loadsim.analysis.score import FEW_HITS
from loadsim.cli import main, parser
from loadsim.cli.new import FIRST_TRY, PASSWORD_VARIABLE
from loadsim.dryrun.forecast import scored_in_window
from loadsim.model.scenario import Scenario, load_scenario
from loadsim.model.scenario_server import Server
from loadsim.runs.quick_forecast import quick_load

UNPLANNED = "1500"
"""Users of whom `new` plans neither the run nor a first try: that would take most of the time of a test."""

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PASSWORD_VARIABLE, "hidden-{index}")
    return tmp_path


def made(*words: str) -> Scenario:
    """The scenario that these words write."""
    assert main(["new", "own", *words]) == 0
    return load_scenario("own.yaml")


def test_the_comment_on_the_days_states_what_was_asked_for() -> None:
    """No figure of the defaults, and no promise that a small load breaks."""
    made("--users", UNPLANNED, "--day-length", "90s")
    written = Path("own.yaml").read_text(encoding="utf-8")
    assert "\n  # 4 days of 90 s take 6 min. " in written
    assert "enough" not in written
    assert "200" not in written


@pytest.mark.nightly(part="runs")  # it plans 800 days
def test_without_options_it_is_a_scenario_on_this_machine(capsys: Capture) -> None:
    """The next commands are printed, and nothing secret is written."""
    scenario = made()
    assert (scenario.name, scenario.users, scenario.domain) == ("own", 200, "loadsim.test")
    assert isinstance(scenario.server, Server)
    assert (scenario.server.imap.host, scenario.server.imap.port, scenario.server.smtp.port) == ("127.0.0.1", 143, 25)
    assert (scenario.account(7).login, scenario.account(7).password) == ("user00007", "hidden-7")
    assert (scenario.run.day_length_s, scenario.run.warm_up_s, scenario.run.window_s) == (1800, 1800, 3600)
    written = Path("own.yaml").read_text(encoding="utf-8")
    assert "hidden" not in written
    assert "\n  # 4 days of 30 min take 2 h. The first quarter" in written
    assert scenario.probes == {"host": {}}
    printed = capsys.readouterr()
    assert "\n  loadsim check own.yaml\n  loadsim run own.yaml\n" in printed.out
    assert printed.out.endswith(
        "\nThe run takes about 2 h.\nA first try of 5 min, with a provisional score:\n"
        "  loadsim run own.yaml --set run.days=1 --set run.day_length=5m\n"
    )
    told = re.findall("loadsim: .*", printed.err)  # the score is neither provisional nor without an interval
    assert [line.partition(",")[0] for line in told] == ["loadsim: note: users receive 32 % of the published mail"]


def test_options_are_in_the_scenario() -> None:
    """A host other than loopback is in `allow_hosts`; a pattern may have any sign."""
    scenario = made(
        *("--host", "mail.example.com", "--tls", "implicit", "--domain", "example.com", "--users", UNPLANNED),
        *("--user", "u#{index}", "--profile", "loadsim-5.0/heavy", "--day-length", "30m"),
    )
    assert isinstance(scenario.server, Server)
    assert (scenario.server.imap.host, scenario.server.imap.port, scenario.server.smtp.port) == (
        *("mail.example.com", 993, 465),
    )
    assert scenario.account(3).login == "u#3"
    assert (scenario.users, scenario.topology[0].profile_name) == (int(UNPLANNED), "loadsim-5.0/heavy")
    assert scenario.run.day_length_s == 1800


@pytest.mark.parametrize("domain", [("--domain", "Example.org"), ()])
def test_log_on_names_may_be_addresses(domain: tuple[str, ...]) -> None:
    """They are in the domain that is given; without one, it is theirs."""
    scenario = made("--user", "user{index:05d}@example.org", *domain, "--users", UNPLANNED)
    assert scenario.domain == "example.org"
    assert scenario.account(7).login == scenario.account(7).address == "user00007@example.org"


def test_another_machine_is_sampled_there() -> None:
    """This machine's figures would be taken for the server's. A comment declares a monitor on the other one."""
    scenario = made("--host", "mail.example.com", "--tls", "implicit", "--users", UNPLANNED)
    assert scenario.probes == {}
    text = Path("own.yaml").read_text(encoding="utf-8")
    declared = re.sub("^# (monitors:|  server:)", r"\1", text, flags=re.MULTILINE)
    Path("declared.yaml").write_text(declared, encoding="utf-8")
    ssh, host, _, *words = load_scenario("declared.yaml", passwords=False).monitors["server"]
    args = parser().parse_args(words)
    assert (ssh, host, args.name, str(args.out)) == ("ssh", "mail.example.com", "server", "-")
    assert (args.probes, args.imap_port, args.smtp_port) == (["host"], 993, 465)


def test_a_file_that_exists_is_not_changed(capsys: Capture) -> None:
    Path("own.yaml").write_text("mine", encoding="utf-8")
    assert main(["new", "own"]) == 2
    assert (
        capsys.readouterr().err
        == "loadsim: own.yaml: expected a new file, found one that exists; choose another name, or delete it\n"
    )
    assert Path("own.yaml").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("option", "value"),
    [("--host", "a b"), ("--tls", "ssl"), ("--imap-port", "70000"), ("--users", "one"), ("--day-length", "soon")],
)
def test_an_option_that_cannot_be_used_is_refused(option: str, value: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as end:
        main(["new", "own", option, value])
    assert end.value.code == 2
    assert f"argument {option}: " in capsys.readouterr().err
    assert not Path("own.yaml").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--user", "everybody"),
        ("--profile", "midium"),
        ("--domain", "a@b"),
        ("--domain", "example.com", "--user", "u{index}@example.org"),
    ],
)
def test_nothing_is_left_of_a_scenario_that_cannot_be_read(words: tuple[str, ...], capsys: Capture) -> None:
    assert main(["new", "own", *words]) == 2
    assert capsys.readouterr().err.startswith("loadsim: own.yaml: ")
    assert not Path("own.yaml").exists()


def test_a_schema_that_exists_is_not_written_again(capsys: Capture) -> None:
    assert main(["new", "first", "--users", UNPLANNED]) == main(["new", "second", "--users", UNPLANNED]) == 0
    first, second = (line for line in capsys.readouterr().out.splitlines() if line.startswith("Wrote "))
    assert first == "Wrote first.yaml, and scenario.schema.json for editors. Next:"
    assert second == "Wrote second.yaml; scenario.schema.json for editors was there already. Next:"


def test_a_run_that_is_short_needs_no_first_try(capsys: Capture) -> None:
    made("--users", UNPLANNED, "--day-length", "1m")
    assert capsys.readouterr().out.endswith("\n  loadsim run own.yaml\nThe run takes about 4 min.\n")


BUSY = """\
from: loadsim-5.5/light
name: busy
new_mail: {per_day: 80}
process_inbox: {per_day: 80}
browse: {per_day: 80}
schedule: {per_day: 80}
after_reading: {reply: 0%, reply_all: 0%, forward: 0%, move: 0%, copy: 0%, delete: 0%, nothing: 100%}
"""
"""A profile of which 10 users have about 400 of each task in half a day."""


@pytest.mark.slow
def test_a_score_is_called_provisional_by_its_plan(capsys: Capture) -> None:
    """Busy users have enough of each scored task in 5 min, unlike those of the other tests."""
    Path("busy.yaml").write_text(BUSY, encoding="utf-8")
    made("--users", "10", "--profile", "./busy.yaml")
    assert "A first try of 5 min:" in capsys.readouterr().out.splitlines()
    tried = load_scenario("own.yaml", FIRST_TRY)
    load = quick_load(tried)
    assert load is not None
    assert min(scored_in_window(tried, load).values()) >= FEW_HITS > tried.limits.hits


def test_nothing_is_said_of_the_score_if_the_plan_is_unknown(capsys: Capture) -> None:
    made("--users", UNPLANNED)
    assert capsys.readouterr().out.endswith(
        "\nThe run takes about 2 h.\nA first try of 5 min:\n"
        "  loadsim run own.yaml --set run.days=1 --set run.day_length=5m\n"
    )


def test_ports_are_in_the_scenario() -> None:
    """As those of a private server of the tutorial."""
    scenario = made("--imap-port", "10143", "--smtp-port", "10025", "--users", UNPLANNED)
    assert isinstance(scenario.server, Server)
    assert (scenario.server.imap.port, scenario.server.smtp.port) == (10143, 10025)
