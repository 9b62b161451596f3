"""Statistics of samples: percentiles, intervals, trends and comparisons."""
