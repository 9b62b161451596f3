"""A server check's mail: what it composes, and for whom it was accepted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from loadsim.model.content.compose import READ_RECEIPT, Answered, Attachment, Contents
from loadsim.model.message_tag import RECEIPT
from loadsim.model.ports import Account, Flag, Header
from loadsim.scenario.workload import Workload
from loadsim.users.tasks import Outgoing

SMALL = "ups1K"
"""The kind of the check's messages, except those with an attachment."""


class Answering(NamedTuple):
    """The message that another one answers, the flag to set on it, and how (`Answered.how`)."""

    header: Header
    flag: Flag | None
    how: str


@dataclass(slots=True)
class Post:
    """A check's mail: the ids of its messages that were accepted for each user, and of those that arrived.

    `altered` has the message, user and folder of each part whose bytes differ from those sent.
    """

    workload: Workload
    contents: Contents
    run_id: str
    accepted: dict[int, set[str]] = field(default_factory=dict)
    arrived: dict[int, set[str]] = field(default_factory=dict)
    altered: list[tuple[str, int, str]] = field(default_factory=list)
    _last: int = 0

    def compose(
        self,
        sender: Account,
        to: Mapping[int, str],
        kind: str = SMALL,
        answers: Answering | None = None,
        attachment: Attachment | None = None,
    ) -> Outgoing:
        """Return a message to these users at their addresses; with `answers`, a reply to or receipt for that one."""
        self._last += 1
        is_receipt = answers is not None and answers.how == READ_RECEIPT
        message_id = f"{RECEIPT if is_receipt else 'c'}{sender.number}.{self._last}"
        addresses = list(dict.fromkeys(to.values()))
        message = self.contents.compose(
            run=self.run_id,
            sender=sender.number,
            sender_address=sender.address,
            to=addresses,
            id=message_id,
            kind=kind,
            sent_us=time.time_ns() // 1000,
            domain=self.workload.scenario.domain,
            answers=answers and Answered.of(answers.header, answers.how),
            attachment=attachment,
        )
        flagged = (answers.header, answers.flag) if answers and answers.flag else None
        return Outgoing(message, message_id, addresses, set(to), tuple(to), flagged)

    def sent(self, outgoing: Outgoing) -> None:
        for user in outgoing.reached:
            self.accepted.setdefault(user, set()).add(outgoing.id)
