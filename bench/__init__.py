"""Costs of loadsim itself: benchmarks of it and of other clients, on a server that costs nothing and on a real one."""
