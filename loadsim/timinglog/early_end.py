"""The early end of a run for a reason other than a user's request, as the machine's log states it."""

from __future__ import annotations

from typing import Literal, NamedTuple

Cause = Literal["abort_on", "users lost", "accounts taken"]
ABORT_ON, USERS_LOST, ACCOUNTS_TAKEN = "abort_on", "users lost", "accounts taken"
"""The causes of an early end: `abort_on`, which judges the server, or a fault of the machines that make the load.

`USERS_LOST`: a client or an engine was lost, and `abort_on` ended the run. It does not tell their users from those whom
the server leaves without a session. `ACCOUNTS_TAKEN`: another loadsim has changed the
mailboxes; a run that has ended by then has this fact, too."""


class EarlyEnd(NamedTuple):
    """An early end: `by` is a `Cause`, `why` has the figure and the limit."""

    by: str
    why: str

    @property
    def facts(self) -> dict[str, str]:
        return {"ended_by": self.by, "ended_why": self.why}
