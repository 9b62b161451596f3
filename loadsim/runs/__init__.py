"""Use cases: a run on this machine or on a cluster, as functions that take values and print nothing."""
