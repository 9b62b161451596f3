"""The page of a run that lasts: its live figures, a button that ends it, and its verdict."""
