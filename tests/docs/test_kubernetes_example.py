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


def test_cpus_are_whole_and_all_that_is_allowed_is_requested() -> None:
    """The static CPU manager gives no others away."""
    for each in found("StatefulSet"):
        pod = each["spec"]["template"]["spec"]
        for container in (*pod["initContainers"], *pod["containers"]):
            resources = container["resources"]
            assert resources["requests"] == resources["limits"]
            assert int(resources["requests"]["cpu"]) >= 1


def test_its_parts_belong_together() -> None:
    """Volumes, secrets, selectors and names are those that are defined."""
    page = PAGE.read_text()
    (clients,) = (each for each in found("StatefulSet") if each["metadata"]["name"] == "load")
    names = [f"load-{number}" for number in range(clients["spec"]["replicas"])]
    assert re.findall(r"--client (\S+)", page) == names
    for each in found("StatefulSet"):
        spec = each["spec"]
        pod = spec["template"]["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels
        volumes = {volume["name"] for volume in pod["volumes"]}
        volumes |= {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
        mounts = [mount for one in (*pod["initContainers"], *pod["containers"]) for mount in one["volumeMounts"]]
        assert {mount["name"] for mount in mounts} == volumes
        for volume in pod["volumes"]:
            if "secret" in volume:
                assert f"create secret generic {volume['secret']['secretName']} " in page
        assert any(service["spec"]["selector"] == labels for service in found("Service"))
        assert any(policy["spec"]["podSelector"]["matchLabels"] == labels for policy in found("NetworkPolicy"))
