"""What the console asks of an extender, and whose fault a refusal is."""

import pytest

from tests.sources.clients.test_agent import agent, http
from vgpuscope.model.errors import QueryForbidden
from vgpuscope.sources.console.extender import ExtenderPart


@pytest.mark.parametrize("token", [None, "of-another-service"])
async def test_a_token_that_the_extender_rejects_is_a_matter_of_our_setting_and_not_of_our_caller(token):
    """A 401 of ours would log the console's user out."""
    refusal = http(b"{}", status="401 Unauthorized", headers="x-vgpuscope-service: extender\r\n")
    async with agent(refusal) as (url, _), ExtenderPart(url, token=token) as part:
        with pytest.raises(QueryForbidden) as caught:
            await part.of_pod("ml", "train-0")
    assert caught.value.status == 503
    assert "analyzer.scrape_token" in caught.value.advice
    assert "VGPUSCOPE_TOKEN" not in str(caught.value)
