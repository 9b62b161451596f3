"""Expected mail of a user's folders: lists without it, or with it unread, are failures of the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.errors import ServerRefused
from loadsim.model.message_tag import INITIAL_RUN, MessageTag, initial_id
from loadsim.model.ports import INBOX, Flag, Header
from loadsim.users.stored_mail import StoredMail

USER, FOLDER, SCREEN = 7, "Folder 01", 5


def header(name: str | None, *flags: Flag, size_bytes: int = 2000) -> Header:
    """A message in a list, of the start state if its id is so long; without a name, one of somebody else."""
    tag = None if name is None else MessageTag(INITIAL_RUN if len(name) == 17 else "run", 1, name, "ups1K", 0, "")
    return Header(object(), frozenset(flags), size_bytes, "user1@x", (), "", "", tag)


class Stored:
    """The stored mail of a user with `start` messages in the folder, and what was recorded as missing."""

    def __init__(self, start: int | None) -> None:
        self.missing: list[str] = []
        self.doubled: list[str] = []
        self.unlisted: list[str] = []
        self.initial = [initial_id(USER, FOLDER, at) for at in range(start or 0)]
        counts = None if start is None else lambda _: {FOLDER: start}
        self.mail = StoredMail(USER, counts, lambda event, name, _: getattr(self, event).append(name))

    def put(self, *names: str) -> None:
        for name in names:
            self.mail.put(FOLDER, name)

    def look(
        self,
        names: Sequence[str | None],
        newest: int | None = SCREEN,
        unread: Sequence[str] = (),
        messages: int | None = None,
    ) -> str:
        headers = [header(name, *[] if name in unread else [Flag.SEEN]) for name in names]
        try:
            self.mail.look(FOLDER, headers, newest, len(names) if messages is None else messages)
        except ServerRefused as failure:
            return failure.kind
        return ""


LACKS, DOUBLES, UNREAD = "stored mail is missing", "stored mail is doubled", "flags are not kept"


def test_complete_lists_have_no_fault() -> None:
    """The start state, and then what was put; a screen shows only the newest."""
    stored = Stored(4)
    assert stored.look(stored.initial) == ""
    stored.put("a", "b")
    assert stored.mail.unlooked == [FOLDER]
    assert stored.look([*stored.initial, "a", "b"][-SCREEN:], messages=6) == ""
    assert stored.mail.unlooked == []
    assert stored.look([*stored.initial, "a", "b"], None) == ""
    assert not stored.missing


def test_messages_of_a_wiped_folder_are_missing_once() -> None:
    """Later lists do not fail again for the same messages, but the folder is still one that holds mail."""
    stored = Stored(3)
    assert stored.look([]) == LACKS
    assert stored.missing == stored.initial
    assert stored.look([]) == ""
    assert stored.mail.holds(FOLDER)
    assert stored.missing == stored.initial


@pytest.mark.parametrize("one_copy", [True, False])
def test_a_folder_may_hold_one_copy_of_a_message_or_several(one_copy: bool) -> None:
    """A JMAP Email that was copied and moved to a folder is there once, and gone once it is taken out."""
    missing: list[str] = []
    mail = StoredMail(USER, lambda _: {FOLDER: 1}, lambda event, name, _: missing.append(f"{event} {name}"), one_copy)
    for _ in range(2):
        mail.put(FOLDER, "a")
    copy = header("a", Flag.SEEN)
    mail.choose([copy], FOLDER)
    mail.leaves([copy])
    left = [header(initial_id(USER, FOLDER, 0), Flag.SEEN), *([] if one_copy else [header("a", Flag.SEEN)])]
    mail.look(FOLDER, left, None, len(left))
    assert missing == []


def test_messages_missing_beyond_the_screen_are_counted() -> None:
    """Of a folder with more messages than a screen, those that are missing have no name, and count once."""
    stored = Stored(60)
    screen = stored.initial[-SCREEN:]
    assert stored.look(screen, messages=60) == ""
    assert stored.look(screen, messages=57) == LACKS
    assert len(set(stored.missing)) == len(stored.missing) == 3
    assert stored.look(screen, messages=57) == ""
    stored.put("a")  # the server says that it has stored it
    assert stored.look(screen, messages=57) == LACKS
    assert len(set(stored.missing)) == len(stored.missing) == 4


def test_more_messages_than_known_are_no_fault() -> None:
    """Others put some there, and the server may have stored what it did not acknowledge."""
    stored = Stored(9)
    put = [f"m{at}" for at in range(8)]
    stored.put(*put)
    assert stored.look(["m5", "m6", "never acknowledged", "m7", None], messages=19) == ""
    assert not stored.missing


@pytest.mark.parametrize("others", [[None, None], ["a", "a"], ["initial"]])
def test_other_mail_does_not_replace_missing_mail(others: Sequence[str | None]) -> None:
    """Neither others' mail nor a second copy: of a list that has all, loadsim's own messages count once."""
    stored = Stored(3)
    stored.put("a")
    others = [stored.initial[0] if each == "initial" else each for each in others]
    assert stored.look([*stored.initial[:1], *others, "a"], None) == LACKS
    assert stored.missing == stored.initial[1:]


@pytest.mark.parametrize("others", [0, 60])
def test_a_second_copy_is_a_failure_once(others: int) -> None:
    """In a list of all, and at the end of a folder with more messages than a screen."""
    stored = Stored(others + 1)
    stored.put("a", "b")
    shown = [*stored.initial[-1:], "a", "b", "b"]
    newest = None if not others else len(shown)
    assert stored.look(shown, newest, messages=others + 4) == DOUBLES
    assert stored.look(shown, newest, messages=others + 4) == ""
    assert (stored.doubled, stored.missing) == (["b"], [])


def test_doubled_copies_and_the_mail_they_hide_are_recorded() -> None:
    stored = Stored(4)
    assert stored.look(stored.initial[:2] * 2) == LACKS
    assert (stored.doubled, stored.missing) == (stored.initial[:2], stored.initial[2:])


@pytest.mark.parametrize("other", [initial_id(USER + 1, FOLDER, 0), initial_id(USER, "Folder 02", 0)])
def test_mail_of_another_user_or_folder_is_a_failure(other: str) -> None:
    """It is counted, but it is not what must be there; what a task may have put there is."""
    for tried in (False, True):
        stored = Stored(2)
        if tried:
            stored.mail.tries([header(other)], FOLDER)
        assert stored.look([stored.initial[1], other]) == ("" if tried else "stored mail is another's")
        assert stored.missing == ([] if tried else [other])


def test_a_copy_whose_answer_was_lost_may_be_there() -> None:
    """One for each such command, and no more."""
    stored = Stored(1)
    stored.mail.tries([header("a")], FOLDER)
    stored.put("a")
    for copies, kind in ((1, ""), (2, ""), (3, DOUBLES)):
        stored.mail.tries([header("a")] if copies == 2 else [], FOLDER)
        assert stored.look([*stored.initial, *["a"] * copies]) == kind


def test_a_copy_that_the_user_made_is_no_fault() -> None:
    """Of a message in its own folder, and of one that was delivered twice and moved twice."""
    stored = Stored(2)
    browsed = header(stored.initial[0])
    stored.mail.choose([browsed], FOLDER)
    stored.mail.put(FOLDER, stored.initial[0], browsed)
    stored.put("a", "a")
    assert stored.look([*stored.initial, stored.initial[0], "a", "a"], None) == ""
    stored.mail.leaves([browsed])
    stored.mail.put(FOLDER, stored.initial[0], browsed)
    assert stored.look([stored.initial[1], stored.initial[0], "a"], None) == ""


def test_a_message_stored_twice_is_expected_once() -> None:
    """One that was delivered twice is moved twice, and may be removed twice."""
    stored = Stored(1)
    stored.put("a")
    stored.put("a", "b")
    assert stored.look([*stored.initial, "a", "b"], None) == ""
    for copy in (header("a"), header("a")):
        stored.mail.choose([copy], FOLDER)
        stored.mail.leaves([copy])
    assert stored.look(["b"], None) == LACKS
    assert stored.missing == stored.initial


def test_the_inbox_is_counted() -> None:
    """Delivered mail is there until the user moves it; what a task has found missing is not missed again."""
    missing: list[str] = []
    mail = StoredMail(USER, lambda _: {INBOX: 3}, lambda _, name, __: missing.append(name))
    for name in ("n1", "n2", "n2"):  # one came twice
        mail.put(INBOX, name)
    mail.leaves([header("n1")])
    newest = [header("n2")]
    mail.look(INBOX, newest, 1, 5)
    mail.lacks(INBOX, "n2")
    mail.lacks(INBOX, "n2")
    mail.look(INBOX, newest, 1, 4)
    assert missing == ["n2"]
    assert not mail.unlooked
    with pytest.raises(ServerRefused):
        mail.look(INBOX, newest, 1, 2)
    assert len(missing) == 3


def test_removed_mail_is_not_missing() -> None:
    """Even if the server refused: it may have removed the message all the same."""
    stored = Stored(2)
    chosen = header(stored.initial[0])
    stored.mail.choose([chosen], FOLDER)
    stored.mail.leaves([chosen, header("of the Inbox")])
    assert stored.look(stored.initial[1:]) == ""
    last = header(stored.initial[1])
    stored.mail.choose([last], FOLDER)
    stored.mail.leaves([last])
    assert not stored.mail.holds(FOLDER)
    assert stored.look([]) == ""


def test_a_message_is_not_chosen_again_while_it_may_be_moved() -> None:
    """A MOVE that finds nothing would be held against the server."""
    stored = Stored(2)
    first, second = (header(each) for each in stored.initial)
    assert stored.mail.choose([first, second], FOLDER) is first
    assert stored.mail.choose([first, second], FOLDER) is second
    assert stored.mail.choose([first, second], FOLDER) is None
    stored.mail.release(first)
    assert stored.mail.choose([first, second], FOLDER) is first


def test_copies_of_a_message_may_differ_in_flags() -> None:
    """The user moved one to the folder, answered another, and copied that there."""
    stored = Stored(0)
    stored.put("a")
    stored.mail.put(FOLDER, "a", header("a", Flag.SEEN, Flag.ANSWERED))
    copies = [header("a", Flag.SEEN), header("a", Flag.SEEN, Flag.ANSWERED)]
    stored.mail.look(FOLDER, copies, SCREEN, 2)
    assert not stored.missing


def test_mail_that_lost_its_flag_is_a_failure_once() -> None:
    """Tasks put only read mail into folders."""
    stored = Stored(2)
    stored.put("a")
    assert stored.look([*stored.initial, "a"], unread=["a"]) == UNREAD
    assert stored.look([*stored.initial, "a"], unread=["a"]) == ""
    assert stored.missing == ["a"]


def test_mail_of_the_start_state_that_lost_its_flag_is_a_failure_once() -> None:
    """A folder's was read before. That of the Inbox is what the user knows of it."""
    stored = Stored(2)
    assert stored.look(stored.initial, unread=stored.initial[:1]) == UNREAD
    assert stored.look(stored.initial, unread=stored.initial[:1]) == ""
    assert stored.missing == stored.initial[:1]


def test_a_flag_that_the_folder_does_not_keep_is_not_missing() -> None:
    stored = Stored(1)
    stored.mail.put(FOLDER, "a", header("a", Flag.ANSWERED))
    shown = [header(name, Flag.ANSWERED) for name in (*stored.initial, "a")]
    stored.mail.look(FOLDER, shown, SCREEN, 2, keeps=lambda flag: flag != Flag.SEEN)
    assert not stored.missing
    assert stored.mail.not_kept == {Flag.SEEN}
    stored.mail.put("Folder 02", "a", header("a", Flag.ANSWERED))
    stored.mail.look("Folder 02", [header("a", Flag.ANSWERED)], SCREEN, 1)
    assert not stored.missing


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (header("a", Flag.SEEN, Flag.ANSWERED), ""),
        (header("a", Flag.SEEN), UNREAD),
        (header("a", Flag.ANSWERED), UNREAD),
        (header("a", Flag.SEEN, Flag.ANSWERED, size_bytes=749), ""),  # of decoded parts, 57 bytes a line of 78
        (header("a", Flag.SEEN, Flag.ANSWERED, size_bytes=748), "stored mail is truncated"),
        (header("a", Flag.SEEN, Flag.ANSWERED, size_bytes=0), ""),  # not listed
    ],
)
@pytest.mark.parametrize("folder", [FOLDER, INBOX])
def test_a_message_is_listed_as_it_was_stored(folder: str, found: Header, kind: str) -> None:
    """With its size, and the flags that it had when the user moved it, or has in the Inbox; keywords may be lost."""
    stored = Stored(0)
    known = header("a", Flag.ANSWERED, Flag.SEEN, Flag.FORWARDED)
    stored.mail.put(folder, "a", known)
    with nullcontext() if kind == "" else pytest.raises(ServerRefused, match=kind):
        stored.mail.look(folder, [found], 1, 1, [known._replace(ref=found.ref)] if folder == INBOX else ())
    assert stored.missing == (["a"] if kind else [])


def test_each_copy_has_its_own_flags() -> None:
    """Of two copies that were delivered, one was read."""
    stored = Stored(0)
    first, second = header("a", Flag.SEEN), header("a")
    for copy in (first, second):
        stored.mail.put(INBOX, "a", copy)
    stored.mail.look(INBOX, [first, second], None, 2, [first, second])
    assert not stored.missing


def test_a_folder_that_is_not_listed_is_a_failure_once() -> None:
    """All its mail is missing. The user goes on, and fails where the folder is needed."""
    stored = Stored(2)
    stored.put("a")
    with pytest.raises(ServerRefused, match=FOLDER):
        stored.mail.look_for([FOLDER, "Folder 02"], ["INBOX", "Folder 02"])
    stored.mail.look_for([FOLDER, "Folder 02"], ["INBOX", "Folder 02"])
    assert stored.missing == [*stored.initial, "a"]
    assert not stored.mail.unlooked


def test_unlisted_mail_is_not_missing() -> None:
    """As when the server refuses the list; mail that it has shown is neither."""
    stored = Stored(1)
    stored.put("a")
    assert stored.look([*stored.initial, "a"]) == ""
    stored.put("b")
    stored.mail.end()
    assert (stored.missing, stored.unlisted) == ([], ["b"])


def test_mailboxes_with_unknown_start_state_are_not_judged() -> None:
    """With `initialise: never`, even the user's own mail may be elsewhere."""
    stored = Stored(None)
    stored.put("a")
    assert stored.look([]) == ""
    assert not stored.mail.unlooked
    assert not stored.mail.holds(FOLDER)


@settings(max_examples=60)
@given(data=st.data())
def test_exactly_the_lost_mail_is_recorded(data: st.DataObject) -> None:
    """Whole lists of a folder that loses some messages between looks: each loss is recorded once, and nothing else."""
    stored = Stored(data.draw(st.integers(0, 6)))
    held, lost = list(stored.initial), set()
    for step in range(data.draw(st.integers(1, 5))):
        put = [f"{step}.{at}" for at in range(data.draw(st.integers(0, 4)))]
        stored.put(*put)
        held += put
        losses = data.draw(st.sets(st.sampled_from(held), max_size=3)) if held else set()
        held = [each for each in held if each not in losses]
        lost |= losses
        assert stored.look(held, None) == (LACKS if losses else "")
        assert set(stored.missing) == lost
        assert len(stored.missing) == len(lost)


@settings(max_examples=100)
@given(data=st.data())
def test_mail_moved_and_copied_repeatedly_is_not_missing(data: st.DataObject) -> None:
    """Also back to where it was, and several times; what a server then loses is counted, and nothing else."""
    names = ["Folder 01", "Folder 02", "Folder 03"]
    faults: Counter[tuple[str, str]] = Counter()
    mail = StoredMail(
        USER, lambda _: dict.fromkeys(names, 2), lambda event, _, folder: faults.update([(event, folder)])
    )
    held = {name: [initial_id(USER, name, at) for at in range(2)] for name in names}
    for _ in range(data.draw(st.integers(1, 12))):
        source, target = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(names))
        if not held[source]:
            continue
        chosen = header(data.draw(st.sampled_from(held[source])))
        name = chosen.tag.id if chosen.tag else ""
        if data.draw(st.booleans()):
            mail.choose([chosen], source)
            mail.leaves([chosen])
            mail.release(chosen)
            held[source].remove(name)
        mail.tries([chosen], target)
        mail.put(target, name, chosen)
        held[target].append(name)
        if data.draw(st.booleans()):
            mail.look(target, [header(each, Flag.SEEN) for each in held[target]], None, len(held[target]))
    lost: Counter[tuple[str, str]] = Counter()
    for folder in names:
        gone = data.draw(st.sets(st.sampled_from(held[folder]))) if held[folder] else set()
        lost += Counter({("missing", folder): len(gone)})
        left = [header(each, Flag.SEEN) for each in held[folder] if each not in gone]
        with pytest.raises(ServerRefused) if gone else nullcontext():
            mail.look(folder, left, None, len(left))
    assert faults == lost


def test_a_large_folders_start_state_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the event loop, where other users wait."""
    computed = 0

    def counted(*place: Any) -> str:
        nonlocal computed
        computed += 1
        return initial_id(*place)

    monkeypatch.setattr("loadsim.users.stored_mail.initial_id", counted)
    mail = StoredMail(USER + 1, lambda _: {INBOX: 50, FOLDER: 1000}, lambda *_: None)
    moved = [initial_id(USER + 1, INBOX, at) for at in range(50)]
    mail.leaves(map(header, moved))
    for each in moved:
        mail.put(FOLDER, each, header(each))
    assert computed == 1000
