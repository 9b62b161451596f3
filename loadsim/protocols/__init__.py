"""Drivers behind the ports: how mail reaches a server."""
