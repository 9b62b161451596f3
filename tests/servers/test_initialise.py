"""Initialise: exactly the start state, from any mailbox before it, without a change to foreign mail."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from mailservers import DOMAIN, logged_on
from provisioning import (
    FOREIGN,
    USERS,
    WANTED_FOLDERS,
    Lab,
    Wrapped,
    delivery_report,
    own_message,
    put,
    quiet,
    quoted,
    runs_step_by_step,
    with_steps,
)

from loadsim.cli import parser
from loadsim.errors import ConfigError
from loadsim.model.content.compose import Contents
from loadsim.model.message_tag import MessageTag
from loadsim.model.ports import INBOX, Account, Endpoint, Flag, MessageRef, Services
from loadsim.model.provisioning_ports import NewMessage
from loadsim.provisioning.clean import clean
from loadsim.provisioning.initialise import Initialised, initialise, restore_mailbox
from loadsim.provisioning.start_state import StoredState, change_folder
from loadsim.scenario.accounts import AccountTable
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import Workload


def run(lab: Lab, mode: str = "auto") -> Initialised:
    return asyncio.run(initialise(lab.workload, lab.services, mode, quiet))


def named_as_ours(lab: Lab) -> list[set[str]]:
    """Return the folders that the manifest names on each account, which has one such message."""
    found = [mailbox["LoadSim"] for mailbox in lab.snapshots()]
    assert [len(messages) for messages in found] == [1] * USERS
    return [set(json.loads(message.partition(b"\r\n\r\n")[2])["folders"]) for [(_, _, message)] in found]


def assert_start_state(lab: Lab) -> None:
    """Every mailbox holds the start state that the workload defines, byte for byte, in order, with its flags."""
    workload, contents = lab.workload, Contents(lab.workload.seed)
    for user, found in enumerate(lab.snapshots(), start=1):
        manifest = found.pop("LoadSim")
        assert set(found) == WANTED_FOLDERS
        for folder, messages in found.items():
            wanted = []
            for index in range(workload.start_state(user).get(folder, 0)):
                initial = workload.initial(user, folder, index)
                message = contents.initial(
                    user=user,
                    address=lab.scenario.account(user).address,
                    sender=initial.sender,
                    sender_address=lab.scenario.account(initial.sender).address,
                    folder=folder,
                    index=index,
                    kind=initial.kind,
                    domain=DOMAIN,
                )
                wanted.append((initial.id, frozenset({"\\seen"} if initial.seen else ()), message))
            assert [(each.id, each.flags, each.message) for each in messages] == wanted, folder
        assert len(manifest) == 1


def test_init_stores_exactly_the_start_state(lab: Lab) -> None:
    """New accounts get all folders and messages: 3 x (4 in the Inbox, 1 deleted, 2 x 3 in folders)."""
    done = run(lab)
    assert_start_state(lab)
    assert (done.accounts, done.changed, done.put, done.removed) == (3, 3, 33, 0)
    assert done.start_state == lab.workload.start_state_digest()


def test_a_second_init_changes_nothing(lab: Lab) -> None:
    """It says so, and every message is the one that was there: the UIDs are the same."""
    run(lab)
    before = lab.snapshots()
    done = run(lab)
    assert lab.snapshots() == before
    assert (done.changed, done.put, done.removed, done.reflagged) == (0, 0, 0, 0)
    assert "nothing to do" in done.describe()


def test_always_replaces_all_messages(lab: Lab) -> None:
    """The state is the same afterwards, and no message is one that was there before."""
    run(lab)
    before = lab.snapshots()
    done = run(lab, "always")
    assert_start_state(lab)
    assert (done.removed, done.put) == (33, 33)
    for old, new in zip(before, lab.snapshots(), strict=True):
        for folder in WANTED_FOLDERS:
            assert not {each.uid for each in old[folder]} & {each.uid for each in new[folder]}


def test_never_changes_no_mailbox(lab: Lab) -> None:
    """It only inspects, and knows no start state. It refuses mailboxes that lack folders that users need."""
    before = lab.snapshots()
    with pytest.raises(ConfigError) as refused:
        run(lab, "never")
    first, second, _ = lab.accounts
    assert str(refused.value) == (
        f"initialise: never: 3 of 3 mailboxes lack folders that users need: account {first.login} ({first.address})"
        " has no Sent Items, no Deleted Items, no Calendar, no Folder 01; run loadsim init SCENARIO --set"
        " initialise=auto first"
    )
    assert lab.snapshots() == before
    with logged_on(lab.server, first) as client:
        for folder in ("Sent Items", "Deleted Items", "Calendar", "Folder 02"):
            client.create(quoted(folder))
    with pytest.raises(ConfigError, match=f"never: 2 of 3 mailboxes lack .*: account {second.login} "):
        run(lab, "never")
    run(lab)
    before = lab.snapshots()
    done = run(lab, "never")
    assert lab.snapshots() == before
    assert done == Initialised(3)


def make_a_mess(lab: Lab) -> None:
    """Change the first user's mailbox as runs, people and accidents do."""
    initial = lab.snapshots()[0][INBOX]
    with logged_on(lab.server, lab.accounts[0]) as client:
        client.select(quoted(INBOX))
        first, second, third, fourth = (str(each.uid) for each in initial)
        client.uid("COPY", first, quoted("Folder 02"))
        client.uid("STORE", first, "+FLAGS", r"(\Deleted)")
        client.uid("EXPUNGE", first)
        put(client, INBOX, initial[0].message)  # the right message in the wrong place
        client.uid("STORE", second, "+FLAGS", r"(\Seen \Answered)")
        client.uid("STORE", third, "+FLAGS", r"(\Flagged $Forwarded)")
        client.uid("STORE", fourth, "+FLAGS", r"(\Deleted)")
        put(client, INBOX, own_message(1), r"(\Seen)")
        put(client, INBOX, delivery_report(own_message(2)))
        put(client, "Calendar", own_message(3))
        client.select(quoted("Deleted Items"))
        client.store("1", "-FLAGS", r"(\Seen)")
        client.create("Archive")
        put(client, "Archive", own_message(4))
        client.select(quoted(INBOX), readonly=True)
        client.delete(quoted("Folder 01"))


def test_init_repairs_any_changes(lab: Lab) -> None:
    """Moved, deleted, copied, flagged and left-over mail, a lost folder, a delivery report: all as it was."""
    run(lab)
    others = lab.snapshots()[1:]
    make_a_mess(lab)
    done = run(lab)
    mine = lab.snapshots()
    assert mine[1:] == others
    assert mine[0].pop("Archive") == []
    with logged_on(lab.server, lab.accounts[0]) as client:
        client.delete("Archive")
    assert_start_state(lab)
    assert (done.changed, done.folders_created) == (1, 1)
    assert run(lab).changed == 0


def without_manifest(lab: Lab) -> list[dict[str, Any]]:
    """Return the messages of all mailboxes but those in the manifests' folders."""
    return [{name: held for name, held in each.items() if name != "LoadSim"} for each in lab.snapshots()]


def test_only_flags_that_differ_are_reset(lab: Lab) -> None:
    """Flags are put right in place: the messages stay the same ones. The manifest gets another record.

    Keywords that a server sets by itself, as Dovecot 2.4.5 does at APPEND, are no difference, and stay.
    """
    run(lab)
    with logged_on(lab.server, lab.accounts[0]) as client:
        for folder in (INBOX, "Folder 01"):
            client.select(quoted(folder))
            client.store("1:*", "+FLAGS", "($OfServer)")
    assert (run(lab).changed, run(lab).reflagged) == (0, 0)
    before = without_manifest(lab)
    with logged_on(lab.server, lab.accounts[0]) as client:
        client.select(quoted(INBOX))
        client.store("1:2", "+FLAGS", r"(\Seen \Answered \Flagged)")
        client.select(quoted("Folder 01"))
        client.store("3", "-FLAGS", r"(\Seen)")
    done = run(lab)
    assert without_manifest(lab) == before
    assert (done.put, done.removed, done.reflagged) == (0, 0, 3)


def test_another_seed_replaces_every_message(lab: Lab) -> None:
    """Ids alone do not make the start state: messages of another seed have other contents."""
    first = run(lab)
    other = lab.with_settings("run.seed=2")
    second = run(other)
    assert_start_state(other)
    assert first.start_state != second.start_state
    assert (second.removed, second.put) == (33, 33)


def test_swapped_folders_of_sent_and_deleted_mail_are_refilled(lab: Lab) -> None:
    """Each folder's status is that of the record, but its messages are those of the other one."""
    first = lab.with_settings("folders={sent: A, trash: B}")
    then = lab.with_settings("folders={sent: B, trash: A}")
    for each, changed, held in ((first, USERS, {"A": 0, "B": 1}), (then, USERS, {"A": 1, "B": 0}), (then, 0, {})):
        done = asyncio.run(initialise(each.workload, each.scenario.using(each.services), "auto", quiet))
        assert done.changed == changed
        for mailbox in lab.snapshots():
            assert {name: len(mailbox[name]) for name in held} == held


def test_folders_of_a_larger_profile_are_removed(lab: Lab) -> None:
    """A folder that loadsim created for another profile is deleted; one that only has such a name stays."""
    small = yaml.safe_load((lab.path.parent / "small.yaml").read_text())
    large = lab.path.parent / "large.yaml"
    large.write_text(yaml.safe_dump({**small, "start_state": {**small["start_state"], "folders": 4}}))
    with logged_on(lab.server, lab.accounts[0]) as client:
        client.create(quoted("Folder 04"))
    run(lab.with_settings(f"topology.0.profile={large}"))
    assert run(lab).folders_deleted == 5
    assert named_as_ours(lab) == [WANTED_FOLDERS - {INBOX}] * USERS
    with logged_on(lab.server, lab.accounts[0]) as client:
        client.delete(quoted("Folder 04"))
    assert_start_state(lab)


def test_deleted_folders_leave_the_manifest(lab: Lab) -> None:
    """The manifest names no folder that is gone: a new one of that name would be somebody else's."""
    run(lab)
    before = lab.snapshots()
    with logged_on(lab.server, lab.accounts[0]) as client:
        client.delete(quoted("Folder 02"))
    fewer = yaml.safe_load((lab.path.parent / "small.yaml").read_text())
    fewer["start_state"]["folders"] = 1
    (lab.path.parent / "fewer.yaml").write_text(yaml.safe_dump(fewer))
    done = run(lab.with_settings(f"topology.0.profile={lab.path.parent / 'fewer.yaml'}"))
    assert (done.changed, done.folders_deleted) == (3, 2)
    assert named_as_ours(lab) == [WANTED_FOLDERS - {INBOX, "Folder 02"}] * USERS
    run(lab)
    assert_start_state(lab)
    assert [set(found) for found in lab.snapshots()] == [set(found) for found in before]


def test_foreign_mail_is_refused_without_changes(lab: Lab) -> None:
    """One account of three holds mail that is not ours: no account is changed, the line says where."""
    with logged_on(lab.server, lab.accounts[1]) as client:
        client.create("Mine")
        for number in range(3):
            put(client, "Mine", FOREIGN % number)
    before = lab.snapshots()
    login, address = lab.accounts[1].login, lab.accounts[1].address
    for mode in ("auto", "always", "never"):
        with pytest.raises(ConfigError) as refused:
            run(lab, mode)
        assert str(refused.value) == (
            f"account {login} ({address}): folder Mine holds 3 messages that loadsim did not put there;"
            " use empty test accounts"
        )
    assert lab.snapshots() == before


def test_two_users_of_one_mailbox_are_refused(lab: Lab) -> None:
    """As by a master user who is sent no name of theirs. In a run, the server would be accused of mail that vanishes.

    `clean` removes what both have put.
    """
    first, second, third = lab.accounts
    second = replace(second, login=first.login, password=first.password)
    shared = replace(lab, scenario=replace(lab.scenario, accounts=AccountTable("", (first, second, third))))
    with pytest.raises(ConfigError):  # perhaps already by folders that both create
        run(shared)
    with pytest.raises(ConfigError, match="expected a mailbox for each user, found another user's manifest"):
        run(shared)
    for _ in range(2):
        asyncio.run(clean(shared.scenario, shared.services, False, quiet))
    assert not any(messages for mailbox in lab.snapshots() for messages in mailbox.values())
    run(lab)


def test_reports_that_quote_no_mail_of_loadsim_are_foreign(lab: Lab) -> None:
    """A delivery report is ours only by what it quotes."""
    lab.put(1, INBOX, delivery_report(FOREIGN % 1))
    with pytest.raises(ConfigError, match="folder INBOX holds 1 message that loadsim did not put there"):
        run(lab)


def test_an_init_killed_between_any_two_steps_can_resume(lab: Lab) -> None:
    """Killed after every single change, on a new mailbox and on a messy one, it comes to the start state."""
    start = StoredState(lab.workload)

    async def work(account: Account, mailbox: object) -> None:
        await restore_mailbox(account, mailbox, start, from_scratch=False)

    # The manifest and its folder, folders, messages, the record.
    assert runs_step_by_step(lab, lab.accounts[0], work) == 2 + 5 + 4 + 2
    run(lab)
    make_a_mess(lab)
    assert runs_step_by_step(lab, lab.accounts[0], work) > 5
    with logged_on(lab.server, lab.accounts[0]) as client:
        client.delete("Archive")
    assert_start_state(lab)


def test_a_refused_log_on_names_the_account_and_no_password(lab: Lab) -> None:
    """The line says what the server said; nothing is changed on the accounts that can log on."""
    before = lab.snapshots()
    table = lab.path.parent / "wrong.csv"
    rows = [f"{account.login},{account.password}" for account in lab.accounts]
    login = lab.accounts[2].login
    table.write_text("\n".join(["user,password", *rows[:2], f"{login},hush-hush"]) + "\n")
    wrong = lab.with_settings(f"accounts.csv={table}")
    with pytest.raises(ConfigError) as refused:
        run(wrong)
    line = str(refused.value)
    assert line.startswith(f"account {login} ({login}@{DOMAIN}): expected to log on, the server answered: NO ")
    assert "hush" not in line
    assert "\n" not in line
    assert lab.snapshots() == before


class Forgetful(Wrapped):
    """A mailbox on a server that says OK to each APPEND, and stores none. `numbers`: STATUS has all numbers."""

    def __init__(self, mailbox: Any, numbers: bool) -> None:
        super().__init__(mailbox)
        self._numbers = numbers

    async def append_many(self, folder: str, messages: Sequence[Any]) -> Sequence[None]:
        return [None] * len(messages)

    async def status(self) -> dict[str, Any]:
        found = await self._mailbox.status()
        return found if self._numbers else dict.fromkeys(found)


@pytest.mark.parametrize("numbers", [True, False])
def test_messages_are_counted_at_the_end(lab: Lab, numbers: bool) -> None:
    """Also if STATUS has too few numbers for a record."""

    async def work(account: Account, mailbox: Any) -> None:
        with pytest.raises(ConfigError, match="expected 4 messages after initialising, found 0"):
            await restore_mailbox(account, Forgetful(mailbox, numbers), StoredState(lab.workload), from_scratch=False)

    assert asyncio.run(with_steps(lab, lab.accounts[0], 1000, work))


def test_init_prints_its_changes(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """The verb: plain lines of progress where there is no terminal, then the result."""
    args = parser("init").parse_args(["init", str(lab.path), "--set", "run.seed=5"])
    assert args.run(args) == 0
    said = capsys.readouterr()
    assert "inspect: 3 of 3 accounts\n" in said.err
    assert "initialise: 3 of 3 accounts\n" in said.err
    assert said.out.startswith("Initialised 3 of 3 mailboxes: 15 folders created, 0 deleted; 33 messages added")
    assert f"Start state: {lab.with_settings('run.seed=5').workload.start_state_digest()}\n" in said.out


def test_in_memory_users_need_no_server() -> None:
    """The driver `fake` has its mailboxes in the run itself."""
    scenario = load_scenario("medium", ["topology.0.protocol=fake", "topology.0.users=2"])
    nowhere = Services(Endpoint("127.0.0.1", 1), Endpoint("127.0.0.1", 1))
    done = asyncio.run(initialise(Workload(scenario), nowhere, "auto", quiet))
    assert done.accounts == 0


class Lying:
    def __init__(self, ref: MessageRef, tag: MessageTag, flags: frozenset[str], misdated: bool) -> None:
        self.ref, self.tag, self.flags, self.misdated = ref, tag, flags, misdated


def _tag(number: int) -> MessageTag:
    return MessageTag("initial", 1, f"i{number}", "ups1K", 0, "0" * 16)


@settings(deadline=None, max_examples=200)
@given(
    wanted=st.lists(st.integers(0, 9), unique=True, max_size=8),
    lying=st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from(["", "\\seen", "\\answered"]), st.booleans()), max_size=12
    ),
)
def test_planned_changes_lead_to_the_wanted_messages(wanted: list[int], lying: list[tuple[int, str, bool]]) -> None:
    """With any messages in a folder, the planned removals, resets and appends give the wanted messages in order."""
    own = [Lying(ref, _tag(number), frozenset({flag} - {""}), odd) for ref, (number, flag, odd) in enumerate(lying)]
    tags = [_tag(number) for number in wanted]
    target = [NewMessage(f"\r\nX-LoadSim: {tag.header()}\r\n".encode(), (Flag.SEEN,)) for tag in tags]
    change = asyncio.run(change_folder(own, target, len(target)))
    after = {each.ref: each for each in own if each.ref not in change.remove}
    for flags, refs in change.reflag.items():
        for ref in refs:
            after[ref].flags = frozenset(flag.value.lower() for flag in flags)
    assert not any(each.misdated for each in after.values())
    kept = [each.tag for each in after.values()]
    assert kept + tags[change.kept :] == tags
    assert all(each.flags == {"\\seen"} for each in after.values())
    assert len(target) == change.kept + change.missing
