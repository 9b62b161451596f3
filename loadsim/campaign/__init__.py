"""Runs that belong together: their order, pauses, commands, and resumption."""
