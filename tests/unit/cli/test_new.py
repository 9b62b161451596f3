"""`loadsim new`: what it writes can be read, and holds what was asked for."""

import re
from pathlib import Path

import pytest

from loadsim.cli import main, parser
from loadsim.cli.new import LEAST_TRY, PASSWORD_VARIABLE, TRY_OPTIONS
from loadsim.dryrun.forecast import forecast, refusal
from loadsim.dryrun.plan_cache import quick_load
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.server import Server

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PASSWORD_VARIABLE, "hidden-{index}")
    return tmp_path


def made(*words: str) -> Scenario:
    assert main(["new", "own", *words]) == 0
    return load_scenario("own.yaml")


def test_without_options_the_scenario_is_for_this_machine(capsys: Capture) -> None:
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
    assert printed.out.endswith("\n  loadsim run own.yaml --set run.days=1 --set run.day_length=5m\n")
    assert printed.err == ""


@pytest.mark.parametrize("users", [20, 50])
def test_a_first_try_is_suggested_only_if_run_accepts_it(capsys: Capture, users: int) -> None:
    """With so few users that it would be refused, there is none."""
    made("--users", str(users))
    shorter = load_scenario("own.yaml", TRY_OPTIONS.replace("--set ", "").split(), passwords=False)
    accepted = not refusal(forecast(shorter, quick_load(shorter)))
    assert (TRY_OPTIONS in capsys.readouterr().out) == accepted == (users >= LEAST_TRY)


def test_options_are_in_the_scenario() -> None:
    """A host other than loopback is in `allow_hosts`; a pattern may have any sign."""
    scenario = made(
        *("--host", "mail.example.com", "--tls", "implicit", "--domain", "example.com"),
        *("--user", "u#{index}", "--users", "1500", "--smtp-port", "10025"),
    )
    assert isinstance(scenario.server, Server)
    assert (scenario.server.imap.host, scenario.server.imap.port, scenario.server.smtp.port) == (
        *("mail.example.com", 993, 10025),
    )
    assert scenario.account(3).login == "u#3"
    assert scenario.users == 1500


@pytest.mark.parametrize("host", ["::1", "2001:db8::"])
def test_a_host_may_be_an_address_of_ipv6(host: str) -> None:
    scenario = made("--host", host)
    assert isinstance(scenario.server, Server)
    assert (scenario.server.imap.host, scenario.server.smtp.host) == (host, host)


@pytest.mark.parametrize("domain", [("--domain", "Example.org"), ()])
def test_log_on_names_may_be_addresses(domain: tuple[str, ...]) -> None:
    """They are in the domain that is given; without one, it is theirs."""
    scenario = made("--user", "user{index:05d}@example.org", *domain)
    assert scenario.domain == "example.org"
    assert scenario.account(7).login == scenario.account(7).address == "user00007@example.org"


def test_a_remote_server_is_sampled_by_a_monitor() -> None:
    """This machine's figures would be taken for the server's. A comment declares a monitor on the other one."""
    scenario = made("--host", "mail.example.com", "--tls", "implicit")
    assert scenario.probes == {}
    text = Path("own.yaml").read_text(encoding="utf-8")
    declared = re.sub("^# (monitors:|  server:)", r"\1", text, flags=re.MULTILINE)
    Path("declared.yaml").write_text(declared, encoding="utf-8")
    ssh, host, _, *words = load_scenario("declared.yaml", passwords=False).monitors["server"]
    args = parser().parse_args(words)
    assert (ssh, host, args.name) == ("ssh", "mail.example.com", "server")
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
    ("option", "value"), [("--host", "a b"), ("--tls", "ssl"), ("--imap-port", "70000"), ("--users", "one")]
)
def test_an_unusable_option_is_refused(option: str, value: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as end:
        main(["new", "own", option, value])
    assert end.value.code == 2
    assert f"argument {option}: " in capsys.readouterr().err
    assert not Path("own.yaml").exists()


@pytest.mark.parametrize(
    "words",
    [("--user", "everybody"), ("--domain", "a@b"), ("--domain", "example.com", "--user", "u{index}@example.org")],
)
def test_an_unreadable_scenario_leaves_no_file(words: tuple[str, ...], capsys: Capture) -> None:
    assert main(["new", "own", *words]) == 2
    assert capsys.readouterr().err.startswith("loadsim: own.yaml: ")
    assert not Path("own.yaml").exists()
