"""Everything computed from timing logs: aggregates, percentiles, scores, verdicts and comparisons."""
