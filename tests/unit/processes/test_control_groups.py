"""Limits of control groups, which a container has: engines beyond its quota would only wait for each other."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from loadsim.processes.control_groups import memory_limits, usable_cores

MI = 1 << 20


def written(place: Path, own: str, files: Mapping[str, str]) -> tuple[Path, Path]:
    mounted, own_groups = place / "mounted", place / "cgroup"
    for name, text in files.items():
        file = mounted / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    own_groups.write_text(own)
    return mounted, own_groups


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "250000 100000\n"}, 2),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3),
        ("0::/a/b\n", {"a/b/cpu.max": "300000 100000\n", "a/cpu.max": "100000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "20000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 8),
        ("0::/\n", {"cpu.max": "900000 100000\n"}, 8),
        ("0::/../other\n", {"cpu.max": "100000 100000\n"}, 8),
        ("1:cpu:/a\n0::/\n", {"a/cpu.max": "100000 100000\n"}, 8),
        ("", {}, 8),
        ("odd\n", {"cpu.max": "100000 100000\n"}, 8),
    ],
)
def test_the_least_quota_limits_the_cores(
    own: str, files: Mapping[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of eight by affinity: the least quota of our group and of those above, in whole cores, and never none."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert usable_cores(*written(tmp_path, own, files)) == cores


def memory(group: str, limit: object, used: int, stat: str = "") -> dict[str, str]:
    files = {"max": f"{limit}\n", "current": f"{used}\n"} | ({"stat": stat} if stat else {})
    return {f"{group}memory.{name}": text for name, text in files.items()}


CACHED = (
    f"anon {MI}\nfile {7 * MI}\ninactive_anon {MI}\nactive_anon {2 * MI}\ninactive_file {4 * MI}\nactive_file {MI}\n"
)


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/a\n", memory("a/", 9 * MI, 2 * MI), (9 * MI, 7 * MI)),
        ("0::/a\n", memory("a/", 9 * MI, 2 * MI) | memory("", 20 * MI, 19 * MI), (9 * MI, MI)),
        ("0::/a\n", memory("a/", MI, 2 * MI), (MI, 0)),
        ("0::/a\n", memory("a/", "max", 2 * MI), None),
        # Files that were read fill a group up to its limit. Other memory of the page cache, as of tmpfs, stays.
        ("0::/a\n", memory("a/", 9 * MI, 9 * MI, f"{CACHED}total_active_file {8 * MI}\n"), (9 * MI, 5 * MI)),
        # The counts of one instant may be of different ones: never more than the limit.
        ("0::/\n", memory("", MI, 0, f"inactive_file {MI}\n"), (MI, MI)),
        ("0::/\n", memory("", MI, 0, "odd\n"), (MI, MI)),
    ],
)
def test_the_least_limit_bounds_the_memory(
    own: str, files: Mapping[str, str], expected: tuple[int, int] | None, tmp_path: Path
) -> None:
    """The least limit, and the least that is left: those may be of different groups."""
    assert memory_limits(*written(tmp_path, own, files)) == expected
