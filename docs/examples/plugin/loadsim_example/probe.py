"""The probe `mail-queue`: the numbers of messages in the queues of a Postfix on this machine."""

import os
from pathlib import Path

from loadsim.errors import ConfigError
from loadsim.model.ports import Probe, Services

QUEUES = ("incoming", "active", "deferred")


def open_probe(services: Services, directory: str = "/var/spool/postfix") -> Probe:
    """Return the function that is called each second; `directory` is a setting in the scenario."""
    queues = [Path(directory) / name for name in QUEUES]
    for queue in queues:
        if not queue.is_dir():
            raise ConfigError(f"probe mail-queue: expected a Postfix queue, found no directory {queue}")

    def sample() -> dict[str, float]:
        return {f"{queue.name}_messages": messages(queue) for queue in queues}

    return sample


def messages(queue: Path) -> int:
    """Return the number of files below a directory. Raises `OSError` if a directory is unreadable: it is not empty."""
    return sum(len(files) for _, _, files in os.walk(queue, onerror=fail))


def fail(error: OSError) -> None:
    raise error
