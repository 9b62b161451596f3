"""Example plug-ins for loadsim, one of each kind."""
