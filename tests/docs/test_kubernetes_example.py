"""The untested example for Kubernetes: it is YAML, loadsim takes its commands, and it is what its page says."""

from __future__ import annotations

import re
import shlex
from typing import Any

import yaml
from paths import ROOT

from loadsim.cli import parser

DOCS = ROOT / "docs"
MANIFEST = DOCS / "examples" / "kubernetes" / "loadsim.yaml"
PAGE = DOCS / "how-to" / "containers.md"


def found(kind: str) -> list[dict[str, Any]]:
    """The objects of a kind."""
    objects = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == kind]
    assert objects
    return objects


def test_it_is_labelled() -> None:
    """Nobody can take it for something that was tried."""
    assert MANIFEST.read_text().startswith("# UNTESTED")
    assert re.search(r"^## Kubernetes: an untested example\n\n\*\*UNTESTED", PAGE.read_text(), re.MULTILINE)


def test_loadsim_takes_its_commands() -> None:
    """Those of the containers, and those of the page."""
    commands = [
        container["command"][1:]
        for each in found("StatefulSet")
        for container in each["spec"]["template"]["spec"]["containers"]
    ]
    assert sorted(command[0] for command in commands) == ["client", "cluster"]
    executed = re.findall(r"^ +loadsim (.+)$", PAGE.read_text(), re.MULTILINE)
    assert len(executed) == 2
    for command in (*commands, *map(shlex.split, executed)):
        parser().parse_args([str(word) for word in command])
