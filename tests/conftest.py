"""How all tests run: properties are tried often enough to find things, and never timed."""

import gc
import os
import ssl
from functools import lru_cache

import httpcore2
import pytest
from hypothesis import HealthCheck, settings

from tests.paths import REPOSITORY

pytest_plugins = ["tests.controlplane"]

settings.register_profile("usual", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", parent=settings.get_profile("usual"), max_examples=2000)  # `make fuzz`
settings.register_profile("ci", parent=settings.get_profile("usual"), max_examples=20, print_blob=True)
# `make attack`: Hypothesis counts examples and not seconds; it tries about 25 in a second
_ATTACK = float(os.environ.get("ATTACK_SECONDS") or 0)
settings.register_profile("attack", parent=settings.get_profile("usual"), max_examples=max(40, round(25 * _ATTACK)))
_USUAL = "attack" if _ATTACK else "ci" if os.environ.get("CI") == "true" else "usual"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or _USUAL)


_usual_context = httpcore2.default_ssl_context


@lru_cache
def _read_once(trust_env: bool, *_paths: str | None) -> ssl.SSLContext:
    return _usual_context(_trust_env=trust_env)


def _kept_context(*, _trust_env: bool = True) -> ssl.SSLContext:
    """Every client reads the certificate authorities of the machine. That takes 20 ms, and tests make many clients."""
    return _read_once(_trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


httpcore2.default_ssl_context = _kept_context


# They start a whole demo or fleet, or build what is released: minutes of CPU, and `make test` runs them.
WHOLE = frozenset(
    {
        "tests/audit/test_breaks.py",
        "tests/audit/test_worlds.py",
        "tests/release/test_image.py",
        "tests/release/test_release.py",
        "tests/repo/test_extending.py",
        "tests/repo/test_site.py",
        "tests/sim/test_console_demo.py",
        "tests/sim/test_doc_outputs.py",
        "tests/sim/test_sim_demo.py",
        "tests/sim/test_usual_demo.py",
    }
)


@pytest.hookimpl(tryfirst=True)  # before -m deselects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test-fast` leaves them out."""
    for item in items:
        if item.path.relative_to(REPOSITORY).as_posix() in WHOLE:
            item.add_marker(pytest.mark.whole)


def pytest_collection_finish() -> None:
    """All tests together are millions of objects, which stay: no collection of garbage has to look at them."""
    gc.collect()
    gc.freeze()
