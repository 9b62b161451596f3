"""Visits to mailboxes: each ends within its limit, and what fails at one is its own failure, in one line."""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from email import message_from_bytes
from typing import Any

import pytest
from imap_script import PATIENCE_S, Peer, SkippingLoop, playing, skip
from mailservers import StartEmbedded, numbered_accounts
from provisioning import FOREIGN, USERS, Lab, MakeLab, lab_maker, own_message

from loadsim.errors import ConfigError, ServerRefused
from loadsim.model.ports import INBOX, Account, Services
from loadsim.protocols.imap.header_lists import Ref
from loadsim.protocols.registry import open_driver
from loadsim.provisioning import manifest
from loadsim.provisioning.clean import Cleaned, clean_mailbox
from loadsim.provisioning.sessions import HOPELESS, NullObserver, all_done, visit

OWNER = Account(1, "user1", "user1@example.test", "secret-of-1")


def said(text: bytes | None) -> bytes:
    return b"NIL" if text is None else b"{%d}\r\n%b" % (len(text), text)


@dataclass
class Courier:
    """One account's folders behind an IMAP server; a session sees of its selected folder what was there at SELECT.

    So does Courier, whose STATUS of the selected folder says what the session knows. `quirk` alters an answer's lines:
    from the command, and the lines; for None it never answers, and `hangs_s` go by. `meanwhile` is called after each
    command.
    """

    folders: dict[str, dict[int, bytes]]
    capabilities: bytes = b"IMAP4rev1 SASL-IR AUTH=PLAIN LITERAL+ UIDPLUS UNSELECT"
    quirk: Callable[[bytes, list[bytes]], list[bytes] | None] = lambda command, lines: lines
    meanwhile: Callable[[bytes], None] = lambda command: None
    hangs_s: float = 0.0
    commands: list[bytes] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    selected: str | None = None
    seen: set[int] = field(default_factory=set)

    async def __call__(self, peer: Peer) -> None:
        peer.say(b"* OK [CAPABILITY " + self.capabilities + b"] ready")
        while line := (await peer.reader.readline()).rstrip(b"\r\n"):
            tag, _, command = line.partition(b" ")
            self.commands.append(command)
            lines = self.quirk(command, [*self._answer(command), b"%b OK done" % tag])
            if lines is None:
                skip(self.hangs_s)
                await peer.end()
                return
            peer.say(*lines)
            self.meanwhile(command)
            if command == b"LOGOUT":
                return

    def _answer(self, command: bytes) -> list[bytes]:
        verb, _, rest = command.partition(b" ")
        name = rest.partition(b" (")[0].strip(b'"').decode()
        if verb == b"CAPABILITY":
            return [b"* CAPABILITY " + self.capabilities]
        if verb == b"LIST":
            return [b'* LIST () "." "%b"' % each.encode() for each in self.folders]
        if verb == b"SELECT":
            self.selected, self.seen = name, set(self.folders[name])
            return [b"* %d EXISTS" % len(self.seen), b"* OK [UIDVALIDITY 7] valid"]
        if verb == b"UNSELECT":
            self.selected = None
        if verb == b"STATUS":
            count = len(self.seen) if name == self.selected else len(self.folders[name])
            return [b'* STATUS "%b" (MESSAGES %d)' % (name.encode(), count)]
        if verb == b"DELETE":
            self.deleted.append(name)
            del self.folders[name]
        if verb == b"UID":
            return self._uid(rest)
        if verb == b"FETCH":  # of all, next to the numbers
            return self._uid(b"FETCH 1:*")
        return []

    def _uid(self, rest: bytes) -> list[bytes]:
        assert self.selected is not None
        verb, _, rest = rest.partition(b" ")
        if verb == b"SEARCH":
            return []
        folder = self.folders[self.selected]
        first, _, last = rest.partition(b" ")[0].partition(b":")
        wanted = [uid for uid in sorted(self.seen) if int(first) <= uid and (last == b"*" or uid <= int(last or first))]
        if verb == b"FETCH":
            return [self._fetched(number, uid, folder[uid]) for number, uid in enumerate(wanted, 1)]
        if verb == b"EXPUNGE":
            for uid in wanted:
                del folder[uid]
                self.seen.discard(uid)
            return [b"* 1 EXPUNGE"] * len(wanted)
        return []

    @staticmethod
    def _fetched(number: int, uid: int, message: bytes) -> bytes:
        parsed = message_from_bytes(message)
        local, _, host = parsed["From"].encode().partition(b"@")
        sender = b'((NIL NIL "%b" "%b"))' % (local, host)
        tag = parsed["X-LoadSim"]
        header = b"X-LoadSim: %b\r\n\r\n" % tag.encode() if tag else b"\r\n"
        head, _, text = message.partition(b"\r\n\r\n")
        subject = head.partition(b"Subject: ")[2].partition(b"\r\n")[0]
        identity = said(parsed["Message-ID"].encode() if parsed["Message-ID"] else None)
        return (
            b"* %d FETCH (UID %d FLAGS () RFC822.SIZE %d" % (number, uid, len(message))
            + b" ENVELOPE (NIL %b %b NIL NIL NIL NIL NIL NIL %b)" % (said(subject), sender, identity)
            + b' BODYSTRUCTURE ("text" "plain" NIL NIL NIL "7bit" %d 1)' % len(text)
            + b" BODY[HEADER.FIELDS (X-LOADSIM)] %b BODY[1] %b BODY[TEXT] %b)" % (said(header), said(text), said(text))
        )


def initialised() -> dict[str, dict[int, bytes]]:
    """An account as `init` leaves it, with one message of ours in a folder of ours."""
    return {INBOX: {}, "Folder 01": {4: own_message(4)}, "LoadSim": {1: manifest.compose(OWNER, ["Folder 01"])[1]}}


LIMIT_S = 1.0
"""The time limit of a command; a visit has 20 times this. The loop's clock is put forward past both."""


def visits(*servers: Courier) -> list[Cleaned | ConfigError]:
    accounts = [OWNER, Account(2, "user2", "user2@example.test", "secret-of-2")][: len(servers)]

    async def work(account: Account, mailbox: Any) -> Cleaned:
        return await clean_mailbox(account, mailbox, dry_run=False)

    async def live() -> list[Cleaned | ConfigError]:
        async with playing(*servers) as endpoint, asyncio.timeout(PATIENCE_S):
            one_by_one = replace(endpoint, preparation_connections=1)
            services = Services(one_by_one, endpoint, LIMIT_S if any(each.hangs_s for each in servers) else PATIENCE_S)
            return await visit(accounts, services, work, lambda done, of: None)

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(live())


def cleaned(server: Courier) -> Cleaned | ConfigError:
    return visits(server)[0]


def test_an_account_is_cleaned() -> None:
    server = Courier(initialised())
    result = cleaned(server)
    assert isinstance(result, Cleaned), result
    assert result.messages == {"Folder 01": 1, "LoadSim": 1}
    assert server.folders == {INBOX: {}}


@pytest.mark.parametrize("unselect", [b" UNSELECT", b""])
def test_a_folder_is_left_before_its_status_is_asked(unselect: bytes) -> None:
    """Mail that arrives during the expunge keeps its folder: the session sees it only after it has left."""

    def meanwhile(command: bytes) -> None:
        if command.startswith(b"UID EXPUNGE"):
            server.folders["Folder 01"][5] = FOREIGN % 5

    server = Courier(initialised(), b"IMAP4rev1 SASL-IR AUTH=PLAIN LITERAL+ UIDPLUS" + unselect, meanwhile=meanwhile)
    result = cleaned(server)
    assert server.folders == {INBOX: {}, "Folder 01": {5: FOREIGN % 5}}
    assert isinstance(result, Cleaned)
    assert result.folders == ("LoadSim",)
    assert b"CLOSE" not in server.commands  # it would expunge


def test_no_folder_is_opened_after_the_final_count() -> None:
    """DELETE directly follows the STATUS of its folder."""
    server = Courier(initialised())
    cleaned(server)
    for at, command in enumerate(server.commands):
        if command.startswith(b"DELETE"):
            assert server.commands[at - 1].startswith(b"STATUS " + command.removeprefix(b"DELETE "))


def without(pattern: bytes, wanted: bytes) -> Callable[[bytes, list[bytes]], list[bytes]]:
    """A quirk: what matches the pattern is missing from the answers to commands of this beginning."""

    def quirk(command: bytes, lines: list[bytes]) -> list[bytes]:
        return [re.sub(pattern, b"", line) for line in lines] if command.startswith(wanted) else lines

    return quirk


MISSING = {
    "the number of STATUS": (without(rb"MESSAGES \d+", b"STATUS"), "STATUS without MESSAGES: Folder 01"),
    "STATUS": (without(rb"^\* STATUS.*", b"STATUS"), "STATUS without data: Folder 01"),
    "UIDVALIDITY": (without(rb"\[UIDVALIDITY 7\]", b"SELECT"), "SELECT without UIDVALIDITY: LoadSim"),
}


@pytest.mark.parametrize(("quirk", "why"), MISSING.values(), ids=MISSING.keys())
def test_a_missing_number_is_a_refusal(quirk: Any, why: str) -> None:
    """If an answer lacks a number that a deletion depends on, nothing is deleted."""

    def lines_only(command: bytes, lines: list[bytes]) -> list[bytes]:
        return [line for line in quirk(command, lines) if line]

    server = Courier(initialised(), quirk=lines_only)
    result = cleaned(server)
    assert str(result) == f"account user1 (user1@example.test): {why}"
    assert server.deleted == []


@pytest.mark.parametrize("driver", ["imap", "aioimaplib"])
async def test_without_uidplus_unknown_flags_are_a_refusal(driver: str) -> None:
    """EXPUNGE deletes all that is marked: what others have marked must be known."""

    def no_flags(command: bytes, lines: list[bytes]) -> list[bytes]:
        return lines[-1:] if command == b"UID FETCH 1:* (UID FLAGS)" else lines

    server = Courier(initialised(), b"IMAP4rev1 SASL-IR AUTH=PLAIN LITERAL+", quirk=no_flags)

    async with playing(server) as endpoint, asyncio.timeout(PATIENCE_S):
        mailbox = open_driver(driver, Services(endpoint, endpoint)).session(OWNER, NullObserver()).mailbox
        await mailbox.log_on()
        await mailbox.open("Folder 01")
        with pytest.raises(ServerRefused, match="UID FETCH without data"):
            await mailbox.expunge([Ref("Folder 01", 7, 4)])
        mailbox.abandon()

    assert b"EXPUNGE" not in server.commands


def test_a_command_without_an_answer_ends_its_visit_alone() -> None:
    """The first of two gets no answer to STATUS: it has the line, and the second is cleaned."""
    hanging = Courier(
        initialised(),
        quirk=lambda command, lines: None if command.startswith(b"STATUS") else lines,
        hangs_s=2 * LIMIT_S,
    )
    well = Courier({INBOX: {1: own_message(1)}})
    first, second = visits(hanging, well)
    assert str(first) == "account user1 (user1@example.test): no answer to STATUS"
    assert isinstance(second, Cleaned)
    assert second.messages == {INBOX: 1}
    assert well.folders == {INBOX: {}}


@pytest.fixture(scope="module")
def make_lab(tmp_path_factory: pytest.TempPathFactory, embedded_server: StartEmbedded) -> MakeLab:
    accounts = numbered_accounts(USERS * 14)
    return lab_maker(embedded_server(accounts), accounts, tmp_path_factory.mktemp("labs"))


@pytest.fixture
def lab(make_lab: MakeLab) -> Lab:
    return make_lab()


def visited(
    accounts: Sequence[Account], services: Services, work: Callable[[Account, Any], Any], at_once: int = 32
) -> list[Any]:
    services = replace(services, imap=replace(services.imap, preparation_connections=at_once))
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(visit(accounts, services, work, lambda done, of: None))


def test_a_visit_that_never_ends_is_ended(lab: Lab) -> None:
    """Each of its commands is answered in time; the other accounts are visited."""

    async def work(account: Account, mailbox: Any) -> str:
        if account == lab.accounts[1]:
            skip(lab.services.visit_limit_s)
            while True:
                await mailbox.message_count(INBOX)
        return "done"

    first, second, third = visited(lab.accounts, lab.services, work, at_once=1)
    assert (first, third) == ("done", "done")
    login = lab.accounts[1].login
    assert str(second) == (
        f"account {login} ({login}@example.test): expected a visit of at most 1200 s (20 x limits.command),"
        " found a longer one"
    )


@pytest.mark.parametrize("error", [ValueError, OSError])
def test_an_unexpected_error_fails_one_account(lab: Lab, error: type[Exception]) -> None:
    """The line has its kind and its place, and none of its text: that may quote mail."""

    async def work(account: Account, mailbox: Any) -> str:
        if account == lab.accounts[0]:
            raise error("hush-hush\n")
        return "done"

    first, *others = visited(lab.accounts, lab.services, work)
    assert others == ["done", "done"]
    assert isinstance(first, ConfigError)
    assert re.search(rf"\): internal error: {error.__name__}: provisioning/sessions\.py:\d+$", str(first))
    assert "hush" not in str(first)
    with pytest.raises(ConfigError) as refused:
        all_done([first, *others])
    assert str(refused.value) == str(first)


def test_several_failures_are_counted(lab: Lab) -> None:
    """The first is told, with the number of the others."""

    async def work(account: Account, mailbox: Any) -> str:
        raise ServerRefused("NO", f"not {account.login}")

    results = visited(lab.accounts, lab.services, work)
    with pytest.raises(ConfigError) as refused:
        all_done(results)
    assert str(refused.value) == f"{results[0]} (2 more accounts failed)"


def test_after_many_failures_in_a_row_the_rest_is_not_tried(embedded_server: StartEmbedded) -> None:
    """A silent server would take the whole limit for each. A success in between restarts the count."""
    accounts = numbered_accounts(3 * HOPELESS)
    services = embedded_server(accounts).services
    for good, tried in ((0, HOPELESS), (HOPELESS, 2 * HOPELESS)):
        visits: list[int] = []

        async def work(account: Account, mailbox: Any, good: int = good, visits: list[int] = visits) -> None:
            visits.append(account.number)
            if account.number != good:
                raise ServerRefused("NO", "not you")

        results = visited(accounts, services, work, at_once=1)
        assert visits == list(range(1, tried + 1))
        assert sum(isinstance(result, ConfigError) for result in results) == len(accounts) - (good > 0)
