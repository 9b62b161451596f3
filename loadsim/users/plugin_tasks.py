"""Tasks of plug-ins (entry points of the group `loadsim.tasks`), which users do like loadsim's own.

An error in a plug-in is the failure of the one task in which it occurred: it says nothing about the server.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from loadsim.errors import (
    ConfigError,
    GeneratorFailed,
    PluginFailed,
    ProtocolError,
    ServerLost,
    ServerRefused,
    ServerSilent,
    TaskFailed,
)
from loadsim.model.draws import draw
from loadsim.model.plugin_reports import CheckedObserver, Reports
from loadsim.model.ports import INBOX, Session, Turn
from loadsim.model.profile import expected_plugin_task, may_name_plugin_task
from loadsim.model.scenario import Scenario
from loadsim.plugins import Plugin, names, plugin
from loadsim.users.mail import UserMail
from loadsim.users.tasks import Task

Act = Callable[[Turn], Awaitable[object]]
"""The object of an entry point: an async function, which is called for each turn of a user."""


_STATED = (ServerRefused, ProtocolError, ServerLost, ServerSilent, GeneratorFailed)
"""The failures that a plug-in may state; of a subclass and its base, the subclass is first."""


def check_plugin_tasks(scenario: Scenario) -> None:
    """Raise `ConfigError` for a planned task of a plug-in that is not installed, or cannot be imported."""
    load_tasks(scenario)


def load_tasks(scenario: Scenario) -> dict[str, Task]:
    """Import the tasks of plug-ins that a scenario plans. Raises `ConfigError` with one line if that fails."""
    return {name: task_of(_found(scenario, name)) for name in scenario.plugin_tasks}


def idle_tasks(scenario: Scenario) -> dict[str, Task]:
    """Return tasks of these names that do nothing: a plan counts them, and imports no plug-in."""
    return {name: Task(name, _do_nothing) for name in scenario.plugin_tasks}


def _found(scenario: Scenario, name: str) -> Plugin:
    found = plugin("task", name)
    if found is None:
        at = next(at for at, group in enumerate(scenario.topology) if name in group.profile.tasks)
        where = f"{scenario.name}: topology[{at}].profile: tasks"
        raise ConfigError(f"{where}: expected tasks of installed plug-ins ({names('task')}), found {name!r}")
    return found


def task_of(found: Plugin) -> Task:
    """Import the task of a plug-in. Raises `ConfigError`."""
    if not may_name_plugin_task(found.name):
        raise ConfigError(f"task {found.name}: expected {expected_plugin_task()}, found it in {found.origin}")
    act = found.load()
    if not inspect.iscoroutinefunction(act):
        raise ConfigError(f"task {found.name}: expected {found.entry.value} to be an async function, found {act!r:.60}")
    about = (act.__doc__ or "").strip().partition("\n")[0].removesuffix(".")
    return Task(found.name, partial(_act, found, act, Reports(found.package)), about=about)


async def _do_nothing(user: UserMail, index: int) -> None:
    pass


async def _act(found: Plugin, act: Act, reports: Reports, user: UserMail, index: int) -> None:
    """Take the user's turn of this index, and open the Inbox again. Raises `TaskFailed`, and its own cancellation."""
    observer = CheckedObserver(user.observer, reports)
    running = asyncio.current_task()
    turn = Turn(
        account=user.account,
        session=Session(user.mailbox, user.submission, user.calendar, user.poll_s),
        observer=observer,
        folders=user.folders,
        index=index,
        draw=lambda what: draw(user.workload.seed, user.number, f"{found.name}: {what}", index),
    )
    try:
        await act(turn)
    except asyncio.CancelledError as error:
        if running is None or running.cancelling():
            raise
        raise observer.wrong or _failure(found, act, error) from None
    except GeneratorExit as error:
        if _running_task() is not running:  # the coroutine is closed from outside
            raise
        raise observer.wrong or _failure(found, act, error) from None
    except BaseException as error:  # noqa: BLE001 - SystemExit of a plug-in, too, ends only this task
        raise observer.wrong or _stated(error) or _failure(found, act, error) from None
    if observer.wrong is not None:
        raise observer.wrong
    await user.mailbox.open(INBOX)


def _running_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs
        return None


def _stated(error: BaseException) -> TaskFailed | None:
    """Return the failure that a plug-in states, without its own subclass; None for an error in the plug-in."""
    if not isinstance(error, TaskFailed):
        return None
    kind, line = getattr(error, "kind", None), getattr(error, "line", None)
    if not isinstance(kind, str) or not isinstance(line, str):
        return None
    if type(error) in _STATED:
        return error
    return next((each(kind, line) for each in _STATED if isinstance(error, each)), None)


def _failure(found: Plugin, act: Any, error: BaseException) -> PluginFailed:
    """Return the failure for an error in a plug-in, without its text, which may quote a password or a message."""
    place = _place(error.__traceback__, str(Path(act.__code__.co_filename).parent))
    return PluginFailed(f"error in the plug-in {found.package}: {type(error).__name__}", place)


def _place(trace: TracebackType | None, directory: str) -> str:
    """Return the innermost file and line below a directory."""
    place = ""
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file.is_relative_to(directory):
            place = f"{file.name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
