"""The machine that makes the load, while it does: how busy it is, and whether the server under test is on it."""
