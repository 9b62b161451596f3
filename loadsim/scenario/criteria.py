"""Criteria that a run must meet to pass: bounds on figures, under their names in `score.json`.

A name is a path of keys, joined by dots; a task's figures are below `tasks.NAME`. In a scenario, dots and nested
mappings are equivalent: `--set criteria.tasks.READ.p95_ms.max=500` sets `tasks.READ.p95_ms: {max: 500}`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from itertools import takewhile
from operator import itemgetter
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from loadsim.documents.schema import Amount, Count, Share, Size
from loadsim.documents.typed import nearest, show
from loadsim.documents.yaml_reader import Key, Origin, Problems, merge, parse
from loadsim.errors import MOST_SHOWN, ConfigError
from loadsim.findings.formats import unit_of
from loadsim.model.terms import (
    ASSISTANT_TASKS,
    BROWSE_PUBLIC,
    FIGURE_NAME,
    MONITOR_NAME,
    POST,
    PROTOCOLS,
    RETURN_RECEIPT,
    SENDING,
    TRACK_RECEIPT,
    WITHOUT_WINDOW,
)

if TYPE_CHECKING:
    from loadsim.model.mail_program import Calls
    from loadsim.scenario.profile import Profile


@dataclass(frozen=True, slots=True)
class Bound:
    """At least `min`, at most `max`, less than `below`; None switches a limit off.

    Times are in milliseconds and shares are fractions of 1, as in `score.json`.
    """

    min: float | None = None
    max: float | None = None
    below: float | None = None

    def document(self) -> dict[str, float]:
        """Return the limits that are on, as stated in files and log headers."""
        return {limit: value for limit, value in asdict(self).items() if value is not None}

    @property
    def most(self) -> float:
        """The upper limit, or infinity."""
        return min((limit for limit in (self.max, self.below) if limit is not None), default=math.inf)

    def is_less_strict_than(self, other: Bound) -> bool:
        """Return True if this bound allows figures that the other does not."""
        least, of_other = (-math.inf if each.min is None else each.min for each in (self, other))
        return least < of_other or self.most > other.most


Criteria = Mapping[str, Bound | None]
"""Bounds by figure name; None switches a criterion off."""


def documents(criteria: Criteria) -> dict[str, dict[str, float] | None]:
    """Return the criteria as stated in files and log headers; None means off."""
    return {name: bound.document() if bound else None for name, bound in criteria.items()}


SCORES = ("score_ms", "response_score_ms")
"""Figures that each driver has, but a closed loop does not."""

DEFAULTS_OF_PLAN = (*SCORES, "response_p95_ms", "done_share", "unserved_share")
"""The last parts of the names of default criteria that compare with the plan; a closed loop has none."""

SCORED = "tasks.scored."
"""The prefix of a criterion that applies to each scored task that has none of its own."""

DELIVERY, DELIVERY_MS = "delivery.p95_ms", 60_000.0

DEFAULT: Mapping[str, Bound] = {
    "score_ms": Bound(below=1000.0),
    "response_score_ms": Bound(below=5000.0),
    "failed_share": Bound(max=0.01),
    "done_share": Bound(min=0.98),
    "down_share": Bound(max=0.01),
    "logon_failed_share": Bound(max=0.01),
    "unserved_share": Bound(max=0.01),
    "delivery.undelivered_at_end": Bound(max=0),  # lost on the way
    "delivery.duplicates": Bound(max=0),
    "delivery.missing": Bound(max=0),  # lost from a folder
    DELIVERY: Bound(below=DELIVERY_MS),
    "tasks.scored.response_p95_ms": Bound(below=5000.0),
    "tasks.scored.failed_share": Bound(max=0.01),
    "tasks.scored.done_share": Bound(min=0.98),
}
"""A score below 1000 ms is LoadSim's published limit. SPECmail requires 95 % of operations within 5 s, 95 % of
deliveries within 60 s, and less than 1 % errors. The others are this project's own: a server that is down or loses mail
does not pass, however fast it is."""

LIMITS = ("min", "max", "below")

PROBES = "probes."
"""The prefix of a criterion on a probe's figure: probes.postfix.active_messages.p95."""


# --- names of figures -------------------------------------------------------------------------------------------

Tree = Mapping[str, Any]
"""Names of figures as nested mappings, with `FIGURE` at the leaves."""

FIGURE = True

_LIMITS: Mapping[str, Any] = {"ms": Amount, "s": Amount, "per s": Amount, "%": Share, "MiB": Size, "": Count}
"""The types of limits by the figure's unit; limits for probes are amounts."""

MONITORED = re.compile(rf"[^.@]+@{MONITOR_NAME.pattern}")
"""The name of a probe that `loadsim monitor` samples, with the monitor's name: postfix@mx1."""


def expected_monitors(criteria: Mapping[str, object]) -> list[str]:
    """Return the monitors whose figures the criteria need; criteria that are off need none."""
    on = (name for name, bound in criteria.items() if bound is not None)
    probes = (name.removeprefix(PROBES).partition(".")[0] for name in on if name.startswith(PROBES))
    return sorted({probe.partition("@")[2] for probe in probes if MONITORED.fullmatch(probe)})


def refuse_monitors(criteria: Criteria, declared: Collection[str], where: str) -> None:
    """Reject criteria that need monitors other than the `declared` ones: their files arrive after the verdict.

    The error message begins with `where`. Raises `ConfigError`.
    """
    if names := [name for name in expected_monitors(criteria) if name not in declared]:
        found = (
            f"those of the monitor {names[0]}, whose file is there later; the key monitors of a scenario collects it"
        )
        raise ConfigError(f"{where}criteria: expected figures that are known at the end of each run, found {found}")


ANY_FIGURE: Tree = {}
"""A probe's figures, which are unknown until it is sampled."""


def _below(within: Tree, name: object) -> Any:
    """Return the names below a name, or `FIGURE`; None if the name is unknown."""
    if within is ANY_FIGURE:
        from loadsim.model.figures import ProbeStatistics  # see `figures`

        return _names_of(ProbeStatistics) if isinstance(name, str) and FIGURE_NAME.fullmatch(name) else None
    return within.get(str(name))


def figures(
    planned: Mapping[str, Iterable[str]], stress: bool, probes: Iterable[str] = (), *, outage: bool = False
) -> Tree:
    """Return the figures of a run that a criterion may name; `planned` has the tasks of each driver's users.

    These are the numbers in `model.figures`, under the names of tasks, drivers and probes. A closed loop has throughput
    instead of figures about due tasks. It accepts all default criteria, but switches off those that need a plan, so
    that scenarios of both modes can share criteria. Only a run with an outage has a recovery.
    """
    from loadsim.model.figures import (  # not in engines
        OF_CLOSED_LOOP,
        OF_OUTAGE,
        OF_PLAN,
        DriverFigures,
        Figures,
        TaskFigures,
    )

    hidden = (OF_PLAN if stress else OF_CLOSED_LOOP) | ({} if outage else OF_OUTAGE)
    of_task = _names_of(TaskFigures, hidden)
    without_window = {name: FIGURE for name in of_task if name != "done_per_s"}

    def of_tasks(tasks: Iterable[str]) -> dict[str, Tree]:
        return {task: without_window if task in WITHOUT_WINDOW else of_task for task in sorted(tasks)}

    tasks = of_tasks({task for of_driver in planned.values() for task in of_driver})
    scored = [name.removeprefix(SCORED) for name in DEFAULT if name.startswith(SCORED)]
    rows: Mapping[str, Tree] = {
        "tasks": {**tasks, "scored": of_task | dict.fromkeys(scored, FIGURE)},
        "by_protocol": {
            driver: _names_of(DriverFigures, hidden, {"tasks": of_tasks(own)}) | dict.fromkeys(SCORES, FIGURE)
            for driver, own in planned.items()
        },
        "by_task": dict.fromkeys((task for task in tasks if task not in WITHOUT_WINDOW), FIGURE),
        "commands": dict.fromkeys(PROTOCOLS, FIGURE),
        "probes": dict.fromkeys(sorted(probes), ANY_FIGURE),
    }
    return _names_of(Figures, hidden, rows) | {name: FIGURE for name in DEFAULT if "." not in name}


def _names_of(cls: type, hidden: Mapping[str, Any] = {}, rows: Mapping[str, Tree] = {}) -> dict[str, Any]:
    """Return the numbers in a class of figures that a criterion may name, except those marked as `hidden`.

    `rows` has the names below the class's lists and mappings.
    """
    from loadsim.model.figures import NO_CRITERION

    kinds, names = get_type_hints(cls), dict[str, Any]()
    for one in fields(cls):
        kind = kinds[one.name]
        if isinstance(kind, UnionType):
            kind = get_args(kind)[0]  # the other one is None
        if one.metadata.keys() & (NO_CRITERION.keys() | hidden.keys()):
            continue
        if kind in (int, float):
            names[one.name] = FIGURE
        elif isinstance(kind, type) and is_dataclass(kind):
            below = _names_of(kind, hidden, rows)
            prefix = one.metadata.get("inline")
            names |= {one.name: below} if prefix is None else {f"{prefix}{name}": below[name] for name in below}
        elif rows.get(one.name):
            names[one.name] = rows[one.name]
    return names


def planned_tasks(profile: Profile, of_assistants: Iterable[Calls] = ()) -> set[str]:
    """Return the tasks that users with this profile, and their assistants, may perform."""
    from loadsim.scenario.profile import OUTCOMES  # does not apply to criteria for a log

    tasks = {"LOGON", "SYNC", "LOGOFF"}
    if profile.new_mail.per_day:
        tasks.add("SEND")
    if profile.schedule.per_day:
        tasks.add("SCHEDULE")
    if profile.search.per_day:
        tasks.add("SEARCH")
    if profile.post.per_day:
        tasks.add(POST)
    if profile.browse_public.per_day:
        tasks.add(BROWSE_PUBLIC)
    if profile.process_inbox.per_day and profile.process_inbox.delete_unread:
        tasks.add("DELETE UNREAD")
    reads = {
        "READ": (profile.process_inbox.per_day, profile.after_reading),
        "BROWSE": (profile.browse.per_day, profile.after_browsing),
    }
    for task, (per_day, after) in reads.items():
        if per_day:
            tasks.add(task)
            tasks |= {outcome.replace("_", " ").upper() for outcome in OUTCOMES[:-1] if getattr(after, outcome)}
            tasks |= {"LOAD ATTACHMENT"} if profile.load_attachment else set()
    if profile.new_mail.save_sent and tasks & SENDING:
        tasks.add("SAVE SENT")
    if profile.inbox_limit is not None and "READ" in tasks:
        tasks.add("EVICT")
    if profile.receipts.delivery:
        tasks.add(TRACK_RECEIPT)
    if profile.receipts.read or profile.receipts.returned:  # a driver must be able to send the header, too
        tasks.add(RETURN_RECEIPT)
    for calls in of_assistants:
        done = (calls.per_day, calls.reads, calls.draft, calls.send)
        tasks.update(task for task, _ in takewhile(itemgetter(1), zip(ASSISTANT_TASKS, done, strict=True)))
    return tasks | {name for name, task in profile.tasks.items() if task.per_day}


# --- reading ----------------------------------------------------------------------------------------------------


def unfolded(criteria: object, origin: Origin, above: Key = ()) -> Any:
    """Expand dotted names into nested mappings; return other values unchanged.

    Raises `ConfigError` if both notations state the same limit: one would be lost.
    """
    if not isinstance(criteria, dict):
        return criteria
    nested_criteria: Any = {}
    for name, value in criteria.items():
        path = (*above, *str(name).split("."))
        nested = unfolded(value, origin, path)
        for part in reversed(str(name).split(".")):
            nested = {part: nested}
        changed = merge(nested_criteria, nested)
        if changed != merge(nested, nested_criteria):
            raise origin.error_saying(("criteria", *path), "each limit once", "another one in the other notation")
        nested_criteria = changed
    return nested_criteria


def read_criteria(
    document: object,
    planned: Mapping[str, set[str]],
    stress: bool,
    origin: Origin,
    probes: Collection[str] = (),
    *,
    outage: bool = False,
) -> Criteria:
    """Return a scenario's criteria, including the defaults; None means off.

    A criterion on a task or score that names no driver applies to each driver that plans the task and has no criterion
    of its own. `probes` names the probes that may be sampled; `outage` is true if the run has one. Raises `ConfigError`
    for unknown figures and invalid limits.
    """
    criteria_document = unfolded(document, origin)
    stated = criteria_document.get("probes") if isinstance(criteria_document, dict) else None
    monitored = filter(MONITORED.fullmatch, map(str, stated if isinstance(stated, dict) else ()))
    tree = figures(planned, stress, {*probes, *monitored}, outage=outage)
    problems = Problems()
    given = dict(_bounds(criteria_document, tree, (), tree, origin, problems))
    problems.check()
    own = {name: bound for name, bound in given.items() if name.startswith("by_protocol.")}
    without_mail = SENDING.isdisjoint(task for tasks in planned.values() for task in tasks)
    off: Criteria = {DELIVERY: None} if without_mail else {}  # never measured, and so always missed
    common = {name: bound for name, bound in {**DEFAULT, **off, **given}.items() if name not in own}
    criteria: dict[str, Bound | None] = {}
    for name, bound in common.items():
        if name in SCORES or (name.startswith(("tasks.", "inbox.")) and not name.startswith(SCORED)):
            criteria |= dict.fromkeys(_by_driver(name, planned), bound)
        else:
            criteria[name] = bound
    only = f"by_protocol.{next(iter(planned))}." if len(planned) == 1 else ""
    criteria |= {name.removeprefix(only): bound for name, bound in own.items()}
    if stress:
        return {name: None if name.split(".")[-1] in DEFAULTS_OF_PLAN else bound for name, bound in criteria.items()}
    return criteria


def _by_driver(name: str, planned: Mapping[str, set[str]]) -> list[str]:
    """Return a figure's name for each driver that has it; with a single driver, the name itself."""
    if len(planned) == 1:
        return [name]
    return [
        f"by_protocol.{driver}.{name}"
        for driver in planned
        if not name.startswith("tasks.") or name.split(".")[1] in planned[driver]
    ]


def _bounds(
    document: object, within: Tree, path: Key, tree: Tree, origin: Origin, problems: Problems
) -> Iterator[tuple[str, Bound | None]]:
    """Yield the criteria in a part of the document, and record errors; `within` has the valid names for this part."""
    if not isinstance(document, dict):
        expected = "a mapping of figures to their limits"
        problems.found.append(origin.error(("criteria", *path), expected, document))
        return
    for key, value in document.items():
        here, below = (*path, key), _below(within, key)
        if below is None and len(problems.found) < MOST_SHOWN:
            problems.found.append(_unknown(here, value, within, tree, origin))
        elif below is None:  # it will not be shown, and the search for a similar name is slow
            problems.found.append(origin.error_saying(("criteria", *here), "a figure", show(key)))
        elif isinstance(below, Mapping):
            yield from _bounds(value, below, here, tree, origin, problems)
        else:
            with problems:
                name = ".".join(map(str, here))
                kind = Amount if name.startswith(PROBES) else _LIMITS[unit_of(name)]
                yield name, _bound(value, kind, ("criteria", *here), origin)


def _unknown(path: Key, value: object, within: Tree, tree: Tree, origin: Origin) -> ConfigError:
    """Return the error for an unknown name, with the known names and the one most like it."""
    what = "the tasks that are planned: " if path[-2:-1] == ("tasks",) else ""
    written = [*map(str, path)]
    while isinstance(value, dict) and value and next(iter(value)) not in LIMITS:
        name, value = next(iter(value.items()))
        written.append(str(name))
    whole, names = ".".join(written), [*_names(tree)]
    near = next((name for name in names if name.endswith(f".{whole}")), None) or nearest(whole, names)
    found = show(".".join(written[len(path) - 1 :])) + (f" (perhaps {near})" if near else "")
    key: Key = ("criteria", *path)
    key = next((setting for setting in origin.overridden if setting[: len(key)] == key), key)
    return origin.error_saying(key, f"one of {what}{', '.join(within) or 'the figures of the probe'}", found)


def _names(tree: Tree, above: str = "") -> Iterator[str]:
    for key, below in tree.items():
        if isinstance(below, Mapping):
            yield from _names(below, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def _bound(document: object, kind: Any, key: Key, origin: Origin) -> Bound | None:
    """Return the limits for one figure, or None if they are off."""
    if document is None:
        return None
    if not isinstance(document, dict) or not document:
        raise origin.error(key, "a mapping such as {max: 500}, or null", document)
    problems, limits = Problems(), {}
    for limit, value in document.items():
        with problems:
            if limit not in LIMITS:
                raise origin.error_saying((*key, limit), f"one of the keys {', '.join(LIMITS)}", show(limit))
            limits[limit] = parse(kind | None, value, origin, (*key, limit))
    problems.check()
    bound = Bound(**limits)
    if bound.min is not None and (bound.min > bound.most or bound.min == bound.below):
        found = ", ".join(f"{limit} {value:.10g}" for limit, value in bound.document().items())
        raise origin.error_saying(key, "limits that a figure can keep", found)
    return bound if bound.document() else None
