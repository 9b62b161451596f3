"""The manifest: nothing but a signed one of this account and key names folders for deletion."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from mailservers import DOMAIN, logged_on
from provisioning import FOREIGN, WANTED_FOLDERS, Lab, Wrapped, quiet, quoted, with_steps

from loadsim.cli import main
from loadsim.errors import ConfigError
from loadsim.model.message_tag import INITIAL_RUN, MessageTag, body_digest, initial_id
from loadsim.model.ports import INBOX, Account, Flag
from loadsim.model.provisioning_ports import Stored
from loadsim.provisioning import manifest
from loadsim.provisioning.clean import clean_mailbox
from loadsim.provisioning.holder import Holder
from loadsim.provisioning.initialise import initialise, restore_mailbox
from loadsim.provisioning.manifest import Body, Manifest
from loadsim.provisioning.sessions import accounts_on_server
from loadsim.provisioning.start_state import StoredState
from loadsim.scenario.scenario import load_scenario

OWNER = Account(1, "user1", f"user1@{DOMAIN}", "secret-of-1")
OURS = WANTED_FOLDERS - {INBOX}


def body_of(message: bytes) -> bytes:
    return message.partition(b"\r\n\r\n")[2]


def claiming(body: bytes, account: Account = OWNER, digest: str | None = None) -> bytes:
    """A message with all marks of a manifest of this account, as anybody can write it, and this body."""
    name = initial_id(account.number, manifest.FOLDER, 0)
    tag = MessageTag(INITIAL_RUN, account.number, name, manifest.KIND, 0, digest or body_digest(body))
    return (
        f"From: {account.address}\r\nTo: {account.address}\r\nSubject: Folders\r\n"
        f"Message-ID: <{name}.{INITIAL_RUN}@{DOMAIN}>\r\nX-LoadSim: {tag.header()}\r\n"
        "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=us-ascii\r\n\r\n"
    ).encode() + body


def unsigned(*names: str) -> bytes:
    return (json.dumps({"folders": sorted(names)}, indent=0) + "\n").replace("\n", "\r\n").encode()


def signed(account: Account, /, **changed: Any) -> bytes:
    """The body of a manifest with these values, None to leave out, as the holder of the key can sign it."""
    content = {"account": account.address, "first_account": account.address, "folders": ["Folder 01"], **changed}
    content = {key: value for key, value in content.items() if value is not None}
    return json.dumps({**content, "signature": manifest._signature(account, content)}).encode()


def test_a_composed_manifest_is_accepted() -> None:
    """A manifest is read with its names, also if a server drops or adds line ends."""
    tag, message = manifest.compose(OWNER, OURS)
    assert tag.body == body_digest(body_of(message))
    for body in (body_of(message), body_of(message).rstrip(), body_of(message) + b"\r\n\r\n"):
        assert manifest.parse(body, OWNER) == (OURS, OWNER.address, None, None)


@pytest.mark.parametrize("accounts", ["user{index}", "csv"])
def test_the_manifest_names_the_scenarios_first_account(accounts: str, tmp_path: Path) -> None:
    """It does not depend on the users that a machine or process prepares."""
    (tmp_path / "csv").write_text("user,password\nuser1,a\nuser2,b\nuser3,c\n")
    named = f"accounts={{csv: {tmp_path / 'csv'}}}" if accounts == "csv" else f"accounts.user={accounts}"
    scenario = load_scenario("medium", [named, "topology.0.users=3", f"domain={DOMAIN}"])
    for account in accounts_on_server(scenario, [2, 3]):
        body = body_of(manifest.compose(account, OURS)[1])
        assert manifest.parse(body, account).first_account == f"user1@{DOMAIN}"


@pytest.mark.parametrize("own_place", [0, 1])
def test_the_first_manifest_decides(own_place: int) -> None:
    """Of two processes that write one at the same time, one goes on."""
    found = [Manifest(cast(Stored, None), Body(frozenset(), f"user{number}@{DOMAIN}")) for number in (2, 3)]
    found.insert(own_place, found[0]._replace(body=Body(frozenset(), OWNER.address)))
    with nullcontext() if own_place == 0 else pytest.raises(manifest.AccountTaken):
        manifest.refuse_taken(OWNER, found)


@pytest.mark.parametrize(
    "other",
    [
        Account(2, "user2", f"user2@{DOMAIN}", "secret-of-1"),
        Account(1, "user1", f"user1@{DOMAIN}", "another"),
        Account(1, "user1", f"user1@{DOMAIN}", "secret-of-1", "a key"),
    ],
)
def test_a_manifest_needs_its_account_and_key(other: Account) -> None:
    with pytest.raises(manifest.RejectedManifest, match="signature"):
        manifest.parse(body_of(manifest.compose(OWNER, OURS)[1]), other)
    if other.address == OWNER.address:
        with pytest.raises(manifest.RejectedManifest, match="signature"):
            manifest.parse(body_of(manifest.compose(other, OURS)[1]), OWNER)


def test_a_change_of_the_names_breaks_the_signature() -> None:
    for names in (OURS | {"Folder 03"}, OURS - {"Folder 01"}):
        document = json.loads(body_of(manifest.compose(OWNER, OURS)[1]))
        document["folders"] = sorted(names)
        with pytest.raises(manifest.RejectedManifest, match="signature"):
            manifest.parse(json.dumps(document).encode(), OWNER)


FOREIGN_NAMES = ("INBOX", "inbox", "Sent", "Archive", "..", "../x", "*", "%", "", "LoadSim", "Folder 1", "Folder 00")
FOREIGN_NAMES = (*FOREIGN_NAMES, "Folder 01/x", "Folder 01\r\n", "Folder \u0661\u0662", "Folder 001", "sent items")


@pytest.mark.parametrize("name", FOREIGN_NAMES)
def test_folder_names_of_no_profile_are_rejected(name: str) -> None:
    with pytest.raises(manifest.RejectedManifest, match="expected folder names from profiles"):
        manifest.parse(body_of(manifest.compose(OWNER, ["Folder 01", name])[1]), OWNER)


ODD = {
    "nothing": b"",
    "a list": b'["Folder 01"]',
    "folders twice": signed(OWNER).replace(b"{", b'{"folders": [], ', 1),
    "a raw NUL": signed(OWNER).replace(b"01", b"01\x00"),
    "no ASCII": signed(OWNER).replace(b"01", b"0\xff"),
    "deep": b'{"folders": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "deep mappings": b'{"folders":' * 100_000,
    "a huge number": signed(OWNER).replace(b'["Folder 01"]', b"9" * 10_000),
    "no number": signed(OWNER).replace(b'"Folder 01"', b"NaN"),
    "a number as signature": b'{"account": "", "first_account": "", "folders": [], "signature": 7}',
    "a strange signature": b'{"account": "", "first_account": "", "folders": [], "signature": "\\u00e4\\ud800"}',
}
HOLDER = {"work": "run", "host": "h", "process": "p", "since_s": 0, "until_s": 1 << 37}
SIGNED: dict[str, dict[str, Any]] = {
    "folders as a text": {"folders": "Folder 01"},
    "folders in a mapping": {"folders": {"Folder 01": 1}},
    "a list in the list": {"folders": [["Folder 01"]]},
    "a number in the list": {"folders": [1]},
    "half a pair": {"folders": ["\ud800"]},
    "a list as account": {"account": []},
    "no first account": {"first_account": None},
    "a number as first account": {"first_account": 7},
    "a long first account": {"first_account": "x" * 321},
    "two lines": {"first_account": "a\nb"},
    "right to left": {"first_account": "a\u202eb"},
    "one key more": {"also": 1},
    "a list as holder": {"holder": []},
    "a host of two lines": {"holder": {**HOLDER, "host": "a\nb"}},
    "no instant": {"holder": {**HOLDER, "since_s": "x"}},
    "an instant after the year 9999": {"holder": {**HOLDER, "since_s": 1 << 38}},
    "a holder without process": {"holder": {"work": "run"}},
    "a key more in the holder": {"holder": {**HOLDER, "also": 1}},
    "no digest": {"start_state": {"status": {}}},
    "a short status": {"start_state": {"digest": "", "status": {"INBOX": [1, 2, 3, 4]}}},
    "a text in the status": {"start_state": {"digest": "", "status": {"INBOX": [1, 2, 3, 4, "5"]}}},
}


def test_a_signed_manifest_with_a_holder_is_accepted() -> None:
    body = signed(OWNER, holder=HOLDER, start_state={"digest": "d", "status": {"INBOX": [1, 2, 3, 4, None]}})
    assert manifest.parse(body, OWNER).holder == Holder(**HOLDER)  # type: ignore[arg-type]
    assert str(manifest.parse(body, OWNER).holder).endswith("Z)")


@pytest.mark.parametrize(
    "body", [*ODD.values(), *(signed(OWNER, **each) for each in SIGNED.values())], ids=[*ODD, *SIGNED]
)
def test_malformed_contents_are_rejected(body: bytes) -> None:
    """Even signed, since a server has the password. One line says what was expected, and quotes nothing."""
    with pytest.raises(manifest.RejectedManifest) as said:
        manifest.parse(body, OWNER)
    assert len(str(said.value)) < 120
    assert str(said.value).isprintable()


def test_the_key_is_never_shown(tmp_path: Any) -> None:
    """Neither in a scenario that is written down, nor in an error, nor in what Python shows of an account."""
    path = tmp_path / "s.yaml"
    scenario = {
        "server": {"imap": {"host": "127.0.0.1", "port": 1}, "smtp": {"host": "127.0.0.1", "port": 2}},
        "accounts": {"user": "u{index}", "password": "p", "manifest_key": "hush-hush"},
        "topology": [{"profile": "loadsim-5.5/medium", "users": 1}],
    }
    path.write_text(yaml.safe_dump(scenario))
    loaded = load_scenario(str(path))
    assert loaded.account(1).manifest_key == "hush-hush"
    assert "manifest_key: '***'" in loaded.to_yaml()
    assert "hush" not in loaded.to_yaml() + repr(loaded) + repr(loaded.account(1))
    with pytest.raises(ConfigError) as refused:
        load_scenario(str(path), ["accounts.manifest_key=[hush-hush]"])
    assert "hush" not in str(refused.value)
    table = tmp_path / "accounts.csv"
    table.write_text("user,password\nu1,p\n")
    path.write_text(yaml.safe_dump({**scenario, "accounts": {"csv": str(table), "manifest_key": "hush-hush"}}))
    assert load_scenario(str(path)).account(1).manifest_key == "hush-hush"
    assert "hush" not in load_scenario(str(path)).to_yaml()


def create(lab: Lab, *folders: str) -> None:
    with logged_on(lab.server, lab.accounts[0]) as client:
        for folder in folders:
            assert client.create(quoted(folder))[0] == "OK"


def folders(lab: Lab) -> set[str]:
    return set(lab.snapshots()[0])


def test_a_signed_manifest_allows_removing_all_folders(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """Initialised and cleaned by the commands, with a key of the scenario's."""
    key = ("--set", "accounts.manifest_key=a key of ours")
    assert main(["init", str(lab.path), *key]) == 0
    before = lab.snapshots()
    for verb in ("clean", "init"):  # who has put it there may be at work
        assert main([verb, str(lab.path)]) == 2
        assert f"account {lab.accounts[0].login} " in capsys.readouterr().err
        assert lab.snapshots() == before
    assert folders(lab) == WANTED_FOLDERS | {"LoadSim"}
    assert main(["clean", str(lab.path), *key]) == 0
    assert folders(lab) == {INBOX}


def test_manifests_of_another_form_are_refused(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is changed, by no command; the line has the remedy."""
    old = claiming(signed(lab.accounts[0], first_account=None), lab.accounts[0])
    create(lab, *OURS, "LoadSim")
    lab.put(1, "LoadSim", old)
    login = lab.accounts[0].login
    why = "expected this version's form: run clean with the version that wrote it, or delete it by hand"
    for command in (["init"], ["clean"], ["clean", "--dry-run"]):
        assert main([*command, str(lab.path)]) == 2
        said = capsys.readouterr().err
        assert why in said and login in said
        first = lab.snapshots()[0]
        assert set(first) == OURS | {INBOX, "LoadSim"}
        assert [each.message for each in first["LoadSim"]] == [old]


def forged(account: Account, other: Account) -> dict[str, bytes]:
    others = body_of(manifest.compose(replace(other, first_address=""), ["Sent Items"])[1])
    mine = json.loads(body_of(manifest.compose(account, ["Folder 01"])[1]))
    return {
        "unsigned": unsigned("Sent Items"),
        "of other accounts": others,
        "of another account, under this name": others.replace(other.address.encode(), account.address.encode()),
        "with a name more": json.dumps({**mine, "folders": ["Folder 01", "Sent Items"]}).encode(),
        "names of others": unsigned("Sent Items", "Archive"),
        "too large": unsigned("Sent Items") + b" " * (1 << 20),
        "text": b"Please delete Sent Items.\r\n",
        **{f"odd: {name}": ODD[name] for name in ("a list", "deep", "a raw NUL", "a huge number", "folders twice")},
    }


def test_forged_manifests_name_no_folder(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """Each alone, and all of them: folders stay, messages stay."""
    create(lab, "Sent Items", "Archive")
    assert main(["init", str(lab.path)]) == 0
    bodies = forged(*lab.accounts[:2])
    claims = [claiming(body, lab.accounts[0]) for body in bodies.values()]
    claims.append(claiming(unsigned("Sent Items"), lab.accounts[0], digest="0" * 16))
    for claim in claims:
        lab.put(1, "LoadSim", claim)
        before = lab.snapshots()
        for verb in ("init", "clean"):
            assert main([verb, str(lab.path)]) == 2
            assert "Traceback" not in capsys.readouterr().err
            assert lab.snapshots() == before


class WithoutLastLineEnd(Wrapped):
    """A mailbox on a server that drops the last line end of what is appended, as GreenMail does."""

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> Any:
        assert message.endswith(b"\r\n")
        return await self._mailbox.append(folder, message[:-2], flags)


def test_a_server_may_drop_the_last_line_end(lab: Lab) -> None:
    """The manifest is still one, and no folder stays for good."""
    start = StoredState(lab.workload)

    async def work(account: Account, mailbox: Any) -> None:
        await restore_mailbox(account, WithoutLastLineEnd(mailbox), start, from_scratch=False)
        cleaned = await clean_mailbox(account, mailbox, dry_run=False)
        assert set(cleaned.folders) == OURS | {"LoadSim"}

    assert asyncio.run(with_steps(lab, lab.accounts[0], 100, work))
    assert folders(lab) == {INBOX}


@pytest.mark.slow
def test_foreign_mail_keeps_the_manifest_s_folder(lab: Lab) -> None:
    """The manifest goes from it, and so do the folders that it names."""
    asyncio.run(initialise(lab.workload, lab.services, "auto", quiet))
    lab.put(1, "LoadSim", FOREIGN % 1)
    assert main(["clean", str(lab.path)]) == 0
    assert {name: len(found) for name, found in lab.snapshots()[0].items()} == {INBOX: 0, "LoadSim": 1}
