"""Planned sizes: a scenario's largest message, and a mailbox after the run."""

from __future__ import annotations

from loadsim.model.content.templates import KINDS, file_bytes
from loadsim.scenario.mailboxes import Sizes
from loadsim.scenario.profile import Profile
from loadsim.scenario.workload import Workload

HEADER_BYTES = 1024
"""The size of a message's headers and its parts' headers, to within a few hundred bytes."""

LARGEST = 1 - 1e-9
"""The quantile of sizes that counts as the largest."""

PARTS = 1000
"""The number of quantiles from which a mean is computed."""


def _kind_bytes(kind: str) -> int:
    file = KINDS[kind].attached
    return HEADER_BYTES + KINDS[kind].text_bytes + (file_bytes(file) if file else 0)


def largest_message_bytes(workload: Workload) -> int:
    """Return the size of the largest planned message, to within a few hundred bytes."""
    sizes = workload.scenario.mailbox.sizes
    largest = [_bytes_of(group.profile)[1] for group in workload.scenario.topology]
    return max([*largest, *([] if sizes is None else [sizes.at(LARGEST)])])


def _bytes_of(profile: Profile) -> tuple[float, int]:
    """Return the mean and the largest size of a profile's messages."""
    if profile.message_sizes is not None:
        return _mean_bytes(profile.message_sizes), profile.message_sizes.at(LARGEST)
    weighed = {_kind_bytes(kind): 0.0 for kind in profile.messages or ()}
    for kind, weight in (profile.messages or {}).items():
        weighed[_kind_bytes(kind)] += weight
    mean = sum(size * weight for size, weight in weighed.items()) / sum(weighed.values())
    return mean, max(size for size, weight in weighed.items() if weight)


def _mean_bytes(sizes: Sizes) -> float:
    return sum(sizes.at((part + 0.5) / PARTS) for part in range(PARTS)) / PARTS


def mailbox_bytes(workload: Workload, user: int) -> int:
    """Return the approximate size of a mailbox after the run: its start state, and the mail that its user receives.

    On average, users receive as many new messages as they send, each to `recipients` users.
    """
    profile, scenario = workload.profile(user), workload.scenario
    mean, _ = _bytes_of(profile)
    sizes = scenario.mailbox.sizes
    stored = mean if sizes is None else _mean_bytes(sizes)
    new = profile.new_mail.per_day * scenario.run.days * profile.new_mail.recipients
    return round(sum(workload.start_state(user).values()) * stored + new * mean)
