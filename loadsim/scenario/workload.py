"""One user's plan: when each activity is due, and every choice that does not depend on the server.

Activities are Poisson processes at the profile's daily rates. The outcome of reading a message is drawn from the
message's id: like the plan, it is fixed, and only its time depends on the server.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import sha256
from heapq import heapify, heappop, heapreplace
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple

from loadsim.errors import ConfigError
from loadsim.model.draws import draw, gap_s, pick, weighted
from loadsim.model.message_tag import RECEIPT, initial_id, new_mail_id
from loadsim.model.ports import CALENDAR, DELETED_ITEMS, DRAFTS, INBOX, OF_ALL_USERS, PUBLIC, SENT_ITEMS, SearchKey
from loadsim.model.terms import CALDAV, MOST_USERS
from loadsim.scenario.day_shape import DayShape
from loadsim.scenario.distribution import Distribution
from loadsim.scenario.groups import Group, SenderGroup
from loadsim.scenario.mailboxes import PROFILES, folder_names
from loadsim.scenario.population import Population, group_index
from loadsim.scenario.profile import AnyProfile, Outcomes, Profile, SenderProfile
from loadsim.scenario.scenario import Scenario

if TYPE_CHECKING:
    from loadsim.model.partition import Assignment  # it needs NumPy, and few commands do

NEW_MAIL = "new mail"
PROCESS_INBOX = "process inbox"
BROWSE = "browse"
SEARCH = "search"
SCHEDULE = "schedule"
POST = "post"
BROWSE_PUBLIC = "browse public"
"""Kinds of activities; each plug-in task's name is one, too, as are those in `Group.calls`."""

MOST_ACTIVITIES = 100_000
"""The most activities per run that the rates may give a user on average. Planning them takes seconds."""

MAILBOXES = 64
"""The size of the cache of start states, whose messages are made one after another."""

NEVER_S = 1e300
"""A due time for rates close to 0: beyond the end of every run, but finite in microseconds."""

_LEVEL = r"Folder (?:0[1-9]|[1-9][0-9]{1,8})"
_OWN_FOLDER = re.compile(rf"{_LEVEL}(?:/{_LEVEL}){{0,9}}")
"""Matches the names from `mailboxes.folder_names`."""

START_US = 1_764_547_200_000_000
"""2025-12-01 00:00 UTC, the end of the period over which `mailbox.age_days` spreads messages; constant, so that a
scenario always has the same messages."""

_DAY_US = 24 * 3600 * 1_000_000
SIZED = "sized"
"""The kind of messages made to a size, by the profile's `message_sizes` or the scenario's `mailbox.sizes`."""


INVITING, MOST_ATTENDEES = 0.5, 10
"""The share of events on a calendar server that invite others, and the most whom one invites. Assumptions."""

RECEIPTS: tuple[Literal["delivery", "read"], ...] = ("delivery", "read")
"""The receipts that users request."""


class Activity(NamedTuple):
    """The `number`th activity (from 0) of a kind; `due_us` counts microseconds from the common start."""

    due_us: int
    kind: str
    number: int


class UsersPlan:
    """An iterator over a user's activities in order of due time.

    Engines hold one for each user, so it stores only the next activity of each kind.
    """

    __slots__ = ("_cycle_us", "_end_us", "_next", "_rates_per_s", "_seed", "_shape", "_user")

    def __init__(
        self,
        seed: int,
        user: int,
        rates_per_s: Mapping[str, float],
        end_us: float,
        day_and_night_us: tuple[int, int],
        shape: DayShape | None,
    ) -> None:
        """Plan each kind at its mean rate until `end_us` after the common start, which may be infinite.

        A night above 0 follows each day, and has no activities. `shape` distributes activities over the day.
        """
        self._seed = seed
        self._user = user
        self._rates_per_s = rates_per_s
        self._end_us = end_us
        self._cycle_us = day_and_night_us
        self._shape = shape
        firsts = [self._following(kind, 0, 0.0) for kind in rates_per_s]
        self._next = [activity for activity in firsts if activity[0] < end_us]
        heapify(self._next)

    def __iter__(self) -> Iterator[Activity]:
        return self

    def __next__(self) -> Activity:
        if not self._next:
            raise StopIteration
        due_us, kind, number, at_s = self._next[0]
        following = self._following(kind, number + 1, at_s)
        if following[0] < self._end_us:
            heapreplace(self._next, following)
        else:
            heappop(self._next)
        return Activity(due_us, kind, number)

    def _following(self, kind: str, number: int, at_s: float) -> tuple[int, str, int, float]:
        """Return the `number`th activity of a kind, after one at `at_s`: its values, and its exact time."""
        at_s = min(at_s + gap_s(self._rates_per_s[kind], self._seed, self._user, kind, number), NEVER_S)
        day_us, night_us = self._cycle_us
        due_us = round(at_s * 1e6) if self._shape is None else self._shape.due_us(at_s, day_us)
        if night_us:  # `at_s` does not count nights
            due_us += due_us // day_us * night_us
        return due_us, kind, number, at_s


class Addressing(NamedTuple):
    """The recipients of a message: individual users (never the sender), and a distribution list or None."""

    users: tuple[int, ...]
    list_index: int | None


class Initial(NamedTuple):
    """A start-state message; `sender` is the user in its From, `kind` the kind of message.

    If sizes are stated, `size_bytes` is its total size, and its kind is `SIZED`. If the scenario states its age,
    `sent_us` is its date.
    """

    id: str
    sender: int
    kind: str
    seen: bool
    size_bytes: int | None = None
    sent_us: int | None = None


class Workload:
    """The plans of a scenario's users and outside senders. The same scenario gives the same plans everywhere.

    The `senders` are numbered after the users, whose plans do not depend on them.
    """

    def __init__(self, scenario: Scenario) -> None:
        if scenario.users < 2:
            raise ConfigError(f"{scenario.name}: topology: expected at least 2 users (mail needs two), found 1")
        self.scenario = scenario
        self.population = Population(scenario)
        self.senders = range(scenario.users + 1, scenario.users + scenario.senders + 1)
        self.seed = scenario.run.seed
        self.duration_us = round(scenario.duration_s * 1e6)
        self.compression = scenario.compression
        self.start_population = scenario.mailbox.population or scenario.users
        self.last_sender = max(self.start_population, scenario.users + scenario.senders)
        run = scenario.run
        self._day_and_night_us = max(1, round(run.day_length_s * 1e6)), round(run.night_length_s * 1e6)
        self._shape = DayShape(run.day_shape) if run.day_shape else None
        self._edges: dict[int, tuple[tuple[str, float], ...]] = {}  # by the identity of a profile's outcomes
        self._counts = lru_cache(MAILBOXES)(self._messages_by_folder)
        self._check_activities()

    def _check_activities(self) -> None:
        """Check that no user's plan is too long. Raises `ConfigError`."""
        run = self.scenario.run
        active_s = self.scenario.duration_s * run.day_length_s / (run.day_length_s + run.night_length_s)
        groups: tuple[Group | SenderGroup, ...] = (*self.scenario.topology, *self.scenario.outside)
        for group in groups:
            expected = sum(self._rates_per_s[id(group)].values()) * active_s
            if not expected <= MOST_ACTIVITIES:
                where = f"{self.scenario.name}: profile {group.profile.name}"
                wanted = f"at most {MOST_ACTIVITIES:,} activities of a user in the run"
                raise ConfigError(f"{where}: expected {wanted}, found {expected:.3g}")

    @property
    def profiles(self) -> list[AnyProfile]:
        """The profiles of all groups of users and outside senders."""
        scenario = self.scenario
        return [*(group.profile for group in scenario.topology), *(group.profile for group in scenario.outside)]

    @cached_property
    def _kinds(self) -> dict[int, tuple[tuple[str, ...], tuple[float, ...]]]:
        return {
            id(profile): (tuple(profile.messages), tuple(accumulate(profile.messages.values())))
            for profile in self.profiles
            if profile.messages is not None
        }

    def profile(self, user: int) -> Profile:
        return self.population.group(user).profile

    def _sender_group(self, sender: int) -> SenderGroup:
        groups = self.scenario.outside
        return groups[group_index(sender - len(self.population), [group.users for group in groups])]

    def _group(self, number: int) -> Group | SenderGroup:
        return self._sender_group(number) if number in self.senders else self.population.group(number)

    def sender_profile(self, sender: int) -> SenderProfile:
        """Return the profile of an outside sender."""
        return self._sender_group(sender).profile

    def senders_of(self, assignment: Assignment) -> list[int]:
        """Return the outside senders in the places of an assignment."""
        if not self.senders:
            return []
        return [number for number in assignment.with_senders(len(self.senders)) if number in self.senders]

    def any_profile(self, number: int) -> AnyProfile:
        """Return the profile of a user or an outside sender."""
        return self._group(number).profile

    @cached_property
    def _rates_per_s(self) -> dict[int, dict[str, float]]:
        """Rates of activities above 0, by the group's identity and by kind."""
        rates = {}
        for group in self.scenario.topology:
            profile = group.profile
            day_s = profile.day_s / self.compression
            per_day = {
                NEW_MAIL: profile.new_mail.per_day,
                PROCESS_INBOX: profile.process_inbox.per_day,
                BROWSE: profile.browse.per_day,
                SEARCH: profile.search.per_day,
                SCHEDULE: profile.schedule.per_day,
                POST: profile.post.per_day,
                BROWSE_PUBLIC: profile.browse_public.per_day,
                **{name: task.per_day for name, task in profile.tasks.items()},
                **{kind: calls.per_day for kind, calls in group.calls.items()},
            }
            rates[id(group)] = {kind: times / day_s for kind, times in per_day.items() if times / day_s > 0}
        for outside in self.scenario.outside:
            per_s = outside.profile.new_mail.per_day / self.scenario.run.day_length_s
            rates[id(outside)] = {NEW_MAIL: per_s} if per_s > 0 else {}
        return rates

    def activities(
        self, user: int, *, endless: bool = False, kinds: Callable[[str], bool] = lambda _: True
    ) -> UsersPlan:
        """Return the activities of these kinds of a user or outside sender, by due time.

        They end with the run, or are endless.
        """
        end_us = math.inf if endless else self.duration_us
        rates = self._rates_per_s[id(self._group(user))]
        rates_per_s = {kind: rate for kind, rate in rates.items() if kinds(kind)}
        return UsersPlan(self.seed, user, rates_per_s, end_us, self._day_and_night_us, self._shape)

    def message_kind(self, user: int, profile: AnyProfile, stream: str, index: int | str) -> tuple[str, int | None]:
        """Draw the kind of a message; of a `SIZED` one, also the total size in bytes."""
        u = draw(self.seed, user, stream, index)
        if profile.message_sizes is not None:
            return SIZED, profile.message_sizes.at(u)
        kinds, cumulative = self._kinds[id(profile)]
        return kinds[weighted(u, cumulative)], None

    def addressing(self, user: int, profile: AnyProfile, stream: str, index: int | str) -> Addressing:
        """Draw the recipients of a new message, or of a forward, which is addressed like one.

        Source: Compaq 1997, Table 1: random recipients per new message; add one distribution list.
        """
        others = len(self.population) - (user <= len(self.population))
        wanted = min(profile.new_mail.recipients, others)
        chosen: dict[int, None] = {}
        if profile.new_mail.recipients >= MOST_USERS:  # all: the header names the first one
            first = pick(draw(self.seed, user, stream + ".first", index), others)
            places = (1 + (first + step) % others for step in range(others))
            chosen = dict.fromkeys(place + (place >= user) for place in places)
        attempt = 0
        while len(chosen) < wanted:
            other = 1 + pick(draw(self.seed, user, stream + ".recipient", f"{index}/{attempt}"), others)
            other += other >= user  # skip the sender
            attempt += 1
            chosen[other] = None
        lists = self.population.lists
        on_list = len(lists) and draw(self.seed, user, stream + ".list", index) < profile.new_mail.list_chance
        which = pick(draw(self.seed, user, stream + ".which-list", index), len(lists)) if on_list else None
        return Addressing(tuple(chosen), which)

    def unknown_recipient(self, sender: int, index: int) -> str | None:
        """Return the address to which an outside sender's `index`th message goes, if it is one that does not exist."""
        if not self.chance(sender, "unknown", index, self.sender_profile(sender).unknown_recipients):
            return None
        return f"unknown-{sender}-{index}@{self.population.address(1).rpartition('@')[2]}"

    def recipients(self, addressing: Addressing) -> set[int]:
        """Return all users who receive a message with this addressing, including the sender if they are on the list."""
        reached = set(addressing.users)
        if addressing.list_index is not None:
            reached.update(self.population.lists.members(addressing.list_index))
        return reached

    def addresses(self, addressing: Addressing) -> list[str]:
        """Return the addresses to give the server: individuals first, then the list."""
        named = [self.population.address(user) for user in addressing.users]
        if addressing.list_index is not None:
            named.append(self.population.lists.address(addressing.list_index))
        return named

    def outcome(self, user: int, stream: str, outcomes: Outcomes, message: str) -> str:
        """Draw the outcome of reading a message, one of the fields of `Outcomes`."""
        u = draw(self.seed, user, stream, message)
        edges = self._edges.get(id(outcomes))
        if edges is None:
            edges = self._edges[id(outcomes)] = outcomes.cumulative
        for name, edge in edges:
            if u < edge:
                return name
        return "nothing"

    def chance(self, user: int, stream: str, index: int | str, probability: float) -> bool:
        return draw(self.seed, user, stream, index) < probability

    def requests(self, user: int, receipt: Literal["delivery", "read"], message: str) -> bool:
        """Return whether a user requests this receipt for a message.

        Outside senders and inactive users never do. A read receipt requests none (RFC 8098 section 2.1).
        """
        if user > len(self.population) or message.startswith(RECEIPT):
            return False
        receipts = self.profile(user).receipts
        share = receipts.delivery if receipt == "delivery" else receipts.read
        return share > 0 and self.chance(user, f"{receipt} receipt", message, share)

    def returns_receipt(self, user: int, sender: int, message: str) -> bool:
        """Return whether a user who reads a message returns a read receipt, which the sender must have requested."""
        share = self.profile(user).receipts.returned
        if not share or user == sender or not self.requests(sender, "read", message):
            return False
        return self.chance(user, "returned receipt", message, share)

    def choose(self, user: int, stream: str, index: int | str, count: int) -> int:
        """Draw an index below `count`, each equally likely."""
        return pick(draw(self.seed, user, stream, index), count)

    def search_key(self, user: int, profile: Profile, index: int | str) -> SearchKey:
        """Draw what the user's `index`th search looks at."""
        keys, weights = zip(*profile.search.by.items(), strict=True)
        return SearchKey[keys[weighted(draw(self.seed, user, "search.key", index), tuple(accumulate(weights)))].upper()]

    def schedule_bytes(self, user: int, profile: Profile, index: int) -> int:
        """Draw the size of the schedule file after the `index`th schedule change."""
        return profile.schedule.file_bytes.at(draw(self.seed, user, "schedule.size", index))

    def attendees(self, user: int, profile: Profile, index: int) -> tuple[int, ...]:
        """Draw whom a user's `index`th event on a calendar server invites: users who have calendars there, too."""
        if not self.chance(user, "event.invites", index, INVITING):
            return ()
        people = self.addressing(user, profile, "event", index).users[:MOST_ATTENDEES]
        return tuple(other for other in people if self.population.group(other).calendar == CALDAV)

    def own_folders(self, user: int) -> tuple[str, ...]:
        """Return a user's own folders, which they browse, and to which they move and copy messages."""
        stated = self.scenario.mailbox.folders
        folders = self.profile(user).start_state.folders if stated is None else stated
        return folder_names(folders, self.scenario.mailbox.fan_out)

    def start_state(self, user: int) -> dict[str, int]:
        """Return the number of messages in each folder at the start (IBM 1998, Appendix B: initial mailbox).

        The folders are the user's own, the Inbox, Deleted Items and, with an assistant that writes them, Drafts. The
        scenario's `mailbox` overrides the profile. `OF_ALL_USERS` has the public folder only.
        """
        return dict(self._counts(user))

    def _messages_by_folder(self, user: int) -> dict[str, int]:
        if user == OF_ALL_USERS:
            return {PUBLIC: self.scenario.mailbox.public or 0}
        start, stated = self.profile(user).start_state, self.scenario.mailbox
        counts = {
            INBOX: start.inbox if stated.inbox is None else stated.inbox,
            DELETED_ITEMS: start.deleted_items if stated.deleted_items is None else stated.deleted_items,
            **({DRAFTS: 0} if self.population.group(user).writes_drafts else {}),
        }
        own, messages = self.own_folders(user), stated.messages_per_folder
        if not isinstance(messages, Distribution):
            return counts | dict.fromkeys(own, start.messages_per_folder if messages is None else messages)
        return counts | {folder: messages.at(draw(self.seed, user, "initial.messages", folder)) for folder in own}

    def initially_unread(self, user: int) -> int:
        """Return the number of unread messages at the start, which are the newest in the Inbox.

        The profile states it: users read all unread mail when they first process the Inbox, so a larger Inbox only
        holds more read mail.
        """
        return min(self._counts(user)[INBOX], self.profile(user).start_state.inbox)

    def initial(self, user: int, folder: str, index: int) -> Initial:
        """Draw the `index`th message (from 0) in a folder at the start."""
        address = f"{folder}/{index}"
        other = 1 + pick(draw(self.seed, user, "initial.sender", address), self.start_population - 1)
        read = folder != INBOX or index < self._counts(user)[INBOX] - self.initially_unread(user)
        stated = self.scenario.mailbox
        sent_us = None
        if stated.sizes is None:
            kind, size_bytes = self.message_kind(user, self.profile(user or 1), "initial.kind", address)
        else:
            kind, size_bytes = SIZED, stated.sizes.at(draw(self.seed, user, "initial.size", address))
        if stated.age_days is not None:
            newer = self._counts(user).get(folder, index + 1) - index - draw(self.seed, user, "initial.age", address)
            age_us = newer / max(1, self._counts(user).get(folder, 1)) * stated.age_days * _DAY_US
            sent_us = START_US - round(age_us)
        seen = read and folder != PUBLIC
        return Initial(initial_id(user, folder, index), other + (other >= user), kind, seen, size_bytes, sent_us)

    def correspondent(self, user: int, sender: int) -> int:
        """Return the active user who gets a user's answers to mail from `sender`.

        Senders in the start state may be inactive (`mailbox.population`); any active user is then equally likely.
        """
        if sender <= len(self.population):
            return sender
        other = 1 + pick(draw(self.seed, user, "correspondent", sender), len(self.population) - 1)
        return other + (other >= user)

    def planned(self, user: int) -> Iterator[str]:
        """Yield a line for each activity of a user or outside sender; for new messages, it includes the recipients."""
        profile = self.any_profile(user)
        requests = not isinstance(profile, SenderProfile) and profile.receipts.requested  # others keep their digests
        for activity in self.activities(user):
            line = f"{activity.due_us} {activity.kind} {activity.number}"
            if activity.kind == NEW_MAIL:
                to = self.addressing(user, profile, NEW_MAIL, activity.number)
                kind, size_bytes = self.message_kind(user, profile, "new.kind", activity.number)
                kind = kind if size_bytes is None else f"{kind} {size_bytes}"
                line += f" {kind} {' '.join(map(str, to.users))} {to.list_index}"
                for name in RECEIPTS if requests else ():
                    line += f" {name} receipt" * self.requests(user, name, new_mail_id(user, activity.number))
                if user in self.senders and (unknown := self.unknown_recipient(user, activity.number)):
                    line += f" {unknown}"
            yield line

    def user_digest(self, user: int) -> bytes:
        """Return the SHA-256 of the plan of a user or outside sender: the lines of `planned`."""
        digest = sha256()
        for line in self.planned(user):
            digest.update(line.encode() + b"\n")
        return digest.digest()

    def start_state_digest(self) -> str:
        """Return the SHA-256, in hexadecimal, of everything that determines the mailboxes' start state.

        This is the seed, and each user's number of messages by folder, and weights of message kinds. Senders are drawn
        from all users. The scenario's `mailbox`, if there is one, determines the rest.
        """
        digest = sha256(f"{self.seed}\n".encode())
        if self.scenario.mailbox != PROFILES:
            digest.update(f"{json.dumps(self.scenario.mailbox.document(), sort_keys=True)}\n".encode())
        for user in range(1, len(self.population) + 1):
            digest.update(f"{self.user_start_state(user)}\n".encode())
        return digest.hexdigest()

    def user_start_state(self, user: int) -> str:
        """Return a text that, with seed, population and `mailbox`, determines the start state of one mailbox."""
        profile = self.profile(user)
        counts: object = self.start_state(user)
        if self.scenario.mailbox != PROFILES:
            counts = f"{profile.start_state}{f' {DRAFTS}' if self.population.group(user).writes_drafts else ''}"
        return f"{counts} {profile.message_sizes.document() if profile.message_sizes else profile.messages}"


def may_be_made(folder: str) -> bool:
    """Return whether profiles or scenarios can give users a folder with this name."""
    return folder in (SENT_ITEMS, DELETED_ITEMS, CALENDAR, DRAFTS) or _OWN_FOLDER.fullmatch(folder) is not None


def plan_digest(workload: Workload) -> str:
    """Return the SHA-256, in hexadecimal, of the digests of all users and outside senders, in order."""
    numbers = range(1, len(workload.population) + len(workload.senders) + 1)
    return combine_digests([workload.user_digest(number) for number in numbers])


def combine_digests(in_user_order: Sequence[bytes]) -> str:
    return sha256(b"".join(in_user_order)).hexdigest()
