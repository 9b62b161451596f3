"""Suites: repeated runs over a matrix of servers, users and settings, with commands around each run.

A suite file is checked here as far as possible without its scenarios.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from loadsim.documents.schema import Count, Duration, Positive, PositiveDuration, Share, Switch, Text, matching, whole
from loadsim.documents.typed import Reads, mismatch, show, strict
from loadsim.documents.yaml_reader import Origin, Problems, known, locate, located, parse, read_document
from loadsim.model.draws import draw
from loadsim.model.terms import MOST_USERS

DIMENSIONS = ("server", "users", "settings")
"""The dimensions of the matrix, in the order in which they make up a cell's name."""

MOST_CELLS, MOST_RUNS = 500, 10_000
"""The most cells in a suite, and the most runs, not counting retries."""

_LIMIT_S = 600.0
"""A hook's default time limit: restoring a snapshot takes minutes."""

# --- the file ---------------------------------------------------------------------------------------------------------


def _settings(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise mismatch("a mapping from keys of the scenario, such as run.window, to values")
    for key in value:
        if not isinstance(key, str) or not all(key.split(".")) or not key.isprintable() or "=" in key:
            raise mismatch("the path of a key, such as run.window", show(key), at=(str(key),))
    return dict(value)


Name = Annotated[
    str, matching("[A-Za-z0-9][A-Za-z0-9_.-]{0,39}", "a name of at most 40 letters, digits, dots, _ and -")
]
Settings = Annotated[dict[str, Any], Reads(_settings, "mapping")]
Users = Annotated[int, whole(1, MOST_USERS)]


@strict
@dataclass(frozen=True, slots=True)
class Hook:
    """A command before or after a run, which may take `limit_s`."""

    run: tuple[Text, ...]
    """Words of a command, which runs without a shell in this file's directory."""
    limit_s: PositiveDuration = _LIMIT_S
    """Time limit, after which the command is killed."""

    def __post_init__(self) -> None:
        if not self.run:
            raise mismatch("the words of a command", "none", at=("run",))

    @property
    def program(self) -> str:
        """The program's name, without arguments, which may contain passwords."""
        return Path(self.run[0]).name


@strict
@dataclass(frozen=True, slots=True)
class Level:
    """A server or a variant of the settings."""

    name: Name
    """Name in cells."""
    set: Settings = field(default_factory=dict)
    """Settings for its runs."""
    before: tuple[Hook, ...] = ()
    """Commands before each of its runs."""
    after: tuple[Hook, ...] = ()
    """Commands after each of its runs."""


@strict
@dataclass(frozen=True, slots=True)
class Selection:
    """Cells selected by their levels; a dimension that is None is not restricted."""

    server: Name | None = None
    """Name of a server. Default: all."""
    users: Users | None = None
    """Number of users, the same in base and new. Default: all."""
    settings: Name | None = None
    """Name of a variant. Default: all."""

    @property
    def levels(self) -> dict[str, str | int]:
        return {name: level for name, level in asdict(self).items() if level is not None}


@strict
@dataclass(frozen=True, slots=True)
class CompareSection:
    base: Selection
    """Cells to compare with."""
    new: Selection
    """Cells that may be slower."""
    max_regression: Share | None = None
    """Allowed increase in score, response score and delivery. Default: any."""


@strict
@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteDocument:
    name: Name | None = None
    """Name of the suite. Default: the file's."""
    scenario: Text
    """Scenario for all runs: a shipped name, or a path relative to this file."""
    set: Settings = field(default_factory=dict)
    """Settings for all runs, by the paths of the scenario's keys."""
    before: tuple[Hook, ...] = ()
    """Commands before each run."""
    after: tuple[Hook, ...] = ()
    """Commands after each run."""
    servers: tuple[Level, ...] = ()
    """Servers. Default: the scenario's."""
    users: tuple[Users, ...] = ()
    """Numbers of users, divided as in the scenario. Default: the scenario's."""
    settings: tuple[Level, ...] = ()
    """Variants of the settings."""
    repeats: Annotated[int, whole(1, 1000)] = 5
    """Runs per cell."""
    seed: Count = 1
    """Seed for the random order of the cells in each repeat."""
    pause_s: Duration = 0.0
    """Pause before each run but the first; with the probe postfix, it also waits until the send queue is empty."""
    retries: Annotated[int, whole(0, 100)] = 1
    """Most immediate repeats of an invalid or failed run."""
    stop_after: Positive = 3
    """End the suite after this many such runs in a row."""
    engines: Positive | None = None
    """Number of processes that make the load. Default: depends on cores and users."""
    pin: Switch = False
    """Run the load and a server on this machine on separate cores."""
    compare: tuple[CompareSection, ...] = ()
    """Comparisons of cells."""


# --- the suite --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """A combination of levels; dimensions that the suite does not have are None.

    The mappings in `set` apply to the scenario in order. `before` and `after` are the commands around each of its runs,
    in order.
    """

    name: str
    server: str | None
    users: int | None
    settings: str | None
    set: tuple[Mapping[str, Any], ...]
    before: tuple[Hook, ...]
    after: tuple[Hook, ...]

    @property
    def levels(self) -> dict[str, str | int | None]:
        return {dimension: getattr(self, dimension) for dimension in DIMENSIONS}


@dataclass(frozen=True, slots=True)
class Slot:
    """A position in the order of runs, from 1, with its cell and repeat, also from 1."""

    number: int
    cell: Cell
    repeat: int


@dataclass(frozen=True, slots=True)
class Pair:
    """The names of two cells to compare. `max_regression` is a share; None allows any."""

    base: str
    new: str
    max_regression: float | None = None


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite as `stated` in its file, with its cells. Commands run in `directory`, which is the file's.

    `scenario` is a shipped name, or a path.
    """

    name: str
    directory: Path
    origin: Origin
    scenario: str
    stated: SuiteDocument
    cells: tuple[Cell, ...]
    pairs: tuple[Pair, ...]

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The order of runs, in which each repeat is a block of all cells.

        The seed randomises a block's order, so that a machine's slow drift affects all cells alike. Every second block
        reverses the previous one, so that no two cells strictly alternate.
        """
        ordered = [(cell, repeat) for repeat in range(1, self.stated.repeats + 1) for cell in self._block(repeat)]
        return tuple(Slot(number, cell, repeat) for number, (cell, repeat) in enumerate(ordered, 1))

    def _block(self, repeat: int) -> Sequence[Cell]:
        reversed_, number = repeat % 2 == 0, repeat - 1 + repeat % 2
        drawn = sorted(self.cells, key=lambda cell: draw(self.stated.seed, 0, f"suite/{cell.name}", number))
        return drawn[::-1] if reversed_ else drawn


# --- reading ----------------------------------------------------------------------------------------------------------


def load_suite(ref: str) -> Suite:
    """Read a suite from its path or shipped name. Raises `ConfigError` with all errors in the file.

    Its scenarios are not read.
    """
    path, name = located("suites", ref)
    document, origin = read_document(path, name)
    return _resolve(parse(SuiteDocument, document, origin), origin, path)


def _resolve(document: SuiteDocument, origin: Origin, path: Path) -> Suite:
    """Make the cells and pairs. Raises `ConfigError` with all errors."""
    problems, count = Problems(), 1
    for section in ("servers", "users", "settings"):
        levels = [getattr(level, "name", level) for level in getattr(document, section)]
        count *= len(levels) or 1
        for at, level in enumerate(levels):
            if level in levels[:at]:
                problems.found.append(origin.error_saying((section, at), "each level once", f"{show(level)} twice"))
    problems.check()
    if count > MOST_CELLS:
        raise origin.error_saying((), f"at most {MOST_CELLS} cells", f"{count:,}")
    if count * document.repeats > MOST_RUNS:
        raise origin.error_saying(("repeats",), f"at most {MOST_RUNS:,} runs", f"{count * document.repeats:,}")
    cells = tuple(_cells(document))
    pairs: dict[tuple[str, str], Pair] = {}
    for at, compared in enumerate(document.compare):
        with problems:
            for pair in _pairs(compared, at, cells, origin):
                if (pair.base, pair.new) in pairs:
                    twice = f"{show(pair.new)} against {show(pair.base)} twice"
                    raise origin.error_saying(("compare", at), "each pair of cells once", twice)
                pairs[pair.base, pair.new] = pair
    problems.check()
    return Suite(
        name=document.name or re.sub(r"[^A-Za-z0-9_.-]", "-", path.stem)[:40],
        directory=path.parent.resolve(),
        origin=origin,
        scenario=_scenario(document.scenario, path),
        stated=document,
        cells=cells,
        pairs=tuple(pairs.values()),
    )


def _cells(suite: SuiteDocument) -> Iterator[Cell]:
    for server, users, level in product(suite.servers or (None,), suite.users or (None,), suite.settings or (None,)):
        parts = [server and server.name, users, level and level.name]
        levels = [chosen for chosen in (server, level) if chosen]
        yield Cell(
            name="/".join(str(part) for part in parts if part is not None) or "all",
            server=server.name if server else None,
            users=users,
            settings=level.name if level else None,
            set=(suite.set, *(chosen.set for chosen in levels)),
            before=(*suite.before, *(hook for chosen in levels for hook in chosen.before)),
            after=(*(hook for chosen in levels[::-1] for hook in chosen.after), *suite.after),
        )


def _scenario(ref: str, path: Path) -> str:
    """Return a scenario's shipped name, or its path, which the file gives relative to itself."""
    place = locate("scenarios", ref, path.parent)
    return ref if place is None or ref in known("scenarios") else str(place[0])


def _pairs(section: CompareSection, at: int, cells: Sequence[Cell], origin: Origin) -> Iterator[Pair]:
    """Yield the pairs of cells that a section compares; they agree in all dimensions that it does not name."""
    base, new = section.base.levels, section.new.levels
    for side, levels in (("base", base), ("new", new)):
        for dimension, level in levels.items():
            existing = list(dict.fromkeys(str(getattr(cell, dimension)) for cell in cells))
            if str(level) not in existing:
                expected = f"one of {', '.join(existing)}" if existing != ["None"] else "no level: the suite has none"
                raise origin.error(("compare", at, side, dimension), expected, level)
    if base.keys() != new.keys():
        raise origin.error_saying(
            ("compare", at),
            "the same dimensions in base and new",
            f"{', '.join(base) or 'none'} and {', '.join(new) or 'none'}",
        )
    if base.get("users") != new.get("users"):
        expected = "the same users in base and new: scores of different ones are not comparable"
        raise origin.error(("compare", at, "new", "users"), expected, new["users"])
    if base == new:
        raise origin.error_saying(("compare", at), "two servers or two settings", "the same in base and new")
    for cell in cells:
        if base.items() <= cell.levels.items():
            partner = next(other for other in cells if other.levels == {**cell.levels, **new})
            yield Pair(cell.name, partner.name, section.max_regression)
