"""Runs that belong together: order, pauses, commands and resuming."""
