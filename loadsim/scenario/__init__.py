"""A scenario as its user writes it, and its plan: groups, profiles, limits, criteria, workload."""
