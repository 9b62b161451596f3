"""Imports of commands and processes at their start, which every user waits for, and every test that starts one."""

import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S
from timing_samples import done, write_sample

HEAVY = {"aioimaplib", "aiosmtplib", "asyncio", "cryptography", "distributed", "email.message", "importlib.metadata"}
HEAVY |= {"numpy", "pymap", "rich", "ssl", "yaml"}

NETWORK = {"asyncio", "ssl"}

SCENARIO, SUMMARY = "loadsim.scenario.scenario", "loadsim.analysis.summary"

NOT_IMPORTED = {
    "--help": HEAVY | {SCENARIO},
    "client": HEAVY - NETWORK | {SCENARIO},
    "clean": HEAVY - NETWORK | {SUMMARY},
    "log": HEAVY - {"numpy"} | {SCENARIO, SUMMARY},
    "compare": HEAVY - {"numpy"} | {SCENARIO, "loadsim.report.html"},
    "plan": HEAVY - NETWORK - {"numpy"} | {SUMMARY, "loadsim.runs.local", "loadsim.provisioning.sessions"},
    "run": {"rich", "yaml", "loadsim.cli.web.view", "loadsim.report.html"},
    "loadsim.servers.embedded": {"pymap", "aiosmtpd"},
    "loadsim.engine.process": HEAVY - NETWORK - {"numpy"} | {"loadsim.timinglog.reader"},
}
"""Modules that a command, or a process with its path, does without until its arguments or messages ask for them."""

START = """
import os, sys
from importlib import import_module
for name in sys.argv[1:]:
    if not os.fork():
        if "." in name:
            import_module(name)
        else:
            import_module("loadsim.cli").parser(name)
        print(name, *sys.modules, flush=True)
        os._exit(0)
    os.wait()
"""
"""A process that starts each of its arguments in a child, and prints what it has imported."""

ANSWER = """
import sys
from loadsim.cli import main
main(["log", "answer", *sys.argv[1:]])
sys.exit(" ".join({"yaml", "rich", "asyncio", "loadsim.scenario.scenario"} & {*sys.modules}))
"""


def _python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.slow
def test_commands_import_only_what_they_need() -> None:
    made = _python(START, *NOT_IMPORTED)
    assert made.stderr == ""
    imported = {name: {*modules} for name, *modules in map(str.split, made.stdout.splitlines())}
    assert imported.keys() == NOT_IMPORTED.keys()
    assert {name: found for name, modules in imported.items() if (found := modules & NOT_IMPORTED[name])} == {}


@pytest.mark.slow
def test_log_answer_imports_no_scenario_code(tmp_path: Path) -> None:
    """Its header has all that the scenario states."""
    log = write_sample(tmp_path / "c1.tlog", [done("READ", 1000 * second, 5) for second in range(1, 90)])
    made = _python(ANSWER, str(log))
    assert "READ" in made.stdout and made.stderr == "\n"
