"""Targets that are files: timing logs, scenarios and profiles, settings, tables of accounts, run directories."""

import json
import shutil
import tempfile
from atexit import register
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import numpy as np
from finished_searches import WHOLE
from hostile_logs import Parts, write_engine, write_machine
from storage_recordings import recording, sample

from loadsim.analysis.criteria import criteria_of
from loadsim.analysis.recorded_run import read_run
from loadsim.analysis.summary import summarise
from loadsim.campaign.file import FILE_NAME, read_campaign, resumed
from loadsim.campaign.runs import DAMAGED, CampaignRun, HookResult
from loadsim.capacity.capacity import Capacity
from loadsim.capacity.document import describe_capacity
from loadsim.documents.yaml_reader import Origin, override, parse, read_yaml, shipped, write_yaml
from loadsim.errors import ConfigError, LogError
from loadsim.report.markdown import to_markdown
from loadsim.report.one_run import describe_run
from loadsim.report.text import to_text
from loadsim.scenario.accounts import read_table
from loadsim.scenario.document import ScenarioDocument
from loadsim.scenario.profile import load_profile
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.suite import load_suite
from loadsim.storage.document import describe_storage, describe_tests, storage_json
from loadsim.storage.recording import RECORDING, read_recording
from loadsim.suite.cells import scenarios_of, terms_of
from loadsim.suite.document import describe_suite
from loadsim.suite.runs import run_name
from loadsim.suite.suite import SuiteFigures
from loadsim.timinglog.exports import export_csv
from loadsim.timinglog.reader import read_log
from loadsim.timinglog.records import KINDS

from .mutate import Make, changed, mutated, odd_document
from .target import Target


@cache
def place() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="fuzz"))
    register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _file(name: str, data: bytes) -> Path:
    path = place() / name
    path.write_bytes(data)
    return path


@cache
def _sound_logs() -> tuple[Parts, Parts]:
    directory = place() / "sound"
    return Parts(write_engine(directory / "engine.tlog")), Parts(write_machine(directory / "machine.tlog"))


def _log_bytes(parts: Parts) -> bytes:
    return parts.write(place() / "made.tlog").read_bytes()


def _damaged(random: Random) -> bytes:
    data = _log_bytes(random.choice(_sound_logs()))
    for _ in range(random.choice((1, 1, 2, 5))):
        data = changed(random, data, (b"LSTLOG\r\n", b"\xff" * 4, b"\0" * 8))
    return data


LOG_WORDS = """
    run client engine users engine_users hand criteria limits weights planned_load window_s
    groups mode stress canonical start_ns ended completed given_up lost_users lags_us at_ns core_shares epoch_ns
    format night_s READ SEND LOGON imap medium machine generator_cpu hits number first_user server_here
""".split()  # noqa: SIM905


def _odd_log(random: Random) -> bytes:
    """A log whose checksums are right, and whose contents are not."""
    sound = random.choice(_sound_logs())
    parts = Parts.__new__(Parts)
    parts.header, parts.blocks = sound.header, [list(block) for block in sound.blocks]
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        block = random.choice(parts.blocks)
        kind = random.randrange(10)
        if kind < 4:
            parts.header = odd_document(random, parts.header, LOG_WORDS)
        elif kind == 4:
            parts.blocks.insert(random.randrange(len(parts.blocks) + 1), list(block))
        elif kind == 5:
            parts.blocks.remove(block)
            if not parts.blocks:
                break
        elif isinstance(block[1], bytes):
            block[1] = _odd_records(random, block)
        else:
            block[1] = odd_document(random, block[1], LOG_WORDS)
    return _log_bytes(parts)


INSTANTS = (0, 1, -1, 2**31, 2**40, 2**50, 2**55, 2**62, 2**63 - 1, -(2**63), -(2**50))


def _odd_records(random: Random, block: list[Any]) -> bytes:
    kind = next((each for each in KINDS.values() if each.number == block[0]), None)
    size = kind.plain.itemsize if kind else 0
    if kind is None or len(block[1]) < size or random.random() < 0.1:
        return changed(random, block[1])
    records = np.frombuffer(block[1][: len(block[1]) // size * size], kind.plain).copy()
    name = random.choice(kind.plain.names or ())
    for number in range(len(records)) if random.random() < 0.2 else [random.randrange(len(records))]:
        field = records[name]
        if field.dtype.kind in "iu":
            info = np.iinfo(field.dtype)
            field[number] = max(int(info.min), min(int(info.max), random.choice((*INSTANTS, int(field[number]) + 1))))
        elif field.dtype.kind == "f":
            most = float(np.finfo(field.dtype).max)
            field[number] = random.choice((0.0, -1.0, most, -most, float("inf"), float("nan"), 1e-38, 1e9))
        else:
            field[number] = bytes(random.randrange(256) for _ in range(random.randrange(20)))
    return records.tobytes()


def _read(path: Path, depth: int) -> None:
    """Do what the commands on logs do; the deeper, the more."""
    log = read_log(path)
    if depth:
        for kind in ("tasks", "mails", "commands", "health"):
            export_csv(log, StringIO(), kind)
        summarise([path], commands=True)


def _log(data: bytes) -> None:
    _read(_file("case.tlog", data), 0)


def _log_answer(data: bytes) -> None:
    _read(_file("case.tlog", data), 2)


SUITES = tuple(path.read_bytes() for path in sorted(shipped("suites").glob("*.yaml")))
SCENARIOS = tuple(path.read_bytes() for path in sorted(shipped("scenarios").glob("*.yaml")))
PROFILES = tuple(path.read_bytes() for path in sorted(shipped("profiles").rglob("*/medium.yaml")))
OWN = b"""\
name: x
server: {imap: {host: 127.0.0.1, port: 143, tls: none}, smtp: {host: 127.0.0.1, port: 25, tls: none}}
domain: sim.test
accounts: {user: "user{index}", password: "secret"}
topology: [{profile: loadsim-5.5/light, users: 3}]
lists: {count: 2, size: {min: 2, average: 2.5, max: 3}}
run: {day_length: 120s, ramp_up: 5s, warm_up: 12s, window: 30s, seed: 3}
criteria: {score_ms: {max: 10}, tasks.scored: {failed_share: {max: 5%}}}
limits: {done: 80%, hits: 1, generator: {lag_p99_ms: 50, lag_share: null}}
weights: {READ: 10}
"""
YAML_WORDS = (
    b": ", b"- ", b"\n", b"  ", b"{", b"}", b"[", b"]", b"&a ", b"*a", b"!!python/object:os.system ", b"!!int ",
    b"!!binary ", b"!!timestamp ", b"!!set ", b"!!omap ", b"!!float ", b"<<: ", b"---\n", b"...\n", b"%YAML 9.9\n",
    b"? ", b"| \n", b"> \n", b"#", b"null", b"~", b"yes", b".inf", b".nan", b"1e400", b"9" * 5000, b"2001-01-01",
    b"0x", b"1:30", b"0s", b"99999999h", b"1h1m", b"100%", b"101%", b"1" * 400 + b"%", b"22K", b"9999999999999M",
    b"server", b"embedded", b"domain", b"accounts", b"topology", b"users", b"profile", b"loadsim-5.5/medium",
    b"module", b"lists", b"cover", b"count", b"size", b"run", b"day_length", b"window", b"mode", b"stress", b"seed",
    b"criteria", b"score_ms", b"max", b"limits", b"generator", b"weights", b"READ", b"client", b"engines",
    b"submission", b"initialise", b"abort_on", b"cluster", b"night_length", b"tls", b"starttls", b"sources", b"::1",
    b"{index}", b"{index:05d}", b"a.b.c", b"new_mail", b"browse", b"based_on", b"start_state", b"sources:",
    b"&a [*a, *a, *a]", b"&b [*a, *a, *a, *a]", b"x: &x {y: *x}\n",
)  # fmt: skip


def _scenario(data: bytes) -> None:
    load_scenario(str(_file("case.yaml", data)), passwords=False)


def _suite(data: bytes) -> None:
    load_suite(str(_file("case.yaml", data)))


@cache
def _sound_state() -> Mapping[str, Any]:
    suite = load_suite("first-suite")
    terms = terms_of(suite, scenarios_of(suite, passwords=False))
    slot = suite.slots[0]
    run = CampaignRun(
        run=f"runs/{run_name(suite, slot, 1)}",
        cell=slot.cell.name,
        users=2,
        began="2026-01-05T08:00:00+00:00",
        took_s=61.0,
        result="passed",
        validity="valid",
        passed=True,
        score_ms=10.0,
        scored=("imap: READ",),
        tasks_per_s=5.0,
        before=(HookResult("x", 1.0, None),),
    )
    return SuiteFigures(Path(), terms, (run,)).document


def _odd_state(random: Random) -> bytes:
    """A sound `campaign.json` of a suite or a search with odd values."""
    sound = random.choice((_sound_state(), WHOLE.document))
    return json.dumps(odd_document(random, dict(sound), LOG_WORDS)).encode()


def _campaign(data: bytes) -> None:
    """Read a state, show what it has, and resume it."""
    _file(FILE_NAME, data)
    found = read_campaign(place(), SuiteFigures, Capacity)
    if isinstance(found, SuiteFigures):
        to_text(describe_suite(found, ()), 80)
    elif found.found is not None:
        to_text(describe_capacity(found, ()), 80)
    with suppress(ConfigError):
        resumed(replace(WHOLE, directory=place()), may_change=())


def _odd_recording(random: Random) -> bytes:
    """A sound `storage.jsonl` with odd values, sealed."""
    of = recording([[sample()] * 3, [sample()] * 3])
    lines: list[Any] = [list(of.header), ["window", [1, True]], ["host", [0.5, 0.5]], ["sizes", [1, 2]]]
    lines += [["sample", {"database": name, "sample": each}] for name, all_of in of.samples.items() for each in all_of]
    lines += [["checked", [{"bytes": 1, "took_s": 1.0}] * 2], ["kernel_errors", []], ["end", [False, False, None]]]
    content = b""
    for line in odd_document(random, lines, LOG_WORDS):
        sealed = [*line, crc32(content)] if isinstance(line, list) and line[:1] == ["end"] else line
        content += json.dumps(sealed).encode() + b"\n"
    return content


def _storage(data: bytes) -> None:
    """Report on a storage test, as `loadsim storage report` does with one directory and with two."""
    _file(RECORDING, data)
    found = read_recording(place())
    try:
        figures, documents = storage_json(found), (describe_storage(found), describe_tests([found, found]))
    except DAMAGED:
        raise ConfigError("damaged") from None
    json.dumps(figures)
    for document in documents:
        to_markdown(document)
        to_text(document, 80)


def _profile(data: bytes) -> None:
    load_profile(str(_file("profile.yaml", data)))


def _yaml(data: bytes) -> None:
    read_yaml(data.decode("utf-8", "replace"), "x")


def _odd_yaml(texts: tuple[bytes, ...]) -> Make:
    words = [word.decode("utf-8", "replace") for word in YAML_WORDS if word.isalnum() or b"_" in word]
    documents = [read_yaml(text.decode(), "x") for text in texts]

    def make(random: Random) -> bytes:
        document = odd_document(random, random.choice(documents), words)
        try:
            data = write_yaml(document).encode("utf-8", "replace")
        except (RecursionError, ValueError):
            data = json.dumps(document).encode()
        return changed(random, data, YAML_WORDS) if random.random() < 0.2 else data

    return make


SETTINGS = (
    b"topology.0.users=200", b"run.window=30s", b"accounts.password=x", b"criteria.score_ms={max: 5}",
    b"limits.generator.lag_p99_ms=1", b"lists.size.max=4\0run.seed=1", b"server.imap.port=143", b"weights.READ=1",
)  # fmt: skip
SETTING_WORDS = (
    *YAML_WORDS, b"=", b".", b"0", b"\xc2\xb2", b"\xd9\xa3", b"-1", b"..", b"\0", b"topology.0.", b"criteria.",
)  # fmt: skip


def _settings(data: bytes) -> None:
    document = json.loads(json.dumps(_own_document()))
    settings = data.decode("utf-8", "surrogateescape").split("\0")  # as the command line brings them
    origin = Origin("case.yaml", override(document, settings))
    parse(ScenarioDocument, document, origin)


@cache
def _own_document() -> Any:
    return read_yaml(OWN.decode(), "x")


TABLES = (
    b'user,password\nann,secret\nbob,"a,b"\n',
    b"user,password,address\r\nann,x,ann@sim.test\r\nbob,y,bob@sim.test\r\n",
)
TABLE_WORDS = (
    b",", b'"', b"\n", b"\r\n", b"user", b"password", b"address", b"@sim.test", b"\0", b"\xef\xbb\xbf", b"ann", b"@",
    b"x" * 140_000,
)  # fmt: skip


def _table(data: bytes) -> None:
    read_table(_file("accounts.csv", data), "sim.test")


@cache
def _figures() -> Any:
    return summarise([write_engine(place() / "figures" / "c1.0.tlog")], commands=True).figures


def _criteria(data: bytes) -> None:
    figures = _figures()
    criteria_of(_file("criteria.yaml", data), figures.by_protocol, figures.probes or (), figures.stress)


CRITERIA = (
    b"criteria: {score_ms: {max: 10}, tasks.READ: {p95_ms: {below: 5}}, delivery.p95_ms: null}\n",
    b"criteria: {generator.rss_bytes: {max: 22M}, delivery.accepted: {min: 3}, done_share: {min: 99.5%}}\n",
    b"criteria: {by_protocol.imap.tasks.SEND.mean_ms: {min: 1, max: 2}, failed_share: {max: 5%}}\n",
    OWN,
)
CRITERIA_WORDS = (
    *YAML_WORDS, b"tasks", b"scored", b"inbox", b"by_protocol", b"imap", b"p95_ms", b"below", b"min", b"delivery",
    b"throughput", b"tasks.READ.p95_ms", b"lost", b"undelivered", b".",
)  # fmt: skip

EVENTS = (
    b'{"at": "2026-01-05T08:00:00+00:00", "t_s": 1.5, "event": "start", "users": 2}\n'
    b'{"t_s": 3.0, "event": "engine lost", "engine": "0", "why": "signal 9"}\n'
    b'{"t_s": 4.0, "event": "abort", "why": "x"}\n{"event": "end", "t_s": 9.0}\n',
)
SPLIT = b"\n%%%\n"


def _run_directory(data: bytes) -> None:
    """A sound log; the events, and behind a mark the scenario, are the case's."""
    directory = place() / "run"
    if not directory.exists():
        write_engine(directory / "logs" / "c1.0.tlog")
    events, _, scenario = data.partition(SPLIT)
    (directory / "events.jsonl").write_bytes(events)
    (directory / "scenario.yaml").write_bytes(scenario)
    to_markdown(describe_run(read_run(str(directory))))


def _odd_events(random: Random) -> bytes:
    lines = [json.loads(line) for line in EVENTS[0].splitlines()]
    data = b"\n".join(json.dumps(each).encode() for each in odd_document(random, lines, LOG_WORDS) or [1])
    return data + SPLIT + OWN


def _first(*makes: Make) -> Make:
    def make(random: Random) -> bytes:
        return random.choice(makes)(random)

    return make


BAD_INPUT = (ConfigError,)

YAML_STEPS = 300
"""Steps for each byte of a document: PyYAML, which is written in Python, needs up to 75."""


def _document(name: str, make: Make, run: Callable[[bytes], object], **more: Any) -> Target:
    return Target(name, make, run, BAD_INPUT, steps_per_byte=YAML_STEPS, memory_per_byte=4000, **more)


TARGETS = (
    Target("log-bytes", _damaged, _log, (LogError,), memory_per_byte=4000),
    Target("log-contents", _odd_log, _log, (LogError,), memory_per_byte=4000),
    Target("log-answer", _odd_log, _log_answer, (LogError,), memory_per_byte=4000),
    Target("yaml", mutated((OWN, *CRITERIA, *SCENARIOS), YAML_WORDS), _yaml, BAD_INPUT, steps_per_byte=YAML_STEPS),
    _document("scenario", _first(mutated((OWN,), YAML_WORDS), _odd_yaml((OWN, *SCENARIOS))), _scenario),
    _document("suite", _first(mutated(SUITES, YAML_WORDS), _odd_yaml(SUITES)), _suite),
    Target("campaign", _odd_state, _campaign, BAD_INPUT, memory_per_byte=4000),
    Target("storage", _odd_recording, _storage, BAD_INPUT, memory_per_byte=4000),
    _document("profile", _first(mutated(PROFILES, YAML_WORDS), _odd_yaml(PROFILES)), _profile, share=0.5),
    _document("set", mutated(SETTINGS, SETTING_WORDS), _settings),
    Target("accounts", mutated(TABLES, TABLE_WORDS), _table, BAD_INPUT),
    # An unknown name is compared with those of all figures: 341,852 steps.
    _document("criteria", mutated(CRITERIA, CRITERIA_WORDS), _criteria, base_steps=2_000_000),
    replace(
        _document(
            "run-directory",
            _first(_odd_events, mutated(tuple(each + SPLIT + OWN for each in EVENTS), YAML_WORDS)),
            _run_directory,
        ),
        documented=(),
    ),
)
