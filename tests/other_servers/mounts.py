"""A private view of the file system for a server whose programs, configuration and sockets have fixed paths.

The mounts are made in a mount namespace (unshare(1)): only the server's own processes see them, and they end with the
last of these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadsim.errors import ConfigError
from loadsim.servers.command import run
from loadsim.servers.private import check_path
from other_servers import UNPACKED

PRIVATE = """\
mount --make-private /proc && mount --rbind / /proc/driver && mount --make-rprivate /proc/driver &&
exec chroot /proc/driver /bin/sh -c "$1" "$@"
"""
"""Shell command that runs another one, with its arguments, where no mount is seen outside.

`unshare --propagation private` refuses a chroot, since its / is no mount point. /proc is one everywhere.
"""


@dataclass(frozen=True, slots=True)
class View:
    """Directories that only a server's processes see. Unpacked packages are laid over /usr."""

    etc: Path | None = None
    """Directory that is laid over /etc, with that of the unpacked packages between them."""
    binds: tuple[tuple[Path, str], ...] = ()
    """Directories, each with the directory that it replaces."""

    def command(self, command: Sequence[str]) -> list[str]:
        """Return a command that makes the mounts, then becomes `command`, as the same process."""
        layers = {"/usr": f"{unpacked()}/usr"}
        if self.etc is not None:
            layers["/etc"] = f"{self.etc}:{unpacked()}/etc"
        mounts = [f"mount -t overlay overlay -o ro,lowerdir={above}:{place} {place}" for place, above in layers.items()]
        mounts += [f"mount --bind {path} {place}" for path, place in self.binds]
        script = " && ".join((*mounts, 'exec "$@"'))
        return ["unshare", "--mount", "--propagation", "unchanged", "/bin/sh", "-c", PRIVATE, "sh", script, *command]

    def run(self, *command: str, stdin: str | None = None) -> str:
        """Run a command to its end and return its standard output. Raises `ConfigError` if it fails."""
        name, *arguments = self.command(command)
        return run(name, arguments, stdin=stdin)


def unpacked() -> Path:
    """Return the absolute path of the unpacked packages. Raises `ConfigError` if they cannot be mounted."""
    path = UNPACKED.resolve()
    check_path("programs", path)
    if not (path / "complete").exists():
        raise ConfigError(f"server: programs: {path}: expected tests/install-other-servers.sh to have run")
    return path
