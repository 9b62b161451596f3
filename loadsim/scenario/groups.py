"""Groups of users and their distribution lists: reading the files that a topology names, and checking that they fit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from loadsim.documents.schema import with_nearest
from loadsim.documents.typed import show
from loadsim.documents.yaml_reader import Origin, Problems, as_absolute, expected_file, known, locate
from loadsim.model.mail_program import AIOSMTPLIB, Calls, MailProgram, default_submission, driver_name, load_program
from loadsim.model.ports import FolderSettings
from loadsim.model.terms import CALDAV, FIRST_SYNC, IN_MAILBOX, PUBLIC_TASKS
from loadsim.scenario.accounts import AccountsSection
from loadsim.scenario.criteria import planned_tasks
from loadsim.scenario.log_on import AIOSMTPLIB_METHODS
from loadsim.scenario.mailboxes import MailboxSection
from loadsim.scenario.profile import AnyProfile, Profile, SenderProfile, load_any_profile
from loadsim.scenario.run_times import seconds
from loadsim.scenario.sections import Client, GroupSection, ListsSection
from loadsim.scenario.server import Server

_NEWSGROUP = re.compile(r"[A-Za-z0-9+_-]+(?:\.[A-Za-z0-9+_-]+)*")
"""The name of a newsgroup (RFC 5536 section 3.1.4)."""


@dataclass(frozen=True, slots=True)
class Group:
    """Users of one profile, with one driver and one or more mail programs.

    `program` does the users' tasks; `companions` only watch, or are assistants. `reference` and `program_references`
    name the profile and the programs in a file.
    """

    profile: Profile
    users: int
    protocol: str
    reference: str
    program: MailProgram
    companions: tuple[MailProgram, ...]
    program_references: tuple[str, ...]
    calendar: str = IN_MAILBOX

    @property
    def programs(self) -> tuple[MailProgram, ...]:
        """The users' mail programs; the first one does their tasks."""
        return (self.program, *self.companions)

    @property
    def planned_tasks(self) -> set[str]:
        """The tasks that these users may perform."""
        first = {FIRST_SYNC} if self.program.first_sync is not None else set()
        return planned_tasks(self.profile, self.calls.values()) | first

    @property
    def connections(self) -> int:
        """The most simultaneous connections to a user's mailbox: each companion has one, for the Inbox."""
        return self.program.connections + len(self.companions)

    @property
    def assistants(self) -> dict[str, MailProgram]:
        """The users' assistants, by the kind of activity that their calls are."""
        return {f"call of {program.name}": program for program in self.companions if program.calls is not None}

    @property
    def calls(self) -> dict[str, Calls]:
        """The calls of each of the users' assistants, by the kind of activity that they are."""
        return {kind: program.calls for kind, program in self.assistants.items() if program.calls is not None}

    @property
    def writes_drafts(self) -> bool:
        return any(calls.reads and calls.draft for calls in self.calls.values())

    @property
    def submission(self) -> str:
        """The way to submit, unless the scenario states one."""
        return default_submission(self.protocol, self.program)

    @property
    def driver_name(self) -> str:
        """The name of the driver and programs in results."""
        return driver_name(self.protocol, self.program, self.companions)


@dataclass(frozen=True, slots=True)
class SenderGroup:
    """Outside senders of one profile: `users` of them, who have no mailbox, driver or mail program."""

    profile: SenderProfile
    users: int
    reference: str


def read_group(shape: GroupSection, at: int, origin: Origin, directory: Path) -> Group | SenderGroup:
    problems, programs = Problems(), []
    with problems:
        reference = _reference("profile", shape.profile, at, origin, directory)
        profile = load_any_profile(shape.profile, directory)
    for stated in shape.program:
        with problems:
            program_reference = _reference("program", stated, at, origin, directory)
            programs.append((load_program(stated, directory), program_reference))
    problems.check()
    if isinstance(profile, SenderProfile):
        return _sender_group(shape, profile, reference, at, origin)
    return Group(
        profile=profile,
        users=shape.users,
        protocol=shape.protocol,
        reference=reference,
        program=programs[0][0],
        companions=tuple(program for program, _ in programs[1:]),
        program_references=tuple(program_reference for _, program_reference in programs),
        calendar=shape.calendar,
    )


def _sender_group(shape: GroupSection, profile: SenderProfile, reference: str, at: int, origin: Origin) -> SenderGroup:
    usual = GroupSection(shape.profile, shape.users)
    for key in ("protocol", "program", "calendar"):
        if getattr(shape, key) != getattr(usual, key):
            found = f"one for senders of profile {profile.name}, who have no mailbox"
            raise origin.error_saying(("topology", at, key), "none", found)
    return SenderGroup(profile, shape.users, reference)


def users_and_senders(
    groups: Sequence[Group | SenderGroup], origin: Origin
) -> tuple[tuple[Group, ...], tuple[SenderGroup, ...]]:
    """Divide a topology into users with mailboxes and outside senders, who come last."""
    users = tuple(group for group in groups if isinstance(group, Group))
    senders = tuple(group for group in groups if isinstance(group, SenderGroup))
    first = next((at for at, group in enumerate(groups) if isinstance(group, SenderGroup)), len(groups))
    if not users:
        raise origin.error_saying(("topology",), "users with mailboxes", "only senders from outside")
    if first < len(users):
        found = f"profile {groups[first].profile.name}, which has none, before others"
        raise origin.error_saying(("topology", first, "profile"), "a profile of users with mailboxes", found)
    return users, senders


def _reference(key: str, reference: str, at: int, origin: Origin, directory: Path) -> str:
    """Return the shipped name, or the absolute path, of the profile or program that a group names."""
    kind = f"{key}s"
    place = locate(kind, reference, directory)
    if place is None:
        found_name = with_nearest(reference, known(kind))
        raise origin.error_saying(("topology", at, key), expected_file(kind), found_name)
    return as_absolute(kind, reference, place)


def check_programs(topology: Sequence[Group], origin: Origin) -> None:
    """Check that no two programs share a name, since results name programs, and that no user has one twice."""
    named: dict[str, MailProgram] = {}
    for at, group in enumerate(topology):
        names = [program.name for program in group.programs]
        if group.program.calls is not None:
            expected = "a program that does the user's tasks, before any with calls"
            raise origin.error_saying(("topology", at, "program"), expected, group.program.name)
        for program in group.programs:
            if named.setdefault(program.name, program) != program:
                raise origin.error(("topology", at, "program"), "a name for each program", program.name)
            if names.count(program.name) > 1:
                found = f"{show(program.name)} twice"
                raise origin.error_saying(("topology", at, "program"), "each mail program once", found)


def check_public_folder(
    folders: FolderSettings,
    mailbox: MailboxSection,
    topology: Sequence[Group],
    server: Server | Literal["embedded"],
    origin: Origin,
) -> None:
    """Check that a public folder is stated if it is used, and that some driver or the news server has it."""
    if isinstance(server, Server) and server.nntp is not None:
        if folders.public is None or not _NEWSGROUP.fullmatch(folders.public):
            expected = "a newsgroup of server.nntp, such as example.board"
            raise origin.error_saying(("folders", "public"), expected, folders.public or "none")
        return
    if folders.public is not None:
        if all(group.protocol == "mapi" for group in topology):
            raise origin.error_saying(("folders", "public"), "a driver with public folders, such as imap", "mapi")
        return
    if mailbox.public is not None:
        raise origin.error_saying(("mailbox", "public"), "folders.public, the folder's name", "none")
    for at, group in enumerate(topology):
        for task in sorted(group.planned_tasks & {*PUBLIC_TASKS}):
            expected = f"folders.public, the folder for {task}, which the profile plans"
            raise origin.error_saying(("topology", at, "profile"), expected, "none")


def check_calendars(topology: Sequence[Group], server: Server | Literal["embedded"], origin: Origin) -> None:
    """Check that users of a calendar server have one, and use it, and that results can tell them from others."""
    of_drivers: dict[str, str] = {}
    for at, group in enumerate(topology):
        if group.calendar == CALDAV:
            if not isinstance(server, Server) or server.caldav is None:
                raise origin.error_saying(("topology", at, "calendar"), "server.caldav, a calendar server", "none")
            if not group.profile.schedule.per_day:
                expected = f"a profile that changes the calendar, for calendar: {CALDAV}"
                raise origin.error_saying(("topology", at, "profile"), expected, "schedule: {per_day: 0}")
        if of_drivers.setdefault(group.driver_name, group.calendar) != group.calendar:
            expected = f"one calendar for all users of {group.driver_name}: their tasks are figures together"
            raise origin.error_saying(("topology", at, "calendar"), expected, group.calendar)


def with_submission(client: Client, topology: Sequence[Group]) -> Client:
    """Let the drivers and programs decide how to submit, unless the scenario states it or they differ."""
    ways = {group.submission for group in topology}
    return client if client.submission or len(ways) > 1 else replace(client, submission=ways.pop())


def check_library(
    client: Client,
    topology: Sequence[Group],
    server: Server | Literal["embedded"],
    accounts: AccountsSection | None,
    origin: Origin,
) -> None:
    """Check that aiosmtplib, if it submits for users, can log on as the scenario states."""
    smtp = server.smtp if isinstance(server, Server) else None
    if smtp is None or not smtp.auth or AIOSMTPLIB not in {client.submission or group.submission for group in topology}:
        return
    or_other = "or another client.submission than aiosmtplib"
    for method in smtp.methods:
        if method not in AIOSMTPLIB_METHODS:
            expected = f"methods of {', '.join(AIOSMTPLIB_METHODS)}, {or_other}"
            raise origin.error_saying(("server", "smtp", "auth"), expected, method)
    if accounts is not None and accounts.master is not None and accounts.master_separator is None:
        raise origin.error_saying(("accounts", "master"), f"a master_separator, {or_other}", "none")


def with_connection(server: Server | Literal["embedded"], topology: Sequence[Group]) -> Server | Literal["embedded"]:
    """Let the programs decide how to connect to SMTP, unless the scenario states it or the programs differ."""
    ways = {group.program.connection for group in topology}
    smtp = server.smtp if isinstance(server, Server) else None
    if not isinstance(server, Server) or smtp is None or smtp.connection is not None or len(ways) > 1:
        return server
    return replace(server, smtp=replace(smtp, connection=ways.pop()))


def check_profiles(topology: Sequence[Group], outside: Sequence[SenderGroup], origin: Origin) -> None:
    """Check that no two profiles share a name, and that all users' have the same lengths of day and night."""
    first = topology[0].profile
    named: dict[str, AnyProfile] = {}
    profiles: list[AnyProfile] = [group.profile for group in topology]
    for at, profile in enumerate([*profiles, *(group.profile for group in outside)]):
        if named.setdefault(profile.name, profile) != profile:
            raise origin.error(("topology", at, "profile"), "a name for each profile", profile.name)
    for at, group in enumerate(topology):
        key = ("topology", at, "profile")
        for time in ("day", "night"):
            own_s, first_s = (getattr(profile, f"{time}_s") for profile in (group.profile, first))
            if own_s != first_s:
                expected = f"profiles with a {time} of {seconds(first_s)}"
                raise origin.error_saying(key, expected, f"one of {seconds(own_s)}")


def resolve_lists(stated: ListsSection, topology: Sequence[Group], origin: Origin) -> ListsSection:
    """Fill in from the profiles anything that the scenario leaves open. Raises `ConfigError` if they disagree on it."""
    rules = {group.profile.lists: group.profile.name for group in topology}
    counted = stated.count is not None or stated.cover is not None
    unlike = {(None if counted else (rule.count, rule.cover), None if stated.size else rule.size) for rule in rules}
    if len(unlike) > 1:
        expected = "what the profiles do not agree on, such as {count: 30, size: {min: 2, average: 10, max: 20}}"
        raise origin.error_saying(("lists",), expected, f"other lists in {' than in '.join(rules.values())}")
    rule = topology[0].profile.lists
    if not counted:
        stated = replace(stated, count=rule.count, cover=rule.cover)
    return replace(stated, size=stated.size or rule.size)
