"""The dashboard and the alerts name only metrics and labels that loadsim exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from paths import ROOT
from promql import named

from loadsim.cli.live.figures import RUN_PHASES
from loadsim.cli.metrics.definitions import METRICS, VALIDITIES

EXAMPLES = ROOT / "docs" / "examples" / "grafana"
DASHBOARD = json.loads((EXAMPLES / "loadsim.json").read_text(encoding="utf-8"))
RULES = yaml.safe_load((EXAMPLES / "loadsim-alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]

TARGET = {"job", "instance"}
"""The labels that Prometheus adds."""

SAMPLES: dict[str, set[str]] = {}
"""The labels of each sample that is exported, by its name."""
for each in METRICS:
    labels = {*each.labels} | TARGET
    if each.kind == "histogram":
        SAMPLES |= {f"{each.name}_{part}": labels for part in ("count", "sum")}
        SAMPLES[f"{each.name}_bucket"] = labels | {"le"}
    else:
        SAMPLES[each.name + ("_total" if each.kind == "counter" else "")] = labels


def panels() -> Iterator[dict[str, Any]]:
    """Those with queries."""
    yield from (each for each in DASHBOARD["panels"] if each["type"] != "row")


def queries() -> Iterator[tuple[str, str]]:
    """All queries, with the text that shows their labels."""
    for panel in panels():
        yield from ((target["expr"], target["legendFormat"]) for target in panel["targets"])
    yield from ((each["expr"], each["titleFormat"]) for each in DASHBOARD["annotations"]["list"])
    yield from ((rule["expr"], json.dumps(rule["annotations"])) for rule in RULES)
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            assert variable["query"]["query"] == variable["definition"]
            found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"])
            assert found is not None
            yield f"sum by ({found[2]}) ({found[1]})", ""


@pytest.mark.parametrize(("query", "legend"), list(queries()))
def test_a_query_names_what_is_exported(query: str, legend: str) -> None:
    """Its metrics, the labels by which it selects and groups, and those of its legend."""
    found = named(query)
    assert found.metrics
    known = set.union(*(SAMPLES[metric] for metric in found.metrics))
    for metric, selected in found.metrics.items():
        assert selected <= SAMPLES[metric]
    assert found.lists <= known
    assert set(re.findall(r"\{\{ *(?:\$labels\.)?(\w+) *\}\}", legend)) <= known


@pytest.mark.parametrize(
    ("label", "values"),
    [("phase", {*RUN_PHASES}), ("validity", {*VALIDITIES})],
)
def test_a_query_selects_values_that_there_are(label: str, values: set[str]) -> None:
    """A phase with another name would never come."""
    texts = [text for query, _ in queries() for text in re.findall(rf'{label}[=!]~?"([^"]*)"', query)]
    assert texts
    assert {value for text in texts for value in text.split("|")} <= values


def test_every_metric_has_a_panel() -> None:
    """Nothing is exported in vain."""
    assert {metric for query, _ in queries() for metric in named(query).metrics} == set(SAMPLES)


def test_every_panel_asks_the_chosen_source_and_machine() -> None:
    """Not one of those that happen to be there; a share, a time or a size has its unit."""
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert all("instance" in selected for selected in named(target["expr"]).metrics.values())
            if re.match(r"(histogram_quantile|sort_desc|loadsim_\w+_(seconds|bytes|ratio)\b)", target["expr"]):
                assert panel["fieldConfig"]["defaults"]["unit"] in ("s", "bytes", "percentunit")
