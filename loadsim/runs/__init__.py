"""Use cases: a run on this machine or on a cluster, as functions of values that print nothing."""
