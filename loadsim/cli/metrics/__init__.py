"""The metrics of a run while it lasts."""
