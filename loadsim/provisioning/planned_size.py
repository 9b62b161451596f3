"""Planned sizes: a scenario's largest message, and a mailbox after the run."""

from __future__ import annotations

from loadsim.model.content.templates import KINDS, file_bytes
from loadsim.model.draws import draw
from loadsim.scenario.workload import Workload

HEADER_BYTES = 1024
"""The size of a message's headers and its parts' headers, to within a few hundred bytes."""

LARGEST = 1 - 1e-9
"""The quantile of sizes that counts as the largest."""


def _kind_bytes(kind: str) -> int:
    file = KINDS[kind].attached
    return HEADER_BYTES + KINDS[kind].text_bytes + (file_bytes(file) if file else 0)


def largest_message_bytes(workload: Workload) -> int:
    """Return the size of the largest planned message, to within a few hundred bytes."""
    profiles = [group.profile for group in workload.scenario.topology]
    sizes = workload.scenario.mailbox.sizes
    largest = [_kind_bytes(kind) for profile in profiles for kind, weight in profile.messages.items() if weight]
    return max([*largest, *([] if sizes is None else [sizes.at(LARGEST)])])


def mailbox_bytes(workload: Workload, user: int) -> int:
    """Return the approximate size of a mailbox after the run: its start state, and the mail that its user receives.

    On average, users receive as many new messages as they send, each to `recipients` users.
    """
    profile, scenario = workload.profile(user), workload.scenario
    mean = sum(weight * _kind_bytes(kind) for kind, weight in profile.messages.items()) / sum(profile.messages.values())
    sizes = scenario.mailbox.sizes
    stored = mean if sizes is None else sum(sizes.at(draw(1, 0, "sizes", index)) for index in range(64)) / 64
    new = profile.new_mail.per_day * scenario.run.days * profile.new_mail.recipients
    return round(sum(workload.start_state(user).values()) * stored + new * mean)
