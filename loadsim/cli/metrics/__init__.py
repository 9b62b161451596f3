"""The metrics of a run while it lasts, and until Prometheus has seen its verdict."""
