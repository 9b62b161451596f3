"""Absurd files and settings: read, or refused in one line and exit status 2."""

import json
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from timing_samples import DELIVERED, LOGGED_ON, done, write_sample

from loadsim.build_fingerprint import build_fingerprint
from loadsim.cli import BAD_INPUT, main
from loadsim.cluster.channel import FROM_A_WORKER, WorkerChannel
from loadsim.cluster.placement import fit_clients
from loadsim.cluster.reliable_channel import ReliableChannel
from loadsim.dryrun import plan_cache
from loadsim.engine.control import decode
from loadsim.errors import MOST_SHOWN, ConfigError
from loadsim.scenario.scenario import load_scenario
from loadsim.timinglog.planned_load import PlannedLoad

SOFTWARE = build_fingerprint()

SOUND: dict[str, Any] = {
    "name": "own",
    "server": {"imap": {"host": "127.0.0.1", "port": 1}, "smtp": {"host": "127.0.0.1", "port": 2}},
    "accounts": {"user": "user{index}", "password": "x"},
    "topology": [{"profile": "loadsim-5.5/light", "users": 2}],
    "run": {"day_length": "20s", "duration": "6s", "warm_up": "1s", "window": "4s"},
    "lists": {"count": 2, "size": {"min": 1, "average": 2, "max": 3}},
    "client": {},
    "weights": {"READ": 1},
    "criteria": {"score_ms": {"below": 1000}},
    "limits": {"hits": 1, "generator": {"cpu": 0.5}},
    "abort_on": {},
    "cluster": {},
    "allow_hosts": [],
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A working directory of its own, and so much memory and no more."""
    monkeypatch.chdir(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (1 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def refused(reference: str, overrides: tuple[str, ...] = ()) -> str:
    try:
        load_scenario(reference, overrides)
    except ConfigError as refusal:
        line = str(refusal)
        assert len(line) < 2000 and "\n" not in line, line
        assert "expected" in line, line
        return line
    return ""


def written(text: str | bytes) -> str:
    Path("own.yaml").write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return "own.yaml"


def with_key(text: str) -> str:
    return yaml.safe_dump({key: value for key, value in SOUND.items() if key not in text}) + text


LAUGHS = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MAPS = "a0: &a0 {x: 1, y: 2}\n" + "".join(
    f"a{n}: &a{n} {{{', '.join(f'k{k}: *a{n - 1}' for k in range(9))}}}\n" for n in range(1, 12)
)
MERGES = "m0: &m0 {a0: 1, b0: 2}\n" + "".join(
    f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}], a{n}: 1}}\n" for n in range(1, 10)
)

DOCUMENTS: dict[str, str | bytes] = {
    "aliases of lists": LAUGHS + "topology: *a11\nserver: embedded\n",
    "aliases of mappings": MAPS + "server: *a11\ntopology: *a11\n",
    "aliases in criteria": MAPS + with_key("criteria: *a11\n"),
    "merge keys of merge keys": MERGES + with_key("client: *m9\n"),
    "a list in itself": with_key("topology: &a [*a]\n"),
    "criteria in themselves": with_key("criteria: &a {score_ms: *a}\n"),
    "deep lists": with_key("topology: " + "[" * 5000 + "]" * 5000),
    "deep criteria": with_key("criteria: " + "{a: " * 200 + "1" + "}" * 200),
    "a huge number": with_key("run: {seed: " + "9" * 5000 + "}"),
    "a number beyond reals": with_key("weights: {READ: " + "9" * 400 + "}"),
    "a negative number beyond reals": with_key("weights: {READ: -" + "9" * 400 + "}"),
    "many users": with_key("topology: [{profile: loadsim-5.5/light, users: 99999999999999}]"),
    "a long fraction of a share": with_key("criteria: {failed_share: {max: 0." + "9" * 5000 + "%}}"),
    "a size beyond reals, as a text": with_key("criteria: {generator.rss_bytes: {max: " + "9" * 400 + "M}}"),
    "a long duration": with_key("run: {day_length: " + "9" * 400 + "h}"),
    "a long share": with_key("limits: {done: '" + "9" * 5000 + "%'}"),
    "not a number": with_key("weights: {READ: .nan}"),
    "a date": with_key("name: 2020-01-01"),
    "an impossible date": with_key("name: !!timestamp 2020-99-99"),
    "an explicit integer": with_key("name: !!int x"),
    "binary": with_key("name: !!binary aGVsbG8="),
    "an ordered map": with_key("run: !!omap [a: 1]"),
    "python": with_key("name: !!python/object/apply:os.system ['touch ran']"),
    "an explicit mapping": with_key("name: !!map []"),
    "a key twice": with_key("run: {seed: 1, seed: 2}"),
    "a key that is a list": with_key("run: {[1, 2]: 3}"),
    "a key that is a number": with_key("run: {1: 3}"),
    "a key of the document that is a number": with_key("1: 3"),
    "a key of weights that is a number": with_key("weights: {1: 3}"),
    "a key of criteria that is a number": with_key("criteria: {1: {below: 3}}"),
    "a key of a limit that is a number": with_key("criteria: {score_ms: {1: 3}}"),
    "merge keys": with_key("run: {<<: {seed: 1}}"),
    "a merge of a scalar": with_key("run: {<<: 1}"),
    "a merge of itself": with_key("run: &a {<<: *a}"),
    "NUL": with_key('name: "a\\0b"'),
    "a raw NUL": b"name: a\0b\n",
    "half a surrogate": with_key('name: "\\ud800"'),
    "half a surrogate for a profile": with_key('topology: [{profile: "\\ud800.yaml", users: 1}]'),
    "NUL in a path": with_key('accounts: {csv: "a\\0b"}'),
    "escapes in a key": with_key('"\\e[2J": 1'),
    "turned writing": with_key("name: \u202eabc"),
    "UTF-16": "name: x".encode("utf-16"),
    "other bytes": b"\xff\xfe\xfd",
    "nothing": b"",
    "a scalar": b"x",
    "several documents": b"a: 1\n---\nb: 2\n",
    "an alias that is none": b"a: *b\n",
    "tabs": b"a:\n\t- b\n",
    "a long key": with_key("? " + "k" * 100_000 + "\n: 1\n"),
    "a long profile": with_key("topology: [{profile: " + "p" * 100_000 + ", users: 1}]"),
    "a long list of groups": with_key("topology: [" + "{profile: loadsim-5.5/light, users: 1}," * 200 + "]"),
    "a profile that is a directory": with_key("topology: [{profile: ./, users: 1}]"),
    "a profile that is a device": with_key("topology: [{profile: /dev/zero, users: 1}]"),
    "accounts that are a device": with_key("accounts: {csv: /dev/zero}"),
    "an authority that is a device": with_key(
        "server: {imap: {host: 127.0.0.1, tls: starttls, ca_file: /dev/zero}, smtp: {host: 127.0.0.1}}"
    ),
}

READ = {"a date", "a merge of itself", "merge keys", "a long list of groups", "turned writing"}
"""Those of which nothing is wrong, or may be."""


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
def test_odd_documents_are_read_or_refused_in_one_line(name: str) -> None:
    line = refused(written(DOCUMENTS[name]))
    assert not Path("ran").exists()
    assert line or name in READ, "it was read"
    assert line.isprintable()


@pytest.mark.parametrize("name", ["aliases of lists", "deep criteria", "escapes in a key", "half a surrogate"])
def test_plan_refuses_odd_documents_in_one_line(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["plan", written(DOCUMENTS[name])]) == BAD_INPUT
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said[:-1].isprintable()


@pytest.mark.parametrize("kind", ["/dev/zero", "/dev/null", "/dev/tty", ".", "pipe.yaml", "socket.yaml", "large.yaml"])
def test_devices_pipes_and_large_files_are_refused(kind: str) -> None:
    """Neither devices nor pipes without a writer hold anybody up, and a large file is not read whole."""
    if kind == "pipe.yaml":
        os.mkfifo(kind)
    elif kind == "socket.yaml":
        import socket

        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(kind)
    elif kind == "large.yaml":
        with Path(kind).open("wb") as file:
            file.truncate(100 << 20)
    assert refused(kind)


def test_a_pipe_with_a_writer_is_read() -> None:
    """Shells make such a pipe for <(...)."""
    text = yaml.safe_dump(SOUND).encode()
    reading, writing = os.pipe()
    try:
        os.write(writing, text)
        os.close(writing)
        assert load_scenario(f"/dev/fd/{reading}").users == 2
    finally:
        os.close(reading)


SETTINGS = [
    "",
    "=1",
    "a..b=1",
    "name.x=1",
    "name.x.y.z=1",
    "topology.-1=1",
    "topology.0=1",
    "topology.0.users.x=1",
    "topology.\u0660.users=3",
    "topology." + "1" * 5000 + ".users=3",
    "topology.\u00b2.users=3",
    "topology=[]",
    "run.seed=" + "9" * 5000,
    "run.seed=[" + "[" * 3000,
    "run=" + "{a: " * 100 + "1" + "}" * 100,
    ".".join(["run"] * 5000) + "=1",
    "criteria.score_ms=x",
    "criteria.score_ms.below=.inf",
    "criteria.score_ms.below.x=1",
    "criteria." + "x" * 5000 + "=1",
    "criteria=[1]",
    "weights=~",
    "server=~",
    "accounts=hunter2",
    "name=\ud800",
    "name=\x00",
    "\x1b[2J=1",
    "name=!!binary aGVsbG8=",
    "name=&a [*a]",
    "run.day_length=1e400",
    "allow_hosts.0=x",
]


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: ascii(setting[:30]))
def test_odd_settings_are_read_or_refused_in_one_line(setting: str) -> None:
    """A setting is taken, or refused in one line that shows no password."""
    line = refused(written(yaml.safe_dump(SOUND)), (setting,))
    assert (line or setting.isascii() is False) and "hunter2" not in line
    assert line.isprintable()


def line_of(kind: str, about: Any) -> bytes:
    return json.dumps({kind: about}, default=str).encode() + b"\n"


@pytest.mark.parametrize("line", [b"[" * 100_000, b"9" * 5000, b'{"on":' + b"9" * 5000 + b"}"], ids=len)
def test_long_lines_are_refused(line: bytes) -> None:
    for read in (lambda: decode(line, FROM_A_WORKER), lambda: ReliableChannel(lambda _: None).feed(line)):
        with pytest.raises(ValueError, match=r"control protocol|link"):
            read()


def test_a_malformed_line_of_a_machine_ends_its_connection() -> None:
    for line in (b"1 nonsense\n", b"1 " + line_of("unknown", 1), b'1 {"on": true, "over": true}\n'):
        channel = WorkerChannel()
        with pytest.raises(ValueError, match="control protocol: "):
            channel.link.feed(line)
        assert channel.ended is None


@pytest.mark.parametrize("about", [{}, {"software": "other"}])
def test_a_client_with_other_software_is_refused(about: Any) -> None:
    with pytest.raises(ConfigError, match=r"^client a: expected "):
        fit_clients({"a": about})


@pytest.mark.parametrize(
    "harm",
    [
        lambda file: file.write_text(file.read_text().replace("READ", "RE\\ud800AD").replace("[", "[-1,")),
        lambda file: file.write_bytes(b'{"software": ' + b"9" * 5000 + b"}"),
        lambda file: file.chmod(0o666),
        lambda file: file.parent.chmod(0o777),
        lambda file: (file.unlink(), os.mkfifo(file, 0o600)),
        lambda file: (file.unlink(), file.symlink_to("/dev/zero")),
        lambda file: (file.unlink(), file.mkdir()),
    ],
)
def test_a_cached_plan_that_others_can_write_is_not_used(
    monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], object]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path.cwd() / "cache"))
    scenario = load_scenario(written(yaml.safe_dump(SOUND)))
    load = PlannedLoad(scenario.duration_s, {"READ": (1, 2)})
    plan_cache.keep(scenario, "loadsim", load)
    assert plan_cache.cached(scenario, "loadsim") == load
    (file,) = plan_cache.cache_directory().glob("*.json")
    assert file.stat().st_mode & 0o077 == 0 and file.parent.stat().st_mode & 0o077 == 0
    harm(file)
    assert plan_cache.cached(scenario, "loadsim") is None


@pytest.mark.slow
def test_odd_files_of_a_run_directory_are_read_or_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A report leaves out what is no event of ours, and shows none of its control characters."""
    tasks = [LOGGED_ON, done("READ", 1000, 10)]
    write_sample(Path("run/logs/c1.tlog"), tasks=tasks, mails=DELIVERED)
    odd = ["", "[", "[]", "1", "[" * 100_000, '{"event": 1}', '{"event": "failures", "times": "x"}', "\x00"]
    odd += ['{"event": "failures", "times": 1e400}', '{"event": "failure", "at_s": "x"}', '{"event": "x", "at_s": NaN}']
    odd += ['{"event": "failure", "task": "READ", "outcome": "lost", "kind": "\\u001b[2J", "at_s": 1}']
    Path("run/events.jsonl").write_text("\n".join(odd), encoding="utf-8")
    Path("run/scenario.yaml").write_text(LAUGHS, encoding="utf-8")
    for name in ("r.md", "r.html"):
        assert main(["report", "run", "-o", name]) == 0
        assert "\x1b" not in Path(name).read_text("utf-8")


@pytest.mark.parametrize("name", ["aliases of mappings", "not a number", "a key of weights that is a number"])
def test_odd_weights_and_criteria_are_read_or_refused(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Weights and criteria of the command line come through the same door."""
    log = write_sample(Path("c1.tlog"), tasks=[LOGGED_ON, done("READ", 1000, 10)], mails=DELIVERED)
    for option in ("--weights", "--criteria"):
        for file in (written(DOCUMENTS[name]), "/dev/zero"):
            status = main(["log", "answer", str(log), option, file])
            said = capsys.readouterr().err
            assert status in (0, 1, BAD_INPUT, 3)
            assert status != BAD_INPUT or all(line.startswith("loadsim: ") for line in said.splitlines())
            assert said.count("\n") <= MOST_SHOWN + 1
            assert status == BAD_INPUT or option == "--criteria"
