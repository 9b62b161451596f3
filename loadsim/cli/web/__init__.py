"""The page of a run that lasts: its figures, its criteria so far, and a button that ends it."""
