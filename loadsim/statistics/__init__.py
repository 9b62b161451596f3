"""Statistics of numbers, with no knowledge of logs: percentiles, intervals, trends, histograms and comparisons."""
