"""One change from an analysis to the next."""

from typing import Literal, TypeAlias

from msgspec import Struct

from vgpuscope.model.analysis import Tenant, UseClass, Verdict

ChangeKind: TypeAlias = Literal["appeared", "gone", "health", "verdict", "class", "tenant_verdict", "tenant_class"]


class ResultChange(Struct, frozen=True, kw_only=True):
    """One change of a GPU, MIG instance or tenant."""

    kind: ChangeKind
    gpu_id: str
    mig: str
    node: str
    tenant: Tenant | None = None  # the tenant itself, or the only tenant of the GPU
    before: str = ""
    verdict: Verdict = "unknown"
    use_class: UseClass = "unknown"
    score: float | None = None
    reason: str = ""
    health: str = ""

    @property
    def needs_attention(self) -> bool:
        """Whether a person should look: the GPU is not healthy, or seems to hang."""
        return (self.kind == "health" and self.health != "ok") or (
            self.kind in {"verdict", "class"} and self.use_class == "stalled"
        )
