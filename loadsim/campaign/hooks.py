"""Commands before and after each run of a suite."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from loadsim.campaign.runs import HookResult
from loadsim.runs.kept_command import run_kept
from loadsim.scenario.suite import Hook


def run_hook(hook: Hook, directory: Path, variables: Mapping[str, str], output: Path) -> HookResult:
    """Run a command in a directory, as `run_kept` does. Raises `ConfigError` if the output cannot be kept."""
    began_s = time.monotonic()
    failure = run_kept(hook.run, hook.limit_s, directory, output, variables)
    return HookResult(output.name, round(time.monotonic() - began_s, 3), failure)
