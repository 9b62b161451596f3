"""A web page with the live figures of a run, and its verdict."""
