"""Passwords come from where they do not show, and show nowhere: not in arguments, environments, files or errors."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import ROOT
from timing_samples import DELIVERED, LOGGED_ON, done, write_sample

from loadsim.cli import BAD_INPUT, main
from loadsim.errors import ConfigError
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.findings.severity import Severity
from loadsim.model.ports import Account
from loadsim.protocols.sasl.masking import without_password
from loadsim.scenario.accounts import AccountPattern
from loadsim.scenario.scenario import Scenario, load_scenario

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("place")]

SECRET = "hunter2-{index}"
Capture = pytest.CaptureFixture[str]


def written(accounts: Any, **changes: Any) -> str:
    document = {
        "server": "embedded",
        "accounts": accounts,
        "topology": [{"profile": "loadsim-5.5/light", "users": 2}],
        "run": {"day_length": "20s", "duration": "6s", "warm_up": "1s", "window": "4s", "ramp_up": "1s"},
        "limits": {"window": "1s", "hits": 1},
        **changes,
    }
    Path("own.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return "own.yaml"


def password(scenario: Scenario) -> str:
    assert isinstance(scenario.accounts, AccountPattern)
    return scenario.account(1).password


def secret_file(text: str = SECRET + "\n", mode: int = 0o600) -> str:
    Path("secret").write_text(text, encoding="utf-8")
    Path("secret").chmod(mode)
    return "secret"


def test_a_password_is_read_from_a_file() -> None:
    """The file is next to the scenario; its line end is not part of the password; numbers are filled in."""
    scenario = load_scenario(written({"user": "user{index}", "password_file": secret_file()}))
    assert password(scenario) == "hunter2-1"
    assert "hunter2" not in scenario.to_yaml() and not scenario.exposed


def test_a_password_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken out of the environment, so that no process inherits it, and may be asked for again."""
    monkeypatch.setenv("LOADSIM_TEST_PASSWORD", SECRET)
    name = written({"user": "user{index}", "password_env": "LOADSIM_TEST_PASSWORD"})
    assert password(load_scenario(name)) == password(load_scenario(name)) == "hunter2-1"
    assert "LOADSIM_TEST_PASSWORD" not in os.environ


@pytest.mark.parametrize(
    ("accounts", "says"),
    [
        ({}, "expected either csv, or user and password, found only a user"),
        ({"password_file": "x", "password_env": "Y"}, "found password_file and password_env"),
        ({"password_file": "none"}, "accounts.password_file: expected a file that can be read, found: No such file"),
        ({"password_file": "/dev/zero"}, "accounts.password_file: expected a file that can be read"),
        ({"password_file": "two"}, "expected one line of printable characters, found several"),
        ({"password_env": "LOADSIM_NO_SUCH"}, "accounts.password_env: expected an environment variable, found none"),
        ({"password_env": "LOADSIM_TEST_EMPTY"}, "characters in the variable LOADSIM_TEST_EMPTY, found nothing"),
    ],
)
def test_a_missing_password_is_refused(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, accounts: Any, says: str
) -> None:
    monkeypatch.setenv("LOADSIM_TEST_EMPTY", "")
    Path("two").write_text("hunter2\nhunter3\n", encoding="utf-8")
    assert main(["init", written({"user": "u{index}", **accounts})]) == BAD_INPUT
    out, said = capfd.readouterr()
    assert says in said and said.count("\n") == 1 and "hunter2" not in said and not out


def test_a_setting_replaces_the_files_password() -> None:
    name = written({"user": "u{index}", "password": "***"})
    assert password(load_scenario(name, [f"accounts.password_file={secret_file()}"])) == "hunter2-1"
    with pytest.raises(ConfigError, match="expected one of password, password_file"):
        load_scenario(name, ["accounts.password_file=secret", "accounts.password_env=X"])


def test_a_plan_needs_no_password(capsys: Capture) -> None:
    assert main(["plan", written({"user": "u{index}", "password_file": "none"})]) == 0


def test_a_report_needs_no_password(capsys: Capture) -> None:
    """The scenario in a run directory may be somebody else's."""
    run = Path("run")
    write_sample(run / "logs" / "c1.0.tlog", tasks=[LOGGED_ON, done("READ", 1000, 10)], mails=DELIVERED)
    Path(written({"user": "u{index}", "password_file": "none"})).rename(run / "scenario.yaml")
    assert main(["report", "run"]) == 0


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_file_with_a_password_readable_by_others_is_a_warning(mode: int) -> None:
    (warning,) = load_scenario(written({"user": "u{index}", "password_file": secret_file(mode=mode)})).exposed
    assert warning == finding(Code.PASSWORD_FILE_OPEN, "accounts.password_file", file="secret")


REMOTE = {"imap": {"host": "mail.example", "tls": "none"}, "smtp": {"host": "mail.example", "tls": "none", "port": 25}}


@pytest.mark.parametrize(
    ("imap", "smtp", "found"),
    [
        ({}, {}, ["IMAP at mail.example:143", "SMTP at mail.example:25"]),
        ({"tls": "implicit"}, {"auth": False}, []),
        ({"host": "127.0.0.1"}, {"host": "localhost"}, []),
    ],
)
def test_remote_passwords_without_tls_are_a_warning(
    imap: dict[str, Any], smtp: dict[str, Any], found: list[str]
) -> None:
    """Each way without TLS that leads off this machine, and has a password on it."""
    server = {"imap": REMOTE["imap"] | imap, "smtp": REMOTE["smtp"] | smtp}
    accounts = {"user": "u{index}", "password": "x"}
    scenario = load_scenario(written(accounts, server=server, allow_hosts=["mail.example"]))
    assert [one.where for one in scenario.findings if one.code is Code.PASSWORD_IN_CLEAR] == found


def test_the_answer_has_the_findings_of_the_header(capsys: Capture) -> None:
    warning = finding(Code.PASSWORD_IN_CLEAR, "IMAP at mail.example:143").document
    tasks = [LOGGED_ON, done("READ", 1000, 10)]
    log = write_sample(Path("c1.tlog"), tasks=tasks, mails=DELIVERED, header={"findings": [warning]})
    main(["log", "answer", str(log), "--json"])
    assert warning in json.loads(capsys.readouterr().out)["findings"]


def test_only_warnings_are_findings_of_a_header(capsys: Capture) -> None:
    """Others change the verdict, or say that the run ended early."""
    ended = finding(Code.STOPPED, "", Severity.WARNING).document
    log = write_sample(Path("c1.tlog"), tasks=[LOGGED_ON], header={"findings": [ended]})
    assert main(["log", "answer", str(log)]) == 2
    assert "findings: 0: expected a warning" in capsys.readouterr().err


def test_the_commands_warn_at_their_start(capsys: Capture) -> None:
    """On standard error, before anything is done."""
    server = {"imap": REMOTE["imap"], "smtp": REMOTE["smtp"]}
    name = written({"user": "u{index}", "password": "x"}, server=server, allow_hosts=["mail.example"])
    main(["topology", "export", name, "--format", "csv", "--out", "tables"])
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"loadsim: warning: {finding(Code.PASSWORD_IN_CLEAR, 'IMAP at mail.example:143').text}"


def _descendants(process: int) -> Iterator[int]:
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from _descendants(int(child))


def test_a_run_exposes_no_secret(place: Path) -> None:
    """Neither arguments nor environment of any process of it have them, nor any file; all files are the owner's."""
    name = written({"user": "u{index}", "password_env": "PASS_IT"})
    (place / "numpy.py").write_text("open('hostile', 'w').close(); raise SystemExit(9)", encoding="utf-8")
    command = [sys.executable, "-P", "-m", "loadsim", "run", name, "--out", "out", "--engines", "1"]
    command += ["--set", "accounts.manifest_key=hunter2-key"]
    environment = {**os.environ, "PASS_IT": SECRET}
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, umask=0o022)
    seen: dict[int, str] = {}
    while running.poll() is None:
        for process in {running.pid, *_descendants(running.pid)}:
            with suppress(OSError):
                shown = Path(f"/proc/{process}/cmdline").read_bytes()
                if process != running.pid:
                    shown += Path(f"/proc/{process}/environ").read_bytes()
                seen[process] = shown.decode("utf-8", "replace")  # the last that was seen of each
        with suppress(subprocess.TimeoutExpired):
            running.wait(0.02)
    assert running.stderr is not None
    said = running.stderr.read().decode()
    running.stderr.close()
    assert running.returncode in (0, 1, 3), said
    assert len(seen) >= 3, seen  # ourselves, the server, an engine
    assert not [process for process, shown in seen.items() if "hunter2" in shown]
    assert "hunter2" not in said and not Path("hostile").exists()
    for path in [Path("out"), *Path("out").rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert not mode & 0o077, (path, oct(mode))
        assert path.is_dir() or b"hunter2" not in path.read_bytes(), path


def test_requested_outputs_follow_the_umask(place: Path) -> None:
    """A report to a path of the user's is as readable as their other files."""
    tasks = [LOGGED_ON, done("READ", 1000, 10)]
    write_sample(Path("run/logs/c1.tlog"), tasks=tasks, mails=DELIVERED)
    before = os.umask(0o022)
    try:
        assert main(["report", "run", "-o", "page.md"]) == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path("page.md").stat().st_mode) == 0o644


def test_every_python_child_ignores_its_working_directory() -> None:
    """Every Python process is started with -P: the working directory may have modules of others."""
    source = ROOT / "loadsim"
    starts = [
        line.strip()
        for path in source.rglob("*.py")
        for line in path.read_text(encoding="utf-8").replace("\n            ", " ").splitlines()
        if "sys.executable" in line and '"-m"' in line
    ]
    assert len(starts) >= 5
    assert all('"-P"' in line for line in starts), starts


def test_each_setting_with_a_secret_is_overwritten() -> None:
    """In the command line of a process, which all users of the machine see; where a secret lies is none."""
    program = """if True:
        import sys
        from loadsim.passwords import blot_command_line
        blot_command_line()
        print(open("/proc/self/cmdline").read())"""
    secrets = [f"accounts.{key}=hunter2" for key in ("password", "manifest_key")]
    secrets.append("accounts={password: hunter2}")
    given = [word for secret in secrets for word in ("--set", secret, f"--set={secret}")]
    command = [sys.executable, "-c", program, *given, "accounts.password_file=kept"]
    title = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "hunter2" not in title and title.count("=****") == 6 and "accounts.password_file=kept" in title


@pytest.mark.parametrize("said", ['pass\\\\w"x', "cGFzc1x3Ing", "AHUAcGFzc1x3Ing"])
def test_passwords_are_masked_as_a_server_may_repeat_them(said: str) -> None:
    """With its backslashes doubled, and in Base64 without padding."""
    account = Account(1, "u", "u@loadsim.test", 'pass\\w"x')
    assert without_password(f"NO {said} again", account) == "NO *** again"
