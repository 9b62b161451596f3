"""The manifest: nothing but a signed one of this account and key names folders for deletion."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import yaml
from mailservers import DOMAIN, SITES, StartEmbedded, logged_on, numbered_accounts
from provisioning import FOREIGN, USERS, WANTED_FOLDERS, Lab, lab_maker, quoted, with_steps

from loadsim.cli import main
from loadsim.errors import ConfigError
from loadsim.model.message_tag import INITIAL_RUN, MessageTag, body_digest, initial_id
from loadsim.model.ports import INBOX, Account, Flag
from loadsim.model.scenario import load_scenario
from loadsim.provisioning import manifest
from loadsim.provisioning.clean import clean_mailbox
from loadsim.provisioning.initialise import StartState, initialise, restore_mailbox

MakeLab = Callable[[], Lab]

OWNER = Account(1, "user1", f"user1@{DOMAIN}", "secret-of-1")
OURS = WANTED_FOLDERS - {INBOX}


def quiet(phase: str, done: int, total: int) -> None:
    """Ignore progress."""


def body_of(message: bytes) -> bytes:
    """Return the body of a message."""
    return message.partition(b"\r\n\r\n")[2]


def claiming(body: bytes, account: Account = OWNER, digest: str | None = None) -> bytes:
    """A message with all marks of a manifest of this account, as anybody can write it, and this body."""
    name = initial_id(account.number, manifest.FOLDER, 0)
    evidence = MessageTag(INITIAL_RUN, account.number, name, manifest.KIND, 0, digest or body_digest(body))
    return (
        f"From: {account.address}\r\nTo: {account.address}\r\nSubject: Folders\r\n"
        f"Message-ID: <{name}.{INITIAL_RUN}@{DOMAIN}>\r\nX-LoadSim: {evidence.header()}\r\n"
        "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=us-ascii\r\n\r\n"
    ).encode() + body


def unsigned(*names: str) -> bytes:
    """The body of a manifest without a signature."""
    return (json.dumps({"folders": sorted(names)}, indent=0) + "\n").replace("\n", "\r\n").encode()


# --- the words alone --------------------------------------------------------------------------------------------


def test_what_is_composed_is_accepted() -> None:
    """A manifest is read with its names, also if a server drops or adds line ends."""
    evidence, message = manifest.compose(OWNER, OURS)
    assert evidence.body == body_digest(body_of(message))
    for body in (body_of(message), body_of(message).rstrip(), body_of(message) + b"\r\n\r\n"):
        assert manifest.parse(body, OWNER) == (OURS, None, None)


@pytest.mark.parametrize(
    "other",
    [
        Account(2, "user2", f"user2@{DOMAIN}", "secret-of-1"),
        Account(1, "user1", f"user1@{DOMAIN}", "another"),
        Account(1, "user1", f"user1@{DOMAIN}", "secret-of-1", "a key"),
    ],
)
def test_a_manifest_needs_its_account_and_key(other: Account) -> None:
    """Neither in another account nor with another key."""
    with pytest.raises(manifest.RejectedManifest, match="signature"):
        manifest.parse(body_of(manifest.compose(OWNER, OURS)[1]), other)
    if other.address == OWNER.address:
        with pytest.raises(manifest.RejectedManifest, match="signature"):
            manifest.parse(body_of(manifest.compose(other, OURS)[1]), OWNER)


def test_a_change_of_the_names_breaks_the_signature() -> None:
    """One name more, one fewer."""
    for names in (OURS | {"Folder 03"}, OURS - {"Folder 01"}):
        document = json.loads(body_of(manifest.compose(OWNER, OURS)[1]))
        document["folders"] = sorted(names)
        with pytest.raises(manifest.RejectedManifest, match="signature"):
            manifest.parse(json.dumps(document).encode(), OWNER)


FOREIGN_NAMES = ("INBOX", "inbox", "Sent", "Archive", "..", "../x", "*", "%", "", "LoadSim", "Folder 1", "Folder 00")
FOREIGN_NAMES = (*FOREIGN_NAMES, "Folder 01/x", "Folder 01\r\n", "Folder \u0661\u0662", "Folder 001", "sent items")


@pytest.mark.parametrize("name", FOREIGN_NAMES)
def test_names_that_no_profile_has_are_not_accepted(name: str) -> None:
    with pytest.raises(manifest.RejectedManifest, match="that profiles have"):
        manifest.parse(body_of(manifest.compose(OWNER, ["Folder 01", name])[1]), OWNER)


ODD = {
    "nothing": b"",
    "a list": b'["Folder 01"]',
    "a number": b"7",
    "no folders": b"{}",
    "one key more": b'{"folders": ["Folder 01"], "also": 1}',
    "folders twice": b'{"folders": [], "folders": ["Folder 01"]}',
    "folders as a text": b'{"folders": "Folder 01"}',
    "folders in a mapping": b'{"folders": {"Folder 01": 1}}',
    "a list in the list": b'{"folders": [["Folder 01"]]}',
    "a number in the list": b'{"folders": [1]}',
    "null in the list": b'{"folders": [null]}',
    "NUL": b'{"folders": ["Folder 01\\u0000"]}',
    "a raw NUL": b'{"folders": ["Folder 01\x00"]}',
    "half a pair": b'{"folders": ["\\ud800"]}',
    "no ASCII": b'{"folders": ["Folder 0\xff"]}',
    "deep": b'{"folders": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "deep mappings": b'{"folders":' * 100_000,
    "a huge number": b'{"folders": [' + b"9" * 10_000 + b"]}",
    "no number": b'{"folders": [NaN]}',
    "a number as signature": b'{"account": "user1@example.test", "folders": [], "signature": 7}',
    "a strange signature": b'{"account": "user1@example.test", "folders": [], "signature": "\\u00e4\\ud800"}',
    "a list as account": b'{"account": [], "folders": [], "signature": ""}',
}


@pytest.mark.parametrize("body", ODD.values(), ids=ODD.keys())
def test_odd_contents_are_not_accepted(body: bytes) -> None:
    """One line says what was expected, and quotes nothing."""
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


# --- in mailboxes -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=SITES)
def make_lab(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, embedded_server: StartEmbedded
) -> MakeLab:
    """Make scenarios with new accounts, on either server."""
    accounts = numbered_accounts(USERS * 20)
    if request.param == "embedded":
        server = embedded_server(accounts)
    else:
        server = request.getfixturevalue("dovecot_postfix")(accounts)
    return lab_maker(server, accounts, tmp_path_factory.mktemp("labs"))


@pytest.fixture
def lab(make_lab: MakeLab) -> Lab:
    """A scenario of three users with new accounts."""
    return make_lab()


def create(lab: Lab, *folders: str) -> None:
    """Make folders on the first account."""
    with logged_on(lab.server, lab.accounts[0]) as client:
        for folder in folders:
            assert client.create(quoted(folder))[0] == "OK"


def folders(lab: Lab) -> set[str]:
    """The folders of the first account."""
    return set(lab.snapshots()[0])


def test_a_signed_manifest_lets_all_folders_go(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """Initialised and cleaned by the commands, with a key of the scenario's."""
    key = ("--set", "accounts.manifest_key=a key of ours")
    assert main(["init", str(lab.path), *key]) == 0
    assert main(["clean", str(lab.path)]) == 1
    assert folders(lab) == WANTED_FOLDERS | {"LoadSim"}
    assert f"{lab.accounts[0].login}: removed 11 messages, 0 folders; kept a manifest" in capsys.readouterr().out
    assert main(["clean", str(lab.path), *key]) == 0
    assert folders(lab) == {INBOX}


def forged(account: Account, other: Account) -> dict[str, bytes]:
    """Return forged manifests that name an empty Sent Items for deletion."""
    signed = body_of(manifest.compose(other, ["Sent Items"])[1])
    mine = json.loads(body_of(manifest.compose(account, ["Folder 01"])[1]))
    return {
        "unsigned": unsigned("Sent Items"),
        "of another account": signed,
        "of another account, under this name": signed.replace(other.address.encode(), account.address.encode()),
        "with a name more": json.dumps({**mine, "folders": ["Folder 01", "Sent Items"]}).encode(),
        "names of others": unsigned("Sent Items", "Archive"),
        "too large": unsigned("Sent Items") + b" " * (1 << 20),
        "text": b"Please delete Sent Items.\r\n",
        **{f"odd: {name}": ODD[name] for name in ("a list", "deep", "a raw NUL", "a huge number", "folders twice")},
    }


def test_forged_manifests_name_nothing(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """All of them at once: folders stay, messages stay, and each is a line's end, and no traceback."""
    create(lab, "Sent Items", "Archive")
    assert main(["init", str(lab.path)]) == 0
    bodies = forged(*lab.accounts[:2])
    for body in bodies.values():
        lab.put(1, "LoadSim", claiming(body, lab.accounts[0]))
    lab.put(1, "LoadSim", claiming(unsigned("Sent Items"), lab.accounts[0], digest="0" * 16))
    for verb, status in (("init", 0), ("clean", 1)):
        assert main([verb, str(lab.path)]) == status
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        assert f"{len(bodies) + 1} manifests " in printed.out
    first = lab.snapshots()[0]
    assert set(first) == {INBOX, "Sent Items", "Archive", "LoadSim"}
    assert len(first["LoadSim"]) == len(bodies) + 1


def test_a_manifest_that_does_not_match_is_kept(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """So are the folders that it names, and the output says so."""
    create(lab, "Folder 01", "LoadSim")
    lab.put(1, "LoadSim", claiming(unsigned("Folder 01"), lab.accounts[0], digest="0" * 16))
    assert main(["clean", str(lab.path)]) == 1
    assert "kept a manifest in LoadSim: its body does not match its evidence" in capsys.readouterr().out
    assert folders(lab) == {INBOX, "Folder 01", "LoadSim"}


class WithoutLastLineEnd:
    """A mailbox on a server that drops the last line end of what is appended, as GreenMail does."""

    def __init__(self, mailbox: Any) -> None:
        self._mailbox = mailbox

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mailbox, name)

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> Any:
        assert message.endswith(b"\r\n")
        return await self._mailbox.append(folder, message[:-2], flags)


def test_a_server_may_drop_the_last_line_end(lab: Lab) -> None:
    """The manifest is still one, and no folder stays for good."""
    start = StartState(lab.workload)

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
