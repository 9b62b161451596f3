"""Resources that a server needs, from one measured run."""
