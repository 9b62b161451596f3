"""Mail programs on real servers: their commands are the documented ones, and all programs show the same mail."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml
from imap_script import Ear
from mailservers import StartDovecotPostfix, StartEmbedded, logged_on, numbered_accounts, quotas
from paths import ROOT
from small_runs import loadsim, on, population_of, written

from loadsim.documents.yaml_reader import known
from loadsim.model.mail_program import PER_VIEW, MailProgram, load_program
from loadsim.model.message_tag import MessageTag, body_digest
from loadsim.model.ports import DRAFTS, INBOX, Account, Flag, Header, SearchKey, Services, Structure
from loadsim.model.provisioning_ports import FolderStatus, Quota
from loadsim.protocols.imap import open_driver
from loadsim.protocols.imap.mailbox import ImapMailbox
from loadsim.scenario.scenario import load_scenario
from loadsim.servers.running import RunningServer
from loadsim.timinglog.reader import TimingLog, read_log

pytestmark = pytest.mark.nightly(part="drivers")

PAGE = ROOT / "docs" / "explanation" / "mail-programs.md"
FOLDER = "Folder 01"
PROGRAMS = tuple(name for name in known("programs") if name != "pop3" and load_program(name).calls is None)
"""The shipped programs that keep to IMAP; assistants have a test of their own."""

PARTED = (
    'Content-Type: multipart/mixed; boundary="b1"\r\n\r\nfor old programs\r\n'
    "--b1\r\nContent-Type: multipart/alternative; boundary=b2\r\n\r\n"
    "--b2\r\nContent-Type: text/html\r\n\r\n<p>shown</p>\r\n--b2\r\n\r\nshown\r\n--b2--\r\n\r\n"
    '--b1\r\nContent-Type: application/octet-stream; name="a.bin"\r\nContent-Transfer-Encoding: BASE64\r\n'
    "Content-Disposition: attachment; filename=a.bin\r\n\r\nQUJD\r\nREVG\r\n--b1--\r\nafter it\r\n"
)


def message(number: int, rest: str = "\r\ntext\r\n") -> bytes:
    """A message with a tag, and with headers that are hard to read."""
    tag = MessageTag("initial", 1, f"n1.{number}", "text-1k", 1_700_000_000_000_000, body_digest(b"text\r\n"))
    head = 'From: "One, the <first>" <user1@example.test>\r\n'
    head += "To: user2@example.test,\r\n\tThree (3) <user3@example.test>\r\n"
    head += f"Subject: hello {number}\r\nMessage-ID: <n1.{number}.initial@example.test>\r\n"
    head += f"Date: Mon, 3 Nov 2025 10:00:00 +0000\r\nMIME-Version: 1.0\r\nX-LoadSim: {tag.header()}\r\n"
    return (head + rest).encode()


class Site:
    def __init__(self, server: RunningServer, accounts: Iterator[Account], exact: bool) -> None:
        self.server = server
        self.exact = exact
        self.accounts = accounts

    def user(self) -> Account:
        """A user with two messages in the Inbox and one with parts in a folder."""
        account = next(self.accounts)
        with logged_on(self.server, account) as client:
            client.create(f'"{FOLDER}"')
            client.append("INBOX", "", "", message(1))
            client.append("INBOX", "(\\Seen)", "", message(2))
            client.append(f'"{FOLDER}"', "", "", message(3, PARTED))
        return account


@pytest.fixture(scope="module", params=["embedded", "dovecot"])
def site(request: pytest.FixtureRequest) -> Site:
    accounts = numbered_accounts(20)
    if request.param == "embedded":
        embedded: StartEmbedded = request.getfixturevalue("embedded_server")
        return Site(embedded(accounts), iter(accounts), exact=False)
    dovecot: StartDovecotPostfix = request.getfixturevalue("dovecot_postfix")
    return Site(dovecot(accounts, extra=quotas()), iter(accounts), exact=True)


@asynccontextmanager
async def recorded(services: Services) -> AsyncIterator[tuple[Services, list[str]]]:
    """Yield the services through a proxy, and the lines that go to the server, without tags.

    Those of a second connection begin with "2: ", and so on; a connection that was closed before does not count.
    """
    lines: list[str] = []
    under_way: set[asyncio.Task[None]] = set()
    ends: list[asyncio.StreamWriter] = []

    async def copy(source: asyncio.StreamReader, to: asyncio.StreamWriter, number: int | None = None) -> None:
        while line := await source.readline():
            if number is not None:
                tag, command = re.findall(r"^(t\d+ )?(.*)$", line.decode().rstrip("\r\n"))[0]
                response = not tag and command != "DONE"  # of AUTHENTICATE
                if command != "CAPABILITY" and not response:
                    command = re.sub(r"^(AUTHENTICATE|LOGIN) .*", "(logs on)", command)
                    command = re.sub(r"\b10(\d)\b", r"\1", command)  # the embedded server's UIDs begin at 101
                    lines.append(command if number == 1 else f"{number}: {command}")
            to.write(line)
            await to.drain()
        to.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        under_way.add(task)
        number = len(under_way)
        onward_reader, onward = await asyncio.open_connection(services.imap.host, services.imap.port)
        ends.extend((writer, onward))
        try:
            await asyncio.gather(copy(reader, onward, number), copy(onward_reader, writer))
        except ConnectionError:
            pass  # one side went first
        finally:
            onward.close()
            writer.close()
            under_way.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    try:
        port = server.sockets[0].getsockname()[1]
        yield replace(services, imap=replace(services.imap, host="127.0.0.1", port=port)), lines
    finally:
        server.close()
        for end in ends:
            end.transport.abort()
        await asyncio.gather(*under_way)


Seen = tuple[list[Header], Structure, bytes, bytes]


async def used(site: Site, account: Account, program: MailProgram) -> tuple[list[str], Seen]:
    """A session with a program. Return what it sent, with a line before each step, and what the user saw."""
    ear = Ear()
    per_view = program.session == PER_VIEW
    async with recorded(replace(site.server.services, program=program)) as (services, lines):
        mailbox = open_driver(services).session(account, ear).mailbox
        await mailbox.log_on()
        await mailbox.folders()

        async def end_view() -> None:
            if per_view:
                await mailbox.log_off()

        await end_view()
        lines.clear()

        lines.append("# opens the Inbox")
        shown = list(await mailbox.headers(INBOX, 50))
        await end_view()
        lines.append("# looks for new mail" if per_view else "# waits for new mail")
        if per_view:
            await asyncio.to_thread(deliver, site, account)
        await mailbox.watch()
        if program.idle:
            await asyncio.to_thread(deliver, site, account)
        await ear.wait()
        lines.append("# lists the new message")
        shown += await mailbox.arrived()
        await end_view()
        lines.append("# reads it")
        structure = await mailbox.structure(shown[-1].ref)
        assert structure.text is not None
        text = bytes(await mailbox.part(shown[-1].ref, structure.text))
        await mailbox.flag([shown[-1].ref], Flag.SEEN)
        await end_view()

        lines.append("# opens a folder, and reads a message with its attachment")
        browsed = list(await mailbox.headers(FOLDER, 50))
        structure = await mailbox.structure(browsed[0].ref)
        assert structure.text is not None
        await mailbox.part(browsed[0].ref, structure.text)
        await end_view()
        attached = bytes(await mailbox.part(browsed[0].ref, structure.attachments[0]))
        await end_view()
        lines.append("# opens both again")
        await mailbox.open(INBOX)
        assert list(await mailbox.headers(FOLDER, 50)) == browsed
        await mailbox.open(INBOX)
        sent = list(lines)  # without the log-off of a kept session
        await mailbox.log_off()
        if per_view:
            # Servers without UNSELECT have the Inbox opened before LOGOUT.
            ends = zip_longest(lines, lines[1:])
            sent = [line for line, following in ends if (line, following) != ("SELECT INBOX", "LOGOUT")]
        return sent, (shown + browsed, structure, text, attached)


def deliver(site: Site, account: Account) -> None:
    with logged_on(site.server, account) as client:
        client.append("INBOX", "", "", message(4))


def sizeless(structure: Structure) -> Structure:
    assert structure.text is not None
    attachments = tuple(part._replace(size_bytes=0) for part in structure.attachments)
    return Structure(structure.text._replace(size_bytes=0), attachments)


def documented(program: str) -> list[str]:
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## `{program}`\n")[2].partition("\n## ")[0]
    block = re.search(r"```\n(.*?)\n```", section, re.DOTALL)
    return block[1].splitlines() if block else []


def without_fields(program: MailProgram, line: str) -> str:
    """A line with `(...)` in place of the header fields that the program lists, and loadsim's own."""
    fields = re.search(r"HEADER\.FIELDS \((.*)\)", " ".join(program.list_items))
    return line.replace(f"({fields[1]} X-LoadSim)", "(...)") if fields else line


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_conversation_is_the_documented_one(site: Site, name: str) -> None:
    """The page shows the commands that arrive at each server."""
    program = load_program(name)
    lines, _ = asyncio.run(used(site, site.user(), program))
    sent = [without_fields(program, line) for line in lines]
    print("\n".join(sent))  # noqa: T201 - for the page, if it has to change
    assert sent == documented(name)


def test_an_assistants_conversation_is_the_documented_one(site: Site) -> None:
    """It searches, reads a message, and saves a draft."""
    account, program = site.user(), load_program("assistant")
    with logged_on(site.server, account) as client:
        client.create("Drafts")

    async def used() -> list[str]:
        async with recorded(replace(site.server.services, program=program)) as (services, lines):
            mailbox = open_driver(services).session(account, Ear()).mailbox
            await mailbox.log_on()  # asks for namespaces and special uses
            await mailbox.log_off()
            lines[:] = ["# searches the Inbox"]
            found = [await mailbox.search(INBOX, SearchKey.SUBJECT, "hello 2", 50)]
            await mailbox.log_off()
            for step in ("# reads a message", "# reads it again"):
                lines.append(step)
                structure = await mailbox.structure(found[0][0].ref)
                assert structure.text is not None
                await mailbox.part(found[0][0].ref, structure.text)
                await mailbox.log_off()
            lines.append("# saves a draft")
            await mailbox.append(DRAFTS, message(4), [Flag.SEEN, Flag.DRAFT])
            await mailbox.log_off()
            return [
                re.sub(r"\{.*\}$", "{...}", line)
                for line in lines
                if line.startswith(("#", "("))
                or line.partition(" ")[0] in ("SELECT", "UID", "APPEND", "LOGOUT", "FETCH", "UNSELECT")
            ]

    sent = [without_fields(program, line) for line in asyncio.run(used())]
    print("\n".join(sent))  # noqa: T201 - for the page, if it has to change
    assert sent == documented("assistant")


def test_every_program_shows_the_same_mail(site: Site) -> None:
    """Headers, structure, text and attachment are those that the default program gets from the server."""
    found = {name: asyncio.run(used(site, site.user(), load_program(name)))[1] for name in PROGRAMS}
    headers, structure, text, attached = found["outlook-like"]
    if not site.exact:  # pymap counts the line end before a boundary as the part's
        found = {name: (seen[0], sizeless(seen[1]), seen[2].rstrip(), seen[3].rstrip()) for name, seen in found.items()}
        headers, structure, text, attached = found["outlook-like"]
    assert [header.subject for header in headers] == [f"hello {number}" for number in (1, 2, 4, 3)]
    assert [header.seen for header in headers] == [False, True, False, False]
    assert headers[0].sender == "user1@example.test"
    assert headers[0].to == ("user2@example.test", "user3@example.test")
    assert all(header.tag for header in headers)
    assert (text.rstrip(), attached) == (b"text", b"QUJD\r\nREVG")
    for name, (others, *rest) in found.items():
        assert [other[1:] for other in others] == [header[1:] for header in headers], name
        assert rest == [structure, text, attached], name


def test_quotas_and_status_are_those_that_imaplib_reads(site: Site) -> None:
    """Dovecot limits each user to 1 GiB; the embedded server has no limits."""
    account = site.user()

    async def asked() -> tuple[Sequence[Quota], FolderStatus | None]:
        mailbox = open_driver(site.server.services).session(account, Ear()).mailbox
        assert isinstance(mailbox, ImapMailbox)
        await mailbox.log_on()
        found = await mailbox.quotas(), await mailbox.folder_status(FOLDER)
        await mailbox.log_off()
        return found

    quotas, status = asyncio.run(asked())
    with logged_on(site.server, account) as client:
        _, (_, limits) = client.getquotaroot("INBOX")
        _, (line,) = client.status(f'"{FOLDER}"', "(UIDVALIDITY UIDNEXT MESSAGES UNSEEN)")
    found = re.findall(rb"(\w+) (\d+) (\d+)", b" ".join(limits))
    assert quotas == [Quota(name.decode(), int(used), int(limit)) for name, used, limit in found]
    assert [quota.limit for quota in quotas] == ([1 << 20] if site.exact else [])
    numbers = dict(re.findall(r"([A-Z]+) (\d+)", line.decode()))
    assert status is not None
    assert (status.messages, status.unseen) == (int(numbers["MESSAGES"]), int(numbers["UNSEEN"])) == (1, 1)


def program_of(place: Path, shipped: str, name: str, **keys: object) -> str:
    """Write a shipped program with another name and other values. Return its path."""
    document = yaml.safe_load((ROOT / "programs" / f"{shipped}.yaml").read_text(encoding="utf-8"))
    path = place / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**document, "name": name, **keys}), encoding="utf-8")
    return str(path)


def run_of(
    place: Path, programs: Iterable[str | list[str]], start: StartDovecotPostfix | None = None, **keys: object
) -> tuple[dict[str, Any], TimingLog]:
    """Run two users of each program, on the embedded server or one from `start`. Return the score and the log."""
    keys["topology"] = [{"profile": "loadsim-5.5/medium", "users": 2, "program": program} for program in programs]
    path = written(place / "programs-of-users.yaml", **keys)
    if start is not None:
        server = start(*population_of(load_scenario(str(path))))
        written(path, **keys, **on(server.services))
    ended = loadsim("run", path, "--out", place / "out", "--quiet", "--no-report", "--engines", "1")
    assert (place / "out" / "score.json").exists(), ended.stderr
    score = json.loads((place / "out" / "score.json").read_text(encoding="utf-8"))
    assert (score["failed"], score["sessions_lost"], score["log_ons"]) == (0, 0, 4)
    delivery = score["delivery"]
    assert delivery["accepted"] == delivery["delivered"] > 10
    assert (delivery["undelivered_at_end"], delivery["duplicates"]) == (0, 0)
    (log,) = map(read_log, (place / "out" / "logs").glob("*.1.tlog"))
    return score, log


def test_a_run_with_short_sessions_does_its_work(tmp_path: Path) -> None:
    """Each log-on has its log-off, and results name the programs."""
    score, log = run_of(tmp_path, ("phone", "webmail"), limits={"drain": "2s"})
    assert list(score["by_protocol"]) == ["imap/phone", "imap/webmail"]
    commands = Counter(log.strings[command] for command in log.commands["command"])
    tasks = Counter(log.strings[task] for task in log.tasks["task"])
    assert commands["IMAP LOGOUT"] == commands["IMAP CONNECT"] > tasks["READ"] + tasks["BROWSE"] > 10
    assert not commands["IMAP IDLE"]


def test_a_run_over_several_connections_does_its_work(tmp_path: Path, dovecot_postfix: StartDovecotPostfix) -> None:
    """Users with up to five connections, and with two: each log-on has its log-off."""
    two = program_of(tmp_path, "thunderbird", "two", connections=2)
    score, log = run_of(tmp_path, ("thunderbird", two), dovecot_postfix)
    assert list(score["by_protocol"]) == ["imap/thunderbird", "imap/two"]
    made = Counter(
        user
        for command, user in zip(log.commands["command"], log.commands["user"], strict=True)
        if log.strings[command] == "IMAP CONNECT"
    )
    assert max(made.values()) == 5
    assert sorted(made.values())[:2] == [2, 2]
    commands = Counter(log.strings[command] for command in log.commands["command"])
    assert commands["IMAP LOGOUT"] == made.total()


def test_companions_load_the_server_and_are_in_no_task(tmp_path: Path, dovecot_postfix: StartDovecotPostfix) -> None:
    """One companion waits by IDLE and prefetches, one looks each two seconds; each log-on has its log-off."""
    often = program_of(tmp_path, "phone", "often", poll="2s")
    programs = (["outlook-like", "thunderbird"], ["outlook-like", often])
    score, log = run_of(tmp_path, programs, dovecot_postfix)
    assert list(score["by_protocol"]) == ["imap/outlook-like+often", "imap/outlook-like+thunderbird"]
    companions = score["companions"]
    assert (companions["count"], companions["failures"], companions["down_share"]) == (4, 0, 0)
    assert companions["looks"] >= 2 * 9
    assert companions["log_ons"] == companions["looks"] + 4 + 2
    assert 0 < companions["listed"] <= score["delivery"]["delivered"]
    commands = Counter(log.strings[command] for command in log.commands["command"])
    assert commands["IMAP LOGOUT"] == commands["IMAP CONNECT"] == 4 + companions["log_ons"]
    tasks = Counter(log.strings[task] for task in log.tasks["task"])
    assert tasks["LOGON"] == tasks["LOGOFF"] == 4
    assert log.header.programs == "outlook-like+often, outlook-like+thunderbird"
