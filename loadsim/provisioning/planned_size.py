"""The sizes that a scenario plans: its largest message, and a mailbox after the run."""

from __future__ import annotations

from functools import lru_cache

from loadsim.model.content.compose import Contents
from loadsim.model.draws import draw
from loadsim.model.profile import Profile
from loadsim.model.workload import Workload

SAMPLES = 16
"""The messages of each kind that are composed to know its size; most kinds have fewer attachments."""


LARGEST = 1 - 1e-9
"""The quantile of sizes that counts as the largest."""


@lru_cache(maxsize=64)
def _kind_bytes(seed: int, kind: str) -> tuple[int, int]:
    """Return the mean and the largest size of a kind of message, of `SAMPLES` messages."""
    contents = Contents(seed)
    sizes = [
        len(
            contents.compose(
                run="size",
                sender=1,
                sender_address="user00001@loadsim.test",
                to=("user00002@loadsim.test",),
                id=f"n1.{index}",
                kind=kind,
                sent_us=0,
                domain="loadsim.test",
            )
        )
        for index in range(SAMPLES)
    ]
    return sum(sizes) // len(sizes), max(sizes)


def _mean_bytes(workload: Workload, profile: Profile) -> float:
    """Return the mean size of a profile's messages."""
    total = sum(profile.messages.values())
    kinds = {kind: weight for kind, weight in profile.messages.items() if weight}
    return sum(weight / total * _kind_bytes(workload.seed, kind)[0] for kind, weight in kinds.items())


def largest_message_bytes(workload: Workload) -> int:
    """Return the size of the largest planned message, to within some hundred bytes."""
    profiles = [group.profile for group in workload.scenario.topology]
    sizes = workload.scenario.mailbox.sizes
    kinds = {kind for profile in profiles for kind, weight in profile.messages.items() if weight}
    largest = [_kind_bytes(workload.seed, kind)[1] for kind in kinds]
    return max([*largest, *([] if sizes is None else [sizes.at(LARGEST)])])


def mailbox_bytes(workload: Workload, user: int) -> int:
    """Return about how many bytes a mailbox holds at the end: its start state, and the mail that a user gets.

    A user gets as many new messages from others as they send, on the average, each to `recipients` users.
    """
    profile, scenario = workload.profile(user), workload.scenario
    mean = _mean_bytes(workload, profile)
    sizes = scenario.mailbox.sizes
    stored = mean if sizes is None else sum(sizes.at(draw(1, 0, "sizes", each)) for each in range(64)) / 64
    new = profile.new_mail.per_day * scenario.run.days * profile.new_mail.recipients
    return round(sum(workload.start_state(user).values()) * stored + new * mean)
