"""The names of folders on servers of other conventions, and back."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadsim.errors import ProtocolError, ServerRefused
from loadsim.model.ports import CALENDAR, DELETED_ITEMS, INBOX, OF_SERVER, PUBLIC, SENT_ITEMS, FolderSettings
from loadsim.protocols.imap.folder_names import FolderNames, names_of, read_names
from loadsim.protocols.imap.grammar import parse
from loadsim.protocols.imap.responses import ListEntry, Namespace, Namespaces, Response

CYRUS = b'* NAMESPACE (("INBOX." ".")) (("user." ".")) (("" "."))'
CYRUS_ALT = b'* NAMESPACE (("" "/")) (("Other Users/" "/")) (("Shared Folders/" "/"))'
COURIER = b'* NAMESPACE (("INBOX." ".")) NIL (("#shared." ".")("shared." "."))'
JAMES = b'* NAMESPACE (("" ".")) NIL NIL'


def named(line: bytes, settings: FolderSettings = OF_SERVER, uses: Sequence[tuple[str, str]] = ()) -> FolderNames:
    found = parse(line)
    assert isinstance(found, Namespaces)
    return names_of(settings, found, tuple(uses))


@pytest.mark.parametrize(
    ("line", "folder", "name"),
    [
        (CYRUS, "Sent Items", "INBOX.Sent Items"),
        (CYRUS, "Folder 01/Folder 02", "INBOX.Folder 01.Folder 02"),
        (CYRUS_ALT, "Folder 01/Folder 02", "Folder 01/Folder 02"),
        (COURIER, "LoadSim", "INBOX.LoadSim"),
        (JAMES, "Folder 01/Folder 02", "Folder 01.Folder 02"),
        (CYRUS, INBOX, "INBOX"),
        (CYRUS, "%=INBOX", "INBOX.INBOX"),
        (JAMES, "a%2Fb/100%25", "a/b.100%"),
    ],
)
def test_folders_and_server_names_are_mapped_both_ways(line: bytes, folder: str, name: str) -> None:
    names = named(line)
    assert names.on_server(folder) == name
    assert names.folder(name) == folder


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (CYRUS, "user.other"),
        (CYRUS, "shared.of.all"),
        (CYRUS_ALT, "Other Users/fred"),
        (CYRUS_ALT, "Shared Folders/all"),
        (COURIER, "#shared.all"),
        (CYRUS, "INBOX."),
    ],
)
def test_folders_of_other_users_are_ignored(line: bytes, name: str) -> None:
    """They are neither listed nor counted, and so never deleted."""
    assert named(line).folder(name) is None


@pytest.mark.parametrize(
    ("line", "name"), [(CYRUS, "Board.News"), (CYRUS_ALT, "Shared Folders/Board/News"), (COURIER, "#shared.Board.News")]
)
def test_the_public_folder_is_below_the_first_shared_namespace(line: bytes, name: str) -> None:
    """It has no other way back: it is no folder of a mailbox."""
    names = named(line, FolderSettings(public="Board/News"))
    assert names.on_server(PUBLIC) == name
    assert names.folder(name) is None


def test_without_a_shared_namespace_there_is_no_public_folder() -> None:
    with pytest.raises(ServerRefused, match="no shared namespace"):
        named(JAMES, FolderSettings(public="Board")).on_server(PUBLIC)


def test_a_folder_of_that_name_is_another() -> None:
    """A mailbox may have a folder that is named like the public one."""
    names = named(CYRUS_ALT, FolderSettings(public="Board"))
    own = names.folder(PUBLIC)
    assert own is not None and own != PUBLIC
    assert names.on_server(own) == PUBLIC


def test_inbox_is_found_in_any_case() -> None:
    assert named(CYRUS).folder("inbox") == INBOX


def test_special_uses_name_sent_and_trash() -> None:
    """The folder whose plain name is taken stays addressable: its path does not change with special uses."""
    names = named(CYRUS, uses=[("INBOX.Sent", "\\sent"), ("INBOX.Trash", "\\trash")])
    assert names.on_server(SENT_ITEMS) == "INBOX.Sent"
    assert names.on_server(DELETED_ITEMS) == "INBOX.Trash"
    assert names.folder("INBOX.Sent") == SENT_ITEMS
    aside = names.folder("INBOX.Sent Items")
    assert aside == "%=Sent Items"
    assert names.path(aside) == SENT_ITEMS
    assert names.folder_at(SENT_ITEMS) == aside
    assert names.path(SENT_ITEMS) == "Sent"


@pytest.mark.parametrize("name", ["INBOX", "INBOX.Folder 07", "INBOX.Calendar", "user.other", "INBOX.Deleted Items"])
def test_ambiguous_special_uses_are_ignored(name: str) -> None:
    """A folder that loadsim uses for something else, or that is another user's, is not the folder for sent mail."""
    assert named(CYRUS, uses=[(name, "\\sent")]).on_server(SENT_ITEMS) == "INBOX.Sent Items"


def test_one_folder_with_two_uses_has_the_first() -> None:
    names = named(JAMES, uses=[("All", "\\sent"), ("All", "\\trash")])
    assert (names.on_server(SENT_ITEMS), names.on_server(DELETED_ITEMS)) == ("All", "Deleted Items")


def test_settings_override_the_server() -> None:
    settings = FolderSettings(prefix="Mail/", sent="Out/Sent", calendar="Diary")
    names = named(CYRUS_ALT, settings, [("Sent", "\\sent"), ("Mail/Bin", "\\trash")])
    assert names.on_server(SENT_ITEMS) == "Mail/Out/Sent"
    assert names.on_server(CALENDAR) == "Mail/Diary"
    assert names.on_server(DELETED_ITEMS) == "Mail/Bin"
    assert names.folder("Sent") is None  # not below the prefix


def test_without_a_hierarchy_nested_folders_are_refused() -> None:
    """Folders within folders are refused there, others have their names, even with a "/" in it."""
    names = named(b'* NAMESPACE (("" NIL)) NIL NIL')
    assert names.on_server("Folder 01") == "Folder 01"
    assert names.on_server(names.folder("a/b") or "") == "a/b"
    with pytest.raises(ServerRefused, match="no hierarchy"):
        names.on_server("Folder 01/Folder 02")


LEVEL = st.text(st.sampled_from("aB%=/._ 25FINBOXé"), min_size=1, max_size=8)
USES = st.lists(
    st.tuples(st.sampled_from(["Sent", "Sent Items", "Bin", "INBOX", "a"]), st.sampled_from(["\\sent", "\\trash"]))
)


@given(
    prefix=st.sampled_from(["", "INBOX", "Mail", "%="]),
    separator=st.sampled_from(["/", ".", "%", "="]),
    levels=st.lists(LEVEL, min_size=1, max_size=3),
    uses=USES,
)
def test_each_server_name_has_one_folder(
    prefix: str, separator: str, levels: list[str], uses: list[tuple[str, str]]
) -> None:
    """Every name of the user's own that a server lists is addressed by exactly this name."""
    begin = prefix + separator if prefix else ""
    names = names_of(
        OF_SERVER, Namespaces((Namespace(begin, separator),), ()), tuple((begin + name, use) for name, use in uses)
    )
    name = begin + separator.join(levels)
    folder = names.folder(name)
    assert folder is not None
    expected = INBOX if name.upper() == INBOX else name
    assert names.on_server(folder) == expected
    assert names.folder_at(names.path(folder)) == folder


@given(
    folder=st.sampled_from([INBOX, SENT_ITEMS, DELETED_ITEMS, CALENDAR, "Folder 01", "Folder 01/Folder 02", "LoadSim"]),
    separator=st.sampled_from(["/", ".", "%", "="]),
    uses=USES,
)
def test_each_folder_has_one_server_name(folder: str, separator: str, uses: list[tuple[str, str]]) -> None:
    """Every folder of loadsim's is found again under its name."""
    names = names_of(OF_SERVER, Namespaces((Namespace("", separator),), ()), tuple(uses))
    assert names.folder(names.on_server(folder)) == folder


@pytest.mark.parametrize(
    "line",
    [
        b"* NAMESPACE",
        b"* NAMESPACE x NIL NIL",
        b"* NAMESPACE ((NIL NIL)) NIL NIL",
        b'* NAMESPACE (("" "//")) NIL NIL',
        b'* NAMESPACE (("")) NIL NIL',
        b"* NAMESPACE (" + b'("a" "/")' * 5000 + b") NIL NIL",
    ],
)
def test_malformed_namespaces_are_protocol_errors(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse(line)


def test_extensions_of_namespaces_are_skipped() -> None:
    found = parse(b'* NAMESPACE (("" "/" "X-PARAM" ("FLAG1" "FLAG2"))) NIL NIL')
    assert found == Namespaces((Namespace("", "/"),), ())


def test_after_a_refused_namespace_settings_decide() -> None:
    """NAMESPACE and LIST may be refused though they are offered."""
    asked: list[tuple[str, ...]] = []

    async def ask(*command: str) -> Sequence[Response]:
        asked.append(command)
        raise ServerRefused("NO")

    names = asyncio.run(read_names(ask, {"NAMESPACE", "SPECIAL-USE"}, OF_SERVER))
    assert names.on_server(SENT_ITEMS) == SENT_ITEMS
    assert asked == [("NAMESPACE",), ("LIST", '""', '"*"')]


@pytest.mark.parametrize("use", ["\\all", "\\flagged", "\\important"])
def test_virtual_folders_are_ignored(use: str) -> None:
    async def ask(*command: str) -> Sequence[Response]:
        return [ListEntry(frozenset({use}), "/", "All"), ListEntry(frozenset({"\\archive"}), "/", "Archive")]

    names = asyncio.run(read_names(ask, {"SPECIAL-USE"}, OF_SERVER))
    assert (names.folder("All"), names.folder("Archive")) == (None, "Archive")


def test_only_offered_commands_are_sent() -> None:
    async def ask(*command: str) -> Sequence[Response]:
        raise AssertionError(command)

    assert asyncio.run(read_names(ask, set(), OF_SERVER)) == FolderNames()
