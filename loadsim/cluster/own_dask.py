"""Dask with only loadsim's settings. The user's, in files and `DASK_*`, are for the user's own clusters.

All of loadsim must import Dask from here, since Dask reads settings on import.
"""

from __future__ import annotations

import logging
import os
import warnings

# Hide the user's settings from the import, which fails if it cannot read them.
_environment = dict(os.environ)
for _name in _environment:
    if _name.startswith("DASK_"):
        del os.environ[_name]
os.environ.update(HOME=os.devnull, DASK_ROOT_CONFIG=os.devnull)
try:
    import dask
finally:
    os.environ.clear()
    os.environ.update(_environment)

SETTINGS = {
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.admin.tick.interval": "1s",  # Dask's default is 50 times a second, too often on machines that measure
    "distributed.admin.system-monitor.interval": "10s",  # default: twice a second
    "distributed.client.scheduler-info-interval": "60s",  # default: everything about all clients, every two seconds
    # Dask serves web pages without TLS. `dashboard=False` removes only the pages of bokeh, where it is installed.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # A client that sends no heartbeat for this long is removed; one cut off for a few seconds is kept.
    "distributed.scheduler.worker-ttl": "15s",
}
"""Settings that turn off Dask's pages, and most of its periodic work."""

dask.config.refresh(paths=[], env={})  # also ignores the installation's files
dask.config.set(SETTINGS)

from distributed import Client, Scheduler, SchedulerPlugin, Worker, WorkerPlugin  # noqa: E402
from distributed.comm.addressing import get_address_host  # noqa: E402
from distributed.comm.core import Comm, connect  # noqa: E402
from distributed.core import Status, send_recv  # noqa: E402
from distributed.security import Security  # noqa: E402

__all__ = ["Client", "Comm", "Scheduler", "SchedulerPlugin", "Security", "Status", "Worker", "WorkerPlugin"]
__all__ += ["connect", "get_address_host", "send_recv"]

PAGES_ADDRESS = "127.0.0.1:0"
"""The `dashboard_address` of every scheduler and worker: even without pages, Dask opens a port, here on loopback."""

LOGGERS = ("distributed", "distributed.client", "tornado", "tornado.application")
"""The loggers whose level Dask sets; their children inherit it."""


def silence_dask() -> None:
    """Silence Dask's log messages in this process, because commands report events themselves.

    Dask would also warn that it cannot detect this machine's address on a network without a route out; loadsim sets it.
    """
    warnings.filterwarnings("ignore", message="Couldn't detect a suitable IP address", category=RuntimeWarning)
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
