"""The criterion `send_queue_empties`: one name for limits on three figures of each probe `postfix`.

LoadSim's rule is that the send queue empties after momentary build-ups.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from loadsim.model.lazy_pydantic import TypeAdapter
from loadsim.model.schema import NULL, Json, Switch, any_of, list_of, one_of
from loadsim.model.terms import MONITOR_NAME
from loadsim.model.yaml_reader import Origin, parse

EMPTIES = "send_queue_empties"

OLDEST_S, BUILD_UP_S, GROWTH_S = "oldest_message_s", "send_queue_build_up_s", "send_queue_growth_s"

MOST_S: Mapping[str, float] = {OLDEST_S: 60.0, BUILD_UP_S: 60.0, GROWTH_S: 1.0}
"""The limits of the maximum of each figure.

60 s: SPECmail requires 95 % of the deliveries within this time, and so does the default criterion of deliveries. Growth
is this project's own: over the window, deliveries fall behind by at most a second's worth of them.
"""

EMPTIES_JSON: Json = any_of(
    {"type": "boolean"}, one_of("yes", "no"), NULL, list_of({"type": "string", "pattern": "^postfix"}, least=1)
)

_PROBE = re.compile(rf"postfix(?:/[a-z0-9][a-z0-9_-]{{0,39}})?(?P<monitor>@{MONITOR_NAME.pattern})?")
"""The name of a probe of a send queue: postfix, postfix/in, postfix@mx1."""

_SWITCH = TypeAdapter[bool](Switch)


def is_send_queue(probe: str) -> bool:
    """Return True for the name of a probe of a send queue."""
    return _PROBE.fullmatch(probe) is not None


def expanded(criteria: Mapping[str, Any], probes: Collection[str], origin: Origin) -> dict[str, Any]:
    """Return criteria, without dots in their names, with the limits for which `send_queue_empties` stands.

    A limit that is stated stays. With `yes`, the limits hold for each probe `postfix` among `probes` and in other
    criteria; a list names the probes. Of `probes` with settings, each needs `log`. Raises `ConfigError`.
    """
    found = {name: value for name, value in criteria.items() if name != EMPTIES}
    wanted = criteria.get(EMPTIES)
    if wanted is None:
        return found
    stated = found.get("probes")
    own: dict[Any, Any] = dict(stated) if isinstance(stated, dict) else {}
    if stated is not None and not isinstance(stated, dict):
        return found  # an error of its own
    for probe in _wanted(wanted, probes, own, origin):
        own[probe] = _with_limits(own.get(probe))
    return {**found, "probes": own} if own else found


def _wanted(wanted: object, probes: Collection[str], stated: Collection[object], origin: Origin) -> list[str]:
    """Return the names of the probes to judge. Raises `ConfigError`."""
    key = ("criteria", EMPTIES)
    known = [probe for probe in probes if is_send_queue(probe)]
    monitored = [str(probe) for probe in stated if (match := _PROBE.fullmatch(str(probe))) and match["monitor"]]
    if isinstance(wanted, list):
        names = wanted
        if not names:
            raise origin.error(key, "yes, or a list of probes such as [postfix, postfix@mx1]", wanted)
        for name in names:
            match = _PROBE.fullmatch(name) if isinstance(name, str) else None
            if match is None or not (match["monitor"] or name in known):
                named = ", ".join([*known, "postfix@MONITOR"])
                raise origin.error(key, f"names of probes of a send queue ({named})", name)
    elif parse(_SWITCH, wanted, origin, key):
        names = [*known, *(probe for probe in monitored if probe not in known)]
    else:
        return []
    if not names:
        add = "add probes.postfix.log, the path of Postfix's log, or name a monitor's: [postfix@mx1]"
        raise origin.error_saying(key, f"a probe postfix: {add}", "none")
    for name in names:
        if isinstance(probes, Mapping) and name in probes and "log" not in (probes[name] or {}):
            raise origin.error_saying(key, f"probes.{name}.log, the path of Postfix's log, for the throughput", "none")
    return names


def _with_limits(stated: object) -> object:
    """Return the criteria of a probe with the limits that it does not state."""
    if not isinstance(stated, dict | None):
        return stated  # an error of its own
    own = dict(stated or {})
    for figure, most_s in MOST_S.items():
        of_figure = own.setdefault(figure, {})
        if isinstance(of_figure, dict):
            own[figure] = {"max": {"max": most_s}} | of_figure
    return own
