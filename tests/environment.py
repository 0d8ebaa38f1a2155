"""The environment of a process that a test starts: nothing of the developer's, so that it is the same everywhere."""

import os

_MEASURING = "COVERAGE_PROCESS_CONFIG"  # `make coverage` measures processes that have it


def bare(**more: str) -> dict[str, str]:
    """PATH, and what is given; without the user's home, proxies, kubeconfig and settings."""
    kept = {name: os.environ[name] for name in ("PATH", _MEASURING) if name in os.environ}
    return kept | more


def uncovered() -> dict[str, str]:
    """This process's environment, but coverage does not measure the child: it would be slower, and load more."""
    return {name: value for name, value in os.environ.items() if name != _MEASURING}
