"""One load-generating process: the engine that runs users, and the protocol that keeps engines in step."""
