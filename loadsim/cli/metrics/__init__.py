"""Live metrics of a run."""
