"""All errors of single values at once, then those of what does not fit: without false ones, each with its line."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.cli import BAD_INPUT, main
from loadsim.documents.yaml_reader import SourceLines
from loadsim.errors import MOST_SHOWN, ConfigError
from loadsim.scenario.scenario import load_scenario

pytestmark = pytest.mark.usefixtures("place")

Capture = pytest.CaptureFixture[str]


def printed(capsys: Capture, *words: str) -> list[str]:
    assert main(words) == BAD_INPUT
    out, said = capsys.readouterr()
    assert out == ""
    lines = said.splitlines()
    assert all(line.startswith("loadsim: ") for line in lines)
    return [line.removeprefix("loadsim: ") for line in lines]


def problems(load: Callable[[], object]) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load()
    return [str(each) for each in refused.value.problems]


MANY = """\
name: 5
server:
  imap: {host: 127.0.0.1, prot: 143}
  smtp: {host: 127.0.0.1, tls: implict}
accounts: {user: joe, pasword: hunter2}
topology:
  - {profile: loadsim-5.5/medium, usres: 20}
run: {days: 1, duration: 3h}
weights:
  READ: 5
  SEND: -1
limits:
  generator:
    cpu: 700
"""


def test_each_error_has_its_line_of_the_file(capsys: Capture) -> None:
    """In the order of the file; a misspelt key gets a suggestion, and is not missing as well."""
    Path("own.yaml").write_text(MANY, encoding="utf-8")
    expected = [
        ("line 1: name: expected a text (a number, yes and no need quotes), found 5", ""),
        ("line 3: server.imap.prot: expected one of the keys host, port, ", ", found 'prot' (perhaps port)"),
        ("line 4: server.smtp.tls: expected none or starttls or implicit, found 'implict'", ""),
        ("line 5: accounts.pasword: expected one of the keys user, ", ", found 'pasword' (perhaps password)"),
        ("line 7: topology[0].usres: expected one of the keys profile, users, ", ", found 'usres' (perhaps users)"),
        ("line 8: run: expected either days or duration, found both", ""),
        ("line 11: weights.SEND: expected a weight of at least 0, found -1", ""),
        ("line 14: limits.generator.cpu: expected a share such as 30% or 0.3, from 0% to 100%, found 700", ""),
    ]
    lines = printed(capsys, "plan", "own.yaml")
    assert len(lines) == len(expected)
    for line, (begin, end) in zip(lines, expected, strict=True):
        assert line.startswith(f"own.yaml: {begin}") and line.endswith(end), line


def test_the_first_twenty_are_shown(capsys: Capture) -> None:
    """And the number of others. The one-line text has the first one only."""
    groups = "".join(f"  - {{profile: loadsim-5.5/light, users: 0, x{number}: 1}}\n" for number in range(15))
    Path("own.yaml").write_text(f"server: embedded\ntopology:\n{groups}", encoding="utf-8")
    lines = printed(capsys, "plan", "own.yaml")
    assert len(lines) == MOST_SHOWN + 1
    assert lines[0].startswith("own.yaml: line 3: topology[0].x0: ")
    assert lines[-2].startswith("own.yaml: line 12: topology[9].users: ")
    assert lines[-1] == "and 10 more"
    with pytest.raises(ConfigError) as refused:
        load_scenario("own.yaml")
    assert str(refused.value).startswith("own.yaml: topology[0].x0: ") and str(refused.value).endswith(" (and 29 more)")


def test_errors_of_profiles_and_programs_come_together(capsys: Capture) -> None:
    """By file. A profile that two groups share is rejected once."""
    Path("busy.yaml").write_text("name: busy\nfrom: loadsim-5.5/light\nday: 8\nbrowse: {per_dai: 3}\n")
    Path("mine.yaml").write_text("name: Mine\nidle: yes\nsession: per-vew\n")
    group = "{profile: busy.yaml, users: 2, program: mine.yaml}"
    Path("own.yaml").write_text(f"server: embedded\ntopology: [{group}, {group}]\n")
    lines = printed(capsys, "plan", "own.yaml")
    assert [line.partition(": expected")[0] for line in lines] == [
        "busy.yaml: line 3: day",
        "busy.yaml: line 4: browse.per_dai",
        "mine.yaml: line 1: name",
        "mine.yaml: line 3: session",
    ]


def test_each_wrong_setting_is_named(capsys: Capture) -> None:
    """First those that are no settings; then those whose values do not fit, as settings and without a line."""
    settings_ = ["--set", "topology.9.users=1", "--set", "name", "--set", "run.days=0"]
    assert [line.partition(": expected")[0] for line in printed(capsys, "plan", "quickstart", *settings_)] == [
        "--set topology.9.users",
        "--set",
    ]
    settings_ = ["--set", "topology.0.users=0", "--set", "run.days=0"]
    assert printed(capsys, "plan", "quickstart", *settings_) == [
        "--set topology.0.users: expected a whole number of at least 1, found 0",
        "--set run.days: expected a whole number of at least 1, found 0",
    ]


SOUND: dict[str, Any] = {
    "server": {"imap": {"host": "127.0.0.1"}, "smtp": {"host": "127.0.0.1", "tls": "starttls"}},
    "accounts": {"user": "u{index}", "password": "p{index}"},
    "topology": [{"profile": "loadsim-5.5/light", "users": 2}, {"profile": "loadsim-5.5/medium", "users": 2}],
    "lists": {"count": 3},
    "run": {"day_length": "100s"},
    "limits": {"hits": 1},
    "allow_hosts": [],
}


class Fault(NamedTuple):
    """A wrong value of a key; `within`: its section alone shows it, with any values of the others."""

    key: tuple[str | int, ...]
    value: Any
    within: bool


FAULTS = [
    Fault(("server", "imap", "port"), 70001, True),
    Fault(("server", "smtp", "tls"), "implict", True),
    Fault(("server", "imap", "host"), "mail.example.org", False),
    Fault(("server", "smtp", "ca_file"), "none.pem", False),
    Fault(("server", "imap", "auth"), "oauthbearer", False),
    Fault(("accounts", "user"), "joe", False),
    Fault(("accounts", "pasword"), "hunter2", True),
    Fault(("accounts", "csv"), "users.csv", False),
    Fault(("topology", 0, "users"), "few", True),
    Fault(("topology", 0, "profile"), "loadsim-5.5/lite", False),
    Fault(("topology", 1, "program"), "outlok", False),
    Fault(("topology", 1, "users"), 20_000_000, False),
    Fault(("topology", 1, "userz"), 3, True),
    Fault(("lists", "size"), {"min": 3, "average": 2, "max": 4}, True),
    Fault(("run", "window"), "200s", False),
    Fault(("run", "days"), "many", True),
    Fault(("mailbox", "fan_out"), 0, True),
    Fault(("domain",), "a_b", True),
    Fault(("weights",), {"READ": -3}, True),
    Fault(("criteria", "tasks.READ.p95_ms"), {"max": "slow"}, False),
    Fault(("limits", "done"), 98, True),
    Fault(("initialise",), "perhaps", True),
    Fault(("allow_hosts",), "everywhere", True),
    Fault(("hosts",), ["a.example"], True),
]


def with_faults(faults: list[Fault]) -> str:
    document = deepcopy(SOUND)
    for fault in faults:
        target: Any = document
        for part in fault.key[:-1]:
            target = target[part] if isinstance(part, int) else target.setdefault(part, {})
        target[fault.key[-1]] = fault.value
    return yaml.safe_dump(document, sort_keys=False)


def found_in(text: str) -> list[ConfigError]:
    Path("own.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_scenario("own.yaml")
    return list(refused.value.problems)


@cache
def fault_of() -> dict[str, tuple[str | int, ...]]:
    """The key of the fault, for each error that it has by itself."""
    return {str(each): fault.key for fault in FAULTS for each in found_in(with_faults([fault]))}


@settings(deadline=None, max_examples=20)
@given(st.lists(st.sampled_from(FAULTS), min_size=1, max_size=8, unique_by=lambda fault: fault.key))
def test_each_fault_causes_exactly_its_own_errors(faults: list[Fault]) -> None:
    """Each error is one that a fault has by itself; each fault that needs no other section is found, with its line."""
    text = with_faults(faults)
    rows = text.splitlines()
    found = found_in(text)
    assert {fault_of()[str(each)] for each in found} <= {fault.key for fault in faults}
    assert {fault_of()[str(each)] for each in found} >= {fault.key for fault in faults if fault.within}
    for each in found:
        path = str(each).split(": ")[1]
        assert f"{path.split('.')[-1]}:" in rows[each.line - 1]
        if path.startswith("topology["):
            before = [row for row in rows[: each.line] if row.startswith("- ")]
            assert f"topology[{len(before) - 1}]" == path.partition(".")[0]


def test_keys_have_their_lines() -> None:
    """The nearest key above what is missing; dotted names are nested; merged keys and broken texts have none."""
    lines = SourceLines("a: &a\n  b.c:\n    - 1\n    - {d: 2}\ne:\n  <<: *a\n  f: 1\n[g]: 1\n7: x\n")
    wanted = {
        ("a",): 1,
        ("a", "b", "c"): 2,
        ("a", "b.c", 0): 3,
        ("a", "b", "c", 1, "d"): 4,
        ("a", "b", "c", 1, "missing"): 4,
        ("e", "b", "c"): 5,
        ("e", "f", "x"): 7,
        (7,): 9,
        ("missing",): 0,
        (): 0,
    }
    assert {key: lines.of(key) for key in wanted} == wanted
    assert SourceLines("a: [").of(("a",)) == SourceLines().of(("a",)) == SourceLines("- - " * 20_000).of((0,)) == 0
