"""The charts of probes on the page, and the samples for them since the last snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadsim.cli.web.series import Figure
from loadsim.errors import printable
from loadsim.report.probe_panels import in_order, panels_of

MOST_CHARTS = 24
"""The most charts of probes on the page."""

MOST_LINES = 7
"""The most lines of a chart: each has a colour of its own."""

MOST_NAMES = 1000
"""The most figures of a probe that may have a line; a probe of a plug-in may invent names without end."""

Chart = tuple[str, str, Sequence[tuple[str, str, float]]]
"""A title, a unit, and the lines: a name, a column of the series, and the factor from it to the unit."""


def column_of(figure: Figure) -> str:
    """Return the name of a figure's column, which no other column has."""
    return " ".join(figure)


class ProbeCharts:
    """Chooses what the page draws of the samples; chief charts are first, as in the report."""

    def __init__(self) -> None:
        self.charts: list[Chart] = []
        self._names: dict[str, dict[str, None]] = {}  # of figures, by probe, in the order of their first samples
        self._drawn: frozenset[Figure] = frozenset()
        self._samples: dict[Figure, list[float]] = {}

    def add(self, probe: str, figures: Mapping[str, float]) -> None:
        """Take the drawn figures of a sample."""
        names = self._names.setdefault(probe, {})
        if len(names) < MOST_NAMES and not figures.keys() <= names.keys():
            names.update(dict.fromkeys(figures))
            self._choose()
        for figure, value in figures.items():
            if (probe, figure) in self._drawn:
                self._samples.setdefault((probe, figure), []).append(value)

    def taken(self) -> Mapping[Figure, Sequence[float]]:
        """Return the samples since the last call."""
        taken, self._samples = self._samples, {}
        return taken

    def _choose(self) -> None:
        found = [
            (probe, panel, lines[:MOST_LINES])
            for probe in in_order(self._names)
            for panel, lines in panels_of(probe, [*self._names[probe]])
        ]
        found = sorted(found, key=lambda each: not each[1].chief)[:MOST_CHARTS]
        self._drawn = frozenset((probe, figure) for probe, _, lines in found for _, figure in lines)
        self.charts = [
            (
                printable(f"{panel.title} ({probe})"),
                panel.unit,
                [(printable(line), column_of((probe, figure)), panel.factor) for line, figure in lines],
            )
            for probe, panel, lines in found
        ]
