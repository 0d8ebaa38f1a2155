"""The opinion of a language model, as it is shown beside a verdict."""

from typing import Literal

from msgspec import Struct

from vgpuscope.model.opinion import OpinionStatus
from vgpuscope.model.quantity import Ratio


class OpinionRow(Struct, frozen=True, kw_only=True, gc=False):
    """What a model says of a tenant. It changes no score, status or verdict; `applied`: it holds reclaim back."""

    state: Literal["answered", "pending", "failed"]
    status: OpinionStatus | None = None
    confidence: Ratio | None = None
    reason: str | None = None  # the model's own words in English; null: it gave none in this language
    recommendation: str | None = None
    reason_zh: str | None = None  # the same in Chinese
    recommendation_zh: str | None = None
    ai_adjusted_score: float | None = None
    at: str | None = None  # when it answered, or failed
    model: str | None = None
    applied: bool = False
    error: str | None = None  # the code of the error, if it failed
