"""Where the files lie that tests read."""

from pathlib import Path

TESTS = Path(__file__).parent
REPOSITORY = TESTS.parent
