"""The HTTP endpoints of a scheduler extender."""

from vgpuscope.model.service import EXTENDER_PORT
from vgpuscope.sources.clients.served_api import ServiceKind

EXTENDER = ServiceKind(
    name="extender",
    an="an extender",
    path="/api/v1/decisions",
    port=EXTENDER_PORT,
    gives="log of decisions",
    content="decisions",
    start="vgpuscope extender",
    ask="vgpuscope why NAMESPACE/POD --url",
)
FIT = EXTENDER._replace(path="/api/v1/fit", gives="allocation data", content="a fit", ask="vgpuscope fit -f FILE --url")
