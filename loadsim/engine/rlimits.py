"""How many files an engine may have open: it needs some for each user, and finds the limit too late by itself."""

from __future__ import annotations

import resource

from loadsim.errors import ConfigError

FILES_PER_USER = 2
"""A mailbox session, and the connection of a message under way."""

OTHER_FILES = 64


def raise_open_file_limit(users: int) -> None:
    """See to it that an engine may open as many files as its users need; the engines inherit what we may.

    Raises `ConfigError` where the hard limit is in the way, which only root can raise.
    """
    needed = FILES_PER_USER * users + OTHER_FILES
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return
    if most != resource.RLIM_INFINITY and most < needed:
        raise ConfigError(
            f"open files: expected a limit of at least {needed} for {users} users an engine, found {most}:"
            f" take more --engines, or raise it as root with `ulimit -n {needed}`"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, most))
