"""MAPI over HTTP: a codec without I/O (`wire`, `rops`, `rop_buffer`, `bodies`, `http`), and the driver built on it."""
