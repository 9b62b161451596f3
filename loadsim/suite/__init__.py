"""Suites: the same runs for each of several cells."""
