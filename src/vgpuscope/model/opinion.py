"""The opinion of a language model on a tenant of a GPU: the evidence it is asked about, and what it answered.

An opinion can explain a verdict, or hold reclaim back. It never changes a score, a status or a verdict.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple, TypeAlias, get_args

from msgspec import UNSET, Meta, Struct, UnsetType

from vgpuscope.model.analysis import Signal, Status, Term, UseClass, Verdict
from vgpuscope.model.quantity import Bytes, DeviceUUID, PodUID, Ratio, Seconds, UnixTime, Watts
from vgpuscope.model.words import Language, Words

Provider: TypeAlias = Literal["openai", "azure", "anthropic", "compatible"]
PROVIDERS: tuple[Provider, ...] = get_args(Provider)
OpinionStatus: TypeAlias = Literal["active", "idle", "suspicious"]
OPINION_STATUSES: tuple[OpinionStatus, ...] = get_args(OpinionStatus)
Stance: TypeAlias = Literal[
    "off",  # no model is asked
    "agrees",  # it answered, and does not object
    "veto",
    "waiting",  # there is no opinion on the evidence at hand yet, and acting waits for it
    "silent",  # it did not answer, and the numbers decide
]
RequestOutcome: TypeAlias = Literal[
    "success",
    "invalid",  # no JSON, wrong JSON, values out of range, cut off
    "too_large",
    "timeout",
    "unreachable",
    "rate_limited",
    "rejected",  # 4xx: wrong key, unknown model
    "failed",  # 5xx
    "redirected",
]
REQUEST_OUTCOMES: tuple[RequestOutcome, ...] = get_args(RequestOutcome)
TokenKind: TypeAlias = Literal["input", "output"]
TOKEN_KINDS: tuple[TokenKind, ...] = get_args(TokenKind)


class Answer(Struct, frozen=True, kw_only=True):
    """What a model has to answer. Its JSON schema is sent with the question, and the answer is decoded by it.

    The schema asks for every text; a model that answers in one language only is accepted.
    """

    status: OpinionStatus
    confidence: Annotated[Ratio, Meta(ge=0, le=1)]
    reason: str | UnsetType = UNSET
    recommendation: str | UnsetType = UNSET
    reason_zh: str | UnsetType = UNSET
    recommendation_zh: str | UnsetType = UNSET
    ai_adjusted_score: Annotated[float, Meta(ge=0, le=100)]


class PartId(NamedTuple):
    """A tenant on a GPU or MIG instance; a GPU without a tenant has empty names."""

    gpu_id: DeviceUUID
    mig: str
    namespace: str
    pod: str
    container: str


class QuantitySummary(Struct, frozen=True, kw_only=True, gc=False):
    """One quantity over the window. `course`: the means of equal parts of the window, oldest first."""

    mean: float | None = None
    p95: float | None = None
    max: float | None = None
    course: tuple[float | None, ...] = ()


class WeightedTerm(NamedTuple):
    """One term of the score."""

    name: str
    weight: float
    value: Ratio | None
    points: float | None


class TenantEvidence(Struct, frozen=True, kw_only=True, gc=False):
    """All that a question says of one tenant. Names are untrusted text."""

    key: str  # of the pod's incarnation, its class and its rounded levels; without times
    part: PartId
    uid: PodUID = ""
    owner: str = ""
    model: str = ""
    profile: str = ""
    tenants: int = 0  # on the same GPU
    own: bool = False  # the levels are the tenant's own; else those of the whole GPU
    use_class: UseClass = "unknown"
    verdict: Verdict = "unknown"
    status: Status = "unknown"
    score: float | None = None
    score_terms: tuple[WeightedTerm, ...] = ()
    signal: Signal | None = None
    reasons: tuple[str, ...] = ()
    coverage: Ratio | None = None
    window: Seconds = 0.0
    idle_for: Seconds | None = None
    levels: dict[Term, QuantitySummary] = {}
    gpu_util: QuantitySummary | None = None  # of the whole shared GPU
    memory_total: Bytes | None = None
    power_limit: Watts | None = None
    xids: tuple[int, ...] = ()


class Opinion(Struct, frozen=True, kw_only=True, gc=False):
    """A model's answer on some evidence. It holds as long as the evidence has the same key.

    Its texts are in English and in Chinese; "": the model gave none in that language.
    """

    key: str
    status: OpinionStatus
    confidence: Ratio
    reason: str
    recommendation: str
    reason_zh: str = ""
    recommendation_zh: str = ""
    ai_adjusted_score: float
    at: UnixTime
    model: str

    def reason_in(self, language: Language) -> str:
        return Words(self.reason, self.reason_zh).text_in(language)

    def recommendation_in(self, language: Language) -> str:
        return Words(self.recommendation, self.recommendation_zh).text_in(language)

    def vetoes(self, threshold: Ratio) -> bool:
        """Whether it holds reclaim back: the model is sure that the GPU is used, or that a person should look."""
        return self.status != "idle" and self.confidence >= threshold


class NoOpinion(Struct, frozen=True, kw_only=True, gc=False):
    """Why there is no answer on some evidence, and when it is asked for again."""

    key: str
    code: str  # of an error
    at: UnixTime
    retry_at: UnixTime


class Prompt(Struct, frozen=True, kw_only=True):
    """What is sent to a model."""

    system: str
    user: str


class ModelReply(Struct, frozen=True, kw_only=True, gc=False):
    """What a model sent back: the text of its answer, and what it counted."""

    text: str
    model: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cut_off: bool = False  # it ended because of the limit on tokens


class OpinionsShown(Struct, frozen=True, kw_only=True):
    """What is shown beside the verdicts: by tenant an opinion, why there is none, or None while a question is open."""

    parts: Mapping[PartId, Opinion | NoOpinion | None] = {}
    threshold: Ratio = 1.0  # the confidence from which an opinion counts
    language: Language = "zh"  # of texts that have one language only, as gpu-oour's


NO_OPINIONS = OpinionsShown()
