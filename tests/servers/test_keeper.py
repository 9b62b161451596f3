"""A test run that is killed leaves nothing behind: no server, no daemon, no network namespace, no file."""

import os
import re
import secrets
import select
import signal
import subprocess
import sys
from pathlib import Path

import keeper
import pytest
from paths import ROOT
from patience import PATIENCE_S

RUN = """
import os, subprocess, sys, time
from contextlib import ExitStack
from pathlib import Path
sys.path.insert(0, "tests/support")
import keeper
from mailservers import numbered_accounts, short_directory
from bench.hosts import hosts
from bench.processes import short_directory as directory_of_benchmarks
from loadsim.servers.dovecot_postfix import start_dovecot_postfix

finish = keeper.start()
stack = ExitStack()
for directory in (short_directory(), directory_of_benchmarks()):
    place = Path(stack.enter_context(directory)) / "server"
    stack.enter_context(start_dovecot_postfix(numbered_accounts(1), {}, place))
with stack, hosts(1) as [host]:
    daemon = "import os, time; os.fork() and os._exit(0); os.setsid(); time.sleep(600)"
    subprocess.run([sys.executable, "-c", daemon], check=True)
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    with host.start([sys.executable, "-c", deaf], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        print(os.environ[keeper.TOKEN], os.environ[keeper.PLACE], host.namespace, flush=True)
        sys.stdin.read()
"""
"""A run that has started a bit of everything, and waits to be killed."""


def test_an_unprivileged_test_run_is_cleared_away(tmp_path: Path) -> None:
    """As an ordinary user with root's PATH, in which a directory is root's only."""
    token = secrets.token_hex(4)
    keeper.place_of(token).mkdir()
    (tmp_path / "ip").touch(mode=0o600)
    command = [sys.executable, keeper.__file__, token]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, env={"PATH": str(tmp_path)}, check=False)
    assert (ended.returncode, keeper.place_of(token).exists()) == (0, False)


@pytest.mark.nightly(part="hosts")
def test_no_process_or_file_outlives_a_killed_test_run() -> None:
    """Servers, also those of benchmarks, a daemon, a process that ignores requests, their files and host are gone."""
    command = [sys.executable, "-c", RUN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as run:
        assert run.stdout is not None
        token, place, namespace = run.stdout.readline().split()
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        [keeping] = [pid for pid in children if "keeper.py" in Path(f"/proc/{pid}/cmdline").read_text()]
        names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in keeper.processes(token)}
        assert {"dovecot", "master", "python"} <= {re.sub(r"python.*", "python", name) for name in names}
        watched = os.pidfd_open(int(keeping))
        run.kill()
    try:
        assert select.select([watched], [], [], PATIENCE_S)[0], "the keeper did not end"
    finally:
        os.close(watched)
    assert run.returncode == -signal.SIGKILL
    assert keeper.processes(token) == set()
    assert not Path(place).exists()
    assert namespace not in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
