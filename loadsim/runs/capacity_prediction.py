"""Predict the capacity of a search by the utilisation of the server in one of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from loadsim.analysis.capacity_prediction import Prediction
from loadsim.analysis.capacity_search import PASSED
from loadsim.analysis.capacity_step import MeasuredStep
from loadsim.analysis.sizing_resources import AT_LEAST
from loadsim.errors import ConfigError, LogError, RunInvalid
from loadsim.report.size_text import size_verdict
from loadsim.runs.size import size_run

TARGET = 1.0
"""The utilisation to predict; the search finds what the criteria allow."""


def predicted(directory: Path, steps: Sequence[MeasuredStep]) -> Prediction | None:
    """Return the prediction of the largest number that passed and gives one, by the last run with it.

    If none does, the prediction has the reason of the largest. None without a run with the probe `host`.
    """
    by_users = {step.users: step for step in steps if step.result == PASSED and step.resources}
    first = None
    for users in sorted(by_users, reverse=True):
        found = _by(directory, by_users[users])
        if found.users is not None:
            return found
        first = first or found
    return first


def _by(directory: Path, step: MeasuredStep) -> Prediction:
    try:
        sizing = size_run(str(directory / step.run), TARGET)
    except (LogError, ConfigError, RunInvalid) as error:
        return Prediction(step.users, step.run, why_not=str(error).replace(f"{directory}/", ""))
    first = sizing.first
    if first is None or first.users is None or not isfinite(first.users.high):
        return Prediction(step.users, step.run, why_not=next(iter(size_verdict(sizing))).removeprefix("Size: "))
    at_least = first.bound == AT_LEAST
    return Prediction(step.users, step.run, first.name, first.users, at_least, tuple(sizing.doubts))
