"""This process and its place in the system: signals, limits, event loop, control groups."""
