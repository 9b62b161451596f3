"""The early end of a run for a reason other than a user's request, as the machine's log states it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from loadsim.timinglog.json_checks import word

ENDED_BY, ENDED_WHY = "ended_by", "ended_why"
"""Facts of a machine's log."""

ABORT_ON, USERS_LOST, ACCOUNTS_TAKEN = "abort_on", "users lost", "accounts taken"
"""The causes of an early end: `abort_on`, which judges the server, or a fault of the machines that make the load.

`USERS_LOST`: a client or an engine was lost, and `abort_on` ended the run. It does not tell their users from those whom
the server leaves without a session. `ACCOUNTS_TAKEN`: another loadsim has changed the
mailboxes; a run that has ended by then has this fact, too."""

by = word(ABORT_ON, USERS_LOST, ACCOUNTS_TAKEN)
"""The check of the fact `ENDED_BY`."""


class EarlyEnd(NamedTuple):
    """An early end: `by` is a word of the check above, `why` has the figure and the limit."""

    by: str
    why: str

    @property
    def facts(self) -> dict[str, str]:
        return {ENDED_BY: self.by, ENDED_WHY: self.why}


def aborted(facts: Mapping[str, Any]) -> bool:
    """Return True if `abort_on` ended a run. A log that does not state it was ended by a fault."""
    return facts.get(ENDED_BY) == ABORT_ON
