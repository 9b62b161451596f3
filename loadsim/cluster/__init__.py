"""Several client machines that make one load. Their control port executes code, so mutual TLS protects it."""
