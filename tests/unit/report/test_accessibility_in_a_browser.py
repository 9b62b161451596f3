"""Access to a report, as axe-core judges it: light and dark, on a wide screen and on a phone."""

import html
import json
import re
from contextlib import chdir
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from browser import dumped
from compared_runs import three, write_run
from documents import tables
from finished_searches import capacity, probed
from finished_suites import OUT, compared_suite
from small_runs import written
from timing_samples import DELIVERED, ENDED, START_NS, done, event, skipped, write_sample, write_two_clients

from loadsim.capacity.document import describe_capacity
from loadsim.capacity.search import Found
from loadsim.cli.report import document_of
from loadsim.comparison.comparison import compare_runs
from loadsim.comparison.document import describe_comparison
from loadsim.report.document import Document
from loadsim.report.html import to_html
from loadsim.suite.document import describe_suite
from loadsim.suite.runs import run_suite

pytestmark = pytest.mark.nightly(part="tools")

WIDTHS_PX = (1280, 400)

JUDGED = """Promise.all([...document.querySelectorAll("iframe")].map(async (frame) => {
  const found = await frame.contentWindow.axe.run({ resultTypes: ["violations", "passes"] });
  return {
    passes: found.passes.length,
    violations: found.violations.map((rule) => [rule.id, ...rule.nodes.map((node) => node.html.slice(0, 200))]),
  };
})).then((found) => { document.title = JSON.stringify(found); })"""


def judged(pages: list[str], dark: bool, place: Path) -> list[dict[str, Any]]:
    """The rules of axe-core that each page passes, as a number, and those that it violates, at each of `WIDTHS_PX`."""
    place.mkdir()
    axe = (resources.files("axe_core_python") / "axe.min.js").read_text("utf-8").replace("</script", r"<\/script")
    frames = []
    for page in pages:
        scripted = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page) + f"<script>{axe}</script>"
        frames += [
            f'<iframe style="width: {width}px; height: 900px; border: 0" srcdoc="{html.escape(scripted)}"></iframe>'
            for width in WIDTHS_PX
        ]
    script = f"onload = () => {{ {JUDGED} }}"
    outer = f"<!DOCTYPE html><html><head><title></title></head><body>{''.join(frames)}<script>{script}</script></body>"
    shown, _ = dumped(f"{outer}</html>", place, within_ms=60_000, dark=dark)
    title = re.search(r"<title>(.*?)</title>", shown)
    assert title is not None
    found = json.loads(html.unescape(title[1]))
    assert isinstance(found, list)
    return found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Runs that are valid, degraded, invalid and with probes, several, a comparison, a search and a suite, by words."""
    place = tmp_path_factory.mktemp("axe")
    short = {"limits": {"hits": 1, "window_s": 1}, "criteria": {"score_ms": {"max": 1000}}}
    mails = [event("accepted", "n1.0", 2, 590), event("seen", "n1.0", 2, 640)]
    tasks = [done("SEND", 500, 90), done("READ", 700, 20), done("BROWSE", 800, 30)]
    valid = write_sample(place / "valid" / "a.tlog", tasks, mails, header=short).parent
    many = [done("READ", 100 * at, 103) for at in range(200)] + [skipped("READ", 50_000 + at) for at in range(3)]
    degraded = write_run(place, "degraded", tasks=many)
    invalid = write_two_clients(place / "invalid")
    base, new = (three(place, side, ms) for side, ms in (("base", 102), ("new", 122.4)))
    runs = {"Valid": [valid], "Degraded": [degraded], "Invalid": [invalid], "3 runs": [valid, degraded, invalid]}
    documents = {words: document_of([str(path) for path in paths]) for words, paths in runs.items()}
    documents["Failed"] = describe_comparison(compare_runs(base, new, max_regression=0.05))
    searched = capacity(Found(1000, 1200, "criteria"), (500, "passed"), (1000, "passed"), (1200, "failed"))
    documents["1,000 users"] = describe_capacity(searched, ())
    documents["Suite suite"] = _of_suite(place / "suite")
    documents["With probes"] = _with_probes(place / "probed")
    documents["1,250 users"] = describe_capacity(probed(), ())
    return {words: to_html(document) for words, document in documents.items()}


def _of_suite(place: Path) -> Document:
    place.mkdir()
    with chdir(place):
        written(Path("small.yaml"), topology=[{"profile": "loadsim-5.5/light", "users": 2}])
        return describe_suite(run_suite(compared_suite(130.0), OUT), ())


def _with_probes(place: Path) -> Document:
    figures = {
        "host": {"cpu_busy_share": 0.25, "disk_sda_queue_requests": 1.5, "memory_available_bytes": 512 * 2**20},
        "postfix": {"send_queue_messages": 12.0, "deferred_messages": 2.0, "sent_per_s": 3.0},
    }
    health = [
        {"at_ns": START_NS + round((second + 0.25) * 1e9), "probe": probe, "figures": sampled}
        for second in range(100)
        for probe, sampled in figures.items()
    ]
    tasks = [done("READ", 1000 * second + 500, 40) for second in range(100)]
    header = {"name": "With probes", "limits": {"hits": 1}}
    write_sample(place / "a.tlog", tasks, DELIVERED, header=header, health=health, facts=ENDED | {"probes": {}})
    document = document_of([str(place)])
    captions = {table.caption for section in document.sections for table in tables(section.blocks)}
    assert "Resources, the nearest to saturation first" in captions
    return document


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_violation(pages: dict[str, str], tmp_path: Path, dark: bool) -> None:
    """None on any page, and many rules apply to each; what axe must find is found."""
    for words, page in pages.items():
        assert re.search(rf"</span> {words}[ ,:<]|<h1>{words}", page)
    names = [f"{words}, {width} px" for words in pages for width in WIDTHS_PX]
    found = dict(zip(names, judged([*pages.values()], dark, tmp_path / "pages"), strict=True))
    assert {name: each["violations"] for name, each in found.items() if each["violations"]} == {}
    assert min(each["passes"] for each in found.values()) > 20
    pale = pages["Valid"].replace("<main>", '<main><img src="x.png"><p style="color: #999; background: #aaa">pale</p>')
    for each in judged([pale], dark, tmp_path / "pale"):
        assert {rule for rule, *_ in each["violations"]} == {"color-contrast", "image-alt"}
