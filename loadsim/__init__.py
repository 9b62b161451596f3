"""Simulated users on a real mail server, and how long they wait.

`__all__` is the public API; everything else may change. Its names are imported on first use, so that processes that run
users load only what they need.

The order of the packages, each importing only those below it, is in `pyproject.toml` (import-linter).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from loadsim.version import __version__

if TYPE_CHECKING:
    from loadsim.analysis.summary import Summary
    from loadsim.api import Plan, analyse, compare, find_capacity, load_scenario, plan, run
    from loadsim.capacity.capacity import Capacity
    from loadsim.comparison.comparison import Comparison
    from loadsim.engine.snapshot import LiveSnapshot
    from loadsim.errors import ConfigError, LoadSimError, LogError, RunInvalid
    from loadsim.runs.result import RunResult
    from loadsim.runs.watcher import Watcher
    from loadsim.scenario.scenario import Scenario

__all__ = [
    "Capacity",
    "Comparison",
    "ConfigError",
    "LiveSnapshot",
    "LoadSimError",
    "LogError",
    "Plan",
    "RunInvalid",
    "RunResult",
    "Scenario",
    "Summary",
    "Watcher",
    "__version__",
    "analyse",
    "compare",
    "find_capacity",
    "load_scenario",
    "plan",
    "run",
]

_MODULES = {
    "loadsim.capacity.capacity": ("Capacity",),
    "loadsim.comparison.comparison": ("Comparison",),
    "loadsim.analysis.summary": ("Summary",),
    "loadsim.engine.snapshot": ("LiveSnapshot",),
    "loadsim.errors": ("ConfigError", "LoadSimError", "LogError", "RunInvalid"),
    "loadsim.scenario.scenario": ("Scenario",),
    "loadsim.api": ("Plan", "analyse", "compare", "find_capacity", "load_scenario", "plan", "run"),
    "loadsim.runs.result": ("RunResult",),
    "loadsim.runs.watcher": ("Watcher",),
}


if not TYPE_CHECKING:  # a type checker that saw it would accept any name

    def __getattr__(name: str) -> Any:
        """Import a name of the public API (PEP 562)."""
        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(module), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
