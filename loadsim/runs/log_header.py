"""The header that all of a run's timing logs share, and the planned load that it states."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from datetime import datetime
from typing import Any

from loadsim.build_fingerprint import build_fingerprint
from loadsim.dryrun.forecast import forecast, refusal
from loadsim.dryrun.plan_cache import planned_load
from loadsim.errors import ConfigError
from loadsim.findings.formats import length
from loadsim.model.ports import OF_ALL_USERS
from loadsim.model.terms import OVER_HTTP, POST, SENDING
from loadsim.protocols.registry import needed_services
from loadsim.provisioning.sessions import accounts_on_server
from loadsim.runs.watcher import Watcher
from loadsim.scenario.criteria import documents
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.server import Server
from loadsim.scenario.workload import Workload
from loadsim.timinglog.planned_load import PlannedLoad
from loadsim.version import __version__


def random_run_id(began: datetime) -> str:
    return f"{began:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def load_of_plan(scenario: Scenario, watcher: Watcher, *, even_invalid: bool = False) -> PlannedLoad | None:
    """Return the planned load; None if it is unknown.

    Raises `ConfigError` if the run cannot become valid; with `even_invalid`, the watcher is warned instead.
    """
    watcher.stage("plan")
    load = planned_load(scenario, build_fingerprint(), watcher.message, watcher.warning, watcher.planned)
    if why := refusal(forecast(scenario, load)):
        if not even_invalid:
            takes = length(scenario.duration_s)
            raise ConfigError(f"{scenario.name}: {why}; --even-invalid makes it all the same, and takes {takes}")
        watcher.warning(f"warning: {why}")
    if load is not None:
        watcher.due(load.tasks)
    return load


MOST_MESSAGES = 100_000
"""The most messages to audit by default: reading them from Dovecot takes 10 s of CPU time here, and a minute on a busy
machine."""


def is_audited(workload: Workload, load: PlannedLoad | None, most: int = MOST_MESSAGES) -> bool:
    """Return True if a run's mail is audited: as `run.audit` says, or by default.

    By default, that is so if the plan has at most `most` messages, and no tasks of plug-ins, which are not recorded. A
    cluster's run is audited only if `run.audit` says so.
    """
    scenario = workload.scenario
    if scenario.audit is not None or load is None or scenario.plugin_tasks:
        return bool(scenario.audit)
    start = sum(sum(workload.start_state(user).values()) for user in range(OF_ALL_USERS, scenario.users + 1))
    recipients = max(profile.new_mail.recipients for profile in workload.profiles)
    copies = dict.fromkeys(SENDING, 1 + min(recipients, scenario.users)) | {POST: 1}  # one in Sent Items
    return start + sum(number * sum(load.tasks.get(task, ())) for task, number in copies.items()) <= most


def run_header(
    workload: Workload, run: str, server: str, plan: str, start_state: str | None, load: PlannedLoad | None
) -> dict[str, Any]:
    """Return the header for the run with the ID `run`, on a server with this name.

    `plan` and `start_state` are digests. `load` is the planned load, None if it is unknown.
    """
    scenario: Scenario = workload.scenario
    return {
        "software": f"loadsim {__version__}",
        "run": run,
        "name": scenario.name,
        "server": server,
        "findings": [finding.document for finding in scenario.findings],
        **({"audited": is_audited(workload, load)} if accounts_on_server(scenario) else {}),
        **({"audit_allow": scenario.audit_allow} if scenario.audit_allow else {}),
        "embedded": not isinstance(scenario.server, Server),
        **({"submission": scenario.submission} if needed_services(scenario).isdisjoint(OVER_HTTP) else {}),
        **({"programs": scenario.programs} if scenario.programs else {}),
        **({"calendars": scenario.calendars} if scenario.calendars else {}),
        **({"log_on": scenario.log_on} if scenario.log_on else {}),
        **({"monitors": sorted(scenario.monitors)} if scenario.monitors else {}),
        **({"plugins": plugins} if (plugins := scenario.plugins) else {}),
        "mode": scenario.run.mode,
        "scenario_digest": scenario.digest(),
        "accounts_digest": scenario.accounts_digest(),
        "plan_digest": plan,
        "planned_load": load and asdict(load),
        "load_unknown": load is None,
        "start_state_digest": start_state,
        "users": scenario.users,
        **({"senders": scenario.senders} if scenario.outside else {}),
        "profiles": sorted({profile.name for profile in workload.profiles}),
        "profile_day_s": scenario.topology[0].profile.day_s,
        "day_s": scenario.run.day_length_s,
        "night_s": scenario.run.night_length_s,
        **({"day_shape": scenario.run.day_shape} if scenario.run.day_shape else {}),
        **({"outage": {"at_s": outage.at_s, "by": outage.by}} if (outage := scenario.outage) else {}),
        "compression": scenario.compression,
        "duration_s": scenario.duration_s,
        "window_s": [scenario.run.warm_up_s, scenario.run.warm_up_s + scenario.run.window_s],
        "weights": scenario.weights,
        "criteria": documents(scenario.criteria),
        "limits": scenario.limits.in_header(),
    }
