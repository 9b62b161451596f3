"""Comparisons of two sets of runs, and several runs side by side."""
