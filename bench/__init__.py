"""What loadsim itself costs: benchmarks beside other clients, on a server that costs nothing and on a real one."""
