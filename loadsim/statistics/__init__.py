"""Statistics of numbers, without logs: percentiles, intervals, trends, histograms and comparisons."""
