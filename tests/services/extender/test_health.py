"""What /healthz and /readyz conclude from the time since the last round of the lease loop."""

import json

import pytest

from tests.services.extender.test_bad_input import NOWHERE
from vgpuscope.config import ExtenderConfig
from vgpuscope.services.extender import process
from vgpuscope.services.extender.process import Extender

DURATION = 10.0


class Extended:
    """An extender whose API server does not answer, and its clock."""

    def __init__(self, tmp_path) -> None:
        file = tmp_path / "kubeconfig"
        file.write_text(json.dumps(NOWHERE))
        self.now = 1000.0
        config = ExtenderConfig(kubeconfig=str(file), lease_duration=DURATION)
        self.service = Extender(config, clock=lambda: self.now, wall=lambda: 1_700_000_000.0)
        self.leadership = self.service._leadership


@pytest.fixture
async def extender(tmp_path):
    made = Extended(tmp_path)
    yield made
    await made.service.close()


async def test_a_process_whose_lease_loop_is_stuck_is_unhealthy_and_well_again_after_a_round(extender):
    assert extender.service.health().ready  # it has not begun yet
    await extender.leadership.ask()
    extender.now += process._STUCK_AFTER * DURATION
    assert extender.service.health().ready
    extender.now += 0.1
    assert extender.service.health().missing == ("the lease loop is stuck",)
    await extender.leadership.ask()
    assert extender.service.health().ready


async def test_an_api_server_is_called_reachable_for_some_lease_durations_after_its_last_answer(extender):
    await extender.leadership.ask()
    assert "API server: no answer" in extender.service.readiness().missing
    extender.leadership.reached = extender.now
    extender.now += process._REACHED_WITHIN * DURATION - 0.1
    assert "API server: no answer" not in extender.service.readiness().missing
    extender.now += 0.1
    assert "API server: no answer" in extender.service.readiness().missing


async def test_all_parts_of_the_extender_have_its_clocks(extender):
    service = extender.service
    parts = (service._leadership, service._decider, service._binder, service._binder._locks, service._refused)
    assert {part._clock() for part in (*parts, service._poster, *service._cache.kinds)} == {1000.0}
    walls = (*parts, service._keeper, service._reports, service._idle)
    assert {part._wall() for part in walls} == {1_700_000_000.0}
