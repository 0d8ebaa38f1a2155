import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    """Some commands turn the log off in their process, which here is that of the tests."""
    logger = logging.getLogger("vgpuscope")
    level = logger.level
    yield
    logger.setLevel(level)
