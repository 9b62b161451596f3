"""Dask with loadsim's settings only: those of the user, in files and in `DASK_*`, apply to their own clusters.

All of loadsim takes Dask from here, as Dask reads settings when it is imported, too.
"""

from __future__ import annotations

import logging
import os
import warnings

# Settings of Dask are hidden from its import, which fails if it cannot read them.
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
    "distributed.admin.tick.interval": "1s",  # Dask's default is 50 times a second, on machines that measure
    "distributed.admin.system-monitor.interval": "10s",  # default: twice a second
    "distributed.client.scheduler-info-interval": "60s",  # default: all about all clients, every two seconds
    # Dask opens its port for web pages without TLS. `dashboard=False` removes those of bokeh, where it is installed.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # A client without a heartbeat for so long is removed. One that was cut off for some seconds keeps its place.
    "distributed.scheduler.worker-ttl": "15s",
}
"""Settings that turn off Dask's periodic work as far as possible, and its pages."""

dask.config.refresh(paths=[], env={})  # without the files of the installation, too
dask.config.set(SETTINGS)

from distributed import Client as Client  # noqa: E402
from distributed import Scheduler as Scheduler  # noqa: E402
from distributed import SchedulerPlugin as SchedulerPlugin  # noqa: E402
from distributed import Worker as Worker  # noqa: E402
from distributed import WorkerPlugin as WorkerPlugin  # noqa: E402
from distributed.comm.addressing import get_address_host as get_address_host  # noqa: E402
from distributed.comm.core import Comm as Comm  # noqa: E402
from distributed.comm.core import connect as connect  # noqa: E402
from distributed.core import Status as Status  # noqa: E402
from distributed.core import send_recv as send_recv  # noqa: E402
from distributed.security import Security as Security  # noqa: E402

PAGES_ADDRESS = "127.0.0.1:0"
"""The `dashboard_address` of every scheduler and worker: Dask's port without pages is on loopback."""

LOGGERS = ("distributed", "distributed.client", "tornado", "tornado.application")
"""The loggers for which Dask sets a level; their children inherit it."""


def silence_dask() -> None:
    """Silence Dask's log messages in this process, as commands report events in lines of their own.

    Dask also warns if it cannot detect the address of this machine, on a network without a route to others; loadsim
    gives it the address.
    """
    warnings.filterwarnings("ignore", message="Couldn't detect a suitable IP address", category=RuntimeWarning)
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
