"""The name of this program in the commands that it suggests."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

NAME = "loadsim"

MODULE = Path(__file__).parents[1] / "__main__.py"
"""The first argument of a process that was started as `python -m loadsim`."""


def program_name(*, for_root: bool = False) -> str:
    """Return how a shell can run this program again: by name if that finds it, otherwise as it was called.

    `for_root` returns an absolute path, since sudo does not search a virtual environment's directories. If another
    program imported loadsim, the plain name is returned.
    """
    called = Path(sys.argv[0])
    if called == MODULE:
        return f"{shlex.quote(sys.executable)} -m {NAME}"
    if called.name != NAME or not called.is_file():
        return NAME
    if for_root:
        return shlex.quote(str(called.absolute()))
    by_name = shutil.which(NAME)
    return NAME if by_name is not None and called.samefile(by_name) else shlex.quote(sys.argv[0])
