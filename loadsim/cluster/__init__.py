"""Several client machines as one: whoever reaches their control port runs code there, so it is held by mutual TLS."""
