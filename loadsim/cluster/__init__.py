"""Several client machines that share one load. Their control port executes code, so mutual TLS protects it."""
