"""The environment of a process that coverage does not measure: it would be several times slower, and load more."""

import os


def uncovered() -> dict[str, str]:
    """This process's environment without the variables by which coverage starts in a child."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
