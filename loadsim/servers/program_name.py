"""The name of this program in the commands that it suggests."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

NAME = "loadsim"

MODULE = Path(__file__).parents[1] / "__main__.py"
"""The first argument of a process that was started as `python -m loadsim`."""


def program_name(*, for_root: bool = False) -> str:
    """Return how a shell calls this program again: by name if it finds it, else by path, or as `python -m loadsim`.

    `for_root` returns an absolute path: sudo does not search the directories of a virtual environment. It is the plain
    name if another program imported loadsim.
    """
    called = Path(sys.argv[0])
    if called == MODULE:
        return f"{_typed(Path(sys.executable), for_root)} -m {NAME}"
    return _typed(called, for_root) if called.name == NAME and called.is_file() else NAME


def _typed(program: Path, for_root: bool) -> str:
    if for_root:
        return shlex.quote(str(program.absolute()))
    found = shutil.which(program.name)
    # The directories: the Python of a virtual environment is a link to the system's, which has other packages.
    if found is not None and Path(found).parent.samefile(program.parent):
        return program.name
    path = os.path.relpath(program)
    return shlex.quote(path if "/" in path else f"./{path}")
