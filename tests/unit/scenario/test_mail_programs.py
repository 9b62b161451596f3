"""Mail programs: their files, what they change in scenario, header and digest, and what is rejected."""

import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import ROOT
from small_runs import written
from virtual_runs import NOWHERE, contents

from loadsim.documents.yaml_reader import known
from loadsim.errors import ConfigError
from loadsim.model.mail_program import OUTLOOK_LIKE, MailProgram, load_program
from loadsim.model.partition import all_users
from loadsim.model.ports import DRAFTS
from loadsim.processes.rlimits import raise_open_file_limit
from loadsim.protocols.registry import check_protocols, open_assistants, open_companions, open_drivers
from loadsim.provisioning.preflight import too_few_ports
from loadsim.provisioning.sessions import NullObserver
from loadsim.provisioning.start_state import StoredState
from loadsim.runs.log_header import run_header
from loadsim.scenario.population import further_connections
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.workload import Workload, plan_digest

ENDPOINT = {"host": "127.0.0.1", "port": 1025}
REAL = {"server": {"imap": ENDPOINT, "smtp": ENDPOINT}, "accounts": {"user": "user{index}", "password": "secret"}}

CALLS = {"per_day": 10, "searches": 3, "reads": 2, "draft": "30%", "send": "20%", "pause": "3s"}

LISTED = "UID FLAGS BODY.PEEK[HEADER.FIELDS (From To Subject Message-ID)]"


def program(place: Path, name: str = "own", **keys: Any) -> Path:
    path = place / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"name": name, **keys}), encoding="utf-8")
    return path


def scenario(place: Path, *programs: str | Path | None, **changes: Any) -> Scenario:
    topology = [
        {"profile": "loadsim-5.5/light", "users": 2, **({"program": str(each)} if each else {})} for each in programs
    ]
    return load_scenario(str(written(place / "scenario.yaml", topology=topology, **changes)))


def test_the_default_is_the_file_outlook_like() -> None:
    assert load_program("outlook-like") == OUTLOOK_LIKE == MailProgram(name="outlook-like")


@pytest.mark.parametrize("name", known("programs"))
def test_a_shipped_program_has_its_own_name(name: str) -> None:
    assert load_program(name).name == name


def test_the_default_changes_nothing(tmp_path: Path) -> None:
    """The digest, the header and the resolved file are the same if it is named and if it is not."""
    first, second = scenario(tmp_path, None), scenario(tmp_path, "outlook-like")
    assert first.digest() == second.digest()
    assert first.to_yaml() == second.to_yaml()
    header = run_header(Workload(first), "r", "s", "p", None, None)
    assert "programs" not in header
    assert (header["submission"], first.topology[0].driver_name) == ("sequential", "imap")


def test_results_name_a_program(tmp_path: Path) -> None:
    """Header and digest have it; users of two programs are apart."""
    own = program(tmp_path, list=LISTED)
    found = scenario(tmp_path, "outlook-like", own)
    header = run_header(Workload(found), "r", "s", "p", None, None)
    assert header["programs"] == "outlook-like, own"
    assert [group.driver_name for group in found.topology] == ["imap", "imap/own"]
    assert found.digest() != scenario(tmp_path, "outlook-like", "outlook-like").digest()
    assert found.digest() != scenario(tmp_path, "outlook-like", program(tmp_path, list=LISTED, idle=False)).digest()
    again = tmp_path / "again.yaml"
    again.write_text(found.to_yaml(), encoding="utf-8")
    program(tmp_path, list=LISTED)
    assert load_scenario(str(again)).digest() == found.digest()


def test_a_program_gives_defaults_that_a_scenario_overrides(tmp_path: Path) -> None:
    """Submission and connection are the program's, unless the scenario states them."""
    own = program(tmp_path, submission="pipelining", connection="kept")
    found = scenario(tmp_path, own, **REAL)
    assert found.client.submission == "pipelining"
    services = found.with_program(found.using(NOWHERE), "imap", found.topology[0].program)
    assert (services.submission, services.smtp.connection, services.program.name) == ("pipelining", "kept", "own")

    smtp = {**ENDPOINT, "connection": "per-message"}
    stated = {**REAL, "server": {"imap": ENDPOINT, "smtp": smtp}, "client": {"submission": "sequential"}}
    found = scenario(tmp_path, own, **stated)
    services = found.with_program(found.using(NOWHERE), "imap", found.topology[0].program)
    assert (services.submission, services.smtp.connection) == ("sequential", "per-message")


def test_programs_that_differ_keep_their_own_submission(tmp_path: Path) -> None:
    """The header names both ways to submit; each group has its own."""
    found = scenario(tmp_path, "outlook-like", program(tmp_path, submission="pipelining", connection="kept"), **REAL)
    assert found.client.submission is None
    assert found.submission == "pipelining, sequential"
    each = [found.with_program(found.using(NOWHERE), "imap", group.program) for group in found.topology]
    assert [(one.submission, one.smtp.connection) for one in each] == [
        ("sequential", "per-message"),
        ("pipelining", "kept"),
    ]
    again = tmp_path / "again.yaml"
    again.write_text(found.to_yaml().replace("'***'", "secret"), encoding="utf-8")
    assert load_scenario(str(again)).digest() == found.digest()


def test_the_driver_aioimaplib_submits_through_the_other_library(tmp_path: Path) -> None:
    """Unless the scenario states another submission; a mixed scenario names both, and its file reads back."""

    def mixed(*protocols: str, **changes: Any) -> Scenario:
        topology = [{"profile": "loadsim-5.5/light", "users": 2, "protocol": each} for each in protocols]
        return load_scenario(str(written(tmp_path / "scenario.yaml", topology=topology, **REAL, **changes)))

    def by_group(found: Scenario) -> list[str]:
        drivers = open_drivers(Workload(found), contents(), found.using(NOWHERE)).values()
        return [driver.session(found.account(1), NullObserver()).submission.way for driver in drivers]  # type: ignore[attr-defined]

    assert mixed("aioimaplib").client.submission == "aiosmtplib"
    found = mixed("aioimaplib", "imap")
    assert found.submission == "aiosmtplib, sequential"
    assert by_group(found) == ["aiosmtplib", "sequential"]
    again = tmp_path / "again.yaml"
    again.write_text(found.to_yaml().replace("'***'", "secret"), encoding="utf-8")
    assert load_scenario(str(again)).digest() == found.digest()
    for submission in ("sequential", "aiosmtplib"):
        found = mixed("aioimaplib", "imap", client={"submission": submission})
        assert (found.submission, by_group(found)) == (submission, [submission] * 2)


def several(place: Path, programs: object, **changes: Any) -> Scenario:
    topology = [{"profile": "loadsim-5.5/light", "users": 2, "program": programs}]
    return load_scenario(str(written(place / "scenario.yaml", topology=topology, **changes)))


def test_results_name_all_programs_of_a_user(tmp_path: Path) -> None:
    """Drivers, header and digest have the first one and its companions, in this order."""
    found = several(tmp_path, ["outlook-like", "phone"])
    header = run_header(Workload(found), "r", "s", "p", None, None)
    assert header["programs"] == "outlook-like+phone"
    assert [group.driver_name for group in found.topology] == ["imap/outlook-like+phone"]
    drivers = open_drivers(Workload(found), contents(), NOWHERE)
    assert {name: driver.name for name, driver in drivers.items()} == {
        "imap/outlook-like+phone": "imap/outlook-like+phone"
    }
    ((name, (companion,)),) = open_companions(found, NOWHERE).items()
    assert (name, companion.name) == ("imap/outlook-like+phone", "imap/phone")
    again = tmp_path / "again.yaml"
    again.write_text(found.to_yaml(), encoding="utf-8")
    assert load_scenario(str(again)).digest() == found.digest()
    others = ("outlook-like", "phone", ["phone", "outlook-like"], ["outlook-like", "webmail"], ["thunderbird", "phone"])
    digests = {several(tmp_path, each).digest() for each in others}
    assert len(digests | {found.digest()}) == 6
    assert several(tmp_path, ["phone"]).digest() == several(tmp_path, "phone").digest()
    assert several(tmp_path, ["phone"]).to_yaml() == several(tmp_path, "phone").to_yaml()
    quick = program(tmp_path, "quick", idle=False, poll="5s")
    slow = [several(tmp_path, ["outlook-like", str(quick)]).digest()]
    program(tmp_path, "quick", idle=False, poll="6s")
    assert several(tmp_path, ["outlook-like", str(quick)]).digest() not in slow


def test_an_assistant_is_planned_for_its_group_only(tmp_path: Path) -> None:
    """It changes that group's plan, digests, start state and connections; its driver is not a companion's."""
    plain, found = several(tmp_path, "outlook-like"), several(tmp_path, ["outlook-like", "assistant"])
    watched = several(tmp_path, ["outlook-like", "phone"])
    workloads = [Workload(each) for each in (plain, watched, found)]
    assert plan_digest(workloads[0]) == plan_digest(workloads[1]) != plan_digest(workloads[2])
    assert workloads[1].start_state_digest() != workloads[2].start_state_digest()
    mailboxes = [StoredState(each).folders(1) for each in workloads]
    assert mailboxes[2] == mailboxes[0] | {DRAFTS: 0} != mailboxes[1]
    filled = {"mailbox": {"inbox": 100}}
    large = [Workload(several(tmp_path, each, **filled)) for each in ("outlook-like", ["outlook-like", "assistant"])]
    assert StoredState(large[0]).digest(1) != StoredState(large[1]).digest(1)
    assert further_connections(found) == further_connections(watched) == 2
    assert open_companions(found, NOWHERE) == {"imap/outlook-like+assistant": ()}
    ((name, drivers),) = open_assistants(found, NOWHERE).items()
    assert (name, [*drivers], drivers["call of assistant"].name) == (
        "imap/outlook-like+assistant",
        ["call of assistant"],
        "imap/assistant",
    )
    own = [activity.kind for activity in workloads[2].activities(1, kinds=lambda kind: kind != "call of assistant")]
    assert own == [activity.kind for activity in workloads[0].activities(1)]
    silent = program(tmp_path, "silent", idle=False, session="per-view", calls=CALLS | {"draft": 0})
    assert DRAFTS not in StoredState(Workload(several(tmp_path, ["outlook-like", str(silent)]))).folders(1)


def test_the_names_of_folders_count_only_where_they_are_used(tmp_path: Path) -> None:
    """Users without drafts keep their start state on a server that has a folder for drafts."""
    plain, found = several(tmp_path, "outlook-like"), several(tmp_path, ["outlook-like", "assistant"])

    def path(folder: str) -> str:
        return "Entwürfe" if folder == DRAFTS else folder

    states = [StoredState(Workload(each)) for each in (plain, found)]
    assert [state.digest(1, path) == state.digest(1) for state in states] == [True, False]


@pytest.mark.parametrize(
    ("programs", "line"),
    [
        ([], "topology[0].program: expected from 1 to 4 mail programs, found a list of 0"),
        (["assistant", "phone"], "topology[0].program: expected a program that does the user's tasks, before any with"),
        (["phone", "./phone.yaml"], "topology[0].program: expected each mail program once, found 'phone' twice"),
        (["outlook-like", "pine"], "topology[0].program: expected one of "),
        (["outlook-like", 7], "topology[0].program: expected names or paths of mail programs, found 7"),
        ({"phone": 1}, "topology[0].program: expected a text of printable characters, found "),
    ],
)
def test_bad_lists_of_programs_are_rejected_in_one_line(tmp_path: Path, programs: object, line: str) -> None:
    shipped = ROOT / "programs" / "phone.yaml"
    (tmp_path / "phone.yaml").write_text(shipped.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        several(tmp_path, programs)
    assert f": {line}" in str(refused.value), refused.value
    assert "\n" not in str(refused.value)


def test_further_connections_need_files_and_ports(tmp_path: Path) -> None:
    """Those of companions, and of programs with several, on the machine and in the engine of the user."""
    one = {"profile": "loadsim-5.5/light", "users": 4}
    topology = [one, {**one, "program": ["outlook-like", "phone", "webmail"]}]
    found = load_scenario(str(written(tmp_path / "scenario.yaml", topology=topology)))
    assert further_connections(found) == further_connections(found, range(1, 9)) == 8
    assert sum(further_connections(found, each) for each in all_users(8).cut([1, 1])) == 8
    assert further_connections(scenario(tmp_path, "phone"), [1, 2]) == 0
    assert further_connections(scenario(tmp_path, "thunderbird")) == 2 * 4
    by_mapi = [{**one, "protocol": "mapi"}]
    assert further_connections(load_scenario(str(written(tmp_path / "mapi.yaml", topology=by_mapi)))) == 4
    assert too_few_ports(10, 1, 20, 10) is None
    assert str(too_few_ports(10, 1, 20, 11)).startswith(
        "expected at least 2 addresses for 10 users and 11 further connections, found 1: "
    )
    with pytest.raises(ConfigError, match="for 1000000 users with 2000000 further connections an engine, found "):
        with_hard_limit(10_000, 1_000_000, 2_000_000)


def with_hard_limit(limit: int, users: int, further: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resource, "getrlimit", lambda _: (limit, limit))
        raise_open_file_limit(users, further)


@pytest.mark.parametrize("protocol", ["aioimaplib", "fake"])
def test_other_drivers_reject_all_programs_but_the_default(tmp_path: Path, protocol: str) -> None:
    """They have the default one only, and say so before any load."""
    only = rf"topology\[0\].program: expected outlook-like, the only program of the driver {protocol}, found "
    own, both = scenario(tmp_path, program(tmp_path, list=LISTED)), several(tmp_path, ["outlook-like", "phone"])
    for found, name in ((own, "own"), (both, r"outlook-like\+phone")):
        group = replace(found.topology[0], protocol=protocol)
        with pytest.raises(ConfigError, match=f"{only}{name}$"):
            check_protocols(replace(found, topology=(group,)))


def test_a_name_belongs_to_one_program(tmp_path: Path) -> None:
    """Neither two files nor an own file with the default's name can share results."""
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match=r"topology\[1\].program: expected a name for each program, found 'own'$"):
        scenario(tmp_path, program(tmp_path, idle=False), program(tmp_path / "other"))
    with pytest.raises(ConfigError, match="name: expected a name other than the default program"):
        load_program(str(program(tmp_path, "outlook-like", idle=False)))


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("name", "Own Program", "name: expected a name such as thunderbird, found 'Own Program'"),
        ("list", "UID FLAGS BODY[]", "list: expected items of UID, FLAGS, "),
        ("list", "FLAGS ENVELOPE", "list: expected UID and FLAGS among the items"),
        ("list", "UID FLAGS", "list: expected ENVELOPE, or the header fields from, message-id, subject, to"),
        ("list", "UID UID FLAGS ENVELOPE", "list: expected each item once, found a repeated one"),
        ("list", "UID FLAGS ENVELOPE BODY.PEEK[HEADER.FIELDS (X-LoadSim)]", "list: expected header fields without"),
        ("list", 7, "list: expected the items of a FETCH"),
        ("header_cache", "UID ENVELOPE", "header_cache: expected no, or the items FLAGS and UID"),
        ("message", "UID", "message: expected parts, or items with BODY.PEEK[]"),
        ("prefetch", True, "message: expected items with BODY.PEEK[] for a prefetch, found parts"),
        ("session", "short", "session: expected kept or per-view, found 'short'"),
        (
            "session",
            "per-view",
            "idle: expected no for a session that is per-view: it ends before new mail arrives, found",
        ),
        ("calls", CALLS, "session: expected per-view for a program with calls, found kept"),
        ("calls", CALLS | {"searches": 0}, "calls.searches: expected a whole number of at least 1, found 0"),
        ("calls", CALLS | {"draft": 2}, "calls.draft: expected "),
        ("calls", {"per_day": 1}, "calls.searches: "),
        ("status", "UNSEEN", "status: expected a mapping, found 'UNSEEN'"),
        ("status", {"items": "SIZE", "every": "1m"}, "status.items: expected items of MESSAGES, RECENT, UIDNEXT, "),
        ("status", {"items": "UNSEEN UNSEEN", "every": "1m"}, "status.items: expected items of MESSAGES, "),
        ("status", {"items": "UNSEEN", "every": "0s"}, "status.every: expected a duration above 0"),
        (
            "status",
            {"items": "UNSEEN", "every": "1ms"},
            "status.every: expected a duration of at least 0.1s, found 0.0",
        ),
        ("first_sync", {"bodies": "some"}, "first_sync.bodies: expected all, none, or a number of messages"),
        ("first_sync", {"bodies": 0}, "first_sync.bodies: expected all, none, or a number of messages of at least 1"),
        ("first_sync", {"bodies": "none"}, "header_cache: expected items to keep headers up to date for a first sync"),
        ("first_sync", {}, "first_sync.bodies: "),
        ("quota", "often", "quota: expected yes or no, found 'often'"),
        ("poll", "0.0000000001s", "poll: expected a duration of at least 0.1s, found 1e-10s"),
    ],
)
def test_bad_files_are_rejected_in_one_line(tmp_path: Path, key: str, value: object, line: str) -> None:
    path = program(tmp_path, **{key: value}) if key != "name" else tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump({"name": "own", key: value}), encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_program(str(path))
    assert str(refused.value).startswith(f"{path}: {line}"), refused.value
    assert "\n" not in str(refused.value)


def test_a_first_sync_with_bodies_fetches_whole_messages(tmp_path: Path) -> None:
    cached = {"header_cache": "FLAGS"}
    with pytest.raises(ConfigError, match=r"message: expected items with .* for a first sync with bodies, found parts"):
        load_program(str(program(tmp_path, **cached, first_sync={"bodies": 20})))
    unsized = {"list": "UID FLAGS ENVELOPE", "message": "BODY.PEEK[]", "first_sync": {"bodies": "all"}}
    with pytest.raises(ConfigError, match=r"list: expected RFC822.SIZE for a first sync with bodies, .* found 'UID"):
        load_program(str(program(tmp_path, **cached, **unsized)))
    headers = load_program(str(program(tmp_path, **cached, first_sync={"bodies": "none"})))
    assert headers.first_sync is not None
    assert headers.first_sync.bodies == 0
    whole = load_program(str(program(tmp_path, **cached, message="BODY.PEEK[]", first_sync={"bodies": "all"})))
    assert whole.first_sync is not None
    assert whole.first_sync.bodies is None
