"""The records of `loadsim.model.records` with names of their fields."""

from typing import NamedTuple


class TaskRecord(NamedTuple):
    task: str
    user: int
    profile: str
    protocol: str
    scheduled_ns: int
    started_ns: int | None
    ended_ns: int | None
    late_busy_s: float
    late_down_s: float
    late_generator_s: float
    late_between_s: float
    late_own_s: float
    outcome: str
    error: str
    moved_bytes: int
    clock: str


class MailRecord(NamedTuple):
    event: str
    message: str
    user: int
    sender: int
    at_ns: int
    folder: str


class CommandRecord(NamedTuple):
    command: str
    user: int
    started_ns: int
    ended_ns: int
    outcome: str
    sent_bytes: int
    received_bytes: int
