"""Mail servers that loadsim can start for itself, on loopback, each in its own directory."""
