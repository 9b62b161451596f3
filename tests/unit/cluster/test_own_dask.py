"""The user's settings of Dask: a cluster of loadsim is the same with them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from patience import PATIENCE_S

SHOW = """
import json, logging, os
from loadsim.cluster.security import Security
import dask
about = [dask.config.config, Security().require_encryption, logging.getLogger("distributed.scheduler").level]
print(json.dumps([*about, os.environ["HOME"], os.environ.get("DASK_A")]))
"""


def shown(home: Path, **variables: str) -> list[Any]:
    """Dask's settings in a process, and those that its import read."""
    environment = {**os.environ, "HOME": str(home), **variables}
    command = [sys.executable, "-P", "-W", "error", "-c", SHOW]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert answer.stderr == ""
    found: list[Any] = json.loads(answer.stdout)
    return found


def test_a_users_dask_settings_do_not_apply(tmp_path: Path) -> None:
    """No file, even a malformed one, and no variable applies; later imports find both unchanged."""
    directory = tmp_path / ".config/dask"
    plain = shown(tmp_path)
    assert plain[0]["distributed"]["worker"]["lifetime"]["duration"] is None
    assert plain[1] is False
    directory.mkdir(parents=True)
    (directory / "mine.yaml").write_text(
        "distributed: {comm: {require-encryption: true, offload: much}, worker: {lifetime: {duration: 5s}}}\n"
        "logging: {distributed.scheduler: debug}\n"
    )
    assert shown(tmp_path, DASK_DISTRIBUTED__WORKER__PRELOAD="['nothing']", DASK_A="1") == [*plain[:-1], "1"]
    (directory / "yours.yaml").write_text("{")
    assert shown(tmp_path) == plain
