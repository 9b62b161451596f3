"""Servers that run in a Java virtual machine: their programs from Maven Central, their command, their ports.

Both keep all mail in memory, so SIGTERM may end them at once.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from loadsim.errors import ConfigError
from loadsim.servers.command import find
from loadsim.servers.dovecot_postfix import LOOPBACK, PORT_ATTEMPTS, free_port
from loadsim.servers.master import PortTaken

PROGRAMS = "LOADSIM_PROGRAMS"
"""Environment variable with the directory of the programs."""

POMS = Path(__file__).with_name("programs")
"""Maven's project files, which name the programs and their versions."""

BASE_MIB = 512
MIB_PER_USER = 8
"""Sizes of the heap. 40 Medium users took 3 MiB each on James, and 4 MiB on GreenMail, after a day."""

_Server = TypeVar("_Server")


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
    pom = shlex.quote(str(POMS / f"{server}.xml"))
    raise ConfigError(
        f"server: {server}: expected {artifact} {series} in {directory}, found {' and '.join(versions) or 'none'}:"
        f" mvn -q -f {pom} dependency:copy-dependencies -Dprograms={shlex.quote(str(programs.resolve()))}"
    )


def prepare_directory(directory: Path) -> Path:
    """Create the server's directory, and one for temporary files in it. Return the absolute path.

    Raises `ConfigError` for a path that would need quotes in a configuration.
    """
    directory = directory.resolve()
    if not re.fullmatch(r"[\w./-]+", str(directory), re.ASCII):
        raise ConfigError(f"server: directory: expected a path of letters, digits and ._-/, found {str(directory)!r}")
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


def start_on_ports(
    server: str, imap_port: int | None, smtp_port: int | None, start: Callable[[int, int], _Server]
) -> _Server:
    """Start with ports of IMAP and SMTP, free ones for those not given, and again if another process takes those.

    Raises `PortTaken` at once if a given port is in use: Java takes seconds to notice.
    """
    for service, port in (("imap", imap_port), ("smtp", smtp_port)):
        if port is not None:
            _check_free(server, service, port)
    for attempt in range(1, PORT_ATTEMPTS + 1):
        try:
            return start(imap_port or free_port(), smtp_port or free_port())
        except PortTaken:
            if attempt == PORT_ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def _check_free(server: str, service: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does, for ports of ended connections
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise PortTaken(
                f"server: {server}: --{service}-port {port}: expected a free port, found: {error.strerror}"
            ) from None
