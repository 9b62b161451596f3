"""Suites: the same runs on each of several cells."""
