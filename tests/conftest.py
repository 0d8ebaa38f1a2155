"""How all tests run: properties are tried often enough to find things, and never timed."""

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.controlplane"]

settings.register_profile("usual", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", parent=settings.get_profile("usual"), max_examples=2000)  # `make fuzz`
settings.register_profile("ci", parent=settings.get_profile("usual"), max_examples=20, print_blob=True)
# `make attack`: Hypothesis counts examples and not seconds; it tries about 25 in a second
_ATTACK = float(os.environ.get("ATTACK_SECONDS") or 0)
settings.register_profile("attack", parent=settings.get_profile("usual"), max_examples=max(40, round(25 * _ATTACK)))
_USUAL = "attack" if _ATTACK else "ci" if os.environ.get("CI") == "true" else "usual"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or _USUAL)
