"""Suites: the same runs, repeated for each of several cells."""
