"""The address book by LDAP: users' look-ups in slapd, alone and in a run."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from address_books import BASE, BIND_DN, AddressBookServer, slapd
from imap_script import Ear
from mailservers import StartEmbedded, numbered_accounts, short_directory
from skipping import turns
from small_runs import on, population_of, written
from virtual_runs import quiet

from loadsim.errors import TaskFailed
from loadsim.model.ports import Account, Endpoint
from loadsim.model.records import OUTCOMES
from loadsim.protocols.ldap.directory import SUGGESTIONS, LdapDirectories, LdapDirectory
from loadsim.runs.local import run_locally
from loadsim.scenario.scenario import load_scenario
from loadsim.timinglog.merge import read_logs
from loadsim.users.tasks import NO_ENTRY

pytestmark = [pytest.mark.system, pytest.mark.slow]

ACCOUNTS = numbered_accounts(SUGGESTIONS + 5)


@pytest.fixture(scope="module")
def book() -> Iterator[AddressBookServer]:
    with short_directory() as directory, slapd(directory, ACCOUNTS) as server:
        yield server


@pytest.fixture
def ear() -> Ear:
    return Ear()


def directory_of(server: AddressBookServer, ear: Ear, account: Account = ACCOUNTS[0], **keys: Any) -> LdapDirectory:
    endpoint = Endpoint("127.0.0.1", server.port, path=BASE)
    return LdapDirectories(replace(endpoint, **keys), 60.0).of(account, ear)


async def failure_of(directory: LdapDirectory, address: str) -> TaskFailed:
    with pytest.raises(TaskFailed) as raised:
        await directory.resolve([address])
    await directory.close()
    return raised.value


async def test_users_search_as_they_type_then_for_the_whole_address(book: AddressBookServer, ear: Ear) -> None:
    """More entries match what was typed than the program asks for, which is no failure, as for OpenLDAP's client."""
    directory, before = directory_of(book, ear, bind_dn=BIND_DN), len(book.searches())
    await directory.resolve([ACCOUNTS[6].address, ACCOUNTS[2].address.upper()])
    await directory.close()
    typed = "(|(cn=use*)(mail=use*))"
    sent = book.searches()[before:]
    assert [each.lower() for each in sent] == [
        typed,
        f"(mail={ACCOUNTS[6].address})",
        typed,
        f"(mail={ACCOUNTS[2].address})",
    ]
    assert [(name, outcome) for name, outcome, *_ in ear.commands] == [
        ("LDAP CONNECT", "ok"),
        ("LDAP BIND", "ok"),
        *[("LDAP SEARCH", "ok")] * 4,
    ]
    command = ["ldapsearch", "-x", "-LLL", "-H", f"ldap://127.0.0.1:{book.port}", "-b", BASE, "-z", str(SUGGESTIONS)]
    oracle = subprocess.run([*command, typed, "mail"], capture_output=True, text=True, check=False)  # noqa: ASYNC221
    assert (oracle.returncode, oracle.stdout.count("mail: ")) == (4, SUGGESTIONS)


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({"path": "ou=nowhere,dc=example,dc=test"}, "32 SEARCH"),
        ({"path": "not a name"}, "34 SEARCH"),
        ({"bind_dn": f"uid=wrong-{{user}},{BASE}"}, "49 BIND"),
    ],
)
async def test_a_refusal_has_the_result_code(
    book: AddressBookServer, ear: Ear, keys: dict[str, Any], kind: str
) -> None:
    failure = await failure_of(directory_of(book, ear, **keys), "nobody@example.test")
    assert (failure.kind, failure.outcome) == (kind, "refused")


async def test_a_name_with_special_characters_is_one_name(tmp_path: Path, ear: Ear) -> None:
    account = Account(1, "o=x+,y", "one@example.test", "secret")
    entry = replace(account, login="o\\=x\\+\\,y")
    with short_directory() as directory, slapd(directory, [entry]) as server:
        book = directory_of(server, ear, account, bind_dn=BIND_DN)
        assert await book.resolve(["nobody@example.test", account.address]) == ["nobody@example.test"]
        await book.close()


async def test_a_connection_that_has_ended_is_made_again(ear: Ear) -> None:
    with short_directory() as first, slapd(first, ACCOUNTS) as server:
        directory = directory_of(server, ear)
        await directory.resolve([ACCOUNTS[1].address])
    await turns(100)
    failure = await failure_of(directory, ACCOUNTS[1].address)
    assert failure.kind == "connection refused"
    assert [name for name, *_ in ear.commands].count("LDAP CONNECT") == 2


def run_with_book(
    start: StartEmbedded, place: Path, profile: dict[str, Any], lacking: int = 0, **changes: Any
) -> tuple[Path, list[Account], list[str]]:
    """Run three users, with a book that lacks the last of them; return the run, the users, and all searches."""
    (place / "users.yaml").write_text(json.dumps({"name": "users", **profile}))
    fixed = {"topology": [{"profile": str(place / "users.yaml"), "users": 3}], "lists": {"count": 0}} | changes
    accounts, lists = population_of(load_scenario(str(written(place / "small.yaml", **fixed))))
    keys = on(start(accounts, lists).services)
    with short_directory() as directory, slapd(directory, accounts[: len(accounts) - lacking]) as book:
        keys["server"]["ldap"] = {"url": book.url} | ({} if lacking else {"bind_dn": BIND_DN})
        scenario = load_scenario(str(written(place / "on.yaml", **fixed, **keys)))
        run_locally(scenario, place / "out")
        return place / "out", list(accounts), book.searches()


def test_a_run_looks_up_the_recipients_of_new_and_forwarded_mail(
    embedded_server: StartEmbedded, tmp_path: Path
) -> None:
    """slapd's own count of searches is the log's: two for each recipient, and two before the run."""
    profile = quiet(new_mail={"per_day": 30}, process_inbox={"per_day": 10}, after_reading={"forward": "30%"})
    out, _, searches = run_with_book(embedded_server, tmp_path, profile)
    tasks = json.loads((out / "score.json").read_text())["load"]["tasks"]
    assert tasks["RESOLVE"]["planned"] == tasks["SEND"]["planned"] + tasks["FORWARD"]["planned"] > 10
    assert tasks["RESOLVE"]["made"] == pytest.approx(tasks["RESOLVE"]["planned"], abs=5)
    log = read_logs([out])
    sent = [log.strings[command] for command in log.commands["command"]]
    assert len(searches) - 2 == sent.count("LDAP SEARCH") >= 2 * tasks["RESOLVE"]["made"]


def test_a_user_needs_an_entry_and_a_list_does_not(embedded_server: StartEmbedded, tmp_path: Path) -> None:
    """Only the look-ups of the user whom the book lacks fail, as slapd's log has them."""
    profile = quiet(new_mail={"per_day": 30, "list_chance": "40%"})
    lists = {"count": 1, "size": {"min": 2, "average": 2, "max": 2}}
    out, accounts, searches = run_with_book(embedded_server, tmp_path, profile, 1, lists=lists)
    log = read_logs([out])
    tasks = log.tasks[log.tasks["task"] == log.strings.index("RESOLVE")]
    failed = tasks[tasks["outcome"] == OUTCOMES.index("refused")]
    assert {log.strings[kind] for kind in failed["error"]} == {NO_ENTRY}
    asked = searches.count(f"(mail={accounts[-1].address})")
    assert 0 < len(failed) <= asked <= len(failed) + len(accounts)  # the end of the run may cut off one of each user
    assert any(search.startswith("(mail=list-") for search in searches)
    assert OUTCOMES.index("ok") in tasks["outcome"]
