"""The limit on open files: an engine needs some per user, and would hit the limit in mid-run."""

from __future__ import annotations

import resource

from loadsim.errors import ConfigError

FILES_PER_USER = 2
"""A connection to the mailbox, and one for submitting a message."""

OTHER_FILES = 64


def open_files_needed(users: int, further: int = 0) -> int:
    """Return how many open files an engine needs; `further` is the number of its users' connections beyond those."""
    return FILES_PER_USER * users + further + OTHER_FILES


def raise_open_file_limit(users: int, further: int = 0) -> None:
    """Raise the soft limit on open files to what an engine's users need; engines inherit it.

    `further` is the number of their connections beyond those. Raises `ConfigError` if the hard limit is too
    low; only root can raise that.
    """
    needed = open_files_needed(users, further)
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return
    if most != resource.RLIM_INFINITY and most < needed:
        raise ConfigError(
            f"open files: expected a limit of at least {needed} for {users} users"
            f"{f' with {further} further connections' if further else ''} an engine, found {most}:"
            f" take more --engines, or raise it as root with `ulimit -n {needed}`"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, most))
