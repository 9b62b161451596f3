"""Findings: codes, values and places, one catalogue of sentences, and the next step."""
