"""What a run must reach to pass: bounds on the figures of `score.json`, under the names that they have there.

A name is its keys with dots between them, those of a task below `tasks.NAME`. In a scenario dots and mappings in
mappings mean the same, so that `tasks.READ.p95_ms: {max: 500}` is what `--set criteria.tasks.READ.p95_ms.max=500` sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import TypeAdapter

from loadsim.errors import ConfigError
from loadsim.model.profile import OUTCOMES, Profile
from loadsim.model.schema import Amount, Count, Share, Size
from loadsim.model.terms import SENDING, WITHOUT_WINDOW
from loadsim.model.yaml_reader import Key, Origin, parse, show


@dataclass(frozen=True, slots=True)
class Bound:
    """At least `min`, at most `max`, less than `below`; None where there is no such limit.

    Times are in milliseconds, shares fractions of 1, as in `score.json`.
    """

    min: float | None = None
    max: float | None = None
    below: float | None = None

    def document(self) -> dict[str, float]:
        """The limits that there are, as they are written in a file and in a log's header."""
        return {limit: value for limit, value in asdict(self).items() if value is not None}


Criteria = Mapping[str, Bound | None]
"""By the name of the figure; None is a criterion that is off."""


def documents(criteria: Criteria) -> dict[str, dict[str, float] | None]:
    """The criteria as they stand in a file and in a log's header, those that are off with null."""
    return {name: bound.document() if bound else None for name, bound in criteria.items()}


SCORES = ("score_ms", "response_score_ms")
"""Figures that each protocol has, and that a closed loop lacks."""

OF_THE_PLAN = (*SCORES, "response_p95_ms", "done_share")
"""The last parts of the names of default criteria that compare with the plan, which a closed loop has not."""

SCORED = "tasks.scored."
"""The beginning of a criterion that holds for each scored task, unless one of its own says otherwise."""

DEFAULT: Criteria = {
    "score_ms": Bound(below=1000.0),
    "response_score_ms": Bound(below=5000.0),
    "failed_share": Bound(max=0.01),
    "done_share": Bound(min=0.98),
    "down_share": Bound(max=0.01),
    "logon_failed_share": Bound(max=0.01),
    "delivery.undelivered_at_end": Bound(max=0),
    "delivery.duplicates": Bound(max=0),
    "delivery.p95_ms": Bound(below=60_000.0),
    "tasks.scored.response_p95_ms": Bound(below=5000.0),
    "tasks.scored.failed_share": Bound(max=0.01),
    "tasks.scored.done_share": Bound(min=0.98),
}
"""A score of less than 1000 ms is LoadSim's published limit of what is acceptable. That 95 % of the operations end
within 5 s and 95 % of the deliveries within 60 s, with less than 1 % errors, is what SPECmail asks for. The others are
this project's own: a server that is down or loses mail is not good enough, however fast it is otherwise."""

LIMITS = ("min", "max", "below")


# --- which figures there are ------------------------------------------------------------------------------------

Tree = Mapping[str, Any]
"""Names of figures by their keys: a mapping of mappings, down to what reads a limit of the figure."""

_MS = _PER_S = TypeAdapter[float | None](Amount | None)
_SHARE = TypeAdapter[float | None](Share | None)
_COUNT = TypeAdapter[int | None](Count | None)
_BYTES = TypeAdapter[int | None](Size | None)

_TIMES = dict.fromkeys(("p50_ms", "p90_ms", "p95_ms", "p99_ms", "p99_9_ms", "max_ms", "mean_ms", "stddev_ms"), _MS)
_RESPONSE = {f"response_{name}": _MS for name in _TIMES if name not in ("mean_ms", "stddev_ms")}
_DUE = {
    **dict.fromkeys(("planned", "attempted", "unfinished", "skipped"), _COUNT),
    **dict.fromkeys(("attempted_share", "done_share"), _SHARE),
}
_DONE = {**dict.fromkeys(("done", "failed", "generator_failed"), _COUNT), "failed_share": _SHARE}
_TASK = {"hits": _COUNT, **_DONE, "refused": _COUNT, "lost": _COUNT, "timeout": _COUNT, **_TIMES}
_DELIVERY = dict.fromkeys(
    (
        *("accepted", "delivered", "timed", "found", "undelivered", "unwatched", "undelivered_at_end"),
        *("duplicates", "early", "under_way_max", "under_way_at_end"),
    ),
    _COUNT,
)
_GENERATOR = {
    **dict.fromkeys(("lag_p50_ms", "lag_p99_ms", "lag_max_ms", "gc_max_ms"), _MS),
    "cpu_share": _SHARE,
    "rss_bytes": _BYTES,
    **dict.fromkeys(("open_files", "clock_steps"), _COUNT),
}
_INBOX = {**dict.fromkeys(("processings", "done", "unfinished"), _COUNT), **_TIMES}


def figures(planned: Mapping[str, Iterable[str]], stress: bool) -> Tree:
    """The figures of a run that a criterion may name: `planned` are the tasks of each client module's users.

    In a closed loop nothing is due, so there is no figure of what was; its throughput takes their place. The default
    criteria have their names there, too: scenarios of both modes may share their criteria, and these are then off.
    """

    def of_task(task: str) -> Tree:
        rate = {} if task in WITHOUT_WINDOW else {"done_per_s": _PER_S}
        return {**_TASK, **rate, **({} if stress else _DUE | _RESPONSE)}

    inbox = {} if stress else {"inbox": _INBOX}
    modules = {
        module: {**dict.fromkeys(SCORES, _MS), **inbox, "tasks": {task: of_task(task) for task in tasks}}
        for module, tasks in planned.items()
    }
    tasks = sorted({task for tasks in planned.values() for task in tasks})
    throughput = {
        **dict.fromkeys(("tasks_per_s", "messages_per_s", "deliveries_per_s"), _PER_S),
        "by_task": dict.fromkeys((task for task in tasks if task not in WITHOUT_WINDOW), _PER_S),
        "commands": dict.fromkeys(("IMAP", "SMTP"), _PER_S),
        "silent_activities": _COUNT,
    }
    return {
        **dict.fromkeys(SCORES, _MS),
        **dict.fromkeys(("achieved_per_s", "tasks_per_s"), _PER_S),
        **_DONE,
        **({"done_share": _SHARE} if stress else {"offered_per_s": _PER_S, **_DUE}),
        **dict.fromkeys(("sessions_lost", "sessions_restored", "lost_users", "users_without_session"), _COUNT),
        "log_ons": _COUNT,
        **dict.fromkeys(("down_share", "logon_failed_share"), _SHARE),
        "tasks": {
            **{task: of_task(task) for task in tasks},
            "scored": {**of_task("READ"), "done_share": _SHARE, "response_p95_ms": _MS},
        },
        "by_protocol": modules,
        **inbox,
        "delivery": {**_DELIVERY, "earliest_ms": _MS, "clock_error_ms": _MS, **_TIMES},
        **({} if stress else {"load": {"share": _SHARE}}),
        **({} if stress else {"lateness_p95_ms": dict.fromkeys(("busy", "down", "generator"), _MS)}),
        **({"throughput": throughput} if stress else {}),
        "generator": _GENERATOR,
    }


def planned_tasks(profile: Profile) -> set[str]:
    """The tasks that users of this profile may do."""
    tasks = {"LOGON", "SYNC", "LOGOFF"}
    if profile.new_mail.per_day:
        tasks.add("SEND")
    if profile.schedule.per_day:
        tasks.add("SCHEDULE")
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
    return tasks


# --- reading ----------------------------------------------------------------------------------------------------


def unfolded(criteria: object, origin: Origin) -> Any:
    """Names with dots as mappings in mappings; what is no mapping as it is.

    Raises ConfigError, one line, for a criterion that stands twice.
    """
    if not isinstance(criteria, dict):
        return criteria
    found: dict[Any, Any] = {}
    _put(found, criteria, (), origin)
    return found


def _put(place: dict[Any, Any], criteria: Mapping[Any, Any], above: Key, origin: Origin) -> None:
    """Put criteria into the mapping at the path `above`, each under the last part of its name."""
    for name, value in criteria.items():
        within, path = place, above
        *groups, last = _parts(name)
        for group in groups:
            path = (*path, group)
            within = _group(within, group, path, origin)
        path = (*path, last)
        if isinstance(value, dict) and not value.keys() & set(LIMITS):
            _put(_group(within, last, path, origin), value, path, origin)
        elif last in within:
            raise _twice(path, origin)
        else:
            within[last] = value


def _group(place: dict[Any, Any], name: Any, path: Key, origin: Origin) -> dict[Any, Any]:
    group: Any = place.setdefault(name, {})
    if not isinstance(group, dict) or group.keys() & set(LIMITS):
        raise _twice(path, origin)
    return group


def _twice(path: Key, origin: Origin) -> ConfigError:
    return origin.refuse_showing(("criteria", *path), "each criterion once", "it twice")


def _parts(name: Any) -> Key:
    return tuple(str(name).split("."))


def read_criteria(document: object, planned: Mapping[str, set[str]], stress: bool, origin: Origin) -> Criteria:
    """The criteria of a scenario, with the defaults; of which figures, `figures` says.

    What names neither a task's client module nor that of a score holds for each of the modules that plan it, unless
    there is a criterion of its own. Raises ConfigError, one line, for a figure that there will not be, and for limits
    that are none.
    """
    tree = figures(planned, stress)
    given = dict(_bounds(unfolded(document, origin), tree, (), tree, origin))
    own = {name: bound for name, bound in given.items() if name.startswith("by_protocol.")}
    default = dict(DEFAULT)
    if SENDING.isdisjoint(task for tasks in planned.values() for task in tasks):
        del default["delivery.p95_ms"]  # without mail it would never be measured, and so always be missed
    common = {name: bound for name, bound in {**default, **given}.items() if name not in own}
    criteria: dict[str, Bound | None] = {}
    for name, bound in common.items():
        if name in SCORES or (name.startswith(("tasks.", "inbox.")) and not name.startswith(SCORED)):
            criteria |= dict.fromkeys(_of_modules(name, planned), bound)
        else:
            criteria[name] = bound
    only = f"by_protocol.{next(iter(planned))}." if len(planned) == 1 else ""
    criteria |= {name.removeprefix(only): bound for name, bound in own.items()}
    if stress:
        return {name: bound for name, bound in criteria.items() if name.split(".")[-1] not in OF_THE_PLAN}
    return criteria


def _of_modules(name: str, planned: Mapping[str, set[str]]) -> list[str]:
    """A module's figure under the names of all modules that have it; with one module, under its own."""
    if len(planned) == 1:
        return [name]
    return [
        f"by_protocol.{module}.{name}"
        for module in planned
        if not name.startswith("tasks.") or name.split(".")[1] in planned[module]
    ]


def _bounds(
    document: object, within: Tree, path: Key, tree: Tree, origin: Origin
) -> Iterator[tuple[str, Bound | None]]:
    """Every criterion of a part of the document, `within` being the same part of the names."""
    if not isinstance(document, dict):
        raise origin.refuse(("criteria", *path), "a mapping of figures to their limits", document)
    for key, value in document.items():
        here = (*path, key)
        if key not in within:
            raise _unknown(here, value, within, tree, origin)
        if isinstance(within[key], Mapping):
            yield from _bounds(value, within[key], here, tree, origin)
        else:
            yield ".".join(map(str, here)), _bound(value, within[key], ("criteria", *here), origin)


def _unknown(path: Key, value: object, within: Tree, tree: Tree, origin: Origin) -> ConfigError:
    """What there is instead, and which of all names is nearest to what was written."""
    what = "the tasks that are planned: " if path[-2:-1] == ("tasks",) else ""
    written = list(path)
    while isinstance(value, dict) and value and next(iter(value)) not in LIMITS:
        name, value = next(iter(value.items()))
        written.append(name)
    near = _nearest_below(path[-1], within) if len(path) > 1 else _nearest(".".join(map(str, written)), tree)
    meant = f" (perhaps {'.'.join(map(str, (*path[:-1], near)))})" if near else ""
    found = show(".".join(map(str, written[len(path) - 1 :])))
    key: Key = ("criteria", *path)
    key = next((setting for setting in origin.overridden if setting[: len(key)] == key), key)
    return origin.refuse_showing(key, f"one of {what}{', '.join(within)}", f"{found}{meant}")


def _nearest(written: str, tree: Tree) -> str | None:
    """The name that ends so, or looks like it; None when none does."""
    names = {name.casefold(): name for name in _names(tree)}
    ending = [name for name in names if name.endswith(f".{written.casefold()}")]
    near = ending or get_close_matches(written.casefold(), names, n=1)
    return names[near[0]] if near else None


def _nearest_below(key: object, within: Tree) -> str | None:
    names = {name.casefold(): name for name in within}
    near = get_close_matches(str(key).casefold(), names, n=1)
    return names[near[0]] if near else None


def _names(tree: Tree, above: str = "") -> Iterator[str]:
    for key, below in tree.items():
        if isinstance(below, Mapping):
            yield from _names(below, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def _bound(document: object, adapter: TypeAdapter[Any], key: Key, origin: Origin) -> Bound | None:
    """The limits of one figure; None when they are off."""
    if document is None:
        return None
    if not isinstance(document, dict) or not document:
        raise origin.refuse(key, "a mapping such as {max: 500}, or null", document)
    for limit in document:
        if limit not in LIMITS:
            raise origin.refuse_showing((*key, limit), f"one of the keys {', '.join(LIMITS)}", show(limit))
    bound = Bound(**{limit: parse(adapter, value, origin, (*key, limit)) for limit, value in document.items()})
    most = min((limit for limit in (bound.max, bound.below) if limit is not None), default=None)
    if bound.min is not None and most is not None and (bound.min > most or bound.min == bound.below):
        raise origin.refuse_showing(key, "limits that a figure can keep", _said(bound))
    return bound if bound.document() else None


def _said(bound: Bound) -> str:
    return ", ".join(f"{limit} {value:.10g}" for limit, value in bound.document().items())
