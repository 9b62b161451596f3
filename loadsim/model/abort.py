"""When a run is hopeless, and ends early."""

from __future__ import annotations

from dataclasses import dataclass

from loadsim.model.schema import Count, Share, SomeDuration, strict


@strict
@dataclass(frozen=True, slots=True)
class AbortOn:
    """What ends a run as Ctrl-C would; None is never. Each is judged over the last `period_s` of the work.

    `failed_share`: a larger share of the tasks that came to an end failed; `lost_users`: all that time a larger share
    of the users had no session; `sessions_lost`: more sessions broke.
    """

    failed_share: Share | None = None
    lost_users: Share | None = None
    sessions_lost: Count | None = None
    period_s: SomeDuration = 30.0
