"""Tools that read /proc and /sys, such as `iostat`, run on recorded files in a mount namespace of their own."""

from __future__ import annotations

from pathlib import Path


def on_recorded(place: Path, *command: str) -> list[str]:
    """The words that run a command with the directories `proc` and `sys` of this place as /proc and /sys."""
    mount = f"mount --bind {place}/sys /sys && mount --bind {place}/proc /proc"
    return ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", *command]
