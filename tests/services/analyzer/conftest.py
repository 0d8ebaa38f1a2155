"""What several tests of the analyzer need."""

import pytest

from tests.services.analyzer.controlling import control_service


@pytest.fixture
async def control():
    async with control_service() as service:
        yield service
