"""The load-generating machine during a run: how busy it is, and whether the server under test is on it."""
