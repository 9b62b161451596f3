"""The severity of a finding, and the cause of an invalid run."""

from __future__ import annotations

from enum import StrEnum


class Severity(StrEnum):
    """A finding's severity, most severe first. `missed`: the server does not meet the run's criteria."""

    INVALID = "invalid"
    DEGRADED = "degraded"
    MISSED = "missed"
    WARNING = "warning"
    NOTE = "note"


class Cause(StrEnum):
    """Why a run is invalid. Only `LOAD` and `ABORTED` concern the server, which did not handle the load.

    `GENERATOR`: the load generator exceeded its limits, or ran out of ports, files or memory. `FAULT`: it failed in
    another way, or what it did is unknown. `LOAD`: the server did not handle the scenario's load. `TERMS`: the run was
    too short or too small. `ABORTED`: `abort_on` found the run hopeless. `ENDED`: someone stopped it.
    """

    GENERATOR = "generator"
    FAULT = "fault"
    LOAD = "load"
    TERMS = "terms"
    ABORTED = "aborted"
    ENDED = "ended"
