"""The rules of JUnit XML that its readers share, written down by hand: what Ant's, Jenkins' and GitLab's all take."""

from pathlib import Path
from xml.etree.ElementTree import Element, parse

RESULTS = ("skipped", "error", "failure")
AFTER = ("system-out", "system-err")


def cases_of(path: Path) -> dict[str, tuple[str, str]]:
    """Return the result of each case of a file (`passed` or one of `RESULTS`) and its message; check all rules.

    - The root is one `testsuite` with a name; its tests, failures, errors and skipped are the numbers of such cases.
    - Each `testcase` has a name, a classname and a time in seconds; no two have the same name and classname.
    - In it stands at most one result, with a message; a failure or an error has a type, too. Then perhaps a system-out.
    - Nothing else stands anywhere.
    """
    suite = parse(path).getroot()
    assert suite.tag == "testsuite"
    assert set(suite.attrib) == {"name", "tests", "failures", "errors", "skipped", "time"}
    assert suite.get("name")
    assert float(suite.attrib["time"]) >= 0
    found = {}
    for case in suite:
        assert case.tag == "testcase"
        assert set(case.attrib) == {"name", "classname", "time"}
        assert case.get("name") and case.get("classname")
        assert float(case.attrib["time"]) >= 0
        key = f"{case.get('classname')}/{case.get('name')}"
        assert key not in found
        found[key] = _result(case)
    outcomes = [outcome for outcome, _ in found.values()]
    for attribute, outcome in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert suite.attrib[attribute] == str(outcomes.count(outcome))
    assert suite.attrib["tests"] == str(len(outcomes))
    return found


def _result(case: Element) -> tuple[str, str]:
    tags = [child.tag for child in case]
    results = [tag for tag in tags if tag in RESULTS]
    assert len(results) <= 1
    assert tags in (results, [*results, "system-out"])
    for child in case:
        assert not len(child)
        if child.tag == "system-out":
            assert child.text and not child.attrib
        elif child.tag == "skipped":
            assert set(child.attrib) == {"message"}
        else:
            assert set(child.attrib) == {"message", "type"}
            assert child.attrib["message"] and child.attrib["type"]
    return (results[0], case[0].attrib["message"]) if results else ("passed", "")
