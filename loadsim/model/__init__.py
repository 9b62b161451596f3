"""What users do, as data and pure functions: no network, no clock, no shared randomness."""
