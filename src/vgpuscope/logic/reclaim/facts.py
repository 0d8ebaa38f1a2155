"""What several sources know of one workload, joined: each source fills its own part, and the strictest word counts."""

from collections.abc import Sequence

from vgpuscope.logic.reclaim.brakes import Known
from vgpuscope.logic.reclaim.tick import Facts
from vgpuscope.model.opinion import Stance
from vgpuscope.model.reclaim import PodFacts, Workload

_STRICTEST: tuple[Stance, ...] = ("veto", "waiting", "silent", "agrees", "off")
_NOTHING = PodFacts()


def joined(sources: Sequence[Facts]) -> Facts:
    """One source of facts from several; of two that know the pod, the first one counts."""
    if len(sources) == 1:
        return sources[0]

    def facts(workload: Workload) -> Known:
        found = [source(workload) for source in sources]
        return Known(
            pod=next((one.pod for one in found if one.pod != _NOTHING), _NOTHING),
            activity=any(one.activity for one in found),
            model=min((one.model for one in found), key=_STRICTEST.index, default="off"),
        )

    return facts
