"""The public folder in virtual time: what users post, browse and record there, and what they do not."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from virtual_runs import Lived, chosen, live, quiet, scenario_of

from loadsim.errors import ConfigError, ServerLost, ServerRefused
from loadsim.model.ports import PUBLIC, Header
from loadsim.protocols.in_memory import InMemoryDriver, InMemoryMailbox
from loadsim.scenario.workload import Workload, plan_digest

SHARED = {"folders": {"public": "Notices"}}


def shared(place: Path, users: int = 3, start: int = 2, **rows: Any) -> Any:
    """A scenario of users who only post and browse, in a folder with mail at the start."""
    rates = {"post": {"per_day": 8}, "browse_public": {"per_day": 12}}
    profile = quiet(**(rates | rows), empty_deleted_items_on_log_off=False)
    return scenario_of(place, (profile, users), mailbox={"public": start}, **SHARED)


def ids(driver: InMemoryDriver) -> list[str]:
    """The ids of all messages in the folder, in order."""
    headers = [driver.mailboxes[1].header(driver.public, uid) for uid in driver.public.messages]
    return [header.tag.id for header in headers if header.tag is not None]


def opened(lived: Lived) -> Counter[tuple[int, int]]:
    """The number of browsings by user, and by the number of fetches from a message."""
    return Counter((task["user"], task["commands"].count("IMAP UID FETCH")) for task in lived.tasks("BROWSE PUBLIC"))


def test_all_users_posts_are_in_one_folder(tmp_path: Path) -> None:
    """Each post once, recorded as all users' mail; each browsing reads one message, its own user's or not."""
    lived = live(shared(tmp_path), tmp_path)
    posted = [mail["message"] for mail in lived.mails("saved", user=0)]
    initial = [Workload(lived.scenario).initial(0, PUBLIC, index).id for index in range(2)]
    assert ids(lived.driver) == initial + posted
    assert {mail["sender"] for mail in lived.mails("saved")} == {1, 2, 3}
    assert {mail["folder"] for mail in lived.mails("saved")} == {PUBLIC}
    for name in ("POST", "BROWSE PUBLIC"):
        assert {*lived.outcomes(name)} == {"ok"}
    assert {fetches for _, fetches in opened(lived)} == {2}
    assert not [mail for mail in lived.tape.mails if mail["user"]]


def test_a_post_without_an_answer_may_be_there(tmp_path: Path) -> None:
    """Refused, or lost with the connection, it is recorded as unsure, in no user's mailbox."""
    failures = {(1, "IMAP APPEND", 0): ServerRefused("NO", "no right"), (2, "IMAP APPEND", 0): ServerLost("closed")}
    lived = live(shared(tmp_path), tmp_path, fault=chosen(failures))
    assert {(mail["user"], mail["sender"], mail["folder"]) for mail in lived.mails("unsure")} == {
        (0, 1, PUBLIC),
        (0, 2, PUBLIC),
    }
    assert Counter(lived.outcomes("POST")) - Counter({"ok": 1000}) == {"refused": 1, "lost": 1}


class Emptied(InMemoryMailbox):
    """A mailbox that lists no message of the public folder."""

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        headers = await super().headers(folder, newest)
        return [] if folder == PUBLIC else headers


class Moderated(InMemoryMailbox):
    """A mailbox where somebody else removes all posts as soon as they are listed."""

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        headers = [*await super().headers(folder, newest)]
        if folder == PUBLIC:
            self.folder(PUBLIC).messages.clear()
        return headers


def of_type(kind: type[InMemoryMailbox]) -> Any:
    def wrap(driver: InMemoryDriver) -> InMemoryDriver:
        driver.mailbox_type = kind
        return driver

    return wrap


@pytest.mark.parametrize("kind", [Emptied, Moderated])
def test_only_the_task_fails_if_posts_are_gone(tmp_path: Path, kind: type[InMemoryMailbox]) -> None:
    """Others may have removed them, so none is recorded as missing."""
    lived = live(shared(tmp_path, post={"per_day": 0}), tmp_path, wrap=of_type(kind))
    assert "refused" in lived.outcomes("BROWSE PUBLIC")
    assert not lived.tape.mails


def test_an_empty_folder_may_be_browsed(tmp_path: Path) -> None:
    lived = live(shared(tmp_path, start=0, post={"per_day": 0}), tmp_path)
    assert {*lived.outcomes("BROWSE PUBLIC")} == {"ok"}
    assert {fetches for _, fetches in opened(lived)} == {0}


def test_other_plans_do_not_change(tmp_path: Path) -> None:
    """All other activities keep their times."""
    rows = {"new_mail": {"per_day": 9}, "browse": {"per_day": 9}}
    with_posts = Workload(shared(tmp_path / "a", **rows))
    without = Workload(scenario_of(tmp_path / "b", (quiet(**rows, empty_deleted_items_on_log_off=False), 3)))
    none = Workload(shared(tmp_path / "c", **rows, post={"per_day": 0}, browse_public={"per_day": 0}))
    kept = [line for line in with_posts.planned(1) if line.split()[1] not in ("post", "browse")]
    assert kept == [line for line in without.planned(1) if line.split()[1] != "browse"]
    assert plan_digest(none) == plan_digest(without) != plan_digest(with_posts)


@pytest.mark.parametrize(
    ("keys", "rows", "expected"),
    [
        ({}, {"post": {"per_day": 1}}, r"topology\[0\].profile: expected folders.public, the folder for POST"),
        ({}, {"browse_public": {"per_day": 1}}, "folders.public, the folder for BROWSE PUBLIC"),
        ({"mailbox": {"public": 1}}, {}, "mailbox.public: expected folders.public, the folder's name, found none"),
    ],
)
def test_the_folder_must_be_named(tmp_path: Path, keys: dict[str, Any], rows: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        scenario_of(tmp_path, (quiet(**rows), 2), **keys)
