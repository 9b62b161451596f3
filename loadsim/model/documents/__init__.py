"""Scenarios and profiles as documents: reading, checking and naming their keys."""
