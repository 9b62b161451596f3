"""Documents in YAML and JSON: reading them, checking their keys against types, and writing them."""
