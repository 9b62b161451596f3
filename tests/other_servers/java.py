"""Servers that run in a Java virtual machine: their programs from Maven Central, and their command.

Both keep all mail in memory, so SIGTERM may end them at once.
"""

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


class Programs(NamedTuple):
    directory: Path
    version: str

    @property
    def class_path(self) -> str:
        return f"{self.directory}/*"


def find_programs(server: str, artifact: str, series: str) -> Programs:
    """Find the jars of a server, in one version of this series, in `PROGRAMS` or in ~/.cache.

    Raises `ConfigError`, with the command that fetches them, if they are missing or have several versions.
    """
    programs = Path(os.environ.get(PROGRAMS) or Path.home() / ".cache/loadsim/programs")
    directory = programs.resolve() / server
    name = re.compile(rf"{re.escape(artifact)}-({re.escape(series)}\.[\w.-]+)\.jar", re.ASCII)
    versions = sorted(found[1] for file in directory.glob("*.jar") if (found := name.fullmatch(file.name)))
    if len(versions) == 1:
        return Programs(directory, versions[0])
    pom, place = (shlex.quote(str(path)) for path in (POMS / f"{server}.xml", programs.resolve()))
    raise ConfigError(
        f"server: {server}: expected {artifact} {series} in {directory}, found {' and '.join(versions) or 'none'}:"
        f" mvn -q -f {pom} dependency:copy-dependencies -Dprograms={place}"
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


def java_command(server: str, directory: Path, *arguments: str) -> list[str]:
    """Return a command that runs Java. Raises `ConfigError` if Java is not installed.

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
        "-XX:+ExitOnOutOfMemoryError",
        "-Xrs",
        "-XX:-UsePerfData",  # otherwise its file in /tmp stays after SIGTERM
        f"-Djava.io.tmpdir={directory / 'tmp'}",
        "-Djava.net.preferIPv4Stack=true",
        *arguments,
    ]
