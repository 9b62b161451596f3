"""The page of a run that lasts: its live figures and its verdict."""
