"""Servers that run in a Java virtual machine: their programs from Maven Central, their command, their heap.

Both keep all mail in memory, so SIGTERM may end them at once.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from loadsim.errors import ConfigError
from loadsim.servers.command import find
from loadsim.servers.private import check_path

PROGRAMS = "LOADSIM_PROGRAMS"
"""Environment variable with the directory of the programs."""

POMS = Path(__file__).with_name("programs")
"""Maven's project files, which name the programs and their versions."""

BASE_MIB = 512
MIB_PER_USER = 8
"""Sizes of the heap. The start state of 40 Medium users (49 MB of mail) takes 2 MiB for each on both servers."""


class Programs(NamedTuple):
    """The jars of one server."""

    directory: Path
    version: str

    @property
    def class_path(self) -> str:
        return f"{self.directory}/*"


def find_programs(server: str, artifact: str, series: str, given: Path | None) -> Programs:
    """Find the jars of a server, in a version of this series: in the directory given, in `PROGRAMS`, or in ~/.cache.

    Raises `ConfigError`, with the command that fetches them, if they are missing or have several versions.
    """
    programs = given or Path(os.environ.get(PROGRAMS) or Path.home() / ".cache/loadsim/programs")
    directory = programs.resolve() / server
    name = re.compile(rf"{re.escape(artifact)}-({re.escape(series)}\.[\w.-]+)\.jar", re.ASCII)
    versions = sorted(found[1] for file in directory.glob("*.jar") if (found := name.fullmatch(file.name)))
    if len(versions) == 1:
        return Programs(directory, versions[0])
    pom, place = (shlex.quote(str(path)) for path in (POMS / f"{server}.xml", programs.resolve()))
    remove = f"rm -r {shlex.quote(str(directory))} && " if versions else ""
    raise ConfigError(
        f"server: {server}: expected {artifact} {series} in {directory}, found {' and '.join(versions) or 'none'}:"
        f" {remove}mvn -q -f {pom} dependency:copy-dependencies -Dprograms={place}"
    )


def prepare_directory(directory: Path) -> Path:
    """Create the server's directory, and one for temporary files in it. Return the absolute path.

    Raises `ConfigError` for a path that would need quotes in a configuration.
    """
    directory = directory.resolve()
    check_path("directory", directory)
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    (directory / "tmp").mkdir(mode=0o700, exist_ok=True)
    return directory


def java_command(server: str, directory: Path, heap_mib: int, *arguments: str) -> list[str]:
    """Return a command that runs Java with this heap. Raises `ConfigError` if Java is not installed.

    -Xrs leaves SIGTERM to the kernel: it ends the process at once, without James's six seconds of orderly shutdown.
    """
    java = find("java")
    if java is None:
        raise ConfigError(
            f"server: {server}: expected the command java, of version 11 or newer, to be installed, found none:"
            " apt-get install default-jre-headless"
        )
    return [
        java,
        f"-Xmx{heap_mib}m",
        "-XX:+ExitOnOutOfMemoryError",
        "-Xrs",
        "-XX:-UsePerfData",  # otherwise its file in /tmp stays after SIGTERM
        f"-Djava.io.tmpdir={directory / 'tmp'}",
        "-Djava.net.preferIPv4Stack=true",
        *arguments,
    ]


def heap_for(users: int) -> int:
    """Return the size of the heap for this number of users, in MiB: at most three quarters of the memory."""
    memory_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return min(BASE_MIB + MIB_PER_USER * users, memory_mib * 3 // 4)
