"""The HTTP endpoints of an analyzer."""

from vgpuscope.model.service import ANALYZER_PORT
from vgpuscope.sources.clients.served_api import ServiceKind

ANALYZER = ServiceKind(
    name="analyzer",
    an="an analyzer",
    path="/results",
    port=ANALYZER_PORT,
    gives="result",
    content="results",
    start="vgpuscope analyzer",
    ask="vgpuscope results",
)
WASTE = ANALYZER._replace(
    path="/api/v1/waste", gives="figures of idle GPU-hours", content="idle GPU-hours", ask="vgpuscope waste"
)
RECLAIM = ANALYZER._replace(
    path="/api/v1/reclaim", gives="cases", content="cases of idle workloads", ask="vgpuscope reclaim --url"
)
BACKTEST = ANALYZER._replace(
    path="/api/v1/reclaim/backtest", gives="back-test", content="a back-test", ask="vgpuscope backtest --url"
)
