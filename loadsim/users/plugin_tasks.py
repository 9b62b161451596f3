"""Tasks from plug-ins (entry points in the group `loadsim.tasks`), which users do like loadsim's own.

An error in a plug-in fails only the task in which it occurs: it says nothing about the server.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from traceback import walk_tb
from typing import Any

from loadsim.errors import ConfigError, PluginFailed, TaskFailed
from loadsim.model.draws import draw
from loadsim.model.plugin_reports import CheckedObserver
from loadsim.model.ports import INBOX, Session, Turn
from loadsim.plugins import Plugin, names, plugin
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.weights import expected_plugin_task, may_name_plugin_task
from loadsim.users.mail import UserMail
from loadsim.users.tasks import Task

Act = Callable[[Turn], Awaitable[object]]
"""An entry point's object: an async function, called for each turn of a user."""


def check_plugin_tasks(scenario: Scenario) -> None:
    """Raise `ConfigError` if a planned plug-in task is not installed, or cannot be imported."""
    load_tasks(scenario)


def load_tasks(scenario: Scenario) -> dict[str, Task]:
    """Import the plug-in tasks that a scenario plans. Raises `ConfigError` with one line if that fails."""
    return {name: task_of(_planned_plugin(scenario, name)) for name in scenario.plugin_tasks}


def idle_tasks(scenario: Scenario) -> dict[str, Task]:
    """Return tasks that do nothing, by the plug-ins' names: a plan counts tasks without importing plug-ins."""
    return {name: Task(name, _do_nothing) for name in scenario.plugin_tasks}


def _planned_plugin(scenario: Scenario, name: str) -> Plugin:
    installed = plugin("task", name)
    if installed is None:
        at = next(at for at, group in enumerate(scenario.topology) if name in group.profile.tasks)
        where = f"{scenario.name}: topology[{at}].profile: tasks"
        raise ConfigError(f"{where}: expected tasks of installed plug-ins ({names('task')}), found {name!r}")
    return installed


def task_of(plug_in: Plugin) -> Task:
    """Import a plug-in's task. Raises `ConfigError`."""
    if not may_name_plugin_task(plug_in.name):
        raise ConfigError(f"task {plug_in.name}: expected {expected_plugin_task()}, found it in {plug_in.origin}")
    act = plug_in.load()
    if not inspect.iscoroutinefunction(act):
        expected = f"{plug_in.entry.value} to be an async function"
        raise ConfigError(f"task {plug_in.name}: expected {expected}, found {act!r:.60}")
    return Task(plug_in.name, partial(_act, plug_in, act, set()))


async def _do_nothing(user: UserMail, index: int) -> None:
    pass


async def _act(plug_in: Plugin, act: Act, names: set[str], user: UserMail, index: int) -> None:
    """Perform the user's turn with this index, and reopen the Inbox. Raises only `TaskFailed`, or its own cancellation.

    A `TaskFailed` from the plug-in is passed on. Any other exception is an error in the plug-in.
    """
    observer = CheckedObserver(user.observer, plug_in.package, names)
    running = asyncio.current_task()
    turn = Turn(
        account=user.account,
        session=Session(user.mailbox, user.submission, user.calendar, user.poll_s),
        observer=observer,
        folders=user.folders,
        index=index,
        draw=lambda what: draw(user.workload.seed, user.number, f"{plug_in.name}: {what}", index),
    )
    try:
        await act(turn)
    except asyncio.CancelledError as error:
        if running is None or running.cancelling():
            raise
        raise observer.wrong or _failure(plug_in, act, error) from None
    except TaskFailed as error:
        raise observer.wrong or error from None
    except Exception as error:  # noqa: BLE001 - it ends only this task
        raise observer.wrong or _failure(plug_in, act, error) from None
    if observer.wrong is not None:
        raise observer.wrong
    await user.mailbox.open(INBOX)


def _failure(plug_in: Plugin, act: Any, error: BaseException) -> PluginFailed:
    """Return the failure for an error in a plug-in, with the plug-in's innermost file and line.

    The error's text is left out, since it may quote a password or a message.
    """
    directory = Path(act.__code__.co_filename).parent
    places = [(Path(frame.f_code.co_filename), line) for frame, line in walk_tb(error.__traceback__)]
    inside = [f"{file.name}:{line}" for file, line in places if file.is_relative_to(directory)]
    return PluginFailed(f"error in the plug-in {plug_in.package}: {type(error).__name__}", inside[-1] if inside else "")
