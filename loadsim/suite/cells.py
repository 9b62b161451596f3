"""The scenarios of a suite's cells, and the terms that must not change when the suite is resumed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from hashlib import sha256

from loadsim.documents.yaml_reader import Problems, read_yaml
from loadsim.errors import ConfigError, together
from loadsim.model.terms import STRESS
from loadsim.monitor.bounded_command import found_command
from loadsim.scenario.criteria import refuse_monitors
from loadsim.scenario.document import EMBEDDED
from loadsim.scenario.population import resized
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.suite import Cell, Suite
from loadsim.suite.suite import CellTerms, SuiteTerms
from loadsim.timinglog.header_words import differences
from loadsim.version import __version__

SETTING = "--set "
"""The beginning of `load_scenario`'s errors about a setting."""

OF_THE_SERVER = ("name", "server", "accounts", "allow_hosts", "probes", "monitors", "criteria")
"""Scenario keys that may differ between cells with comparable scores."""


def terms_of(suite: Suite, scenarios: Mapping[str, Scenario]) -> SuiteTerms:
    """Return a suite's terms; `scenarios` are its scenarios by cell name, read without passwords."""
    return SuiteTerms(
        software=f"loadsim {__version__}",
        name=suite.name,
        repeats=suite.stated.repeats,
        seed=suite.stated.seed,
        pause_s=suite.stated.pause_s,
        engines=suite.stated.engines,
        pin=suite.stated.pin,
        embedded=any(scenario.server == EMBEDDED for scenario in scenarios.values()),
        compare=tuple((pair.base, pair.new, pair.max_regression) for pair in suite.pairs),
        cells={cell.name: CellTerms(cell.levels, _digest(cell, scenarios[cell.name])) for cell in suite.cells},
        retries=suite.stated.retries,
    )


def _digest(cell: Cell, scenario: Scenario) -> str:
    hooks = [[asdict(hook) for hook in hooks] for hooks in (cell.before, cell.after)]
    return sha256(json.dumps([scenario.to_yaml(), scenario.digest(), hooks]).encode()).hexdigest()


def scenarios_of(suite: Suite, *, passwords: bool) -> dict[str, Scenario]:
    """Return the scenarios by cell name. Raises `ConfigError` with all errors of the first cell that has any."""
    scenarios: dict[str, Scenario] = {}
    for cell in suite.cells:
        problems = Problems()
        with problems:
            _check_hooks(cell, suite)
        with problems:
            scenarios[cell.name] = _scenario(cell, suite, passwords=passwords)
        if problems.found:
            raise together([_of_cell(single, cell, suite) for error in problems.found for single in error.problems])
    _check_pairs(suite, scenarios)
    return scenarios


def _check_pairs(suite: Suite, scenarios: Mapping[str, Scenario]) -> None:
    """Check that cells to compare have the same load: otherwise the comparison would be refused after the last run.

    Raises `ConfigError`.
    """
    problems = Problems()
    for pair in suite.pairs:
        base, new = scenarios[pair.base], scenarios[pair.new]
        if _terms_of_score(base) == _terms_of_score(new):
            continue
        documents = [read_yaml(scenario.to_yaml(), "scenario.yaml") for scenario in (base, new)]
        names = sorted({*documents[0], *documents[1]}.difference(OF_THE_SERVER))
        keys = ", ".join(name for name, *_ in differences(documents[0], documents[1], names)) or "the server's settings"
        found = f"{pair.base} and {pair.new} that differ in {keys}: their scores are not comparable"
        with problems:
            raise suite.origin.error_saying(("compare",), "cells with the same load, window, weights and limits", found)
    problems.check()


def _terms_of_score(scenario: Scenario) -> tuple[object, ...]:
    run, limits = scenario.run, (scenario.limits.in_header(), scenario.audit_allow)
    return scenario.digest(), run.warm_up_s, run.window_s, scenario.weights, limits


def _of_cell(problem: ConfigError, cell: Cell, suite: Suite) -> ConfigError:
    """Add the suite's file to an error about a setting or an unknown scenario; return errors about files unchanged."""
    if problem.file:
        return problem
    where = f"{suite.origin.file}: cell {cell.name}" if suite.cells[1:] else suite.origin.file
    return ConfigError(f"{where}: {str(problem).removeprefix(SETTING)}", suite.origin.file)


def _check_hooks(cell: Cell, suite: Suite) -> None:
    problems = Problems()
    for hook in (*cell.before, *cell.after):
        program = hook.run[0]
        with problems:
            try:
                if "/" not in program:
                    found_command(program)
                elif shutil.which(suite.directory / program) is None:
                    raise ConfigError(f"expected a program, found none at {program!r:.100}")
            except ConfigError as failure:
                raise ConfigError(f"{suite.origin.file}: run: {failure}", suite.origin.file) from None
    problems.check()


def _scenario(cell: Cell, suite: Suite, *, passwords: bool) -> Scenario:
    settings = [f"{key}={_as_yaml(value)}" for mapping in cell.set for key, value in mapping.items()]
    if cell.users is not None:
        settings += _sized(cell.users, suite, settings)
    scenario = load_scenario(suite.scenario, settings, passwords=passwords)
    if scenario.run.mode == STRESS:
        raise ConfigError(f"run.mode: expected canonical for a suite, found {STRESS}: it has no score")
    refuse_monitors(scenario.criteria, scenario.monitors, "")
    return scenario


def _as_yaml(value: object) -> str:
    """Return a value as a line of YAML. JSON is YAML, except for surrogate pairs (characters beyond U+FFFF)."""
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[^ -~]", lambda match: f"\\U{ord(match[0]):08x}", text)


def _sized(users: int, suite: Suite, settings: list[str]) -> Iterator[str]:
    """Yield the settings for a cell's users, in groups with the scenario's proportions.

    The lists are made for the largest number of users, as in a capacity search, unless the scenario states their
    population. Raises `ConfigError` if there are fewer users than groups.
    """
    base = load_scenario(suite.scenario, settings, passwords=False)
    least = max(2, len(base.topology))
    if users < least:
        raise ConfigError(
            f"{suite.origin.file}: users: expected at least {least}, one for each group of {suite.scenario},"
            f" found {users}",
            suite.origin.file,
        )
    yield from resized(base, users, max(suite.stated.users), ("lists",))
