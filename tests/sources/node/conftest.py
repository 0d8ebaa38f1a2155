"""The real binding on a stand-in driver, at a time that the test sets. A module says by `node` which GPUs there are."""

from collections.abc import Iterator

import pytest

from tests.native import build
from tests.native.scenario import Scenario
from tests.sources.node.wall import WallClock
from vgpuscope.sources.node.nvml.driver import Nvml


@pytest.fixture(scope="session")
def lib():
    return build.preload(build.library_or_skip())


@pytest.fixture
def clock() -> WallClock:
    return WallClock()


@pytest.fixture
def nvml(node: Scenario, clock: WallClock) -> Iterator[Nvml]:
    source = Nvml(clock=clock, listen=0.1)
    yield source
    node.heal().write()
    source.close()
