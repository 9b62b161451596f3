"""Readings of the operating system: processes, processors and disks."""
