"""Private mail servers besides Dovecot with Postfix: started by nightly tests, and by `tests/lab.py`."""

import os
from pathlib import Path

UNPACKED = Path(os.environ.get("LOADSIM_SERVERS", "/var/cache/loadsim/servers"))
"""The default directory of tests/install-other-servers.sh."""
