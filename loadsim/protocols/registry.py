"""Drivers by name: the entry points of the group `loadsim.protocols`, built-in and third-party."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from loadsim.documents.schema import with_nearest
from loadsim.errors import ConfigError
from loadsim.model.content.compose import Contents
from loadsim.model.mail_program import OUTLOOK_LIKE, PER_VIEW, program_names
from loadsim.model.plugin_reports import CheckedDriver
from loadsim.model.ports import Account, Driver, DriverOfSenders, Observer, OpenDirectory, PortsApart, Services
from loadsim.model.terms import CALDAV, OVER_HTTP, POP3, PUBLIC_TASKS, SERVICES
from loadsim.plugins import names, plugin, plugins
from loadsim.protocols.caldav.calendar import CalDavCalendars
from loadsim.protocols.ldap.directory import LdapDirectories
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.server import Server
from loadsim.scenario.workload import Workload

if TYPE_CHECKING:
    from loadsim.protocols.nntp.newsgroup import Newsgroup

IN_THE_ENGINE = "fake"
"""The driver whose mail system is inside the engine, out of reach of users in other engines."""

ONE_PROGRAM = (IN_THE_ENGINE, "aioimaplib", *OVER_HTTP)
"""The built-in drivers that support only the default mail program."""

EMBEDDED_SERVICES = ("imap", "smtp", "mapi")

USUAL_NEEDS = ("imap", "smtp")
"""The services that a driver needs unless its entry point has a `needs` attribute."""

TOGETHER = (frozenset((*USUAL_NEEDS, POP3)), *(frozenset({service}) for service in OVER_HTTP))
"""The services that one run may combine.

Users over MAPI do not recognise mail prepared over IMAP. Those over JMAP do, but may have other folders: James 3.8 has
a Mailbox with the role `sent`, and no special use for it in IMAP.
"""


def open_driver(name: str, services: Services, **options: Any) -> Driver:
    """Return a new driver with this name. Raises `ConfigError` if there is none, or if it rejects the services."""
    entry = plugin("driver", name)
    if entry is None:
        raise ConfigError(f"protocol: expected one of {names('driver')}, found {name}")
    driver: Driver = entry.load()(services, **options)
    return driver if entry.is_own else cast(Driver, CheckedDriver(driver, entry.package))


def open_drivers(workload: Workload, contents: Contents, services: Services) -> dict[str, Driver]:
    """Return a new driver for each protocol and mail program of a scenario's groups, by `Group.driver_name`."""
    scenario: Scenario = workload.scenario
    groups = {group.driver_name: group for group in scenario.topology}
    # The in-memory mail system is itself the server: it has to know its users.
    own: dict[str, Any] = {"workload": workload, "contents": contents}
    return {
        name: open_driver(
            group.protocol,
            scenario.with_program(services, group.protocol, group.program, group.companions),
            **(own if group.protocol == IN_THE_ENGINE else {}),
        )
        for name, group in sorted(groups.items())
    }


def outside_driver(scenario: Scenario, drivers: Mapping[str, Driver]) -> DriverOfSenders | None:
    """Return the driver by which outside senders submit, the first group's; None if there are no senders."""
    return cast(DriverOfSenders, drivers[scenario.topology[0].driver_name]) if scenario.outside else None


def open_companions(scenario: Scenario, services: Services) -> dict[str, tuple[Driver, ...]]:
    """Return new drivers for each group's companions that only watch, if any, by `Group.driver_name`."""
    return {
        group.driver_name: tuple(
            open_driver(group.protocol, scenario.with_program(services, group.protocol, program))
            for program in group.companions
            if program.calls is None
        )
        for group in scenario.topology
        if group.companions
    }


def open_assistants(scenario: Scenario, services: Services) -> dict[str, dict[str, Driver]]:
    """Return new drivers for each group's assistants, if any, by `Group.driver_name` and the kind of their calls."""
    return {
        group.driver_name: {
            kind: open_driver(group.protocol, scenario.with_program(services, group.protocol, program))
            for kind, program in group.assistants.items()
        }
        for group in scenario.topology
        if group.assistants
    }


def open_directory(services: Services) -> OpenDirectory | None:
    """Return the address book of all users; None if the server has none. Raises `ConfigError` for a bad TLS file."""
    return None if services.ldap is None else LdapDirectories(services.ldap, services.command_limit_s).of


def open_newsgroups(services: Services) -> Callable[[Account, Observer], Newsgroup] | None:
    """Return the public folder of all users as a newsgroup; None if it is in their mailboxes.

    Raises `ConfigError` for a bad TLS file.
    """
    if services.nntp is None or services.folders.public is None:
        return None
    from loadsim.protocols.nntp.newsgroup import Newsgroups  # it takes the reader of articles from IMAP, with numpy

    return Newsgroups(services.nntp, services.folders.public, services.command_limit_s).of


def open_calendars(services: Services) -> CalDavCalendars | None:
    """Return what opens users' calendars; None without a calendar server.

    Raises `ConfigError` for a bad TLS file, or without the library for events.
    """
    return None if services.caldav is None else CalDavCalendars(services.caldav, services.command_limit_s)


def open_apart(services: Services) -> PortsApart:
    """Return what opens users' ports apart from the mailbox. Raises as `open_calendars` does."""
    calendars = open_calendars(services)
    return PortsApart(open_directory(services), open_newsgroups(services), None if calendars is None else calendars.of)


def needed_services(scenario: Scenario) -> frozenset[str]:
    """Return the services that the groups' drivers need. Raises `ConfigError` if a driver cannot be imported."""
    return frozenset(service for group in scenario.topology for service in _needs(group.protocol))


def _needs(protocol: str) -> tuple[str, ...]:
    entry = plugin("driver", protocol)
    if entry is None or protocol == IN_THE_ENGINE:
        return ()
    needs: tuple[str, ...] = getattr(entry.load(), "needs", USUAL_NEEDS)
    if not isinstance(needs, tuple) or not set(needs) <= set(SERVICES):
        raise ConfigError(f"protocol {protocol}: expected needs that are a tuple of {', '.join(SERVICES)}")
    return needs


def check_protocols(scenario: Scenario) -> None:
    """Raise `ConfigError` if a group has no driver, or its driver needs a service that the server does not offer."""
    for index, group in enumerate(scenario.topology):
        if plugin("driver", group.protocol) is None:
            shown = with_nearest(group.protocol, [driver.name for driver in plugins("driver")])
            raise ConfigError(
                f"{scenario.name}: topology[{index}].protocol: expected one of {names('driver')}, found {shown}"
            )
        if group.programs != (OUTLOOK_LIKE,) and group.protocol in ONE_PROGRAM:
            raise _without_programs(scenario, index)
        if group.protocol == POP3 and (group.companions or group.program.session != PER_VIEW):
            raise ConfigError(
                f"{scenario.name}: topology[{index}].program: expected one program with a session per view, such as"
                f" pop3, for the driver {POP3}, found {program_names(group.programs)}"
            )
        stated = scenario.server.endpoints if isinstance(scenario.server, Server) else EMBEDDED_SERVICES
        for service in _needs(group.protocol):
            if service not in stated:
                raise ConfigError(
                    f"{scenario.name}: server: expected {service}, which topology[{index}].protocol {group.protocol}"
                    f" needs, found {' and '.join(stated)}"
                )
    if not any(needed_services(scenario) <= served for served in TOGETHER):
        protocols = ", ".join(sorted({group.protocol for group in scenario.topology}))
        raise ConfigError(
            f"{scenario.name}: topology: expected groups by IMAP and SMTP, by MAPI, or by JMAP, found {protocols}:"
            " mailboxes are prepared over one of them"
        )


def _without_programs(scenario: Scenario, index: int) -> ConfigError:
    group = scenario.topology[index]
    return ConfigError(
        f"{scenario.name}: topology[{index}].program: expected {OUTLOOK_LIKE.name}, the only program of the driver"
        f" {group.protocol}, found {program_names(group.programs)}"
    )


def check_drivers(scenario: Scenario, services: Services) -> None:
    """Raise `ConfigError` if a driver rejects these services, or does not support a planned task or its group's mail
    program.

    The in-memory driver is not checked: it supports every task.
    """
    drivers: dict[str, Driver] = {}
    for index, group in enumerate(scenario.topology):
        name = group.protocol
        if name == IN_THE_ENGINE:
            continue
        if name not in drivers:
            drivers[name] = open_driver(name, scenario.with_program(services, name, OUTLOOK_LIKE))
            if not hasattr(drivers[name], "supported_tasks"):
                raise ConfigError(f"protocol {name}: expected a driver with supported_tasks, found one without")
            if index == 0 and scenario.outside and not hasattr(drivers[name], "outside"):
                raise ConfigError(
                    f"{scenario.name}: topology[0].protocol: expected a driver by which outside senders can submit,"
                    f" such as imap, found {name}"
                )
        if group.programs != (OUTLOOK_LIKE,) and not getattr(drivers[name], "takes_programs", False):
            raise _without_programs(scenario, index)
        missing = group.planned_tasks - drivers[name].supported_tasks - group.profile.tasks.keys()
        missing -= {*PUBLIC_TASKS} if services.nntp is not None else set()
        missing -= {"SCHEDULE"} if group.calendar == CALDAV else set()
        if missing:
            raise ConfigError(
                f"{scenario.name}: topology[{index}].protocol: expected a driver that supports"
                f" {', '.join(sorted(missing))}, which profile {group.reference} plans, found {name}, which does not"
            )


def needs_one_engine(scenario: Scenario) -> str | None:
    """Return the protocol whose users must share one engine; None if the scenario has no such group."""
    return IN_THE_ENGINE if any(group.protocol == IN_THE_ENGINE for group in scenario.topology) else None
