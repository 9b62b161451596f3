"""Figures of probes: statistics, resources, and what was not measured."""
