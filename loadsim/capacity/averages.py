"""The table of a capacity search in the form of published papers: the server's averages by number of users."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from loadsim.analysis.probes.averages import Counted, counted
from loadsim.analysis.probes.resources import kind_of
from loadsim.campaign.runs import FAILED, PASSED, UNDECIDED, CampaignRun
from loadsim.capacity.curves import Figure
from loadsim.report.document import Block, ColumnOf, Section, Table, table_of

JUDGED = (PASSED, FAILED, UNDECIDED)
"""The results that tell something about the server; a slow generator does not."""


def averages_by_number(runs: Sequence[CampaignRun]) -> Iterable[Section]:
    """Yield the section of the averages."""
    blocks: list[Block] = [
        (
            "Each figure is the mean of the valid runs with this number of users, and is missing if one of them did not"
            " measure it over its whole window. If none is valid, it is that of the runs that judge the server: they"
            " made less load than planned, and have no score here. Messages delivered are copies that users saw."
        ),
        *_tables(runs),
    ]
    yield Section("Averages by number of users", tuple(blocks))


@dataclass(frozen=True, slots=True)
class _Runs:
    """The runs with one number of users, those of them that are valid, and those that judge the server."""

    users: int
    runs: int
    valid: Sequence[CampaignRun]
    judged: Sequence[CampaignRun]

    @property
    def counted(self) -> Sequence[CampaignRun]:
        """Return the runs whose averages count: an overloaded server is known by runs that are not valid only."""
        return self.valid or self.judged

    def mean(self, figure: Figure) -> float | None:
        """Return the mean of the runs that count; None if one of them has no figure."""
        values = [value for run in self.counted if (value := figure(run)) is not None]
        return sum(values) / len(values) if values and len(values) == len(self.counted) else None


def _tables(runs: Sequence[CampaignRun]) -> Iterable[Table]:
    """Yield a table of the load and its times, and one of the counters that runs measured: both fit on a screen."""
    rows = []
    for number in dict.fromkeys(run.users for run in runs):
        own = [run for run in runs if run.users == number]
        valid = [run for run in own if run.validity == "valid"]
        rows.append(_Runs(number, len(own), valid, [run for run in own if run.result in JUDGED]))
    users: ColumnOf[_Runs] = ("Users", 0, lambda row: row.users)
    yield table_of(
        "Averages over the window, by number of users",
        rows,
        users,
        ("Valid runs", None, lambda row: f"{len(row.valid)} of {row.runs}"),
        ("Score", "time", lambda row: _mean(lambda run: run.score_ms)(row) if row.valid else None),
        (
            "Response score",
            "time",
            lambda row: _mean(lambda run: run.response_score_ms)(row) if row.valid else None,
        ),
        ("Tasks/s", 1, _mean(lambda run: run.tasks_per_s)),
        ("Delivered per minute", 1, _mean(lambda run: run.delivered_per_min)),
    )
    if counters := [(title, digits, _mean(figure)) for title, digits, figure in _counters(rows)]:
        yield table_of("Averages of the probes over the window, by number of users", rows, users, *counters)


def _mean(figure: Figure) -> Callable[[_Runs], float | None]:
    return lambda row: row.mean(figure)


def _counters(rows: Sequence[_Runs]) -> Iterable[tuple[str, int, Figure]]:
    """Yield the title, the decimals and the figure of each counter that all runs that count measured with a number.

    Of several probes of a kind, each is named.
    """
    names: dict[str, dict[str, None]] = {}
    for row in rows:
        for run in row.counted:
            for one in run.averages:
                names.setdefault(one.probe, {})[one.figure] = None
    kinds = [kind_of(probe) for probe in names]
    for each in counted({probe: [*figures] for probe, figures in names.items()}):
        title = each.words if kinds.count(kind_of(each.probe)) == 1 else f"{each.words}, {each.probe}"
        if any(row.mean(_average(each)) is not None for row in rows):
            yield title, each.digits, _average(each)


def _average(counter: Counted) -> Figure:
    """Return the function of a counter's mean, in the unit of its words."""

    def figure(run: CampaignRun) -> float | None:
        means = [one.mean for one in run.averages if (one.probe, one.figure) == (counter.probe, counter.figure)]
        return means[0] * counter.factor if means and means[0] is not None else None

    return figure
