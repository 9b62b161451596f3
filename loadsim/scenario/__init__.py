"""A scenario as written by its user, and its plan: groups, profiles, limits, criteria, workload."""
