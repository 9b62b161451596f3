"""The documentation against the program: what a page names is there, and what is there is named."""

import argparse
import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import ROOT
from timing_samples import ENDED, TWO_CLIENTS, done, write_sample, write_two_clients

from loadsim.analysis.summary import summarise
from loadsim.cli import BAD_INPUT, INTERRUPTED, OUR_FAULT, parser
from loadsim.comparison.comparison import UNDECIDED
from loadsim.documents.typed import keys_of
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.findings.verdict import Verdict
from loadsim.model.mail_program import Calls, FirstSync, StatusRounds
from loadsim.model.ports import Endpoint, Services
from loadsim.model.records import OUTCOMES
from loadsim.model.terms import INJECT
from loadsim.monitor.system.wall_clock import clock_facts
from loadsim.runs.server import server_facts
from loadsim.runs.watcher import SILENT
from loadsim.timinglog.exports import COLUMNS as CSV_COLUMNS
from loadsim.timinglog.facts import ABORT_ON, EarlyEnd, LogFacts
from loadsim.timinglog.header import LogHeader
from loadsim.timinglog.monitors import COLLECTION
from loadsim.users.activities import TASKS

DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def section(page: Path, title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"{page.name}: no section {title}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    lines = text.splitlines()
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for number, line in enumerate(lines)
        if line.startswith("|")
        and not line.startswith("|---")
        and not (number + 1 < len(lines) and lines[number + 1].startswith("|---"))
    ]


def code_in(cell: str) -> list[str]:
    return CODE.findall(cell)


def commands(
    within: argparse.ArgumentParser | None = None, path: str = "loadsim"
) -> dict[str, argparse.ArgumentParser]:
    """Every verb that does something, by what one types for it."""
    within = within or parser()
    for action in within._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = [commands(verb, f"{path} {name}") for name, verb in action.choices.items()]
            return {name: verb for each in below for name, verb in each.items()}
    return {path: within}


def options(verb: argparse.ArgumentParser) -> set[str]:
    return {option for action in verb._actions for option in action.option_strings} - {"-h", "--help"}


def leaves(value: Any, path: str = "") -> Iterator[str]:
    """The keys of a JSON value, written as the run directory's page writes them."""
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from leaves(below, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for each in value:
            yield from leaves(each, f"{path}[]")
    else:
        yield path


def events() -> dict[str, set[str]]:
    """Every event that the program says, with its fields, read from its source."""
    found: dict[str, set[str]] = {}
    for module in sorted((ROOT / "loadsim").rglob("*.py")):
        writers = ["self.write"] if module.name == "event_log.py" else ["events.write", "self._events.write"]
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in writers:
                name = node.args[0]
                assert isinstance(name, ast.Constant), f"{module.name}: an event without a fixed name"
                found.setdefault(name.value, set()).update(str(keyword.arg) for keyword in node.keywords)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_named_in_passing_exist(page):
    """`loadsim ...` within a sentence names verbs and options that exist."""
    known = commands()
    for code in CODE.findall(FENCE.sub("", page.read_text())):
        if not code.startswith("loadsim ") or code.split()[1] in ("VERB", "...", "--version"):
            continue
        words = code.removesuffix(" ...").split()
        begun = [path for path in known if all(a == b for a, b in zip(path.split(), words, strict=False))]
        assert begun, f"{code}: no such verb"
        unknown = set(OPTION.findall(code)) - {option for path in begun for option in options(known[path])} - {"--help"}
        assert not unknown, f"{code}: {unknown}"


def test_every_task_is_described_with_its_weight():
    table = (REFERENCE / "tasks.md").read_text().partition("\n## ")[0]
    described = {code_in(row[0])[0]: row[1] for row in rows(table)}
    weights = yaml.safe_load((ROOT / "profiles" / "weights.yaml").read_text())["weights"]
    assert described == {task: str(weights.get(task, "-")) for task in (*TASKS, INJECT)}


def test_every_outcome_is_described():
    assert [code_in(row[0])[0] for row in rows(section(REFERENCE / "tasks.md", "Outcomes"))] == list(OUTCOMES)


def test_every_key_of_score_json_is_described(tmp_path):
    worked_through = [done("PROCESS INBOX", 1500, 40), done("DELIVERY RECEIPT", 1500, 40)]
    figures = {"a_ms": 1.0, "cpu_busy_share": 0.5}
    health = [{"at_ns": ENDED["start_ns"] + 1_500_000_000, "probe": "host", "figures": figures}]
    header, facts = TWO_CLIENTS | {"engine": "1"}, ENDED
    write_sample(tmp_path / "logs" / "c1.1.tlog", worked_through, header=header, health=health, facts=facts)
    score = summarise([write_two_clients(tmp_path)], commands=True).score
    described = {
        key for row in rows(section(REFERENCE / "run-directory.md", "`score.json`")) for key in code_in(row[0])
    }
    score["by_protocol"] = {"NAME": dict.fromkeys(score["by_protocol"]["imap"])}
    score["load"]["tasks"] = {"NAME": score["load"]["tasks"]["READ"]}
    score["probes"] = {"NAME": {"FIGURE": score["probes"]["host"]["a_ms"]}}
    keys = set(leaves(score | {"findings": [one | {"values": None} for one in score["findings"]]}))
    further = {"outage": {"at_s": 1, "by": "drop"}, "senders": 1}
    storm = summarise([write_sample(tmp_path / "storm.tlog", [done("READ", 1500, 40)], header=further)]).score
    optional = ("recovery_", "outside_", "interrupted", "tasks[].interrupted")
    keys |= {key for key in leaves(storm) if key.startswith(optional)}
    assert keys - described == set()
    parents = {key for key in described if any(each.startswith((f"{key}.", f"{key}[]")) for each in keys)}
    absent = {key for key in described if key.startswith(("throughput.", "companions.", "machines[]."))}
    assert described - keys - parents == absent


@pytest.mark.slow
def test_every_event_is_described_with_its_fields():
    table = rows(section(REFERENCE / "run-directory.md", "`events.jsonl`"))
    assert {code_in(row[0])[0]: set(code_in(row[2])) for row in table} == events()


def test_every_fact_of_the_timing_log_is_described():
    """The facts that are written are those that are read, and those of the last table of the timing log's page."""
    said = {
        key.value
        for module in (
            "engine/counters.py",
            "engine/engine.py",
            "engine/process.py",
            "monitor/host.py",
            "monitor/probes.py",
        )
        for node in ast.walk(ast.parse((ROOT / "loadsim" / module).read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "facts"
        for told in node.args
        if isinstance(told, ast.Dict)
        for key in told.keys
    }
    services = Services(Endpoint("127.0.0.1", 1), Endpoint("127.0.0.1", 1))
    with server_facts(services, engines=1, pin=False, watcher=SILENT) as seen:
        said |= seen.keys() | {"generator_cpus", "server_cpus"}  # these two with --pin only
    said |= clock_facts().keys() | EarlyEnd(ABORT_ON, "").facts.keys() | {COLLECTION}
    table = (REFERENCE / "timing-log.md").read_text().partition("\n| fact | meaning |\n|---|---|\n")[2]
    assert {name for row in rows(table) for name in code_in(row[0])} == said == {*LogFacts._fields}


def test_every_key_of_a_header_is_described():
    """The timing log's page has each key that is read; further ones are for people."""
    table = (REFERENCE / "timing-log.md").read_text().partition("\n| header key | meaning |\n|---|---|\n")[2]
    keys = {name for row in rows(table.partition("\n\n")[0]) for name in code_in(row[0])}
    assert keys - {*LogHeader._fields} == {"format", "engines"}
    assert {*LogHeader._fields} <= keys


def test_the_keys_of_programs_include_those_of_sections() -> None:
    described = {code_in(row[0])[0] for row in rows(section(REFERENCE / "programs.md", "Keys"))}
    for of_section, cls in {"status": StatusRounds, "first_sync": FirstSync, "calls": Calls}.items():
        assert {f"{of_section}.{key}" for key in keys_of(cls).values()} <= described


def test_every_column_of_the_csv_is_described():
    table = rows(section(REFERENCE / "timing-log.md", "Columns of `export csv`"))
    assert sorted(name for row in table for name in code_in(row[0])) == sorted(CSV_COLUMNS)


def test_every_exit_status_is_described():
    """The statuses of verdicts, of bad input, of an undecided comparison, of Ctrl-C and of our own bugs; no other."""
    findings = (finding(Code.NO_END), finding(Code.LOAD_UNKNOWN), finding(Code.CRITERION_MISSED, found="2", limit="1"))
    verdicts = {Verdict(some).exit_status for many in range(4) for some in combinations(findings, many)}
    described = [int(row[0]) for row in rows((REFERENCE / "exit-status.md").read_text())]
    assert described == sorted(verdicts | {BAD_INPUT, UNDECIDED, OUR_FAULT, INTERRUPTED})


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_resolve(page):
    for target in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).is_file(), target


def test_the_index_leads_to_every_page():
    """docs/README.md links each page of docs, but decisions, which their directory lists."""
    index = DOCS / "README.md"
    linked = {(DOCS / target).resolve() for target in LINK.findall(index.read_text()) if target.endswith(".md")}
    decisions = {page.resolve() for page in (DOCS / "decisions").glob("[0-9]*.md")}
    assert linked == {page.resolve() for page in DOCS.rglob("*.md")} - {index.resolve()} - decisions


def test_every_dependency_has_its_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    names = {re.match(r"[\w.-]+", one)[0] for one in wanted if not one.startswith("loadsim[")}
    table = rows((DOCS / "decisions" / "dependencies.md").read_text())
    assert {row[0] for row in table} == names
    assert all(row[1] for row in table)
