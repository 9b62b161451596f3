"""The page of `--metrics`, read by Prometheus' own parser."""

import http.client

from patience import PATIENCE_S
from prometheus_client import parser

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Values by name and labels."""


def fetched(host: str, port: int, accept: str = "text/plain") -> str:
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
    connection.request("GET", "/metrics", headers={"Accept": accept})
    response = connection.getresponse()
    assert response.status == 200
    text = response.read().decode()
    connection.close()
    return text


def samples(text: str) -> Samples:
    """Parsed; each name with its labels comes once."""
    found: Samples = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def value(found: Samples, name: str, **labels: str) -> float:
    return found[f"loadsim_{name}", frozenset(labels.items())]
