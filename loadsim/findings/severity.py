"""The weight of a finding, and the cause of an invalid run."""

from __future__ import annotations

from enum import StrEnum


class Severity(StrEnum):
    """The weight of a finding, the heaviest first. `missed`: the server does not meet the criteria of the run."""

    INVALID = "invalid"
    DEGRADED = "degraded"
    MISSED = "missed"
    WARNING = "warning"
    NOTE = "note"


class Cause(StrEnum):
    """Why a run is invalid. Only `LOAD` and `ABORTED` say something about the server: it did not take the load.

    `GENERATOR`: the load generator was beyond its limits, or lacked ports, files or memory. `FAULT`: it failed
    otherwise, or what it did is unknown. `LOAD`: the server did not take the load of the scenario. `TERMS`: the run was
    too short or too small. `ABORTED`: `abort_on` found the run hopeless. `ENDED`: a user ended it.
    """

    GENERATOR = "generator"
    FAULT = "fault"
    LOAD = "load"
    TERMS = "terms"
    ABORTED = "aborted"
    ENDED = "ended"
