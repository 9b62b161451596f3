"""Paths that the system cannot look at: one line with its reason, exit status 2, and nothing is written."""

from pathlib import Path

import pytest
import yaml
from timing_samples import done, write_sample

from loadsim.cli import BAD_INPUT, main

GROUPS = [{"profile": "loadsim-5.5/light", "users": 2}]
LIMITS = {"window": "1s", "hits": 1}
"""A run of two users is too short for the limits' defaults."""


@pytest.fixture(params=["File name too long", "Too many levels of symbolic links"])
def unseen(request: pytest.FixtureRequest, place: Path) -> tuple[str, str]:
    """Return a path and the reason: no file system takes the name, or a link leads to itself."""
    write_sample(place / "run" / "logs" / "c1.0.tlog", [done("READ", 1000, 20)])
    write_sample(place / "new" / "logs" / "c1.0.tlog", [done("READ", 1000, 20)], header={"run": "new"})
    server = {service: {"host": "127.0.0.1", "port": 1, "tls": "starttls"} for service in ("imap", "smtp")}
    documents = {
        "own": {"server": "embedded", "limits": LIMITS, "topology": GROUPS},
        "real": {"server": server, "accounts": {"user": "u{index}", "password": "x"}, "topology": GROUPS},
        "suite": {"scenario": "own.yaml", "repeats": 2},
    }
    for name, document in documents.items():
        Path(f"{name}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    name = "x" * 300 if request.param == "File name too long" else "circle"
    Path("base.yaml").write_text(f"from: {name}.yaml\n", encoding="utf-8")
    for link in ("circle", "circle.yaml", "circle.md"):
        Path(link).symlink_to(link)
    return name, request.param


@pytest.mark.parametrize(
    "command",
    [
        "report {}",
        "report run {}",
        "report {}/logs/*.tlog",
        "report run -o {}.md",
        "log answer {}",
        "log answer run --weights {}",
        "compare --base run --new {}",
        "compare --base run --new new --report {}.md",
        "audit {}",
        "plan {}.yaml",
        "plan own.yaml --set topology.0.profile={}.yaml",
        "plan own.yaml --set topology.0.profile=base.yaml",
        "plan real.yaml --set accounts.token_file={}",
        "plan real.yaml --set server.imap.ca_file={}",
        "plan real.yaml --set server.smtp.client_certificate={} --set server.smtp.client_key=own.yaml",
        "run own.yaml --out {}",
        "suite suite.yaml --out {}",
        "suite {}.yaml",
        "capacity own.yaml --out {}",
        "storage run storage-quickstart --out {}",
        "storage run storage-quickstart --out new-storage --set directories=[{}]",
        "storage report {}",
        "topology export own.yaml --format csv --out {}/x",
    ],
)
def test_an_unreadable_path_is_refused_before_any_work(
    unseen: tuple[str, str], command: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, reason = unseen
    before = sorted(place.rglob("*"))
    assert main([word.format(path) for word in command.split()]) == BAD_INPUT
    out, line = capsys.readouterr()
    assert (out, line.count("\n")) == ("", 1), line
    assert reason in line
    assert sorted(place.rglob("*")) == before
