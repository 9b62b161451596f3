"""The timing log: one engine's binary record, and operations on log files."""
