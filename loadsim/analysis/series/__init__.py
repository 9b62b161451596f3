"""Figures over the time of a run."""
