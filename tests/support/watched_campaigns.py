"""A watcher of campaigns that keeps what it is told."""

from collections.abc import Callable
from typing import Any

from loadsim.campaign.runner import CampaignWatcher, PlannedRun
from loadsim.campaign.runs import Campaign, CampaignRun
from loadsim.runs.watcher import SILENT, Watcher


class Watching(CampaignWatcher):
    """Keeps the runs that end. Functions are called at the begin, before each run and after it, with what is told."""

    def __init__(
        self,
        begun: Callable[[Any], None] = lambda _: None,
        began: Callable[[PlannedRun], None] = lambda _: None,
        ended: Callable[[Any], None] = lambda _: None,
        run: Watcher = SILENT,
    ) -> None:
        super().__init__(run)
        self.runs: list[CampaignRun] = []
        self._begun, self._began, self._ended = begun, began, ended

    def begun(self, campaign: Campaign) -> None:
        self._begun(campaign)

    def began(self, planned: PlannedRun) -> None:
        self._began(planned)

    def ended(self, campaign: Campaign) -> None:
        self.runs.append(campaign.runs[-1])
        self._ended(campaign)


def stop(*_: Any) -> None:
    raise KeyboardInterrupt
