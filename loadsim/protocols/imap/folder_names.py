"""Folder names: loadsim's and the server's (RFC 2342, RFC 6154, RFC 9051 section 6.3.10).

    name on the server   "INBOX.Sent.2026"   has the personal namespace's prefix and separator
    path                 "Sent/2026"         below the prefix, with "/" between the levels; INBOX is "INBOX"
    folder               "Sent Items"        the name in users, profiles and start states

Both mappings are one to one, so that each listed folder is addressed by the server's own name. The public folder, which
is in the shared namespace, is never listed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

from loadsim.errors import ServerRefused
from loadsim.model.ports import DELETED_ITEMS, DRAFTS, INBOX, PUBLIC, SENT_ITEMS, FolderSettings
from loadsim.protocols.imap.responses import ListEntry, Namespace, Namespaces, Response
from loadsim.scenario.workload import may_be_made

SEPARATOR = "/"
"""Separates the levels of paths and folders. Within a level, it is written "%2F", and "%" as "%25"."""

ASIDE = "%="
"""Precedes a path or folder whose plain name is taken: INBOX below a prefix; "Sent Items" if sent mail is in "Sent"."""

_SPECIAL_USES = ((SENT_ITEMS, "\\sent"), (DELETED_ITEMS, "\\trash"), (DRAFTS, "\\drafts"))
"""The special uses (RFC 6154 section 2) of loadsim's folders."""

_VIEWS = frozenset({"\\all", "\\flagged", "\\important"})
"""The special uses of folders that show other folders' messages (RFC 6154 section 2, RFC 8457 section 3)."""

Ask = Callable[..., Awaitable[Sequence[Response]]]
"""Sends a command with its arguments, and returns the untagged data of its answer. Raises `TaskFailed`."""


@dataclass(frozen=True, slots=True)
class FolderNames:
    """One account's folder names.

    All names on the server except INBOX begin with `prefix`; `separator` is None without a hierarchy. `others` has the
    prefixes of other users' and shared folders; `views` are folders that show other folders' messages. `own` pairs
    folders with their paths if these differ from the names. `public` is the public folder's name on the server; None if
    the scenario states no such folder, or the server no shared namespace.
    """

    prefix: str = ""
    separator: str | None = SEPARATOR
    others: tuple[str, ...] = ()
    own: tuple[tuple[str, str], ...] = ()
    views: frozenset[str] = frozenset()
    public: str | None = None

    def on_server(self, folder: str) -> str:
        """Return the server's name. Raises `ServerRefused` for a nested folder if there is no hierarchy."""
        return _name_on_server(self, folder)

    def folder(self, name: str) -> str | None:
        """Return the folder with this name on the server; None if it is not the user's own."""
        return _folder_named(self, name)

    def path(self, folder: str) -> str:
        own = dict(self.own)
        if folder in own:
            return own[folder]
        plain = folder.removeprefix(ASIDE)
        return plain if plain in (PUBLIC, *own) else folder

    def folder_at(self, path: str) -> str:
        own = dict(self.own)
        for folder, taken in own.items():
            if path == taken:
                return folder
        return ASIDE + path if path in (PUBLIC, *own) else path


PLAIN = FolderNames()
"""The names assumed before the server is asked."""


@lru_cache(maxsize=4096)
def canonical(folder: str) -> str:
    """Return the folder's name; INBOX alone is case-insensitive (RFC 9051 section 5.1)."""
    return INBOX if folder.upper() == INBOX else folder


def _name_on_server(names: FolderNames, folder: str) -> str:
    if folder == INBOX:
        return INBOX
    if folder == PUBLIC:
        if names.public is None:
            raise ServerRefused("no shared namespace", "NAMESPACE (RFC 2342) names none")
        return names.public
    return _below(Namespace(names.prefix, names.separator), names.path(folder).removeprefix(ASIDE))


def _below(namespace: Namespace, path: str) -> str:
    levels = path.split(SEPARATOR)
    if namespace.separator is None and len(levels) > 1:
        raise ServerRefused("no hierarchy", f"expected a server with folders within folders, for {path}")
    plain = [level.replace("%2F", SEPARATOR).replace("%25", "%") for level in levels]
    return namespace.prefix + (namespace.separator or "").join(plain)


@lru_cache(maxsize=4096)
def _folder_named(names: FolderNames, name: str) -> str | None:
    if name.upper() == INBOX:
        return INBOX
    below = name.removeprefix(names.prefix)
    if name in names.views or not below or not name.startswith(names.prefix):
        return None
    # If two namespaces match, the folder is in the one with the longer prefix.
    if any(len(prefix) > len(names.prefix) and name.startswith(prefix) for prefix in names.others):
        return None
    levels = [below] if names.separator is None else below.split(names.separator)
    path = SEPARATOR.join(level.replace("%", "%25").replace(SEPARATOR, "%2F") for level in levels)
    return ASIDE + path if path.upper() == INBOX else names.folder_at(path)


async def read_names(ask: Ask, offered: Container[str], settings: FolderSettings) -> FolderNames:
    """Ask the server for an account's namespaces (RFC 2342) and its folders' special uses (RFC 6154).

    `offered` are the server's capabilities. If it offers neither, or refuses, only the settings count.
    """
    namespaces: Namespaces | None = None
    entries: list[ListEntry] = []
    if "NAMESPACE" in offered:
        with suppress(ServerRefused):
            answer = await ask("NAMESPACE")
            namespaces = next((response for response in answer if isinstance(response, Namespaces)), None)
    if "SPECIAL-USE" in offered:
        returned = ("RETURN (SPECIAL-USE)",) if "LIST-EXTENDED" in offered else ()
        with suppress(ServerRefused):
            answer = await ask("LIST", '""', '"*"', *returned)
            entries = [entry for entry in answer if isinstance(entry, ListEntry)]
    names = names_of(settings, namespaces, tuple(uses_in(entries)))
    return replace(names, views=views) if (views := views_in(entries)) else names


def views_in(entries: Iterable[ListEntry]) -> frozenset[str]:
    """Return the server's names for listed folders that show other folders' messages."""
    return frozenset(entry.name for entry in entries if entry.attributes & _VIEWS)


def uses_in(entries: Iterable[ListEntry]) -> list[tuple[str, str]]:
    """Return the server's names for listed folders with special uses, each with its use."""
    return [(entry.name, use) for entry in entries for _, use in _SPECIAL_USES if use in entry.attributes]


@lru_cache(maxsize=64)
def names_of(settings: FolderSettings, namespaces: Namespaces | None, uses: Iterable[tuple[str, str]]) -> FolderNames:
    """Return the names from the settings or, where these leave them open, from the server.

    `namespaces` is None without NAMESPACE; `uses` pairs the server's names with special uses, in lower case. Accounts
    with equal names share the result.
    """
    personal = namespaces.personal[0] if namespaces is not None and namespaces.personal else Namespace("", SEPARATOR)
    prefix = personal.prefix if settings.prefix is None else settings.prefix
    shared = namespaces.shared if namespaces is not None else ()
    rest = (*namespaces.personal[1:], *namespaces.other, *shared) if namespaces is not None else ()
    plain = FolderNames(prefix, personal.separator, tuple(namespace.prefix for namespace in rest))
    if settings.public is not None and shared:
        plain = replace(plain, public=_below(shared[0], settings.public))
    own = {folder: path for folder, path in settings.paths.items() if folder != path}
    return with_uses(replace(plain, own=tuple(own.items())), settings, uses)


def with_uses(names: FolderNames, settings: FolderSettings, uses: Iterable[tuple[str, str]]) -> FolderNames:
    """Return names with the paths of special-use folders, where neither the settings nor an earlier use gives one."""
    plain, own = replace(names, own=()), dict(names.own)
    for folder, use in _SPECIAL_USES:
        named = next((plain.folder(name) for name, stated in uses if stated == use), None)
        if named is None or folder in {**settings.paths, **own} or named in (INBOX, *own.values()):
            continue
        if not may_be_made(named):
            own[folder] = named
    return replace(names, own=tuple(own.items()))
