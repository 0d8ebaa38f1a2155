"""The dashboards, from the overview to the detail."""

from tools.dashboards.boards import health, nodes, overview, scheduling, sharing, utilisation, workloads
from tools.dashboards.spec import Board

BOARDS: tuple[Board, ...] = (
    overview.BOARD,
    nodes.BOARD,
    workloads.BOARD,
    sharing.BOARD,
    scheduling.BOARD,
    utilisation.BOARD,
    health.BOARD,
)
