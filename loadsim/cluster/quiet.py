"""What Dask would say on standard error, unsaid: commands tell in lines of their own what has happened."""

from __future__ import annotations

import logging
import warnings

LOGGERS = ("distributed", "distributed.client", "tornado", "tornado.application")
"""Those for which Dask sets a level, and with it what their children say."""


def silence_dask() -> None:
    """From now on, in this process. To be called when Dask is imported: that sets the levels.

    On a network that leads nowhere else, Dask warns that it cannot tell its own address; ours are told by name.
    """
    warnings.filterwarnings("ignore", message="Couldn't detect a suitable IP address", category=RuntimeWarning)
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
