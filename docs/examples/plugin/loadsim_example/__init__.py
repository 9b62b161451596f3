"""Examples of loadsim's plug-ins: one of each kind."""
