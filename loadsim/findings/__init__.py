"""Findings: codes, values and places, a catalogue of sentences, and the next step."""
