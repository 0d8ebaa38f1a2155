"""Opinions of a language model, as they are shown beside verdicts."""

from collections.abc import Iterable

from vgpuscope.logic.console.moments import iso
from vgpuscope.model.console.opinion import OpinionRow
from vgpuscope.model.opinion import NoOpinion, Opinion, OpinionsShown, PartId
from vgpuscope.model.quantity import Ratio


def opinion_on(shown: OpinionsShown, part: PartId) -> OpinionRow | None:
    """The opinion on one tenant; None: the model is not asked about it."""
    return opinion_row(shown.parts[part], shown.threshold) if part in shown.parts else None


def opinion_row(found: Opinion | NoOpinion | None, threshold: Ratio) -> OpinionRow:
    """An opinion, why there is none, or a question that is open."""
    if found is None:
        return OpinionRow(state="pending")
    if isinstance(found, NoOpinion):
        return OpinionRow(state="failed", at=iso(found.at), error=found.code)
    return OpinionRow(
        state="answered",
        status=found.status,
        confidence=found.confidence,
        reason=found.reason or None,
        recommendation=found.recommendation or None,
        reason_zh=found.reason_zh or None,
        recommendation_zh=found.recommendation_zh or None,
        ai_adjusted_score=found.ai_adjusted_score,
        at=iso(found.at),
        model=found.model,
        applied=found.vetoes(threshold),
    )


def deciding(rows: Iterable[OpinionRow]) -> OpinionRow | None:
    """Of several opinions on one workload, the one that counts: a veto, then what is open or failed, then the rest."""
    return min(rows, key=lambda row: (not row.applied, _ORDER.index(row.state)), default=None)


_ORDER = ("pending", "failed", "answered")
