"""Mail servers that loadsim can start for itself, on loopback, each in a directory of its own."""
