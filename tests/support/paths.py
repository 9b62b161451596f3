"""Directories of the repository."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
SUPPORT = TESTS / "support"
GOLDEN_FILES = TESTS / "golden"
