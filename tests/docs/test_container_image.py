"""The Containerfile: podman builds it without root, and the image runs the quickstart as its page says."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from fresh_debian import STABLE, base_system
from paths import ROOT

from loadsim.version import __version__

SCRIPT = Path(__file__).with_name("container_image.sh")
LONGEST_S = 1800
"""Of the whole: packages are downloaded twice, and the quickstart runs for a minute."""


@pytest.mark.nightly(part="tutorials")
def test_the_image_runs_the_quickstart_without_root() -> None:
    """A run on the embedded server, in a container that may only write to `/tmp` and to the user's own directory."""
    base = base_system(STABLE)
    assert shutil.which("podman") is not None, "expected podman: make nightly-tutorials installs it"
    with tempfile.TemporaryDirectory() as place:  # pytest's own directories are closed to other users
        Path(place).chmod(0o755)
        namespaces = ["unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"]
        done = subprocess.run(
            ["setpriv", "--pdeathsig=KILL", "--", *namespaces, "sh", SCRIPT, place, ROOT, base],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=LONGEST_S,
            check=True,
            env=os.environ | {"LC_ALL": "C"},
        )
    version, who, *ended, score, report = done.stdout.splitlines()
    assert version == f"loadsim {__version__}"
    assert who.startswith("uid=1000(loadsim) gid=1000(loadsim)")
    # 1 and 3: criteria missed or invalid, on a busy machine.
    assert ended in ([], ["ended with 1"], ["ended with 3"])
    for line, name in ((score, "score.json"), (report, "report.html")):
        owner, path = line.split()
        assert owner == "23456"
        assert path.endswith(name)
