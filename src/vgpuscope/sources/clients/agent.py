"""An HTTP client that fetches an agent's latest sample."""

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

from vgpuscope.model.quantity import UnixTime
from vgpuscope.model.service import AGENT_PORT
from vgpuscope.model.usage import NodeSnapshot
from vgpuscope.sources.clients import served_api
from vgpuscope.sources.clients.served_api import UNNAMED, ServedApi, ServiceKind, TokenSource

AGENT = ServiceKind(
    name="agent",
    an="an agent",
    path="/api/v1/node",
    port=AGENT_PORT,
    gives="sample",
    content="the sample of a node",
    start="vgpuscope agent",
    ask="vgpuscope top",
)
_CLOCK_NOISE = 2.0  # seconds; the Date header has whole seconds, and the response needs time to arrive


class AgentApi(ServedApi[NodeSnapshot]):
    """A client of one agent."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 3.0,
        token: str | None = None,
        wall: Callable[[], UnixTime] = time.time,
        source: TokenSource = UNNAMED,
    ) -> None:
        super().__init__(AGENT, url, content=NodeSnapshot, timeout=timeout, token=token, source=source)
        self._wall = wall
        self.clock_offset = 0.0  # seconds that the agent's clock is ahead of ours; 0 if within the noise

    async def snapshot(self) -> NodeSnapshot:
        """The agent's latest sample; raises SourceDown if it cannot be fetched."""
        sample, headers = await self.fetch()
        self.clock_offset = clock_offset(headers.get("date"), self._wall())
        return sample


def addresses(url: str) -> tuple[str, str]:
    """The URL to display (without a password) and the URL of the API, from any form that users type."""
    name, base = served_api.addresses(AGENT, url)
    return name, base + AGENT.path


def clock_offset(date: str | None, now: float) -> float:
    """Seconds that a clock is ahead of ours, from the Date header of its answer; 0 if within the noise."""
    try:
        offset = parsedate_to_datetime(date or "").timestamp() - now
    except ValueError:
        return 0.0
    return offset if abs(offset) > _CLOCK_NOISE else 0.0
