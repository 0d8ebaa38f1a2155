"""Errors of others → the reason why a fact is missing."""

from vgpuscope.model.doctor import FactName, Missing, Reason
from vgpuscope.model.errors import (
    AnswerUnreadable,
    ConfigInvalid,
    KubeForbidden,
    QueryForbidden,
    ScopeError,
)


def missing(fact: FactName, error: ScopeError | TimeoutError, *, place: str, given: bool = True) -> Missing:
    """Why a fact could not be had. `given`: the address was named, so that silence is a fault."""
    if isinstance(error, TimeoutError):
        return Missing(fact=fact, reason="no-answer", code="QUERY_TIMEOUT", detail="no answer in time", place=place)
    reason = _reason(error)
    if reason == "no-answer" and not given:
        reason = "not-given"
    return Missing(fact=fact, reason=reason, code=error.code, detail=str(error), place=place)


def _reason(error: ScopeError) -> Reason:
    if isinstance(error, QueryForbidden | KubeForbidden):
        return "refused"
    if isinstance(error, AnswerUnreadable):
        return "wrong-service"
    return "unreadable" if isinstance(error, ConfigInvalid) else "no-answer"
