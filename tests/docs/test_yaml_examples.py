"""Every YAML block of a page, read by the function that reads such a file; excerpts are completed by what they lack."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from example_plugins import python_with
from pages import PAGES, Block, blocks, with_outputs

from loadsim.model.mail_program import load_program
from loadsim.scenario.profile import load_any_profile
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.suite import load_suite
from loadsim.storage.scenario import load_storage
from loadsim.suite.cells import scenarios_of

BASE: dict[str, Any] = {
    "server": {"imap": {"host": "mail.example.org"}, "smtp": {"host": "mail.example.org"}},
    "allow_hosts": ["mail.example.org", "mail2.example.com"],
    "domain": "example.org",
    "accounts": {"user": "user{index}@example.org", "password": "secret"},
    "topology": [{"profile": "loadsim-5.5/medium", "users": 2}],
    "probes": {"host": {}, "postfix": {"log": "/var/log/mail.log"}},
}
"""A scenario, of which an excerpt replaces whole sections."""

SUITE_BASE: dict[str, Any] = {"scenario": "medium.yaml", "users": [500], "repeats": 5}

OF_OTHERS: Mapping[str, str] = {
    "scrape_configs": "Prometheus; tests/servers/test_prometheus.py starts it with these keys",
    "tests": "Apache Otava; tests/docs/test_otava.py runs it with this file",
}
"""The first keys of files that other programs read, and the tests that have them read."""

PLUGIN_TASK = "FIND SENT"
"""The task of the example package."""

MARKS: Mapping[str, tuple[str, ...]] = {
    "profile": ("from", "new_mail", "after_reading"),
    "program": ("header_cache",),
    "storage": ("directories",),
    "suite": ("servers", "repeats", "before", "after", "compare"),
}
"""Top-level keys of a kind of file that a scenario has not."""


def yaml_blocks() -> list[Block]:
    found = [block for page in PAGES for block in blocks(page) if block.language == "yaml"]
    return [block for block in found if not OF_OTHERS.keys() & yaml.safe_load(block.text).keys()]


def own_blocks() -> list[Block]:
    return [block for block in yaml_blocks() if PLUGIN_TASK not in block.text]


def kind(document: Mapping[str, Any]) -> str:
    return next((name for name, keys in MARKS.items() if document.keys() & set(keys)), "scenario")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the files and the commands that excerpts name."""
    accounts = [f"user{index},user{index}@example.org,secret" for index in range(1, 41)]
    (tmp_path / "accounts.csv").write_text("\n".join(["user,address,password", *accounts, ""]))
    (tmp_path / "master-password").write_text("secret\n")
    for path in (tmp_path / "accounts.csv", tmp_path / "master-password"):
        path.chmod(0o600)
    for name in ("zfs",):
        command = tmp_path / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text('#!/bin/sh\necho "$0 $*"\n')
        command.chmod(0o755)
    (tmp_path / "medium.yaml").write_text(yaml.safe_dump(BASE))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setenv("LOADSIM_PASSWORD", "secret-{index}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("block", own_blocks(), ids=str)
def test_each_yaml_block_is_read(block: Block, place: Path) -> None:
    """With the other files that its page has the reader write."""
    for other in blocks(block.page):
        if other.file is not None and Path(other.file).name == other.file:
            (place / other.file).write_text(other.text)
    document = yaml.safe_load(block.text)
    file = place / "own.yaml"
    match kind(document):
        case "profile":
            file.write_text(block.text)
            assert load_any_profile(str(file)).name == document["name"]
        case "program":
            file.write_text(block.text)
            assert load_program(str(file)).name == document["name"]
        case "suite":
            file.write_text(yaml.safe_dump(SUITE_BASE | document))
            suite = load_suite(str(file))
            scenarios_of(suite, passwords=False)
            assert len(suite.cells) == len(document.get("servers", "1")) * len(document.get("users", "1"))
        case "storage":
            file.write_text(block.text)
            assert load_storage(str(file)).databases == len(document["directories"])
        case _:
            whole = BASE | document
            file.write_text(yaml.safe_dump(whole))
            read = load_scenario(str(file), [])
            assert read.users + read.senders == sum(group["users"] for group in whole["topology"])


@pytest.mark.slow
def test_the_profile_with_a_task_of_a_plugin_is_read(place: Path, example_package: Path) -> None:
    """The program reads it where the package is installed."""
    (block,) = [block for block in yaml_blocks() if PLUGIN_TASK in block.text]
    (place / "office.yaml").write_text(block.text)
    topology = [{"profile": "office.yaml", "users": 2}]
    (place / "my.yaml").write_text(yaml.safe_dump(BASE | {"topology": topology}))
    planned = python_with(example_package, "-m", "loadsim", "plan", "my.yaml", "--json")
    assert planned.returncode == 0, planned.stderr
    assert PLUGIN_TASK in planned.stdout


def test_yaml_blocks_are_marked_as_such() -> None:
    """A block without a language, and without commands, is no mapping with a key of a scenario; outputs may be."""
    keys = {
        *BASE,
        *SUITE_BASE,
        *(key for marks in MARKS.values() for key in marks),
        "criteria",
        "probes",
        "mailbox",
        "run",
    }
    outputs = [shown for page in PAGES for _, shown in with_outputs(blocks(page))]
    found = []
    for block in (block for page in PAGES for block in blocks(page)):
        if block.language or block.commands or block in outputs:
            continue
        try:
            document = yaml.safe_load(block.text)
        except yaml.YAMLError:
            continue
        if isinstance(document, dict) and document.keys() & keys:
            found.append(str(block))
    assert not found
