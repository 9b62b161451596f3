"""The criteria of a scenario, for a run that was made with others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadsim.analysis.criteria import Limits
from loadsim.model.criteria import documents, read_criteria
from loadsim.model.profile import load_weights
from loadsim.model.terms import UNSCORED
from loadsim.model.yaml_reader import Origin, read_file


def criteria_of(path: Path, figures: Mapping[str, Any]) -> Mapping[str, Limits | None]:
    """The section `criteria` of a scenario's file, with the defaults, as far as `score.json` can have such `figures`.

    Of a task that only one client module has done, nothing is asked of the others; of one that none has done, it is
    asked, and not measured. Raises `ConfigError`, one line.
    """
    done = {module: {task["task"] for task in found["tasks"]} for module, found in figures["by_protocol"].items()} or {
        "imap": set()
    }
    undone = {*load_weights(), *UNSCORED}.difference(*done.values())
    planned = {module: tasks | undone for module, tasks in done.items()}
    document = read_file(path, str(path)).get("criteria", {})
    return documents(read_criteria(document, planned, figures["throughput"] is not None, Origin(str(path))))
